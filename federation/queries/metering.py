"""Observed runs as billing wants them, and which ended attempts wait for settlement."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection
from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery, Sum

from billing.engine.runs import ObservedRun
from billing.queries.progress import Whose
from federation.engine.lifecycle import AttemptState
from federation.models import LIVE_ATTEMPT_STATES, Attempt, PodRun, RemoteObject


@dataclass(frozen=True, slots=True)
class Metered:
    """An ended attempt whose usage is not posted yet; complete when no started pod lacks its end."""

    attempt_id: UUID
    finished_at: datetime
    is_complete: bool


def unsettled_attempts(limit: int, *, only: UUID | None = None) -> list[Metered]:
    """Ended attempts that wait for settlement, oldest first."""
    rows = Attempt.objects.filter(finished_at__isnull=False, settled_at=None)
    if only is not None:
        rows = rows.filter(id=only)
    open_ended = Count("pods", filter=Q(pods__finished_at=None, pods__started_at__isnull=False, pods__is_gone=False))
    expected = (
        RemoteObject.objects.filter(attempt=OuterRef("id"))
        .values("attempt")
        .annotate(pods_=Sum("pods"))
        .values("pods_")
    )
    found = rows.annotate(
        open_ended=open_ended,
        seen=Count("pods", filter=Q(pods__finished_at__isnull=False)),
        expected=Subquery(expected),
    )
    unseen = Q(state=AttemptState.SUCCEEDED, seen__lt=F("expected"))
    found = found.annotate(complete=Q(open_ended=0) & ~unseen).order_by("finished_at", "id")[:limit]
    return [
        Metered(attempt_id, finished_at, complete)
        for attempt_id, finished_at, complete in found.values_list("id", "finished_at", "complete")
        if finished_at is not None
    ]


def runs_of(attempt_ids: Iterable[UUID]) -> list[ObservedRun]:
    """The final runs of ended attempts: each pod that started, until it ended or was last seen (then estimated)."""
    pods = PodRun.objects.filter(attempt_id__in=list(attempt_ids), started_at__isnull=False)
    return _runs(pods, until=None)


def running_runs(until: datetime) -> list[ObservedRun]:
    """Pods that run now, up to `until` or their last sighting on a cluster that has gone silent."""
    pods = PodRun.objects.filter(
        attempt__state=AttemptState.RUNNING,
        started_at__lt=until,
        finished_at=None,
        is_gone=False,
        attempt__cluster__silent_since=None,
    )
    return _runs(pods, until=until)


def _runs(pods: QuerySet[PodRun], until: datetime | None) -> list[ObservedRun]:
    rows = pods.select_related("attempt__job__created_by", "attempt__job__tenant").order_by("attempt_id", "id")
    objects = {
        (o.attempt_id, o.position): o for o in RemoteObject.objects.filter(attempt__in={pod.attempt_id for pod in rows})
    }
    return [_run(pod, objects[pod.attempt_id, pod.position], until) for pod in rows]


def _run(pod: PodRun, remote: RemoteObject, until: datetime | None) -> ObservedRun:
    job = pod.attempt.job
    assert pod.started_at is not None
    return ObservedRun(
        cluster_id=pod.attempt.cluster_id,
        source_uid=pod.uid,
        tenant_id=job.tenant_id,
        user_id=job.created_by_id,
        workload_id=job.id,
        run_id=pod.attempt_id,
        flavor=remote.flavor,
        capacity_type=remote.capacity_type,
        gpu_units=remote.gpu_units,
        cpu_millicores=remote.cpu_millicores,
        started_at=pod.started_at,
        until_at=until or pod.finished_at or max(pod.observed_at, pod.started_at),
        is_final=until is None,
        is_estimated=pod.is_estimated or (until is None and pod.finished_at is None),
        workload_name=job.name,
        user_name=job.created_by.email,
        memory_mib=remote.memory_mib,
    )


UNSETTLED = """
WITH unsettled AS (
    SELECT id, job_id, cluster_id, state, finished_at FROM federation_attempt WHERE state IN ({live}) {of_jobs}
     UNION ALL
    SELECT id, job_id, cluster_id, state, finished_at FROM federation_attempt
     WHERE settled_at IS NULL AND finished_at IS NOT NULL {of_jobs}
)
SELECT attempt.cluster_id, pod.uid, job.tenant_id, job.created_by_id, job.id, attempt.id, object.flavor,
       object.capacity_type, object.gpu_units, object.cpu_millicores, pod.started_at,
       CASE WHEN pod.finished_at IS NOT NULL THEN pod.finished_at
            WHEN pod.is_gone OR attempt.finished_at IS NOT NULL OR attempt.state = 'unknown'
                 OR cluster.silent_since IS NOT NULL THEN greatest(pod.started_at, pod.observed_at)
            ELSE greatest(pod.started_at, %(at)s) END,
       false, pod.is_estimated, job.name, submitter.email, object.memory_mib
  FROM unsettled AS attempt
  JOIN federation_podrun AS pod ON pod.attempt_id = attempt.id AND pod.started_at IS NOT NULL
  JOIN federation_remoteobject AS object ON object.attempt_id = attempt.id AND object.position = pod.position
  JOIN federation_job AS job ON job.id = attempt.job_id {of_tenants}
  JOIN clusters_cluster AS cluster ON cluster.id = attempt.cluster_id
  JOIN tenancy_user AS submitter ON submitter.id = job.created_by_id
 ORDER BY attempt.cluster_id, pod.uid
"""


def unsettled_runs(whose: Whose, at: datetime) -> list[ObservedRun]:
    """Every pod that began and whose usage is not posted, up to its end, its last sighting, or `at` while it runs."""
    query = UNSETTLED.format(
        # written out, so that the partial indexes on live and on unsettled attempts serve
        live=", ".join(f"'{state}'" for state in LIVE_ATTEMPT_STATES),
        of_jobs="AND job_id = ANY(%(jobs)s)" if whose.workloads else "",
        of_tenants="" if whose.workloads else "AND job.tenant_id = ANY(%(tenants)s)",
    )
    with connection.cursor() as cursor:
        cursor.execute(query, {"at": at, "tenants": list(whose.tenants), "jobs": list(whose.workloads)})
        return [ObservedRun(*run) for run in cursor.fetchall()]
