"""Defects that attacks on the gateway found in its first versions, as they were, as far as no other module has them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from clusters.models import Node
from devtools.simulation.core.swarm import only
from federation.engine import sightings
from federation.engine.objects.gpu_needs import ANY_NODE
from federation.engine.objects.rendering import Devices
from federation.engine.retries import Cause
from federation.operations import attestation, dispatch, settlement, visits
from federation.operations.rests import begin_rest
from federation.queries import claimed_attempts, failures, queue

from . import Change, mutant

LONG = (200,)


@mutant(only({"flavor_renamed": 4, "unavailable": 0.4, "slow": 0.3}, cancels=0, gangs=0, run_seconds=(20,)))
def _promises_are_read_again(change: Change) -> None:
    """What an attempt was promised is not kept: if its cluster offers the flavor no more, its pods ask for no devices."""
    original = claimed_attempts._object  # noqa: SLF001 - the guard

    def now_offered(row: Any, needs: Any) -> Any:
        there = Node.objects.filter(cluster__attempts=row.attempt_id, devices__contains=[{"flavor": row.flavor}])
        item = original(row, needs)
        if there.exists():
            return item
        return replace(item, devices=Devices(), node_selector={}, needs=ANY_NODE, assumed_nodes=())

    change.put(claimed_attempts, "_object", now_offered)


@mutant(only({"eviction": 4, "node_dies": 1}, cancels=0, run_seconds=(60, 200)))
def _an_interruption_is_the_programs_failure(change: Change) -> None:
    """A job whose pod was evicted, or whose node died, has failed for good, as if its program had."""
    change.put(failures, "cause_of", lambda _: Cause.PROGRAM)


@mutant(only({"cluster_destroyed": 1}, cancels=0, run_seconds=LONG))
def _an_attestation_ends_nothing(change: Change) -> None:
    """What ran on a destroyed cluster is held for ever, whatever an administrator attests."""
    change.put(attestation, "end_as_lost", lambda *_: 0)


@mutant(only({"requests_hang": 2, "hangs_long": 1.0}, cancels=0, gangs=0))
def _a_creation_is_never_given_up(change: Change) -> None:
    """A job waits for a cluster that answers but creates nothing, however long, although another cluster is free."""

    def unless_given_up(attempt: Any, outcome: Any) -> Any:
        del attempt
        return outcome

    def leave_alone(cluster_id: Any, silence: Any) -> None:
        del silence
        begin_rest(cluster_id)

    change.put(visits, "_unless_given_up", unless_given_up)
    change.put(dispatch, "_leave_alone", leave_alone)


@mutant(only({"image_missing": 0.7}, cancels=0, gangs=0, chaos_seconds=(420.0, 500.0)))
def _the_same_cluster_is_tried_again(change: Change) -> None:
    """A job that a cluster could not start is placed there again, although another cluster is free."""
    change.put(queue, "NEVER_BEGUN", frozenset())


@mutant(only({"clocks_differ": 1}, cancels=0, run_seconds=(60, 200)))
def _clusters_clocks_are_believed(change: Change) -> None:
    """Times that a cluster reports are not converted from its clock to ours, so a slow one bills nothing."""
    change.put(sightings, "on_our_clock", lambda _eras, told, _now: (told, False))


@mutant(only({"rows_spoiled": 4}, cancels=0, run_seconds=(5, 20)))
def _a_bad_row_holds_up_the_others(change: Change) -> None:
    """If the usage of one run cannot be written, that of the others is not written either."""

    def together(step: str, rows: Sequence[Any], work: Callable[[Sequence[Any]], int], **others: Any) -> int:
        del step, others
        return work(rows) if rows else 0

    change.put(settlement, "in_parts", together)
