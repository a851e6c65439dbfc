"""For how long a cluster's Prometheus saw the GPUs of jobs, whatever their number."""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from django.db import connection


def seen_seconds(jobs: Collection[tuple[str, UUID]], start: datetime, until: datetime) -> dict[tuple[str, UUID], int]:
    """By tenant path and job: of each whole hour in [start, until), the longest time for which any of its pods was seen."""
    with connection.cursor() as cursor:
        cursor.execute(SEEN, {"jobs": list({job for _, job in jobs}), "start": start, "until": until})
        found = {(path, job): int(seconds) for path, job, seconds in cursor.fetchall()}
    return {key: found[key] for key in jobs if key in found}


SEEN = """
SELECT hourly.tenant_path, hourly.workload_id, floor(sum(hourly.seconds)) FROM (
    SELECT m.tenant_path, m.workload_id, u.hour, max(greatest(least(u.coverage_seconds,
           extract(epoch FROM least(m.metered_until, u.hour + interval '1 hour') - greatest(m.metered_from, u.hour))), 0)) AS seconds
      FROM billing_meter AS m JOIN billing_utilisationhour AS u ON u.meter_id = m.id
     WHERE m.workload_id = ANY(%(jobs)s) AND u.hour >= %(start)s AND u.hour < %(until)s
     GROUP BY m.tenant_path, m.workload_id, u.hour
) AS hourly GROUP BY hourly.tenant_path, hourly.workload_id
"""
"""A meter that was shortened since it was measured counts no more than its time."""
