"""The state that a trial of preemption starts from: as if the jobs had never run."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from placement.cycle.cycle import run
from placement.fleet.fleet import FleetIndex
from placement.fleet.fleet_state import FleetState
from placement.fleet.siting import tightness
from placement.preemption.plan import MOST_CANDIDATES, MOST_CLUSTERS, MOST_CONSIDERED, MOST_SHOWN
from placement.preemption.trial import Trial
from placement.values.preemption import Allowance, HeldPods, RunningJob

from .fleets import A100, H100, NOW, cluster, flavor, job, node, pods
from .preemption_worlds import full, planned, run_on, world

RDMA = "rdma/hca"
MODELS = [flavor(A100), flavor(H100)]
USED: dict[str, Any] = {"free_cpu_millicores": 64_000 - 6000, "free_memory_mib": 65_536 - 4096, "free_pods": 18}
URGENT = {"priority": 100}


def two_flavors(name, *, h100_free=4, rdma_free=8, **more):
    """A node with two A100 and four H100, and network cards."""
    made = node(name, MODELS, [2, 4], [2, h100_free], cpu=64_000, memory=65_536, pods=20)
    return replace(made, resources={RDMA: 8}, free_resources={RDMA: rdma_free}, **more)


def running(number, nodes, of=MODELS[1], **more):
    held = HeldPods(of.name, 1, 3000, 2048, nodes, ((RDMA, 2), ("unknown/card", 1)))
    return RunningJob(
        UUID(int=number), UUID(int=100 + number), "acme/ml", 0, UUID(int=1), "c1", (held,), {"gpu": 1000},
        NOW - timedelta(hours=1), NOW, **more,
    )  # fmt: skip


def trial_of(nodes, runs, waiting=None):
    given = world([cluster(1, nodes, MODELS)], runs, waiting or job(pods(1, 9), **URGENT))
    _, final = run(given)
    return Trial(given, final, given.queue[0])


def test_what_a_job_used_is_free_again_in_every_pool_of_its_nodes():
    runs = [running(1, {"n0": 2}), running(2, {"n1": 1, "gone": 1})]
    busy = [two_flavors("n0", h100_free=2, rdma_free=4, **USED), two_flavors("n1", h100_free=3, rdma_free=6)]
    trial = trial_of(busy, runs)
    found = trial.state_after([0], runs)
    empty = FleetState(FleetIndex().fleet([cluster(1, [two_flavors("n0"), two_flavors("n1")], MODELS)]))
    for number in (0, 1):
        now, expected = found.pool(number), empty.pool(number)
        assert now.free.tolist() == expected.free.tolist()
        assert now.tight.tolist() == expected.tight.tolist() == tightness(now.free, None).tolist()
        assert now.bounds == expected.bounds
        assert found.bounds[:, number].tolist() == expected.bounds
    assert found.free_share.tolist() == empty.free_share.tolist()
    # The cycle's own state remains.
    assert trial._bench.state.pool(1).free[0].tolist() == [2, 3]


def test_only_as_much_is_free_as_a_node_has_and_nothing_on_one_that_is_closed():
    runs = [running(1, {"n0": 9, "n1": 1})]
    closed = two_flavors("n1", h100_free=3, is_usable=False, why_unusable="cordoned")
    found = trial_of([two_flavors("n0", h100_free=3), closed], runs).state_after([0], runs)
    assert found.pool(1).free[:4].tolist() == [[4, 0], [64_000, 0], [65_536, 0], [20, 0]]


def test_of_shared_devices_only_cores_and_memory_count_as_free_and_of_an_unknown_flavor_nothing():
    divisible = flavor(sharing="divisible")
    made = node("n0", divisible, 4, 3, cpu=64_000, memory=65_536, pods=20)
    busy = replace(made, **USED, device_free_milli={divisible.name: (1000, 1000, 1000, 0)})
    runs = [running(1, {"n0": 2}, divisible), running(2, {"n0": 1}, flavor("other"))]
    given = world([cluster(1, [busy], [divisible])], runs, job(pods(1, 0, fraction=500, cpu=65_000), **URGENT))
    _, final = run(given)
    trial = Trial(given, final, given.queue[0])
    pool = trial.state_after([0], runs).pool(0)
    assert pool.free[:4, 0].tolist() == [3, 64_000, 65_536, 20]
    assert pool.devices[:, 0].sum() == 3000


def test_pods_of_a_flavor_that_is_gone_give_nothing_back_and_those_beside_them_do():
    one = running(1, {"n0": 2})
    mixed = replace(one, pods=(replace(one.pods[0], flavor="gone"), *one.pods))
    busy = [two_flavors("n0", h100_free=2, rdma_free=4, **USED)]
    found = trial_of(busy, [mixed]).state_after([0], [mixed])
    assert found.pool(1).free[:4, 0].tolist() == [4, 64_000, 65_536, 20]


def test_of_several_other_resources_each_is_free_again():
    cards = (("example.com/a", 1), ("example.com/b", 2), (RDMA, 3))
    busy = replace(
        two_flavors("n0", h100_free=3, **USED),
        resources={name: 8 for name, _ in cards},
        free_resources={name: 8 - used for name, used in cards},
    )
    one = running(1, {"n0": 1})
    one = replace(one, pods=(replace(one.pods[0], resources=cards),))
    found = trial_of([busy], [one]).state_after([0], [one])
    assert found.pool(1).free[-len(cards) :, 0].tolist() == [8, 8, 8]


def many(count, gpus=8):
    return [run_on(number + 1, {f"c1-n{number}": 1}, gpus=gpus, minutes=10 + number) for number in range(count)]


def test_a_decision_shows_the_cheapest_of_the_others_and_no_more_than_some():
    runs = many(MOST_SHOWN + 3)
    found = planned(world([full("a" * len(runs), runs)], runs, job(pods(1, 8), **URGENT))).decision
    assert [one.run.attempt_id.int for one in found.victims] == [1]
    assert [one.run.attempt_id.int for one in found.considered] == list(range(2, MOST_SHOWN + 2))
    assert not found.is_exact


def test_a_search_among_many_finds_the_cheapest_that_suffice():
    runs = many(MOST_CANDIDATES + 5)
    waiting = job(pods(3, 8), level="rack", mode="required", **URGENT)
    found = planned(world([full("a" * len(runs), runs)], runs, waiting)).decision
    assert {one.run.attempt_id.int for one in found.victims} == {1, 2, 3}
    # Where the cheapest are on other racks, those of one rack that are enough.
    racks = "".join(chr(97 + number) for number in range(20)) + "zzz" + "y" * 22
    found = planned(world([full(racks, runs)], runs, waiting)).decision
    assert {one.run.attempt_id.int for one in found.victims} == {21, 22, 23}


def test_only_some_kinds_of_waiting_jobs_are_searched_for_and_jobs_of_one_kind_share_the_answer():
    runs = [run_on(1, {"c1-n0": 1}, gpus=8)]
    kinds = [job(pods(2, 8), shape=f"s{number}", priority=200 - number) for number in range(MOST_CONSIDERED + 1)]
    again = job(pods(2, 8), shape="s0", priority=200)
    fits = job(pods(1, 8), shape="fits", priority=1)
    queue = (*kinds[:-1], again, fits)
    given = replace(
        world([full("a", runs)], runs, fits),
        queue=queue,
        preemptors=tuple(one.id for one in (*kinds[:-1], again, fits)),
    )
    found = planned(given)
    assert found.decision is None
    assert set(found.why_not) == {one.id for one in (*kinds[:-1], again)}
    assert len(set(found.why_not.values())) == 1
    # One kind fewer leaves room for the last.
    queue = (*kinds[1:-1], fits)
    fewer = replace(given, queue=queue, preemptors=tuple(one.id for one in queue))
    assert planned(fewer).decision.job_id == fits.id


def test_a_job_that_waits_for_something_else_does_not_hide_those_behind_it():
    runs = [run_on(1, {"c1-n0": 1}, gpus=8)]
    never, fits = job(pods(1, 8), clusters=("elsewhere",), priority=200), job(pods(1, 8), priority=100)
    given = replace(world([full("a", runs)], runs, fits), queue=(never, fits), preemptors=(never.id, fits.id))
    assert planned(given).decision.job_id == fits.id


def test_the_best_ranked_clusters_are_searched_and_the_others_are_alternatives():
    count = MOST_CLUSTERS + 1
    runs = [run_on(n, {f"c{n}-n0": 1}, gpus=8, on=n, minutes=100 - n) for n in range(1, count + 1)]
    clusters = [full("a", runs, on=n) for n in range(1, count + 1)]
    found = planned(world(clusters, runs, job(pods(1, 8), **URGENT))).decision
    # The last cluster would be the cheapest, but it is one too many.
    assert found.cluster == f"c{MOST_CLUSTERS}"
    assert [one.cluster for one in found.alternatives] == [f"c{n}" for n in range(1, MOST_CLUSTERS)]
    assert {one.victims for one in found.alternatives} == {1}
    assert found.alternatives[0].cost == pytest.approx((99 * 60 + 60) * 8)


def test_a_cluster_where_none_may_be_stopped_is_passed_over():
    mine = run_on(2, {"c2-n0": 1}, gpus=8, on=2)
    theirs = run_on(1, {"c1-n0": 1}, gpus=8, tenant="globex")
    clusters = [full("a", [theirs], owner_path=""), full("a", [mine], on=2)]
    found = planned(world(clusters, [theirs, mine], job(pods(1, 8), **URGENT), allowance=Allowance(1)))
    assert found.decision.cluster == "c2"
