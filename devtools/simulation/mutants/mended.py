"""Defects that were mended, as they were: each has a seed that is kept because it found it (`devtools.simulation.seeds.kept`). Two were
errors of judges.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import clusters.operations
from billing.queries import corrections
from clusters.models import Cluster
from clusters.operations import record_contact
from clusters.queries import visible_clusters
from devtools.simulation.core.swarm import only
from devtools.simulation.judges import promises
from devtools.simulation.requests import data_copies
from federation.observer import buffer
from federation.operations import reconciliation
from foundation import clock

from . import Change, mutant


@mutant(only({"stranger_edits": 4}, run_seconds=(60, 200)))
def _what_lists_lack_is_not_read(change: Change) -> None:
    """What became of an object that no list shows any more is not recorded, although it was requested by its uid."""
    original = reconciliation._ask  # noqa: SLF001

    async def ask(*given: Any) -> list[tuple[Any, Any]]:
        return [(row, seen and replace(seen, outcome="")) for row, seen in await original(*given)]

    change.put(reconciliation, "_ask", ask)


@mutant(only({"clocks_differ": 1}))
def _an_observers_clock_dates_what_it_sees(change: Change) -> None:
    """How fresh an observation is depends on the clock of the observer's host."""

    def contact(cluster_id: UUID, *, observed_seconds_ago: float | None = None, **more: Any) -> bool:
        if observed_seconds_ago is not None:
            at = clock.now() - timedelta(seconds=observed_seconds_ago)
            Cluster.objects.filter(id=cluster_id).update(observed_at=at)
        return record_contact(cluster_id, **more)

    change.put(clusters.operations, "record_contact", contact)


@mutant(only({"database_restored": 2}, cancels=1, run_seconds=(20, 60)))
def _lost_deletions_are_no_excuse(change: Change) -> None:
    """The judge of ends takes each program that ends with 0 for a success, also of a Job that was deleted in commits that were lost."""
    change.put(promises, "_stopped_in_lost_commits", lambda _: set())


@mutant(only({"staged": 3.0}))
def _kept_nodes_are_no_excuse(change: Change) -> None:
    """The judge of data wants each job to wait for it, also one for which nodes are kept because others were stopped for it."""
    change.cut(data_copies, "TOO_EARLY", " AND before IS NULL")


@mutant(only({"cluster_removed": 1}, keeps_books=True))
def _removed_clusters_have_no_prices(change: Change) -> None:
    """The price of a removed cluster cannot be corrected."""

    def visible(actor: Any, *, with_removed: bool) -> Any:
        del with_removed
        return visible_clusters(actor)

    change.put(corrections, "visible_clusters", visible)


@mutant(only({"cut_off": 3, "eviction": 8}, run_seconds=(60, 200)))
def _what_lists_lack_was_seen_to_go(change: Change) -> None:
    """A pod that a new list lacks counts as seen until then, whenever its Job ended."""
    original = buffer.Buffer.take

    def take(self: Any) -> Any:
        return replace(original(self), vanished_pods=())

    change.put(buffer.Buffer, "take", take)
