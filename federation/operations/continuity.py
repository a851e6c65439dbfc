"""Clusters that fall silent and come back: hold by default, never a blind rerun.

A silent cluster cannot be told from a dead one. What may run there becomes `unknown` and keeps its hold; what was
certainly never released is abandoned and placed anew (its leftover is inert). When the cluster answers again, its
attempts go on as what they were, and the next look at its objects says what became of them.
"""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from clusters.models import Cluster
from federation.engine.lifecycle import AttemptState, JobState
from federation.models import Attempt, Job, JobEvent
from foundation import clock

from .endings import Ending, end_attempts

NEVER_RELEASED = [AttemptState.RESERVED, AttemptState.CREATED]
MAY_RUN = [AttemptState.STARTING, AttemptState.RUNNING]
START_PATIENCE = timedelta(minutes=15)


def sweep() -> None:
    """One round: lose and regain sight of clusters, ask back what does not start, say what pods wait for."""
    lose_sight()
    regain_sight()
    recall_unstarted()
    explain_unstarted()


def lose_sight() -> int:
    """The number of attempts that may run on clusters which have been silent for too long: they are `unknown` now."""
    lost_since = Now() - timedelta(seconds=settings.CLUSTER_LOST_SECONDS)
    silent = list(Cluster.objects.filter(silent_since__lt=lost_since).values_list("id", "name"))
    return sum(_lose(cluster_id, name) for cluster_id, name in silent)


def _lose(cluster_id: UUID, name: str) -> int:
    with transaction.atomic():
        here = Attempt.objects.filter(cluster_id=cluster_id)
        waiting = here.filter(state__in=NEVER_RELEASED).values_list("id", flat=True)
        message = f"Cluster {name} stopped answering before anything was started there."
        end_attempts([Ending(id_, AttemptState.ABANDONED, "cluster_lost", message) for id_ in waiting])
        affected = list(here.filter(state__in=MAY_RUN).values_list("id", "job_id"))
        here.filter(id__in=[attempt_id for attempt_id, _ in affected], state__in=MAY_RUN).update(
            state_before_unknown=F("state"), state=AttemptState.UNKNOWN
        )
        _tell(
            affected,
            "cluster_silent",
            f"Cluster {name} does not answer. The job is held: it may still be running there.",
        )
    return len(affected)


def regain_sight() -> int:
    """The number of unknown attempts whose cluster answers again: they go on as what they were."""
    back = Attempt.objects.filter(state=AttemptState.UNKNOWN, cluster__silent_since=None)
    with transaction.atomic():
        affected = list(back.values_list("id", "job_id"))
        Attempt.objects.filter(id__in=[attempt_id for attempt_id, _ in affected], state=AttemptState.UNKNOWN).update(
            state=F("state_before_unknown"), state_before_unknown=""
        )
        _tell(affected, "cluster_back", "The cluster answers again.")
    return len(affected)


def _tell(affected: Sequence[tuple[UUID, UUID]], kind: str, message: str) -> None:
    job_ids = [job_id for _, job_id in affected]
    ended = [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED, JobState.CANCELLING]
    Job.objects.filter(id__in=job_ids).exclude(state__in=ended).update(
        reason_code="clusters_unreachable" if kind == "cluster_silent" else "", reason_message=message, reason_at=Now()
    )
    at = clock.now()
    JobEvent.objects.bulk_create(
        JobEvent(job_id=job_id, attempt_id=attempt_id, at=at, kind=kind, message=message)
        for attempt_id, job_id in affected
    )


def recall_unstarted() -> int:
    """How many attempts were asked back: released long ago without a pod seen to start, or on a draining cluster.

    Not having seen a pod proves nothing: dispatch asks the cluster for the pods before it takes anything back.
    """
    released = Attempt.objects.filter(
        state__in=[*NEVER_RELEASED, AttemptState.STARTING], stop_requested_at=None, pods__started_at=None
    )
    never_ran = released.exclude(pods__started_at__isnull=False)
    late = never_ran.filter(released_at__lt=Now() - START_PATIENCE)
    draining = never_ran.filter(cluster__wish=Cluster.Wish.DRAINING)
    return _recall(late, "did_not_start") + _recall(draining, "cluster_draining")


def _recall(attempts: QuerySet[Attempt], reason: str) -> int:
    ids = list(attempts.values_list("id", flat=True).distinct())
    return Attempt.objects.filter(id__in=ids, stop_requested_at=None).update(
        stop_requested_at=Now(), stop_reason=reason, next_action_at=Now()
    )


def explain_unstarted() -> int:
    """How many jobs got a new text because their pods wait on the cluster, in the cluster's own words."""
    waiting = Attempt.objects.filter(state=AttemptState.STARTING, released_at__lt=Now() - timedelta(seconds=20))
    told = 0
    for attempt in waiting.exclude(pods__started_at__isnull=False).prefetch_related("pods")[:500]:
        words = next((pod.reason for pod in attempt.pods.all() if pod.reason), "its pods have not started yet")
        told += (
            Job.objects.filter(id=attempt.job_id, state=JobState.DISPATCHING)
            .exclude(reason_message=words)
            .update(reason_code="waiting_on_cluster", reason_message=words, reason_at=Now())
        )
    return told
