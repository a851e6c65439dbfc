"""Stores how long runs took, and how far their estimates were kept, in the transaction in which they end.

Only successful runs count as run times: the time of a failure says nothing about the run time. It shows that an
estimate was too short if it is longer.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import reduce
from uuid import UUID

from django.db import connection
from django.db.models import Max

from federation.models import Attempt, Job, PodRun
from foundation import clock
from placement.ranking.kept_estimates import Kept, added, counted, left_after
from placement.ranking.runtimes import LONGEST_SECONDS, MOST_KEPT, Groups, groups_of

REMEMBER = """
INSERT INTO federation_rungroup AS known (key, tenant_id, level, recent_seconds, runs, last_at)
SELECT key, tenant_id, level, (array_agg(seconds ORDER BY position DESC))[1:%(most)s], count(*), now()
  FROM unnest(%(keys)s::text[], %(tenants)s::uuid[], %(levels)s::text[], %(seconds)s::int[])
       WITH ORDINALITY AS run(key, tenant_id, level, seconds, position)
 GROUP BY key, tenant_id, level ORDER BY key
ON CONFLICT (key) DO UPDATE
   SET recent_seconds = (excluded.recent_seconds || known.recent_seconds)[1:%(most)s],
       runs = known.runs + excluded.runs,
       last_at = now()
"""
# What was known before fades by the time of the further runs, as `kept_estimates.added` defines it.
REMEMBER_ESTIMATES = """
INSERT INTO federation_estimaterecord AS known (tenant_id, user_id, stated_seconds, taken_seconds, last_at)
VALUES (%s, %s, %s, %s, now())
ON CONFLICT (tenant_id, user_id) DO UPDATE
   SET stated_seconds = greatest(60, excluded.stated_seconds + known.stated_seconds * %s),
       taken_seconds = greatest(60, excluded.taken_seconds + known.taken_seconds * %s),
       last_at = now()
"""


def remember_runs(ended: Iterable[tuple[Job, Attempt]]) -> None:
    """Adds the runs of attempts that just succeeded to the history of their kinds; runs without an observed start do
    not count.

    If a job gives its throughput on GPU models, the history stores its run time on the slowest of them.
    """
    seen = [(job, attempt) for job, attempt in ended if attempt.started_at is not None]
    if not seen:
        return
    ends = _pods_ends([attempt.id for _, attempt in seen])
    rows: list[tuple[str, UUID, str, int]] = []
    for job, attempt in seen:
        seconds = _seconds(attempt, ends.get(attempt.id))
        groups = groups_of(job.tenant_id, job.spec)
        rows += [(key, job.tenant_id, level, seconds) for level, key in zip(Groups._fields, groups, strict=True)]
    _write(rows)


def _pods_ends(attempt_ids: Sequence[UUID]) -> dict[UUID, datetime]:
    """When the last pod of each attempt ended; the report may arrive later."""
    rows = PodRun.objects.filter(attempt_id__in=attempt_ids, finished_at__isnull=False).values("attempt_id")
    return dict(rows.annotate(end=Max("finished_at")).values_list("attempt_id", "end"))


def _seconds(attempt: Attempt, end: datetime | None) -> int:
    assert attempt.started_at is not None
    seconds = ((end or clock.database_now()) - attempt.started_at).total_seconds()
    return round(min(max(0.0, seconds / attempt.pace), LONGEST_SECONDS))


def _write(rows: Sequence[tuple[str, UUID, str, int]]) -> None:
    keys, tenants, levels, seconds = (list(column) for column in zip(*rows, strict=True))
    with connection.cursor() as cursor:
        cursor.execute(
            REMEMBER, {"keys": keys, "tenants": tenants, "levels": levels, "seconds": seconds, "most": MOST_KEPT}
        )


def remember_estimates(ended: Iterable[tuple[Job, Attempt, bool]]) -> None:
    """Adds runs with estimates to the records of their users; the last value is whether the run succeeded."""
    seen = [
        (job, attempt, is_success)
        for job, attempt, is_success in ended
        if attempt.started_at is not None and job.spec.get("estimated_seconds")
    ]
    if not seen:
        return
    ends = _pods_ends([attempt.id for _, attempt, _ in seen])
    runs: dict[tuple[UUID, UUID], list[Kept]] = defaultdict(list)
    for job, attempt, is_success in seen:
        seconds = _seconds(attempt, ends.get(attempt.id))
        run = counted(job.spec["estimated_seconds"], seconds, is_success=is_success)
        if run is not None:
            runs[job.tenant_id, job.created_by_id].append(run)
    with connection.cursor() as cursor:
        for (tenant_id, user_id), own in sorted(runs.items()):
            new = reduce(added, own[1:], own[0])
            left = left_after(sum(run.seconds for run in own))
            cursor.execute(REMEMBER_ESTIMATES, (tenant_id, user_id, new.seconds, new.weighed, left, left))
