"""Observed runs as billing wants them, and which ended attempts wait for settlement."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery, Sum

from billing.operations import ObservedRun
from federation.engine.lifecycle import AttemptState
from federation.models import Attempt, PodRun, RemoteObject


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
        is_estimated=until is None and pod.finished_at is None,
        workload_name=job.name,
        user_name=job.created_by.email,
    )
