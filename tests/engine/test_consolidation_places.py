"""The places that a consolidation keeps: nothing that may change until its jobs have stopped takes them away."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from placement.cycle.cycle import decide, run
from placement.preemption.consolidation import MOST_CONSIDERED, MOST_MORE, MOST_TRIALS, consolidate
from placement.preemption.consolidation_texts import claims_of
from placement.preemption.rehearsal import Rehearsal
from placement.values.advance import latest_end
from placement.values.budgets import BudgetState, BudgetWindow
from placement.values.preemption import Leaving, RoomClaim
from placement.values.reason_codes import ReasonCode

from .consolidation_worlds import gang, moving_world, planned
from .fleets import NOW, job, limit, pods, snapshot, window
from .preemption_worlds import after, full, run_on
from .test_consolidation import two_halves


def in_each_order(given_world, found):
    """What a cycle decides when all runs have stopped: in the order of age, and with the larger job last and first."""
    (waiting,) = given_world.queue
    claims = claims_of(found, (UUID(int=n) for n in range(50, 99)), NOW + timedelta(minutes=10))
    ids = {one.movable.run.job_id for one in found.moves}
    again = [one for one in given_world.returning if one.id in ids]
    stopped = replace(after(given_world, [one.movable.run for one in found.moves]), claims=claims, consolidation=None)
    for queue in ((*again, waiting), (*again[::-1], waiting), (waiting, *again), (waiting, *again[::-1])):
        yield {one.job_id for one in decide(replace(stopped, queue=queue)).placements}, {one.id for one in queue}


@pytest.mark.parametrize("spare", [1, 2])
def test_a_gang_that_moves_does_not_depend_on_how_many_of_its_pods_go_to_a_node_of_another_job(spare):
    gang_of_two = run_on(1, {"c1-n0": 2}, gpus=2, minutes=20)
    others = [run_on(8 + n, {f"c1-n{2 + n}": 1}, gpus=6, tenant="globex") for n in range(spare)]
    clusters = [full("a" * (2 + spare), [gang_of_two, *others])]
    given_world = moving_world(clusters, [gang_of_two], gang(2, 6))
    found = planned(given_world).decision
    for placed, all_ids in () if found is None else in_each_order(given_world, found):
        assert placed == all_ids
    assert (found is not None) is (spare == 2), "on nodes of the larger job, both pods could go to one of them"
    if found is not None:
        assert [one.nodes for one in found.moves] == [("c1-n2", "c1-n3")]


@pytest.mark.parametrize(("hours", "moves"), [(104, True), (103, False)])
def test_budgets_allow_the_larger_job_and_those_that_move_together(hours, moves):
    runs = two_halves()
    year = BudgetWindow(NOW - timedelta(days=30), NOW + timedelta(days=365), Decimal(hours))
    limited = BudgetState(UUID(int=3), "acme", "gpu_hours", "", "year", (year,))
    given_world = moving_world([full("aa", runs)], runs, gang(deadline_seconds=3600), budgets=(limited,))
    assert (planned(given_world).decision is not None) is moves


@pytest.mark.parametrize(("minutes", "moves"), [(15, True), (5, False)])
def test_no_job_moves_that_would_meet_a_further_window_if_it_started_as_late_as_its_place_is_kept(minutes, moves):
    runs = two_halves()
    begins = 12 * 60
    given_world = moving_world(
        [full("aa", runs)],
        runs,
        gang(deadline_seconds=3600),
        windows=(window(4, "c1-n1", starts=begins),),
    )
    turnover = latest_end(NOW, 0) - NOW
    deadline = (timedelta(minutes=begins - minutes) - turnover).total_seconds()
    again = tuple(replace(one, deadline_seconds=int(deadline)) for one in given_world.returning)
    assert (planned(replace(given_world, returning=again)).decision is not None) is moves


def test_a_search_in_vain_ends_after_a_bounded_number_of_trials(monkeypatch):
    clusters, runs = [], []
    for on in range(1, 9):
        own = [run_on(10 * on + n, {f"c{on}-n{n}": 1}, gpus=5, on=on, minutes=9) for n in range(10)]
        clusters.append(full("a" * 10, own, on))
        runs += own
    waiting = gang(5, 8)
    tried = []
    for name in ("frees", "stuck"):
        inner = getattr(Rehearsal, name)
        monkeypatch.setattr(Rehearsal, name, lambda *given, inner=inner: tried.append(1) or inner(*given))
    assert planned(moving_world(clusters, runs, waiting, share=10.0)).decision is None
    assert 8 <= len(tried) <= MOST_TRIALS + 8 * (MOST_MORE + 2)


@pytest.mark.parametrize(
    ("trials", "most"),
    [(0, 9), (1, MOST_CONSIDERED), (MOST_TRIALS // 2, 2), (MOST_TRIALS // 2 - 1, 3), (MOST_TRIALS, 1)],
)
def test_a_cycle_searches_moves_for_few_jobs_with_trials_that_all_share(monkeypatch, trials, most):
    """A job for which nothing could be moved costs no search, and jobs alike share one."""
    left = []

    class InVain:
        def __init__(self, given, job, wait, most_trials):
            left.append(most_trials)
            self.trials = trials

        def decide(self):
            return "in vain"

    monkeypatch.setattr("placement.preemption.consolidation._Planner", InVain)
    runs, kinds = two_halves(), [gang(shape=f"s{number}") for number in range(9)]
    alike = gang(shape="s0")
    given_world = replace(moving_world([full("aa", runs)], runs, kinds[0]), queue=(*kinds, alike))
    decisions, cycle = run(given_world)
    waits = {wait.job_id: wait._replace(code=ReasonCode.WAITING_FOR_SHARE) for wait in decisions.waits}
    found = consolidate(given_world, cycle, [waits[one.id] for one in (kinds[0], alike, *kinds[1:])], exact=8)
    assert set(found.why_not) == {one.id for one in (alike, *kinds[:most])}
    assert left == [MOST_TRIALS - trials * number for number in range(most)]


def test_quota_of_the_new_place_is_kept_while_the_job_is_still_being_stopped():
    nodes = full("aa", [], on=2)
    leaving = Leaving("acme/ml", "c1", {"gpu": 4000})
    claim = RoomClaim(
        UUID(int=7), UUID(int=8), UUID(int=2), "c2", ("c2-n0",), NOW + timedelta(minutes=10), 0, amounts={"gpu": 4000},
        kind="moved", leaving=leaving,
    )  # fmt: skip
    other = job(pods(1, 4), tenant="acme/web")
    there, all_over = limit("acme", "gpu", 4000, clusters=("c2",)), limit("acme", "gpu", 8000, 4000)
    kept = replace(snapshot([nodes], [other], [there, all_over]), claims=(claim,))
    assert [one.code for one in decide(kept).waits] == ["waiting_for_quota"]
    assert not decide(replace(kept, claims=())).waits
    once = replace(snapshot([nodes], [other], [all_over]), claims=(claim,))
    assert decide(once).placements, "what it holds is not counted twice"
