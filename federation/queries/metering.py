"""Observed runs in the form that billing needs, and the ended attempts that wait for settlement."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import QuerySet

from billing.engine.runs import ObservedRun, TrueEnd
from billing.queries.progress import Whose
from federation.engine.sightings import LATE_NEWS
from federation.engine.unseen import WHY
from federation.models import IS_LIVE, PodRun, RemoteObject

PATIENCE = timedelta(minutes=10)
"""How long an ended attempt waits for a cluster that does not report its pods. A database trigger has the same
value."""


@dataclass(frozen=True, slots=True)
class Unsettled:
    """An ended attempt whose usage is not posted yet.

    `is_known`: it cannot have run, or each of its pods was seen to have ended and there are no others. `is_overdue`:
    this is not so, and its cluster has not reported them for too long; unknown usage is then estimated.
    """

    attempt_id: UUID
    cluster_id: UUID
    is_known: bool
    is_overdue: bool
    is_silent: bool


WEIGH = """
SELECT attempt.id, attempt.cluster_id, known.is_known,
       NOT known.is_known
           AND greatest(attempt.finished_at, attempt.pods_told_at, attempt.reopened_at) < now() - %(patience)s,
       cluster.silent_since IS NOT NULL
  FROM federation_attempt AS attempt
  JOIN clusters_cluster AS cluster ON cluster.id = attempt.cluster_id
 CROSS JOIN LATERAL (
       SELECT coalesce(sum(coalesce(object.completions, object.pods)), 0) AS due, count(*) FILTER (WHERE object.uid <> '') AS made
         FROM federation_remoteobject AS object WHERE object.attempt_id = attempt.id) AS asked
 CROSS JOIN LATERAL (
       SELECT count(*) FILTER (WHERE pod.finished_at IS NOT NULL OR pod.is_gone) AS over,
              count(*) FILTER (WHERE pod.finished_at IS NULL AND NOT pod.is_gone AND pod.started_at IS NOT NULL) AS running,
              count(*) FILTER (WHERE pod.finished_at IS NULL AND NOT pod.is_gone AND pod.started_at IS NULL) AS waiting
         FROM federation_podrun AS pod WHERE pod.attempt_id = attempt.id) AS pods
 CROSS JOIN LATERAL (
       SELECT attempt.starting_at IS NULL AND pods.running = 0
           OR asked.made = 0 AND pods.running = 0
           OR pods.running = 0 AND (attempt.pods_told_at IS NOT NULL OR pods.over >= asked.due)
              AND (pods.waiting = 0 OR attempt.finished_at < now() - %(patience)s) AS is_known) AS known
 WHERE attempt.settled_at IS NULL AND attempt.finished_at IS NOT NULL
"""
"""How long settlement waits for pods that never started; if one starts later, the attempt is reopened."""
WEIGH_DUE = f"""
{WEIGH}
   AND (attempt.settle_at IS NULL OR attempt.settle_at <= now() OR known.is_known AND attempt.settle_error = '')
   AND (known.is_known OR cluster.silent_since IS NULL OR attempt.finished_at < now() - %(patience)s)
 ORDER BY known.is_known DESC, attempt.settle_at NULLS FIRST, attempt.finished_at, attempt.id LIMIT %(limit)s
"""
"""A silent cluster is not asked: attempts that wait for it do not delay others before their patience has ended."""
WEIGH_THESE = f"{WEIGH} AND attempt.id = ANY(%(ids)s) ORDER BY attempt.id"


def unsettled_attempts(limit: int) -> list[Unsettled]:
    """Ended attempts that wait for settlement: first those whose pods are known, then those not asked about for
    longest.
    """
    return _weighed(WEIGH_DUE, limit=limit)


def weighed_again(attempt_ids: Collection[UUID]) -> list[Unsettled]:
    """The current state of the same attempts, in the order of their ids."""
    return _weighed(WEIGH_THESE, ids=list(attempt_ids))


def _weighed(statement: str, **given: Any) -> list[Unsettled]:
    with connection.cursor() as cursor:
        cursor.execute(statement, given | {"patience": PATIENCE})
        return [Unsettled(*row) for row in cursor.fetchall()]


def runs_of(attempt_ids: Iterable[UUID]) -> list[ObservedRun]:
    """The final runs of ended attempts: each pod that started, until it ended or was last seen (then estimated)."""
    pods = PodRun.objects.filter(attempt_id__in=list(attempt_ids), started_at__isnull=False)
    return _runs(pods, until=None)


RUNNING = """
WITH open AS (
    SELECT id, cluster_id FROM federation_attempt WHERE state = 'running'
     UNION ALL
    SELECT id, cluster_id FROM federation_attempt WHERE settled_at IS NULL AND finished_at IS NOT NULL
)
SELECT pod.id
  FROM open AS attempt
  JOIN clusters_cluster AS cluster ON cluster.id = attempt.cluster_id AND cluster.silent_since IS NULL
  JOIN federation_podrun AS pod ON pod.attempt_id = attempt.id AND pod.started_at < %s AND pod.finished_at IS NULL
   AND NOT pod.is_gone
 ORDER BY pod.id
"""


def running_pods(until: datetime) -> list[int]:
    """Ids of running pods on clusters that answer, including pods of ended attempts, because they
    still use capacity.
    """
    with connection.cursor() as cursor:
        cursor.execute(RUNNING, [until])
        return [row[0] for row in cursor.fetchall()]


def runs_so_far(pod_ids: Collection[int], until: datetime) -> list[ObservedRun]:
    """The runs of these pods up to `until`; for pods of ended attempts, up to their last sighting."""
    return _runs(PodRun.objects.filter(id__in=pod_ids, finished_at=None, is_gone=False), until=until)


def _runs(pods: QuerySet[PodRun], until: datetime | None) -> list[ObservedRun]:
    rows = pods.select_related("attempt__job__created_by", "attempt__job__tenant").order_by("attempt_id", "id")
    objects = {
        (o.attempt_id, o.position): o for o in RemoteObject.objects.filter(attempt__in={pod.attempt_id for pod in rows})
    }
    return [_run(pod, objects[pod.attempt_id, pod.position], until) for pod in rows]


def _until(pod: PodRun, remote: RemoteObject, begun: datetime, until: datetime | None) -> datetime:
    if until is None:
        return max(begun, pod.finished_at or _gone_by(pod, remote))
    return max(begun, until if pod.attempt.finished_at is None else min(until, pod.observed_at))


def _gone_by(pod: PodRun, remote: RemoteObject) -> datetime:
    """The latest possible end of a pod with an unknown end: its Job's end, unless the pod was seen later."""
    if pod.last_seen_at is None or remote.over_at is None or pod.last_seen_at > remote.over_at:
        return pod.observed_at
    return min(pod.observed_at, remote.over_at)


def true_ends(pods: Iterable[PodRun]) -> list[TrueEnd]:
    """The reported ends of these pods, for each meter that counts or counted them."""
    return [
        TrueEnd((pod.cluster_id, meter_uid), pod.finished_at, pod.is_estimated)
        for pod in pods
        if pod.finished_at is not None and has_true_end(pod)
        for meter_uid in pod.meter_uids
    ]


def has_true_end(pod: PodRun) -> bool:
    """Whether a cluster reported when the pod ended. An end that we assumed, or bounded because it was reported to be before the
    pod's start, is an estimate.
    """
    if pod.started_at is None or pod.finished_at is None or pod.reason == WHY:
        return False
    return pod.finished_at > pod.started_at or not pod.is_estimated


def _certain_until(pod: PodRun, until_at: datetime) -> datetime | None:
    """Until when the pod certainly ran: its reported end, or shortly before it was last seen to run."""
    if has_true_end(pod):
        return until_at
    seen_at = pod.last_seen_at if pod.is_gone else pod.observed_at
    return None if seen_at is None or pod.phase != "Running" or pod.reason == WHY else seen_at - LATE_NEWS


def _run(pod: PodRun, remote: RemoteObject, until: datetime | None) -> ObservedRun:
    job = pod.attempt.job
    begun = pod.resumed_at or pod.started_at
    assert begun is not None
    promised = remote.promised or {}
    until_at = _until(pod, remote, begun, until)
    return ObservedRun(
        cluster_id=pod.attempt.cluster_id,
        source_uid=pod.meter_uid,
        tenant_id=job.tenant_id,
        user_id=job.created_by_id,
        workload_id=job.id,
        run_id=pod.attempt_id,
        flavor=remote.flavor,
        capacity_type=remote.capacity_type,
        gpu_units=remote.gpu_units,
        cpu_millicores=remote.cpu_millicores,
        started_at=begun,
        until_at=until_at,
        is_final=until is None,
        is_estimated=pod.is_estimated or (until is None and pod.finished_at is None),
        workload_name=job.name,
        user_name=job.created_by.email,
        memory_mib=remote.memory_mib,
        gpu_model=promised.get("gpu_model", ""),
        sharing=promised.get("sharing", ""),
        node=pod.node,
        certain_until=_certain_until(pod, until_at),
    )


UNSETTLED = """
WITH unsettled AS (
    SELECT id, job_id, cluster_id, state, finished_at FROM federation_attempt WHERE state {is_live} {of_jobs}
     UNION ALL
    SELECT id, job_id, cluster_id, state, finished_at FROM federation_attempt
     WHERE settled_at IS NULL AND finished_at IS NOT NULL {of_jobs}
)
SELECT attempt.cluster_id, CASE pod.part WHEN 0 THEN pod.uid ELSE pod.uid || '~' || pod.part END,
       job.tenant_id, job.created_by_id, job.id, attempt.id, object.flavor,
       object.capacity_type, object.gpu_units, object.cpu_millicores, begun.at,
       CASE WHEN pod.finished_at IS NOT NULL THEN greatest(begun.at, pod.finished_at)
            WHEN pod.is_gone OR attempt.finished_at IS NOT NULL OR attempt.state = 'unknown'
                 OR cluster.silent_since IS NOT NULL THEN greatest(begun.at, pod.observed_at)
            ELSE greatest(begun.at, %(at)s) END,
       false, pod.is_estimated, job.name, submitter.email, object.memory_mib,
       coalesce(object.promised ->> 'gpu_model', ''), coalesce(object.promised ->> 'sharing', '')
  FROM unsettled AS attempt
  JOIN federation_podrun AS pod ON pod.attempt_id = attempt.id AND pod.started_at IS NOT NULL
  JOIN federation_remoteobject AS object ON object.attempt_id = attempt.id AND object.position = pod.position
  JOIN federation_job AS job ON job.id = attempt.job_id {of_tenants}
  JOIN clusters_cluster AS cluster ON cluster.id = attempt.cluster_id
  JOIN tenancy_user AS submitter ON submitter.id = job.created_by_id
 CROSS JOIN LATERAL (SELECT coalesce(pod.resumed_at, pod.started_at) AS at) AS begun
 ORDER BY attempt.cluster_id, pod.uid
"""
UNSETTLED_OF_JOBS = UNSETTLED.format(is_live=IS_LIVE, of_jobs="AND job_id = ANY(%(jobs)s)", of_tenants="")
UNSETTLED_OF_TENANTS = UNSETTLED.format(is_live=IS_LIVE, of_jobs="", of_tenants="AND job.tenant_id = ANY(%(tenants)s)")


def unsettled_runs(whose: Whose, at: datetime) -> list[ObservedRun]:
    """The runs of started pods without posted usage, up to their end, their last sighting, or `at` while they run."""
    statement = UNSETTLED_OF_JOBS if whose.workloads else UNSETTLED_OF_TENANTS
    with connection.cursor() as cursor:
        cursor.execute(statement, {"at": at, "tenants": list(whose.tenants), "jobs": list(whose.workloads)})
        return [ObservedRun(*run) for run in cursor.fetchall()]
