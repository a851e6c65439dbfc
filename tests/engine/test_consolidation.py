"""Which running jobs move so that a larger one fits, and why none do."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.cycle.cycle import decide, run
from placement.preemption.consolidation import consolidate, size_of
from placement.preemption.consolidation_texts import claims_of, explained, plan_text
from placement.values.model import GpuRequest, Release, TenantPolicy
from placement.values.preemption import RoomClaim
from tests.laws import examples

from .consolidation_worlds import (
    A_DAY,
    all_placed,
    cheapest_cost,
    gang,
    movable,
    moving_world,
    planned,
    random_moving_world,
)
from .fleets import A100, H100, NOW, cluster, flavor, job, limit, node, pods, reservation, snapshot
from .preemption_worlds import after, full, run_on

HALVES = {"c1-n0": 4, "c1-n1": 4}


def two_halves(*, minutes=(30, 60), **more):
    """Two nodes on each of which a job holds half."""
    return [run_on(number + 1, {f"c1-n{number}": 1}, gpus=4, minutes=minutes[number], **more) for number in range(2)]


def moved(found):
    return None if found.decision is None else {one.movable.run.attempt_id.int for one in found.decision.moves}


def test_the_job_that_repeats_less_moves_and_both_have_a_place():
    runs = two_halves()
    given_world = moving_world([full("aa", runs)], runs, gang())
    found = planned(given_world).decision
    assert [one.movable.run.attempt_id.int for one in found.moves] == [1]
    assert (found.cluster, found.nodes, found.is_exact) == ("c1", ("c1-n0",), True)
    (move,) = found.moves
    assert (move.nodes, move.lost_seconds, move.cost) == (("c1-n1",), 1800, (1800 + 60) * 4)
    assert (found.gain, found.otherwise_at) == (A_DAY * 8, None)
    assert (found.size_milli, found.amounts["gpu"]) == (8000, 8000)
    assert all_placed(given_world, [runs[0]])


def test_jobs_also_move_to_other_clusters_and_to_the_same_node():
    runs = [run_on(1, {"c1-n0": 1}, gpus=2, minutes=9), run_on(2, {"c1-n0": 1}, gpus=2, minutes=9)]
    elsewhere = run_on(3, {"c2-n0": 1}, gpus=4, on=2, tenant="globex")
    clusters = [full("a", runs), full("a", [elsewhere], on=2)]
    found = planned(moving_world(clusters, runs, gang())).decision
    assert {one.cluster: one.nodes for one in found.moves} == {"c2": ("c2-n0",)}
    assert len(found.moves) == 2


@pytest.mark.parametrize(
    ("changes", "world"),
    [
        ({"priority": 1}, {}),
        ({"tenant": "globex"}, {}),
        ({"shield_until": NOW + timedelta(seconds=1)}, {}),
        ({"times_preempted": 3}, {}),
        ({}, {"policy": "never"}),
        ({}, {"policy": ""}),
        ({}, {"share": 0.0}),
        ({}, {"most_moves": 0}),
        ({}, {"busy": frozenset([UUID(int=1)])}),
        ({}, {"left": {UUID(int=1): 0}}),
        ({}, {"patience_seconds": 7200}),
    ],
)
def test_what_may_not_be_moved_stays(changes, world):
    runs = two_halves(**changes)
    clusters = [full("aa", runs)]
    given_world = moving_world(clusters, runs, gang(), policies=None, **world)
    assert planned(given_world).decision is None
    assert planned(moving_world(clusters, two_halves(), gang())).decision is not None


def test_a_job_that_rests_or_was_moved_three_times_today_stays():
    runs = two_halves()
    for rests, times, moves in ((1, 0, False), (0, 3, False), (0, 2, True)):
        until = NOW + timedelta(seconds=rests)
        changed = [movable(one, rests_until=until, moves_today=times) for one in runs]
        found = planned(moving_world([full("aa", runs)], changed, gang()))
        assert (found.decision is not None) is moves


def test_no_plan_for_a_job_that_rests_or_has_a_claim_already():
    runs = two_halves()
    waiting = gang()
    given_world = moving_world([full("aa", runs)], runs, waiting, resting=frozenset([waiting.id]))
    assert planned(given_world).decision is None
    claim = RoomClaim(UUID(int=7), waiting.id, UUID(int=1), "c1", (), NOW + timedelta(minutes=10), 1)
    assert planned(moving_world([full("aa", runs)], runs, waiting, claims=(claim,))).decision is None


def test_only_jobs_that_are_smaller_move_so_no_two_ever_move_each_other():
    pair = run_on(1, {"c1-n0": 1, "c1-n1": 1}, gpus=4)
    other = run_on(9, {"c1-n2": 1}, gpus=4, tenant="globex")
    clusters = [full("abc", [pair, other])]
    equal, larger = gang(1, 8), gang(1, 8)
    larger = replace(larger, pod_sets=(*larger.pod_sets, pods(1, 1, name="head")))
    assert (size_of(equal), size_of(larger)) == (8000, 9000)
    assert planned(moving_world(clusters, [pair], equal)).decision is None
    assert moved(planned(moving_world(clusters, [pair], larger))) == {1}


@pytest.mark.parametrize(
    ("policy", "willing", "saves", "moves"),
    [
        ("willing", True, True, True),
        ("willing", False, True, False),
        ("willing", True, False, False),
        ("resumable", False, True, True),
        ("resumable", True, False, False),
        ("any", False, False, True),
    ],
)
def test_the_policy_of_the_moved_jobs_tenant_says_which_may_move(policy, willing, saves, moves):
    runs = two_halves()
    given_world = moving_world(
        [full("aa", runs)],
        [movable(one, is_willing=willing, saves_work=saves) for one in runs],
        gang(tenant="acme/other"),
        policies=[TenantPolicy("acme", consolidation="never"), TenantPolicy("acme/ml", consolidation=policy),
                  TenantPolicy("acme/other", consolidation="willing")],
    )  # fmt: skip
    assert (planned(given_world).decision is not None) is moves


def test_a_job_whose_tenant_does_not_allow_moves_gets_none():
    runs = two_halves()
    allowed = [TenantPolicy("acme/ml", consolidation="any")]
    assert planned(moving_world([full("aa", runs)], runs, gang(tenant="acme/web"), policies=allowed)).decision is None


def test_a_job_without_checkpoints_counts_with_all_its_work():
    runs = two_halves(minutes=(30, 60), checkpoint_seconds=60)
    saving = movable(runs[1])
    losing = movable(runs[0], saves_work=False)
    found = planned(moving_world([full("aa", runs)], [losing, saving], gang())).decision
    assert [one.movable for one in found.moves] == [saving]
    assert losing.cost(NOW) == (1800 + 60) * 4
    assert saving.cost(NOW) == 60 * 4


def test_a_checkpoint_that_cannot_be_resumed_elsewhere_keeps_its_job():
    runs = two_halves()
    there, nowhere = "H100-80GB-whole-on_demand", "A100"
    clusters = [full("aa", runs)]
    assert planned(moving_world(clusters, [movable(one, flavors=(there,)) for one in runs], gang())).decision
    assert planned(moving_world(clusters, [movable(one, flavors=(nowhere,)) for one in runs], gang())).decision is None


def test_the_cost_must_be_below_the_share_of_what_is_gained():
    runs = two_halves()
    cost = (1800 + 60) * 4
    waiting = gang(estimated_seconds=3720)
    gain = 3720 * 8
    just = moving_world([full("aa", runs)], runs, waiting, share=cost / gain)
    assert planned(just).decision.gain == gain
    short = moving_world([full("aa", runs)], runs, waiting, share=cost / gain - 1e-6)
    assert planned(short).decision is None
    (text,) = planned(short).why_not.values()
    assert text == (
        "running jobs could be moved so that it fits, but not at most 8 of them, each with another place now, that together"
        " cost 2.1 GPU-hours or less (25% of what it would gain)"
    )


def test_the_gain_ends_when_the_job_would_start_anyway():
    runs = two_halves()
    ends = Release(NOW + timedelta(seconds=660), UUID(int=1), runs[0].pods[0].flavor, 4, 1000, 1024, {"c1-n0": 1})
    given_world = moving_world([full("aa", runs)], runs, gang(), releases=(ends,), share=10.0)
    found = planned(given_world).decision
    assert (found.gain, found.otherwise_at) == (600 * 8, NOW + timedelta(seconds=660))
    unknown = moving_world([full("aa", runs)], runs, gang(estimated_seconds=None))
    assert planned(unknown).decision.gain == 3600 * 8


def test_quota_of_moved_jobs_is_not_available_to_the_larger_one():
    runs = two_halves()
    clusters = [full("aa", runs)]
    assert planned(moving_world(clusters, runs, gang(), [limit("acme", "gpu", 16_000, 8000)])).decision is not None
    assert planned(moving_world(clusters, runs, gang(), [limit("acme", "gpu", 15_999, 8000)])).decision is None


def test_a_moved_job_needs_quota_where_it_goes():
    runs = [run_on(1, {"c1-n0": 1}, gpus=4)]
    clusters = [full("a", runs), full("a", [run_on(9, {"c2-n0": 1}, gpus=4, on=2, tenant="globex")], on=2)]
    fits = [limit("acme", "gpu", 4000, 0, clusters=("c2",))]
    tight = [limit("acme", "gpu", 3999, 0, clusters=("c2",))]
    assert planned(moving_world(clusters, runs, gang(), fits)).decision is not None
    assert planned(moving_world(clusters, runs, gang(), tight)).decision is None


def test_what_the_larger_job_takes_of_a_limit_is_gone_for_those_that_move():
    one = run_on(1, {"c1-n0": 1}, gpus=4)
    nodes = [node("c1-n0", flavor(), 8, 4), node("c1-n1", flavor(A100), 8)]
    clusters = [cluster(1, nodes, [flavor(), flavor(A100)])]
    waiting = replace(gang(), pod_sets=(pods(1, 8, models=(H100,)), pods(1, 1, models=(A100,), name="head")))
    for cap, moves in ((5000, True), (4999, False)):
        given_world = moving_world(clusters, [one], waiting, [limit("acme", f"gpu:{A100}", cap)])
        assert (planned(given_world).decision is not None) is moves


def test_rooms_of_one_rack_and_reserved_nodes_are_respected():
    runs = [run_on(n + 1, {f"c1-n{n}": 1}, gpus=4, minutes=10 + 100 * (n in (1, 2))) for n in range(4)]
    racks = [full("abab", runs)]
    free = planned(moving_world(racks, runs, gang(2, 8))).decision
    assert {one.movable.run.attempt_id.int for one in free.moves} == {1, 4}
    required = gang(2, 8, level="rack", mode="required")
    kept = planned(moving_world(racks, runs, required)).decision
    assert {one.movable.run.attempt_id.int for one in kept.moves} in ({1, 3}, {2, 4})
    closed = moving_world(racks, runs, gang(2, 8), reservations=(reservation(5, "c1-n0", "c1-n1", tenant="acme/x"),))
    assert planned(closed).decision is None


def test_what_is_kept_is_open_to_each_job_of_the_plan_only():
    runs = two_halves()
    waiting, other = gang(), job(pods(1, 4))
    given_world = moving_world([full("aa", runs)], runs, waiting)
    found = planned(given_world).decision
    until = NOW + timedelta(minutes=10)
    claims = claims_of(found, (UUID(int=n) for n in range(50, 60)), until)
    again = given_world.returning[0]
    stopped = replace(after(given_world, [runs[0]]), queue=(other, again, waiting), claims=claims, consolidation=None)
    decisions = decide(stopped)
    assert {one.job_id: one.pod_sets[0].nodes for one in decisions.placements} == {
        again.id: {"c1-n1": 1},
        waiting.id: {"c1-n0": 1},
    }
    assert [one.job_id for one in decisions.waits] == [other.id]
    assert plan_text(claims[0], given_world) == (
        "1 running job is moving so that it fits, and about 2.00 GPU-hours of work are repeated; 1 node of c1 is kept for it"
        " until 12:10 UTC"
    )
    assert plan_text(claims[1], given_world) == (
        "it was moved so that a larger job fits; 1 node of c1 is kept for it until 12:10 UTC"
    )
    decisions, _ = run(given_world)
    (shown,) = explained(decisions.waits, claims, {}, given_world)
    assert shown.code == "waiting_for_consolidation"


def test_two_moved_jobs_share_a_node_whichever_comes_first():
    runs = [run_on(n + 1, {"c1-n0": 1}, gpus=2, minutes=9) for n in range(2)]
    others = run_on(3, {"c1-n1": 1}, gpus=4, tenant="globex")
    waiting = gang()
    given_world = moving_world([full("aa", [*runs, others])], runs, waiting)
    claims = claims_of(planned(given_world).decision, (UUID(int=n) for n in range(50, 60)), NOW + timedelta(minutes=10))
    first, second = given_world.returning
    for queue in ((first, second, waiting), (second, waiting, first), (waiting, second, first)):
        then = replace(after(given_world, runs), queue=queue, claims=claims, consolidation=None)
        assert len(decide(then).placements) == 3


def test_without_moves_being_allowed_a_cycle_is_what_it_was():
    runs = two_halves()
    given_world = moving_world([full("aa", runs)], runs, gang())
    plain = snapshot(given_world.clusters, given_world.queue)
    assert decide(given_world).waits == decide(plain).waits
    decisions, final = run(plain)
    assert consolidate(plain, final, decisions.waits).decision is None


@pytest.mark.law
@examples(60)
@given(st.integers(0, 10**6), st.sampled_from([0, 10]))
def test_laws_of_a_plan(seed, exact):
    given_world = random_moving_world(seed, most_runs=10, nodes=5)
    found = planned(given_world, exact).decision
    if found is None:
        return
    (waiting,) = given_world.queue
    stopped = [one.movable.run for one in found.moves]
    assert all_placed(given_world, stopped)
    assert found.cost <= given_world.consolidation.share * found.gain
    assert len(stopped) <= given_world.consolidation.most_moves
    sizes = {one.id: size_of(one) for one in given_world.returning}
    for one in found.moves:
        assert one.movable.run.priority <= waiting.priority
        assert one.movable.run.tenant_path.split("/")[0] == "acme"
        assert one.movable.run.shield_until <= NOW
        assert one.movable.moves_today < 3
        assert sizes[one.movable.run.job_id] < size_of(waiting)
        fewer = [other for other in stopped if other is not one.movable.run]
        assert not all_placed(given_world, fewer), "a move is not needed"


@pytest.mark.law
@examples(60)
@given(st.integers(0, 10**6), st.sampled_from([8, 8, 6, 5]))
def test_a_plan_that_is_kept_is_carried_out_in_any_order(seed, gpus):
    given_world = random_moving_world(seed, most_runs=10, nodes=5)
    (waiting,) = given_world.queue
    waiting = replace(waiting, pod_sets=tuple(replace(one, gpu=GpuRequest(gpus)) for one in waiting.pod_sets))
    given_world = replace(given_world, queue=(waiting,))
    found = planned(given_world).decision
    if found is None:
        return
    (waiting,) = given_world.queue
    claims = claims_of(found, (UUID(int=n) for n in range(50, 99)), NOW + timedelta(minutes=10))
    ids = {one.movable.run.job_id for one in found.moves}
    again = [one for one in given_world.returning if one.id in ids]
    stopped = after(given_world, [one.movable.run for one in found.moves])
    greedy = job(pods(1, 1), tenant="acme/web", shape="greedy")
    others = [replace(greedy, id=UUID(int=777_000 + n)) for n in range(40)]
    for queue in ((*others, *again[::-1], waiting), (*others, waiting, *again)):
        then = replace(stopped, queue=queue, claims=claims, consolidation=None, limits=())
        assert {one.job_id for one in decide(then).placements} >= {waiting.id, *(one.id for one in again)}


@pytest.mark.oracle
def test_on_small_fleets_the_plan_costs_what_the_cheapest_of_all_does():
    ratios, quick_ratios, missed = [], [], 0
    for seed in range(120):
        given_world = random_moving_world(seed)
        found, quick = planned(given_world).decision, planned(given_world, exact=0).decision
        least = cheapest_cost(given_world, A_DAY * size_of(given_world.queue[0]) / 1000)
        if decide(given_world).placements or least is None:
            assert found is None, seed
            continue
        if found is None:
            missed += 1
            continue
        ratios.append(found.cost / least)
        quick_ratios += [] if quick is None else [quick.cost / least]
    assert len(ratios) >= 12
    assert missed <= len(ratios) / 20
    assert sum(ratios) / len(ratios) <= 1.05
    assert sum(quick_ratios) / len(quick_ratios) <= 1.05
    assert len(quick_ratios) >= 0.8 * len(ratios)
