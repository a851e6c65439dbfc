"""Dispatches attempts to their cluster and stops them there: the only code that creates, releases or deletes objects.

A start has two phases, so that every ambiguous reply is harmless (ADR 5):

    claim (token, sent_at)  →  create suspended  →  store uids, commit `starting`  →  unsuspend by uid  →  `released_at`

A stop has two as well: what there is of the attempt is read and stored, and only then its objects are deleted.
A gang whose pods need an order (`engine.objects.ranks`) is visited until the gates of all its pods are open.

A worker may die between any two of these steps. The next worker finds the object by its name (which comes from the
attempt), adopts it if every label agrees, and continues. Nothing runs before `starting` is committed, and a stop that
was requested earlier wins. No transaction is open during calls to a cluster.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import IntegrityError, connection, transaction
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Now

import clusters.operations
import clusters.queries
from clusters.drivers import AuthFailed, DriverError, Throttled
from federation.engine.lifecycle import AttemptState
from federation.locks import Claim, claim_due_attempts, claim_left_waiting, claim_probes, keep_attempts, lock_jobs_of
from federation.models import Attempt, RemoteObject
from federation.queries.claimed_attempts import ClaimedAttempt, claimed_attempts
from federation.queries.due_clusters import DueCluster, due_clusters, is_being_visited
from federation.queries.in_part import with_overdue
from federation.queries.secrets import with_opened_secrets
from foundation.crash import crash_point
from foundation.outbox import announce
from foundation.pipelines import one_round_trip
from foundation.threads import put_session_aside
from foundation.transactions import retried
from foundation.turns import Turn, endless_turn
from placement.values.reason_codes import ReasonCode

from . import figures, transitions
from .consequences import Ending
from .consolidation import withdraw_move
from .endings import REFUSED, end_attempts
from .last_looks import NOT_STORED, stop_all
from .outcomes import (
    Created,
    Doomed,
    Failed,
    Looked,
    Ordered,
    Ordering,
    Outcome,
    Released,
    Stopped,
    Stopping,
    Underway,
    Withdrawn,
)
from .rests import begin_rest, end_rest
from .rounds import Brought, Rounds
from .visits import Visit, given_up

BATCH = 48
PROBES = 2
"""The number of attempts at a slow cluster whose calls show whether it answers."""
MAX_BACKOFF_SECONDS = 30.0
MOST_SILENT_VISITS = 3
PATIENCE_SECONDS = 180.0
"""A creation that has waited this long is given up after this number of silent visits in a row; its job goes elsewhere."""
LOOK_AGAIN_SECONDS = 1.0
ORDER_SECONDS = 0.25
"""The delay after its release until a gang's pods are first checked; it doubles each time."""
MOST_ORDER_SECONDS = 5.0


def dispatch_attempts(turn: Turn | None = None) -> int:
    """The number of attempts visited. While one cluster hangs, the others are still served (`rounds`)."""
    return ROUNDS.go(turn or endless_turn())


def _dispatch_to_cluster(cluster: DueCluster) -> Brought:
    """Visits attempts that are scheduled there. At a slow cluster the first are probes: if it answers none of their calls, the
    others cost no call, and are neither claimed nor loaded.
    """
    if not cluster.is_slow:
        return _visit_claimed(cluster, claim_due_attempts, BATCH).brought
    visited = _visit_claimed(cluster, claim_probes, PROBES)
    if visited.silence is None and visited.brought.count == PROBES:
        visited = visited.and_then(_visit_claimed(cluster, claim_due_attempts, BATCH))
    if visited.silence is not None:
        _leave_alone(cluster.id, visited.silence)
    elif visited.brought.count:
        end_rest(cluster.id)
    return visited.brought


@dataclass(frozen=True, slots=True)
class _Visited:
    brought: Brought
    silence: DriverError | None = None
    """The error of a cluster that answered none of the calls made last, or that is another cluster."""

    def and_then(self, later: "_Visited") -> "_Visited":
        """Both visits as one."""
        first, second = self.brought, later.brought
        both = Brought(first.count + second.count, first.is_answering and second.is_answering)
        return _Visited(both, later.silence)


def _visit_claimed(cluster: DueCluster, take: Callable[[UUID, int], Claim], limit: int) -> _Visited:
    with transaction.atomic():
        claim = take(cluster.id, limit)
    if not claim.attempt_ids:
        return _Visited(Brought(0, is_answering=True))
    crash_point("claimed")
    return _visit(cluster, claim)


def _leave_alone(cluster_id: UUID, silence: DriverError) -> None:
    """The cluster rests; creations that waited too long there are given up."""
    if begin_rest(cluster_id) < MOST_SILENT_VISITS:
        return
    while (waited := _claim_left_waiting(cluster_id)).attempt_ids:
        _record_alone(waited, [given_up(id_, silence) for id_ in waited.attempt_ids])
        clusters.operations.record_creates(cluster_id, silence.reason)


def _claim_left_waiting(cluster_id: UUID) -> Claim:
    with transaction.atomic():
        return claim_left_waiting(cluster_id, PATIENCE_SECONDS, BATCH)


ROUNDS = Rounds("dispatch", "dispatch", due_clusters, _dispatch_to_cluster, is_being_visited)


def _visit(cluster: DueCluster, claim: Claim) -> _Visited:
    cluster_id = cluster.id
    try:
        visit = Visit(clusters.queries.driver_of(cluster_id))
        attempts = with_overdue(with_opened_secrets(claimed_attempts(claim.attempt_ids)))
        if cluster.is_slow:
            put_session_aside()
        outcomes = visit.begin_all(attempts, stop_all(cluster, visit, attempts))
        starts = [attempt for attempt in attempts if not attempt.must_stop and not attempt.is_released]
        crash_point("created")
        _note_creates(cluster_id, starts, outcomes)
        committed = _commit(cluster_id, claim, outcomes, starts)
        crash_point("starting")
        released = visit.release_all([one.with_uids(committed[one.id]) for one in starts if one.id in committed])
        crash_point("released")
        _record_alone(claim, released)
    except DriverError as error:
        failed = [Failed(attempt_id, error) for attempt_id in claim.attempt_ids]
        _record_alone(claim, failed)
        _note_refused_credentials(cluster_id, failed)
        return _Visited(Brought(len(failed), is_answering=False), error)
    failed = [outcome for outcome in outcomes + released if isinstance(outcome, Failed)]
    _note_refused_credentials(cluster_id, failed)
    is_answering = all(isinstance(outcome.error, Throttled) for outcome in failed)
    return _Visited(Brought(len(claim.attempt_ids), is_answering), visit.silence)


def _note_creates(cluster_id: UUID, starts: Sequence[ClaimedAttempt], outcomes: Sequence[Outcome]) -> None:
    """Records in the cluster's health whether creating works there: after it was given up for a job, or when it works
    again.
    """
    given_up = (one.message for one in outcomes if isinstance(one, Stopped) and one.reason == ReasonCode.CREATE_FAILED)
    words = next(given_up, "")
    works_again = any(attempt.creates_fail for attempt in starts) and any(isinstance(one, Created) for one in outcomes)
    if words or works_again:
        clusters.operations.record_creates(cluster_id, words)
    _note_services(cluster_id, starts, outcomes)


def _note_services(cluster_id: UUID, starts: Sequence[ClaimedAttempt], outcomes: Sequence[Outcome]) -> None:
    """Records in the cluster's health whether gangs get their Services there, when that was found out."""
    denied = (one.message for one in outcomes if isinstance(one, Stopped) and one.reason == ReasonCode.SERVICES_CLOSED)
    words = next(denied, "")
    created = {outcome.attempt_id for outcome in outcomes if isinstance(outcome, Created)}
    works_again = any(attempt.lacks_services and attempt.meets and attempt.id in created for attempt in starts)
    if words or works_again:
        clusters.operations.record_services(cluster_id, words)


def _commit(
    cluster_id: UUID, claim: Claim, outcomes: Sequence[Outcome], starts: Sequence[ClaimedAttempt]
) -> dict[UUID, dict[int, str]]:
    """Writes the results of creation, and commits attempts that may start. If a cluster answers with the uid of its
    other object, the two cannot be distinguished: its attempts are placed elsewhere.
    """
    failed = {outcome.attempt_id for outcome in outcomes if isinstance(outcome, Failed)}
    ids = [attempt.id for attempt in starts if attempt.id not in failed]
    try:
        return _record_and_commit(claim, outcomes, ids)
    except IntegrityError:
        return _record_and_commit(claim, _without_lies(cluster_id, outcomes), ids)


def _without_lies(cluster_id: UUID, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes; those with a uid that is taken or repeated become refusals."""
    created = {outcome.attempt_id: outcome for outcome in outcomes if isinstance(outcome, Created)}
    told = Counter(uid for outcome in created.values() for uid in outcome.uids.values())
    others = RemoteObject.objects.filter(cluster_id=cluster_id, uid__any_of=list(told)).exclude(
        attempt_id__in=list(created)
    )
    taken = {*others.values_list("uid", flat=True), *(uid for uid, times in told.items() if times > 1)}
    lies = {id_ for id_, outcome in created.items() if taken & set(outcome.uids.values())}
    if lies:
        figures.REFUSED_REPORTS.labels(str(cluster_id), "uid_taken").inc(len(lies))
        message = (
            f"It returned uids of other objects for {len(lies)} that it had to create; none of them is started there."
        )
        clusters.operations.record_lie(cluster_id, "uid_taken", message)
    told_of = "The cluster answered with the uid of another object."
    return [
        Stopped(one.attempt_id, AttemptState.ABANDONED, REFUSED, told_of) if one.attempt_id in lies else one
        for one in outcomes
    ]


def _record(claim: Claim, outcomes: Sequence[Outcome]) -> None:
    """Writes the results of a round of calls, fenced by the claim's token, in the caller's transaction.

    It locks the jobs of attempts that end first, then all attempts of the claim, in the common lock order.
    """
    endings = _endings(claim, outcomes)
    underway = [outcome for outcome in outcomes if isinstance(outcome, Underway)]
    if endings or underway:
        lock_jobs_of([*(one.attempt_id for one in endings), *(one.attempt_id for one in underway)])
    with one_round_trip():
        keep_attempts(claim.attempt_ids)
        created = {outcome.attempt_id: outcome.uids for outcome in outcomes if isinstance(outcome, Created)}
        transitions.mark_created(claim.token, created)
        _mark_released(claim, [outcome for outcome in outcomes if isinstance(outcome, Released)])
    _look_again(claim, [outcome.attempt_id for outcome in outcomes if isinstance(outcome, Stopping)])
    _note_order(claim, outcomes)
    _withdraw(claim, [outcome for outcome in outcomes if isinstance(outcome, Withdrawn)])
    _decide_deletion(claim, [outcome.attempt_id for outcome in outcomes if isinstance(outcome, Doomed)])
    _let_run(claim, underway)
    end_attempts(endings)
    _postpone(claim, [outcome for outcome in outcomes if isinstance(outcome, Failed | Looked)])


@retried
def _record_alone(claim: Claim, outcomes: Sequence[Outcome]) -> None:
    with transaction.atomic():
        _record(claim, outcomes)


@retried
def _record_and_commit(claim: Claim, outcomes: Sequence[Outcome], ids: Sequence[UUID]) -> dict[UUID, dict[int, str]]:
    with transaction.atomic():
        _record(claim, outcomes)
        committed = transitions.commit_to_start(claim.token, ids) if ids else {}
        _let_stop(claim, set(ids) - committed.keys())
        return committed


def _note_refused_credentials(cluster_id: UUID, failed: Sequence[Failed]) -> None:
    reasons = (outcome.error.reason for outcome in failed if isinstance(outcome.error, AuthFailed))
    reason = next(reasons, None)
    if reason is not None:
        clusters.operations.record_auth_failure(cluster_id, reason)


MARK_RELEASED = """
UPDATE federation_attempt AS attempt
   SET released_at = coalesce(attempt.released_at, now()), claim_expires_at = NULL, tries = 0,
       -- A stop that was asked for while the cluster was asked to start still needs its visit.
       next_action_at = CASE WHEN attempt.stop_requested_at IS NOT NULL THEN now()
                             WHEN EXISTS (SELECT FROM federation_remoteobject AS object
                                           WHERE object.attempt_id = attempt.id AND object.stretches <> '[]')
                             THEN now() + make_interval(secs => %s) END
 WHERE attempt.id = ANY(%s) AND attempt.claim_token = %s
RETURNING extract(epoch FROM now() - attempt.reserved_at)::float
"""


def _mark_released(claim: Claim, released: Sequence[Released]) -> None:
    if not released:
        return
    with connection.cursor() as cursor:
        cursor.execute(MARK_RELEASED, [ORDER_SECONDS, [outcome.attempt_id for outcome in released], claim.token])
        for (seconds,) in cursor.fetchall():
            figures.DISPATCH_SECONDS.labels(released[0].cluster).observe(seconds)


def _look_again(claim: Claim, attempt_ids: Sequence[UUID]) -> None:
    """Schedules another visit: the cluster is deleting these, and the observer or this visit finds out when they are
    gone.
    """
    if attempt_ids:
        Attempt.objects.filter(id__any_of=attempt_ids, claim_token=claim.token).update(
            next_action_at=_seconds_from_now(LOOK_AGAIN_SECONDS), claim_expires_at=None
        )


def _note_order(claim: Claim, outcomes: Sequence[Outcome]) -> None:
    """Schedules another visit for gangs with closed gates; gangs whose gates are all open need none."""
    ours = Attempt.objects.filter(claim_token=claim.token, stop_requested_at=None)
    done = [outcome.attempt_id for outcome in outcomes if isinstance(outcome, Ordered)]
    ordering = [outcome for outcome in outcomes if isinstance(outcome, Ordering)]
    if done:
        ours.filter(id__any_of=done).update(next_action_at=None, claim_expires_at=None, tries=0)
    for outcome in ordering:
        seconds = min(ORDER_SECONDS * 2 ** min(outcome.tries, 10), MOST_ORDER_SECONDS)
        ours.filter(id=outcome.attempt_id).update(next_action_at=_seconds_from_now(seconds), claim_expires_at=None)
    _let_stop(claim, [*done, *(outcome.attempt_id for outcome in ordering)])


def _withdraw(claim: Claim, withdrawn: Sequence[Withdrawn]) -> None:
    """They must stop first: their next visit is now."""
    for outcome in withdrawn:
        ours = Attempt.objects.filter(id=outcome.attempt_id, claim_token=claim.token, stop_requested_at=None)
        if ours.update(claim_expires_at=None):
            transitions.ask_to_stop([outcome.attempt_id], outcome.stop_reason, outcome.message)
    _let_stop(claim, [outcome.attempt_id for outcome in withdrawn])


def _decide_deletion(claim: Claim, attempt_ids: Sequence[UUID]) -> None:
    """Commits the gateway to delete them, before a deletion can be under way; the next visit begins it."""
    if attempt_ids:
        ours = Attempt.objects.filter(id__any_of=attempt_ids, claim_token=claim.token)
        ours.update(deletion_at=Now(), next_action_at=Now(), claim_expires_at=None)
        announce("dispatch")


def _let_run(claim: Claim, underway: Sequence[Underway]) -> None:
    """Revokes their recall; a cancellation that was requested meanwhile remains."""
    for outcome in underway:
        if outcome.stop_reason == ReasonCode.MIGRATED:
            withdraw_move(claim, outcome.attempt_id)
            continue
        ours = Attempt.objects.filter(id=outcome.attempt_id, claim_token=claim.token, stop_reason=outcome.stop_reason)
        ours.update(stop_requested_at=None, stop_reason="", stop_message="", next_action_at=None, claim_expires_at=None)
    _let_stop(claim, [outcome.attempt_id for outcome in underway])


def _let_stop(claim: Claim, attempt_ids: Collection[UUID]) -> None:
    """A stop that was requested during their visit need not wait until the claim expires. Only for attempts that this visit no
    longer calls a cluster for.
    """
    if attempt_ids:
        Attempt.objects.filter(
            id__any_of=list(attempt_ids), claim_token=claim.token, stop_requested_at__isnull=False
        ).update(claim_expires_at=None)


def _endings(claim: Claim, outcomes: Sequence[Outcome]) -> list[Ending]:
    return [
        Ending(outcome.attempt_id, outcome.state, outcome.reason, outcome.message, token=claim.token)
        for outcome in outcomes
        if isinstance(outcome, Stopped)
    ]


def _seconds_from_now(seconds: float) -> CombinedExpression:
    return Now() + timedelta(seconds=seconds)


POSTPONE = """
UPDATE federation_attempt AS attempt
   SET next_action_at = now() + make_interval(
           secs => greatest(least(0.25 * 2 ^ least(attempt.tries, 10), %(most)s), failed.retry_after)),
       claim_expires_at = NULL,
       end_message = failed.reason
  FROM unnest(%(ids)s::uuid[], %(retry_after)s::float[], %(reasons)s::text[]) AS failed (id, retry_after, reason)
 WHERE attempt.id = failed.id AND attempt.claim_token = %(token)s
"""


def _postpone(claim: Claim, failed: Sequence[Failed | Looked]) -> None:
    """The results are unknown or nothing was done: repeats the same visits later, with growing pauses."""
    if not failed:
        return
    errors = [outcome.error if isinstance(outcome, Failed) else None for outcome in failed]
    values: dict[str, Any] = {
        "most": MAX_BACKOFF_SECONDS,
        "ids": [outcome.attempt_id for outcome in failed],
        "retry_after": [error.retry_after_seconds if isinstance(error, Throttled) else 0.0 for error in errors],
        "reasons": [NOT_STORED if error is None else error.reason[:300] for error in errors],
        "token": claim.token,
    }
    with connection.cursor() as cursor:
        cursor.execute(POSTPONE, values)
