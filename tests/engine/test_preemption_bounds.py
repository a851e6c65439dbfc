"""How far the search for victims goes, in which order equal ones come, and what is told of it."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from placement.preemption.plan import claim_text, is_preemptible
from placement.preemption.surplus import reduce
from placement.values.preemption import CORES_PER_GPU, OVERDUE_WEIGHT, Allowance, Loan, RoomClaim

from .fleets import NOW, job, limit, pods, snapshot
from .preemption_worlds import full, planned, run_on, world
from .test_surplus import GPU, beyond
from .test_surplus import run as run_beyond

URGENT = {"priority": 100}


def one_each(clusters, minutes=60):
    """A running job of a node on each of so many clusters, number 1 on cluster 1."""
    longer = minutes if isinstance(minutes, list) else [minutes] * clusters
    return [
        run_on(number, {f"c{number}-n0": 1}, gpus=8, on=number, minutes=longer[number - 1])
        for number in range(1, clusters + 1)
    ]


def worlds_of(runs, waiting=None, **more):
    clusters = [full("a", runs, on=one.attempt_id.int) for one in runs]
    return world(clusters, runs, waiting or job(pods(1, 8), **URGENT), **more)


def test_of_victims_that_cost_the_same_those_on_the_better_ranked_cluster_go_and_the_others_are_alternatives():
    found = planned(worlds_of(one_each(3, [60, 60, 90]))).decision
    assert (found.cluster, [one.run.attempt_id.int for one in found.victims]) == ("c1", [1])
    assert [(one.cluster, one.victims, one.cost) for one in found.alternatives] == [
        ("c2", 1, 61 * 60 * 8), ("c3", 1, 91 * 60 * 8),
    ]  # fmt: skip
    cheaper = planned(worlds_of(one_each(3, [60, 30, 60]))).decision
    assert (cheaper.cluster, [one.cluster for one in cheaper.alternatives]) == ("c2", ["c1", "c3"])
    assert cheaper.amounts["gpu"] == 8000


def test_only_the_eight_best_ranked_clusters_are_searched():
    for number, stopped in ((8, 8), (9, 1)):
        minutes = [60] * 9
        minutes[number - 1] = 1
        found = planned(worlds_of(one_each(9, minutes))).decision
        assert [one.run.attempt_id.int for one in found.victims] == [stopped]
        assert len(found.alternatives) == 7


def test_only_eight_kinds_of_waiting_jobs_are_looked_at_and_jobs_of_a_kind_share_the_answer():
    runs = [run_on(1, {"c1-n0": 1}, gpus=8, shield_until=NOW + timedelta(minutes=5))]
    waiting = [job(pods(1, 8), shape=f"s{number // 2}", **URGENT) for number in range(20)]
    given = replace(
        world([full("a", runs)], runs, waiting[0]), queue=tuple(waiting), preemptors=tuple(one.id for one in waiting)
    )
    assert list(planned(given).why_not) == [one.id for one in waiting[:16]]
    kinds = [
        replace(waiting[0], id=UUID(int=1)),
        replace(waiting[0], id=UUID(int=2), priority=99),
        replace(waiting[0], id=UUID(int=3), tenant_path="acme/web"),
        *(replace(one, id=UUID(int=10 + number), shape="") for number, one in enumerate(waiting[:7])),
    ]
    mixed = replace(given, queue=tuple(kinds), preemptors=tuple(one.id for one in kinds))
    assert len(planned(mixed).why_not) == 8


def test_the_twenty_cheapest_others_are_shown_and_of_equal_ones_those_with_the_lower_id():
    runs = [run_on(number, {f"c1-n{number - 1}": 1}, gpus=8, minutes=60) for number in range(24, 0, -1)]
    found = planned(world([full("a" * 24, runs)], runs, job(pods(2, 8), **URGENT), allowance=Allowance(99))).decision
    stopped = {one.run.attempt_id.int for one in found.victims}
    shown = [one.run.attempt_id.int for one in found.considered]
    assert len(stopped) == 2
    assert shown == [number for number in range(1, 25) if number not in stopped][:20]
    assert not found.is_exact


def test_of_equal_small_sets_the_lower_ids_are_stopped():
    runs = [run_on(number, {f"c1-n{number - 1}": 1}, gpus=8) for number in (3, 1, 2)]
    found = planned(world([full("aaa", runs)], runs, job(pods(1, 8), **URGENT))).decision
    assert [one.run.attempt_id.int for one in found.victims] == [1]
    assert [one.run.attempt_id.int for one in found.considered] == [2, 3]


@pytest.mark.parametrize(
    ("victims", "borrowers", "ended", "nodes", "told"),
    [
        (1, 0, 0, 1, "1 less urgent job is being stopped for it; 1 node of c1 is"),
        (2, 0, 1, 2, "2 less urgent jobs are being stopped for it (1 of them ended); 2 nodes of c1 are"),
        (1, 1, 0, 1, "1 job that borrowed its quota is being stopped for it; 1 node of c1 is"),
        (3, 3, 2, 0, "3 jobs that borrowed its quota are being stopped for it (2 of them ended); 0 nodes of c1 are"),
        (3, 1, 0, 2, "3 jobs, 1 of which borrowed its quota, are being stopped for it; 2 nodes of c1 are"),
    ],
)
def test_what_is_told_of_a_claim(victims, borrowers, ended, nodes, told):
    names = tuple(f"n{number}" for number in range(nodes))
    claim = RoomClaim(
        UUID(int=7), UUID(int=8), UUID(int=1), "c1", names, NOW + timedelta(minutes=10), victims, ended,
        borrowers=borrowers,
    )  # fmt: skip
    assert claim_text(claim, snapshot([], [])) == f"{told} kept for it until 12:10 UTC"


def test_a_shield_ends_at_its_time_and_the_third_stop_is_the_last():
    one = run_on(1, {"c1-n0": 1})
    for shield, times, expected in ((0, 0, True), (1, 0, False), (0, 2, True), (0, 3, False), (-1, 2, True)):
        changed = replace(one, shield_until=NOW + timedelta(microseconds=shield), times_preempted=times)
        assert is_preemptible(changed, NOW) is expected


def test_why_none_is_stopped_counts_who_could_be_and_who_is_protected():
    free, shielded = run_on(1, {"c1-n0": 1}, gpus=2), run_on(2, {"c1-n0": 1}, gpus=2, shield_until=NOW + timedelta(1))
    other = run_on(3, {"c1-n0": 1}, gpus=4, tenant="globex")

    def why(*runs, **more):
        (text,) = planned(world([full("a", runs)], runs, job(pods(1, 8), **URGENT), **more)).why_not.values()
        return text

    lower = "of lower priority that may be stopped"
    assert why(free, other) == f"it would not fit even if the 1 running job {lower} had ended"
    assert why(free, shielded, other) == (
        f"it would not fit even if the 1 running job {lower} (1 more are protected) had ended"
    )
    two = free, run_on(4, {"c1-n0": 1}, gpus=2), other
    assert why(*two) == f"it would not fit even if the 2 running jobs {lower} had ended"
    both = run_on(5, {"c1-n0": 1}, gpus=4), run_on(6, {"c1-n0": 1}, gpus=4)
    assert why(*both, allowance=Allowance(1)) == (
        "enough of the 2 running jobs of lower priority cannot be stopped now: at most 1 in a cycle, and a share an hour"
    )


def test_claims_and_allowances_of_nobody_end_the_search_before_it_begins():
    runs = [run_on(1, {"c1-n0": 1}, gpus=8)]
    waiting = job(pods(1, 8), **URGENT)
    for changes in ({"running": ()}, {"allowance": Allowance(0)}):
        assert planned(replace(world([full("a", runs)], runs, waiting), **changes)).why_not == {}
    assert planned(world([full("a", runs)], runs, waiting, allowance=Allowance(1))).decision is not None


def test_of_a_lowered_limit_twenty_others_are_shown_by_cost_and_then_by_id():
    runs = [run_beyond(number, 1, minutes=60) for number in range(30, 0, -1)]
    found = reduce(beyond(runs, {"acme/a": 28}, allowance=Allowance(99)))
    assert [one.run.attempt_id.int for one in found.victims] == [1, 2]
    assert [one.run.attempt_id.int for one in found.considered] == list(range(3, 23))
    assert {one.surplus.tenant_path for one in found.considered} == {"acme/a"}
    assert not found.is_exact
    few = beyond(runs[:3], {"acme/a": 2})
    assert [reduce(few, exact=exact).is_exact for exact in (2, 3)] == [False, True]


def test_the_brake_of_a_lowered_limit_counts_gpus_to_the_last_one():
    runs = [run_beyond(number, 2, minutes=10 * number) for number in range(1, 5)]
    for left, stopped in ((6 * GPU, {1, 2, 3}), (6 * GPU - 1, {1, 2}), (2 * GPU, {1})):
        found = reduce(beyond(runs, {"acme/a": 0}, allowance=Allowance(16, {"acme": left})))
        assert {one.run.attempt_id.int for one in found.victims} == stopped
    mixed = [run_beyond(1, 4, minutes=1), run_beyond(2, 2, minutes=600)]
    found = reduce(beyond(mixed, {"acme/a": 0}, allowance=Allowance(16, {"acme": 3 * GPU})))
    assert {one.run.attempt_id.int for one in found.victims} == {2}, "the next one that fits"


def test_a_limit_that_holds_exactly_what_it_may_is_no_reason():
    runs = [run_beyond(1, 4), run_beyond(2, 4)]
    assert reduce(beyond(runs, {"acme/a": 8})) is None
    assert [one.tenant_path for one in reduce(beyond(runs, {"acme/a": 7, "acme": 8})).limits] == ["acme/a"]
    assert limit("acme", "gpu", 1).held == 0


@pytest.mark.parametrize(
    ("changes", "lost"),
    [
        ({}, 3600),
        ({"started_at": NOW + timedelta(seconds=5)}, 0),
        ({"started_at": NOW - timedelta(seconds=1.9)}, 1),
        ({"checkpoint_seconds": 1000}, 600),
        ({"checkpoint_seconds": 3600}, 0),
        ({"saved_at": NOW - timedelta(seconds=90), "checkpoint_seconds": 1000}, 90),
        ({"saved_at": NOW - timedelta(hours=2)}, 3600),
        ({"saved_at": NOW + timedelta(hours=2)}, 0),
    ],
)
def test_what_is_lost_is_the_work_since_the_last_checkpoint(changes, lost):
    assert replace(run_on(1, {"c1-n0": 1}), **changes).lost_seconds(NOW) == lost


def test_a_stop_costs_its_lost_work_and_a_minute_times_its_size_and_the_stops_before():
    one = run_on(1, {"c1-n0": 1}, gpus=2, minutes=10)
    assert [replace(one, times_preempted=times).cost(NOW) for times in (0, 1, 2)] == [1320, 2640, 3960]
    bare = replace(one, amounts={"cpu": 16_000})
    assert (bare.gpu_milli, replace(one, amounts={}).gpu_milli) == (16_000 // CORES_PER_GPU, 0)
    assert CORES_PER_GPU == 16


def test_a_run_is_overdue_only_after_the_time_that_its_user_stated():
    one = run_on(1, {"c1-n0": 1}, minutes=10)
    assert [replace(one, estimated_seconds=given).is_overdue(NOW) for given in (None, 601, 600, 599)] == [
        False, False, False, True,
    ]  # fmt: skip


def test_the_more_of_what_a_tenant_holds_is_borrowed_the_less_its_runs_count():
    loan = Loan("acme/b", "gpu", (), 16, 8, is_overdue=False)
    assert [replace(loan, held=held).weight for held in (8, 16, 32)] == [1, 0.75, 0.625]
    assert replace(loan, nominal=0).weight == 0.5
    assert replace(loan, is_overdue=True).weight == OVERDUE_WEIGHT < 0.5


def test_a_lowered_limit_counts_what_runs_at_its_tenant_or_below_on_its_clusters():
    one = run_beyond(1, 1, tenant="acme/a")
    own = beyond([one], {"acme/a": 0}).due[0]
    assert own.counts(one)
    assert own.counts(replace(one, tenant_path="acme/a/x"))
    assert not own.counts(replace(one, tenant_path="acme/ab"))
    assert not own.counts(replace(one, tenant_path="acme"))
    assert not own.counts(replace(one, amounts={"gpu": 0, "cpu": 1}))
    assert not replace(own, resource="jobs").counts(one)
    assert replace(own, clusters=("c1",)).counts(one)
    assert not replace(own, clusters=("c2",)).counts(one)


def test_after_enough_trials_no_further_cluster_is_searched(monkeypatch):
    given = worlds_of(one_each(3, [60, 30, 60]))
    monkeypatch.setattr("placement.preemption.plan.MOST_TRIALS", 1)
    found = planned(given).decision
    assert (found.cluster, found.alternatives) == ("c1", ())
