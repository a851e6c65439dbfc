"""Guards of pulled images, of room that is kept for jobs, of moves for larger jobs, of copied data, of converted charges, of
commitments, and of stops that wait for a checkpoint.
"""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import quotas.operations
from billing.engine import commitments, shared_entries
from billing.operations import commitment_days, periods
from devtools.simulation.core.swarm import Swarm, only
from federation.engine import prepulls, staging
from federation.engine.prepulls import Outcome, Verdict
from federation.operations import (
    consolidation,
    continuity,
    cycle,
    data_waits,
    left_preparations,
    preparation_calls,
    pull_calls,
    reconciliation,
    stage_calls,
)
from federation.queries import pending_stops
from placement.preemption import consolidation as planning
from quotas.models import KeptIdle

from . import Change, mutant

KEPT = {"room_kept": 1.0}
MOVED = only({"consolidated": 1.0}, chaos_seconds=(90.0, 150.0))
STAGED = only({"staged": 3.0, "reply_lost": 0.1, "death": 0.001})
COMMITTED = Swarm(
    rates={"committed": 1.0}, chaos_seconds=(25.0, 60.0), cancels=0.0, run_seconds=(60, 200), keeps_books=True
)
WAITED = only({"stops_wait": 2.0, "programs_report": 1.0}, cancels=0.1, chaos_seconds=(180.0, 220.0))
PULLED = {"prepulled": 3.0, "reply_lost": 0.1, "death": 0.001}


@mutant(
    only(
        {"room_taken": 1.0, "cut_off": 1.0, "watches_dead": 0.5, "reply_lost": 0.1, "death": 0.001},
        cancels=0.1,
        gangs=1.0,
    )
)
def _a_part_waits_on(change: Change) -> None:
    """A gang of which only a part started keeps its devices until the rest gets room, however long that takes."""
    change.put(continuity, "attend_to_parts", lambda: 0)


@mutant(only(PULLED))
def _pulls_are_left_behind(change: Change) -> None:
    """The object of a pull that has ended counts as gone although it is there, and the comparison leaves such objects alone too."""

    async def remove(driver: Any, pull: Any) -> preparation_calls.Gone:  # noqa: ARG001 - as the original
        return preparation_calls.Gone()

    original = left_preparations.separated

    def separated(listed: Any) -> tuple[Any, Any]:
        return original(listed)[0], []

    change.put(preparation_calls, "remove", remove)
    change.put(reconciliation, "separated", separated)


@mutant(only(PULLED | {"image_missing": 0.6}))
def _a_pod_on_a_node_has_its_image(change: Change) -> None:
    """A pull counts as done as soon as its pod has a node, whatever it waits for."""
    original = prepulls.verdict

    def verdict(node: str, pods: Any, job: Any, lasted: Any) -> Verdict:
        is_placed = any(pod.node == node for pod in pods)
        return Verdict(Outcome.PULLED) if is_placed else original(node, pods, job, lasted)

    change.put(pull_calls, "verdict", verdict)


@mutant(only(KEPT))
def _idle_goes_on(change: Change) -> None:
    """What was kept idle for a job counts as used by its team on and on, also when the job was placed."""

    def keep_idle(idle: Any) -> None:
        known = set(KeptIdle.objects.filter(ended_at=None).values_list("holder_id", flat=True))
        new = [(holder, one) for holder, one in idle.items() if holder not in known and any(one.amounts.values())]
        KeptIdle.objects.bulk_create(
            KeptIdle(holder_id=holder, tenant_id=one.tenant_id, amounts=dict(one.amounts), until_at=one.until)
            for holder, one in new
        )

    change.put(quotas.operations, "keep_idle", keep_idle)


@mutant(MOVED)
def _urgent_jobs_move_too(change: Change) -> None:
    """Jobs move for a larger one that is less urgent than they are, and the database lets them."""
    may_move, holds = planning._Planner._may_move, consolidation._still_holds  # noqa: SLF001 - the guards

    def as_urgent(self: Any, one: Any) -> bool:
        return may_move(self, replace(one, run=replace(one.run, priority=self._job.priority)))

    def still_holds(larger: Any, *others: Any) -> bool:
        was, larger.priority = larger.priority, 10**9
        try:
            return holds(larger, *others)
        finally:
            larger.priority = was

    change.put(planning._Planner, "_may_move", as_urgent)  # noqa: SLF001 - the guard
    change.put(consolidation, "_still_holds", still_holds)
    change.disable("federation_move", "a_move_leads_away")


@mutant(MOVED)
def _plans_of_moves_go_on(change: Change) -> None:
    """A plan does not end when its larger job was placed, nor when that does not wait any more."""
    change.put(cycle, "end_plans", lambda: 0)


@mutant(STAGED)
def _jobs_do_not_wait_for_data(change: Change) -> None:
    """Each job starts where it was placed, whether its data is there or not."""
    change.put(cycle, "without_promised", lambda placements, *_: placements)


@mutant(STAGED)
def _a_copy_that_runs_is_done(change: Change) -> None:
    """A copy counts as done as soon as its pod runs."""
    original = staging.verdict

    def verdict(pods: Any, *others: Any) -> Verdict:
        is_running = any(pod.phase == "Running" for pod in pods)
        return Verdict(staging.Outcome.STAGED) if is_running else original(pods, *others)

    change.put(stage_calls, "verdict", verdict)


@mutant(STAGED)
def _holds_of_waits_go_on(change: Change) -> None:
    """A job that waits for data keeps the quota of its wait when that has ended."""
    own = SimpleNamespace(take_holds=quotas.operations.take_holds, end_holds=lambda _: None)
    change.put(data_waits, "quotas", SimpleNamespace(operations=own))


@mutant(Swarm(rates={"exchanged": 1.0}, chaos_seconds=(25.0, 60.0), keeps_books=True))
def _corrected_rates_change_nothing(change: Change) -> None:
    """Days whose rate came, or was corrected, after they were posted are not converted again."""
    change.put(periods, "convert_days", lambda _turn=None: 0)


@mutant(COMMITTED)
def _two_commitments_cover_one_use(change: Change) -> None:
    """What one commitment has covered is left for the next one."""
    original = commitments._Usage.take  # noqa: SLF001 - the guard

    def take(self: Any, one: Any, hour: Any) -> Any:
        key = one.flavor, one.capacity_type, hour
        self.left[key] = Counter(self.whole.get(key, {}))
        return original(self, one, hour)

    change.put(commitments._Usage, "take", take)  # noqa: SLF001 - the guard


@mutant(COMMITTED)
def _other_terms_change_nothing(change: Change) -> None:
    """A day that was split once is not split again, whatever version applies."""
    original = shared_entries.missing_entries

    def missing_entries(wanted: Any, standing: Any, posted: Any) -> Any:
        return () if standing else original(wanted, standing, posted)

    change.put(commitment_days, "missing_entries", missing_entries)


@mutant(WAITED)
def _a_wait_has_no_end(change: Change) -> None:
    """A stop that waits for a checkpoint waits for it however long that takes."""
    change.cut(pending_stops, "DUE", " OR job.stop_latest_at <= statement_timestamp()")


@mutant(WAITED)
def _any_checkpoint_counts(change: Change) -> None:
    """A stop that waits for a checkpoint takes one that was reported before."""
    change.cut(pending_stops, "DUE", "> job.stop_wished_at, false", "IS NOT NULL, false")
