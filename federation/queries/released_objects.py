"""Objects on a cluster that may run."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db import connection

from federation.models import IS_LIVE

RELEASED = f"""
SELECT attempt.id, attempt.namespace, object.name, object.uid, attempt.released_at
  FROM federation_attempt AS attempt
  JOIN federation_remoteobject AS object ON object.attempt_id = attempt.id
 WHERE attempt.cluster_id = %s AND attempt.state {IS_LIVE} AND attempt.released_at < %s
   AND attempt.stop_requested_at IS NULL AND object.outcome = '' AND object.uid <> ''
"""


class ReleasedObject(NamedTuple):
    """An object that may run, of a live attempt that is not being stopped."""

    attempt_id: UUID
    namespace: str
    name: str
    uid: str
    released_at: datetime


def released_objects(cluster_id: UUID, before: datetime) -> list[ReleasedObject]:
    """Those that were released before a time. Of attempts that are being stopped, dispatch asks for what is left."""
    with connection.cursor() as cursor:
        cursor.execute(RELEASED, [cluster_id, before])
        return [ReleasedObject._make(row) for row in cursor.fetchall()]
