"""Attestations of what no cluster can report: that a cluster is destroyed, a run is dead, or vanished objects are gone.

The gateway ends an attempt only on evidence; here an administrator gives it, with name and source (ADR 18). An attempt
that may have run becomes `lost`. Its job returns to the queue (or is cancelled, if it was being cancelled), and its
usage is estimated up to the last sighting. A lost attempt is the tombstone: if one of its objects appears again, it is
deleted by its uid (`reconciliation`). Its pods are never metered again, because it is settled.
"""

from collections.abc import Collection
from uuid import UUID

from django.db import transaction
from django.db.models import F, Value
from django.db.models.functions import Greatest, Now

import clusters.operations
from clusters.models import Cluster
from clusters.queries import cluster_by_id, require_at_owner, visible_clusters
from federation.engine.intake.reading import Faults, Fields
from federation.engine.lifecycle import AttemptState
from federation.locks import lock_with_jobs
from federation.models import LIVE_ATTEMPT_STATES, Attempt, PodRun
from federation.queries.attested import VANISHED
from federation.queries.submissions import field_errors
from foundation.problems import Conflict, Invalid, NotFound
from foundation.transactions import retried
from placement.values.reason_codes import ReasonCode
from tenancy.operations import record_audit
from tenancy.queries import Actor

from . import transitions
from .consequences import Ending
from .endings import end_attempts
from .upkeep import ask_for_reconciliation

DESTROYED = "destroyed"
GONE = "vanished"
MOST_NOTE_BYTES = 500


def attest_cluster(actor: Actor, cluster_id: UUID, body: object) -> int:
    """The number of attempts ended by `{"what": "destroyed" | "vanished", "note": the evidence}`.

    `destroyed`: nothing runs there any more, or ever will. Refused (409 `cluster_answers`) while the cluster answers.
    `vanished`: released objects that it does not list are gone permanently, whatever their number. The next comparison
    asks for each of them and ends those that are absent, so none has ended yet.
    """
    cluster = cluster_by_id(actor, cluster_id)
    require_at_owner(actor, cluster)
    what, note = _read(body, frozenset({"what", "note"}))
    if what == DESTROYED:
        return _attest_destroyed(actor, cluster, note)
    with transaction.atomic():
        clusters.operations.record_event(cluster_id, VANISHED, _words(actor, "the missing runs are gone", note))
        _audit(actor, "cluster.attest_vanished", cluster, {"note": note})
        ask_for_reconciliation(cluster_id)
    return 0


@retried
def _attest_destroyed(actor: Actor, cluster: Cluster, note: str) -> int:
    words = _words(actor, f"cluster {cluster.name} is destroyed", note)
    with transaction.atomic():
        live = Attempt.objects.filter(cluster_id=cluster.id, state__in=LIVE_ATTEMPT_STATES)
        attempts = lock_with_jobs(live.values_list("id", flat=True)).values()
        now = Cluster.objects.get(id=cluster.id)
        if now.silent_since is None:
            raise Conflict(
                "The cluster answers, so it is not destroyed. Attest individual runs, or drain it.",
                code="cluster_answers",
            )
        ended = end_as_lost(attempts, now, ReasonCode.CLUSTER_DESTROYED, words)
        clusters.operations.cordon_cluster(actor, cluster.id)
        clusters.operations.record_event(cluster.id, "attested.destroyed", words)
        _audit(actor, "cluster.attest_destroyed", cluster, {"note": note, "attempts": ended})
    return ended


@retried
def attest_run(actor: Actor, attempt_id: UUID, body: object) -> Attempt:
    """The attempt, now `lost`, after `{"note": the evidence that nothing of it runs any more}`.

    A second attestation is harmless. Raises Conflict `state_conflict` for an attempt that was never released (cancel
    its job instead) or has ended otherwise.
    """
    attempt = Attempt.objects.filter(id=attempt_id, cluster__in=visible_clusters(actor)).first()
    if attempt is None:
        raise NotFound
    cluster = cluster_by_id(actor, attempt.cluster_id)
    require_at_owner(actor, cluster)
    _, note = _read(body, frozenset({"note"}))
    words = _words(actor, "no part of it still runs", note)
    with transaction.atomic():
        (attempt,) = lock_with_jobs([attempt_id]).values()
        if attempt.state in (AttemptState.RESERVED, AttemptState.CREATED):
            raise Conflict(
                "The attempt was never released, so no part of it runs. Cancel its job.", code="state_conflict"
            )
        if attempt.state in LIVE_ATTEMPT_STATES:
            end_as_lost([attempt], cluster, ReasonCode.RUN_DEAD, words)
            _audit(actor, "attempt.attest_dead", cluster, {"note": note, "attempt": str(attempt_id)})
        elif attempt.state != AttemptState.LOST:
            raise Conflict(f"The attempt has already {attempt.state}.", code="state_conflict")
    attempt.refresh_from_db()
    return attempt


def end_as_lost(attempts: Collection[Attempt], cluster: Cluster, reason: ReasonCode, words: str) -> int:
    """The number of the locked attempts that ended: as `lost` if they may have run, else as `abandoned`.

    Their pods existed when the cluster's watch was last alive. Nothing later is known of them, or requested.
    """
    lost = transitions.give_up(attempts)
    unended = PodRun.objects.filter(attempt_id__any_of=lost, finished_at=None, is_gone=False)
    last_seen = F("observed_at") if cluster.observed_at is None else Greatest("observed_at", Value(cluster.observed_at))
    unended.update(is_gone=True, observed_at=last_seen)
    Attempt.objects.filter(id__any_of=lost).update(pods_told_at=Now())  # no cluster will report them
    state_of = {one.id: AttemptState.LOST if one.id in set(lost) else AttemptState.ABANDONED for one in attempts}
    return end_attempts(Ending(id_, state, reason, words) for id_, state in state_of.items())


def _read(body: object, known: frozenset[str]) -> tuple[str, str]:
    faults = Faults()
    fields = Fields(body, "", faults, known)
    what = fields.text("what") if "what" in known else ""
    if "what" in known and what not in ("", DESTROYED, GONE):
        fields.fault("what", "unknown_value", f"one of: {DESTROYED}, {GONE}")
    note = fields.checked("note", str.strip, "say how you know", most_bytes=MOST_NOTE_BYTES)
    if faults.found:
        raise Invalid(errors=field_errors(faults.found))
    return what, note.strip()


def _words(actor: Actor, what: str, note: str) -> str:
    return f"{actor.name} attests that {what}: {note}"


def _audit(actor: Actor, action: str, cluster: Cluster, detail: dict[str, object]) -> None:
    record_audit(actor, action, object_kind="cluster", object_id=cluster.id, tenant_id=cluster.owner_id, detail=detail)
