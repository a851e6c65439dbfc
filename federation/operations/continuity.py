"""Clusters that stop answering and reconnect: the default is to wait, never to rerun blindly.

A silent cluster cannot be distinguished from a dead one. An attempt that may run there becomes `unknown` and keeps its
hold. An attempt that was certainly never released is abandoned and its job placed again (its leftover is inert). When
the cluster answers again, its attempts return to their earlier states, and the next comparison of its objects shows
their outcome.
"""

from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.functions import Coalesce, Greatest, Now

from clusters.engine.health import TOO_MANY_VANISHED
from clusters.models import Cluster
from federation.engine import in_part
from federation.engine.lifecycle import AttemptState
from federation.engine.stuck import PATIENCE, is_stuck
from federation.locks import lock_attempts, lock_free_jobs, lock_with_jobs
from federation.models import Attempt, PodRun
from federation.queries.standstill import is_dispatch_closed
from foundation.transactions import retried
from placement.values.reason_codes import ReasonCode

from . import transitions
from .consequences import Ending
from .endings import end_attempts
from .maintenance import yield_to_maintenance
from .parts import attend_to_parts
from .sessions import stop_unused_sessions

NEVER_RELEASED = [AttemptState.RESERVED, AttemptState.CREATED]
MAY_RUN = [AttemptState.STARTING, AttemptState.RUNNING]
START_PATIENCE = in_part.PATIENCE
LACKS_MANY = Q(cluster__reasons__contains=[{"code": TOO_MANY_VANISHED}])
"""The cluster lacks too many objects of released attempts, and people must first find out what still runs there. It would
confirm that anything is gone, so nothing released is recalled."""
TRIES_UNTOLD = 3
"""One or two failures of a cluster are not reported."""


def sweep() -> None:
    """One round: marks attempts on silent clusters, restores those on recovered ones, stops what has to stop for
    maintenance and sessions that are not used, recalls attempts that do not start, start in part or have no pods any more, and
    explains what pods wait for.
    """
    lose_sight()
    regain_sight()
    yield_to_maintenance()
    recall_unstarted()
    recall_stuck()
    recall_deserted()
    attend_to_parts()
    stop_unused_sessions()
    explain_unsent()
    explain_unstarted()


def lose_sight() -> int:
    """The number of attempts that are now `unknown`: they may run on clusters that have been silent for too long.
    Attempts that were never released are abandoned, except in a standstill.
    """
    lost_since = Now() - timedelta(seconds=settings.CLUSTER_LOST_SECONDS)
    silent = Cluster.objects.filter(Exists(_in_sight(OuterRef("pk"))), silent_since__lt=lost_since)
    return sum(_lose(cluster_id, name) for cluster_id, name in list(silent.values_list("id", "name")))


def _in_sight(cluster_id: UUID | OuterRef) -> QuerySet[Attempt]:
    """Attempts there that are not known to have ended, and not `unknown` yet."""
    return Attempt.objects.filter(cluster_id=cluster_id, state__in=[*NEVER_RELEASED, *MAY_RUN])


@retried
def _lose(cluster_id: UUID, name: str) -> int:
    message = f"Cluster {name} stopped answering before anything was started there."
    with transaction.atomic():
        here = _in_sight(cluster_id).filter(cluster__silent_since__isnull=False)
        attempts = lock_with_jobs(here.values_list("id", flat=True)).values()
        # A restored database may have forgotten their release: only the comparison with the cluster shows it.
        waiting = [] if is_dispatch_closed() else [one.id for one in attempts if one.state in NEVER_RELEASED]
        lost = transitions.lose_sight(
            [one for one in attempts if one.state in MAY_RUN],
            f"Cluster {name} does not answer. The job is held: it may still be running there.",
        )
        end_attempts([Ending(id_, AttemptState.ABANDONED, ReasonCode.CLUSTER_LOST, message) for id_ in waiting])
    return lost


@retried
def regain_sight() -> int:
    """The number of unknown attempts that return to their earlier states, because their cluster answers again."""
    back = Attempt.objects.filter(state=AttemptState.UNKNOWN, cluster__silent_since=None)
    with transaction.atomic():
        attempts = lock_with_jobs(back.values_list("id", flat=True))
        return transitions.regain_sight(attempts.values(), "The cluster answers again.")


def recall_unstarted() -> int:
    """The number of recalled attempts: released long ago without a started pod, or on a draining cluster.

    An unseen pod proves nothing: dispatch asks the cluster for the pods before it removes anything.
    """
    released = Attempt.objects.filter(
        state__in=[*NEVER_RELEASED, AttemptState.STARTING], stop_requested_at=None, pods__started_at=None
    )
    never_ran = released.exclude(pods__started_at__isnull=False).exclude(LACKS_MANY, state=AttemptState.STARTING)
    since = Now() - START_PATIENCE
    # Committed, but not known to be released: the cluster fails to release it, or to confirm it.
    late = never_ran.filter(Q(released_at__lt=since) | Q(released_at=None, starting_at__lt=since))
    draining = never_ran.filter(cluster__wish=Cluster.Wish.DRAINING)
    return _recall(late, ReasonCode.DID_NOT_START) + _recall(draining, ReasonCode.CLUSTER_DRAINING)


def recall_stuck() -> int:
    """The number of attempts recalled because the kubelet cannot start one of their containers, with its own message.

    They occupy devices without progress; on another cluster the image may be available. Dispatch checks the pods before
    it removes them.
    """
    waiting = PodRun.objects.filter(
        attempt__state__in=MAY_RUN, attempt__stop_requested_at=None, phase="Pending", finished_at=None, is_gone=False
    )
    # an init step may run for long before the pod waits
    since = Greatest(Coalesce("started_at", "attempt__released_at"), "initializing_at")
    long = waiting.annotate(since=since).filter(since__lt=Now() - PATIENCE)
    rows = long.exclude(reason="").order_by("id").values_list("attempt_id", "phase", "reason")
    words = {attempt_id: reason for attempt_id, phase, reason in rows if is_stuck(phase, reason)}
    return sum(_recall_stuck(attempt_id, said) for attempt_id, said in words.items())


@retried
def _recall_stuck(attempt_id: UUID, words: str) -> int:
    with transaction.atomic():
        return transitions.ask_to_stop(lock_with_jobs([attempt_id]), ReasonCode.CANNOT_START, words)


def recall_deserted() -> int:
    """The number of recalled attempts that ran and have had no pod for a long time, although no object of them ended: for
    example because their control plane was put back to a state before their release, or because Kueue suspended them.
    Dispatch asks the cluster for the pods before it removes anything.
    """
    pods = PodRun.objects.filter(attempt=OuterRef("pk"))
    present = Q(finished_at=None, is_gone=False) | Q(observed_at__gt=Now() - START_PATIENCE)
    running = Attempt.objects.filter(state=AttemptState.RUNNING, stop_requested_at=None).exclude(LACKS_MANY)
    deserted = running.filter(Exists(pods.filter(finished_at=None, is_gone=True)), ~Exists(pods.filter(present)))
    return _recall(deserted, ReasonCode.PODS_GONE, "it had no pods for 15 minutes")


@retried
def _recall(attempts: QuerySet[Attempt], reason: str, message: str = "") -> int:
    with transaction.atomic():
        found = lock_attempts(list(attempts.values_list("id", flat=True).distinct()))
        return transitions.ask_to_stop(found, reason, message)


UNSENT = """
SELECT job.id, said.words
  FROM federation_attempt AS attempt
  JOIN clusters_cluster AS cluster ON cluster.id = attempt.cluster_id
 CROSS JOIN LATERAL (SELECT cluster.name || ' does not accept it yet: ' || attempt.end_message AS words) AS said
  JOIN federation_job AS job ON job.id = attempt.job_id AND job.state = 'dispatching'
   AND job.suspend_requested_at IS NULL AND job.reason_message <> said.words
 WHERE attempt.state IN ('reserved', 'created') AND attempt.tries >= %s AND attempt.end_message <> ''
 LIMIT %s
"""
UNSTARTED = """
SELECT job.id, said.words
  FROM federation_attempt AS attempt
  LEFT JOIN LATERAL (
       SELECT pod.reason FROM federation_podrun AS pod WHERE pod.attempt_id = attempt.id AND pod.reason <> ''
        ORDER BY pod.id LIMIT 1) AS waits ON true
 CROSS JOIN LATERAL (SELECT coalesce(waits.reason, 'its pods have not started yet') AS words) AS said
  JOIN federation_job AS job ON job.id = attempt.job_id AND job.state = 'dispatching'
   AND job.suspend_requested_at IS NULL AND job.reason_message <> said.words
 WHERE attempt.state = 'starting' AND attempt.released_at < now() - interval '20 seconds'
   AND NOT EXISTS (
       SELECT 1 FROM federation_podrun AS pod WHERE pod.attempt_id = attempt.id AND pod.started_at IS NOT NULL)
 LIMIT %s
"""
EXPLAIN = """
UPDATE federation_job AS job SET reason_code = %s, reason_message = said.words, reason_at = now()
  FROM unnest(%s::uuid[], %s::text[]) AS said(id, words)
 WHERE job.id = said.id AND job.state = 'dispatching' AND job.suspend_requested_at IS NULL
"""
MOST_EXPLAINED = 1000
"""The number of jobs per sweep and kind: a cluster that hangs may have many thousands."""


def explain_unsent() -> int:
    """The number of jobs with a new text because their cluster answers but refuses them, with its own message."""
    with connection.cursor() as cursor:
        cursor.execute(UNSENT, [TRIES_UNTOLD, MOST_EXPLAINED])
        return _explain(ReasonCode.DISPATCHING, dict(cursor.fetchall()))


def explain_unstarted() -> int:
    """The number of jobs with a new text because their pods wait on the cluster, with its own message."""
    with connection.cursor() as cursor:
        cursor.execute(UNSTARTED, [MOST_EXPLAINED])
        return _explain(ReasonCode.WAITING_ON_CLUSTER, dict(cursor.fetchall()))


def _explain(code: ReasonCode, words: dict[UUID, str]) -> int:
    """A job that is locked is left to the next sweep."""
    if not words:
        return 0
    with transaction.atomic(), connection.cursor() as cursor:
        free = lock_free_jobs(words)
        cursor.execute(EXPLAIN, [code, free, [words[id_] for id_ in free]])
        return int(cursor.rowcount)
