"""The audit trail: one entry for each change, in the change's own transaction."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import connection

from foundation.clock import now
from foundation.requests import current_request_id, current_source
from tenancy.queries import Actor

_ADD = """
    INSERT INTO tenancy_auditentry
        (at, actor_id, actor_name, token_id, action, outcome, object_kind, object_id, tenant_id, detail, request_id,
         source)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


def record_audit(  # noqa: PLR0913 - each names one column of the trail
    actor: Actor,
    action: str,
    *,
    object_kind: str,
    object_id: str | UUID = "",
    tenant_id: UUID | None = None,
    detail: Mapping[str, Any] | None = None,
    outcome: str = "done",
) -> None:
    """Adds an entry to the trail; call it inside the transaction of the change that it records.

    `action` has the form `noun.verb` (`tenant.create`); `outcome` is `done` or `refused`. `detail` is plain JSON
    without secrets. Request id and client address are those of the current request.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            _ADD,
            [
                now(),
                actor.user_id,
                actor.name,
                actor.token_id,
                action,
                outcome,
                object_kind,
                str(object_id),
                tenant_id,
                json.dumps(dict(detail or {})),
                current_request_id.get(),
                current_source.get(),
            ],
        )
