"""Stores with which images runs succeeded, in the transaction in which they end.

A success shows that the nodes pulled every image of the job with the rights of its organisation.
"""

from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from clusters.engine.images import normal_name
from federation.models import Attempt, Job

KEPT_FOR = timedelta(days=30)
"""How long an image counts after its last success."""
FRESH = timedelta(hours=1)
"""How old the stored time of a success may be: jobs that end together do not wait for the same row."""
MOST_REMOVED = 100

# A row that is fresh is not locked.
REMEMBER = """
INSERT INTO federation_provenimage AS known (organisation_id, name, last_at)
SELECT DISTINCT organisation.id, ran.name, now()
  FROM unnest(%(tenants)s::uuid[], %(names)s::text[]) AS ran(tenant_id, name)
  JOIN tenancy_tenant AS tenant ON tenant.id = ran.tenant_id
  JOIN tenancy_tenant AS organisation ON organisation.path = split_part(tenant.path, '/', 1)
 WHERE NOT EXISTS (SELECT FROM federation_provenimage AS fresh
                    WHERE fresh.organisation_id = organisation.id AND fresh.name = ran.name
                      AND fresh.last_at > now() - %(fresh)s::interval)
 ORDER BY organisation.id, ran.name
ON CONFLICT (organisation_id, name) DO UPDATE SET last_at = now()
RETURNING organisation_id
"""
FORGET = """
DELETE FROM federation_provenimage WHERE id IN (
    SELECT id FROM federation_provenimage
     WHERE organisation_id = ANY(%(organisations)s) AND last_at < now() - %(kept)s::interval
     ORDER BY last_at, id LIMIT %(most)s)
"""


def remember_images(ended: Iterable[tuple[Job, Attempt]]) -> None:
    """Adds the images of attempts that just succeeded, and removes some that have not succeeded for long."""
    ran: set[tuple[UUID, str]] = {
        (job.tenant_id, normal_name(pod_set["image"])) for job, _ in ended for pod_set in job.spec["pod_sets"]
    }
    remember_proven(ran)


def remember_proven(ran: Collection[tuple[UUID, str]]) -> None:
    """Adds images that nodes pulled with the rights of these tenants, by their normal names."""
    if not ran:
        return
    tenants, names = (list(column) for column in zip(*sorted(ran), strict=True))
    asked: dict[str, Any] = {"tenants": tenants, "names": names, "fresh": FRESH}
    with connection.cursor() as cursor:
        cursor.execute(REMEMBER, asked)
        organisations = sorted({row[0] for row in cursor.fetchall()})
        if organisations:
            asked = {"organisations": organisations, "kept": KEPT_FOR, "most": MOST_REMOVED}
            cursor.execute(FORGET, asked)
