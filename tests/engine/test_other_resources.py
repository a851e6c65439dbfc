"""Jobs get the other resources that they request, and no more than nodes have."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import numpy as np
import pytest

from placement.answers.quotes import quote
from placement.cycle.cycle import decide
from placement.fleet.fleet import FleetIndex, fleet_of
from placement.fleet.fleet_state import FleetState
from placement.fleet.pools import RESOURCES
from placement.ranking.feasibility import never_fits
from placement.values.model import Release
from placement.values.nodes import NodeResources, fleet_node

from .fleets import NOW, cluster, flavor, job, node, snapshot
from .other_resources_worlds import PAGES, RDMA, H, asking, need_on, outcome, why, with_others


def test_a_fleet_without_other_resources_has_the_usual_rows():
    fleet = fleet_of([cluster(1, [node("n1", H)], [H])])
    assert fleet.resources == ()
    assert [pool.free.shape[0] for pool in fleet.pools] == [len(RESOURCES)]


def test_pods_go_to_the_node_that_has_the_resource():
    nodes = [node("n1", H), with_others(node("n2", H), rdma=1), node("n3", H)]
    decisions = outcome(job(asking((RDMA, 1))), clusters=[cluster(1, nodes, [H])])
    assert decisions.placements[0].pod_sets[0].nodes == {"n2": 1}


def test_a_resource_is_used_up_by_earlier_jobs_of_the_cycle():
    nodes = [with_others(node("n1", H), rdma=2)]
    first, second, third = (job(asking((RDMA, 1))) for _ in range(3))
    decisions = outcome(first, second, third, clusters=[cluster(1, nodes, [H])])
    assert [placed.job_id for placed in decisions.placements] == [first.id, second.id]
    assert why(decisions) == ("not_enough_free", "needs 1 rdma/hca with 1 GPU on one node; at most 0 is free there")


def test_a_resource_is_shared_by_the_flavors_of_a_node():
    mig = flavor(sharing="mig:1g.10gb")
    nodes = [with_others(node("n1", [H, mig], [4, 4]), rdma=1)]
    whole, part = job(asking((RDMA, 1))), job(asking((RDMA, 1), mig="1g.10gb"))
    decisions = outcome(whole, part, clusters=[cluster(1, nodes, [H, mig])])
    assert [placed.job_id for placed in decisions.placements] == [whole.id]


def test_the_pod_sets_of_a_job_share_a_nodes_resource():
    nodes = [with_others(node("n1", H), rdma=1), with_others(node("n2", H), rdma=1)]
    gang = job(asking((RDMA, 1), name="a"), asking((RDMA, 1), name="b"))
    placed = outcome(gang, clusters=[cluster(1, nodes, [H])]).placements[0]
    assert {name for one in placed.pod_sets for name in one.nodes} == {"n1", "n2"}
    decisions = outcome(
        job(asking((RDMA, 1), name="a"), asking((RDMA, 2), name="b")), clusters=[cluster(1, nodes, [H])]
    )
    assert not decisions.placements


def test_a_gang_counts_what_each_node_has_of_the_resource():
    nodes = [with_others(node(f"n{n}", H), pages=4096) for n in range(3)]
    placed = outcome(job(asking((PAGES, 2048), count=6)), clusters=[cluster(1, nodes, [H])]).placements[0]
    assert placed.pod_sets[0].nodes == {"n0": 2, "n1": 2, "n2": 2}
    decisions = outcome(job(asking((PAGES, 2048), count=7)), clusters=[cluster(1, nodes, [H])])
    assert why(decisions)[1] == "needs 7 pods of 1 GPU at the same time; there is room for 6"


def test_a_job_that_asks_for_what_no_node_has_never_fits():
    bare = cluster(1, [node("n1", H)], [H])
    [reason] = never_fits(job(asking((RDMA, 1))), [bare])
    assert (reason.code, reason.message, reason.is_for_good) == ("no_such_resource", "no node has rdma/hca", True)
    some = cluster(1, [with_others(node("n1", H), pages=2048)], [H])
    [reason] = never_fits(job(asking((PAGES, 3072))), [some])
    assert reason.message == "needs 3Gi of hugepages-1Gi on one node; the largest has 2Gi"
    assert never_fits(job(asking((PAGES, 2048))), [some]) is None


def test_a_node_shows_what_others_leave_and_never_less_than_nothing():
    made = fleet_node(
        "n", NodeResources(others={RDMA: 2, PAGES: 4}), NodeResources(others={RDMA: 1}), NodeResources(others={RDMA: 9, "x/y": 1}),
        domain=(),
    )  # fmt: skip
    assert made.resources == {RDMA: 2, PAGES: 4}
    assert made.free_resources == {RDMA: 0, PAGES: 4}


def test_arrays_are_built_again_only_when_the_fleet_has_other_resources():
    index = FleetIndex()
    one, other = cluster(1, [node("n1", H)], [H]), cluster(2, [node("n2", H)], [H])
    before = index.fleet([one, other])
    assert index.fleet([one, other]) is before
    grown = cluster(2, [with_others(node("n2", H), rdma=1)], [H])
    after = index.fleet([one, grown])
    assert after.resources == (RDMA,)
    assert {pool.free.shape[0] for pool in after.pools} == {len(RESOURCES) + 1}
    again = index.fleet([one, cluster(2, [with_others(node("n3", H), rdma=1)], [H])])
    assert again.pools[0] is after.pools[0]
    shrunk = index.fleet([one])
    assert shrunk.resources == ()
    assert [pool.free.shape[0] for pool in shrunk.pools] == [len(RESOURCES)]


def test_a_run_gives_its_resources_back_when_it_ends():
    used = replace(with_others(node("n1", H), rdma=1), free_resources={RDMA: 0})
    waiting = job(asking((RDMA, 1)), submitted_at=NOW.replace(hour=1), estimated_seconds=600)
    end = NOW.replace(hour=13)
    release = Release(end, cluster(1, [], []).id, H.name, 1, 1000, 1024, {"n1": 1}, ((RDMA, 1), ("gone/thing", 1)))
    asked = replace(snapshot([cluster(1, [used], [H])], [waiting]), releases=(release,))
    [wait] = decide(asked).waits
    assert wait.start is not None
    assert wait.start.at == end


def test_nothing_is_given_back_beyond_what_a_node_has():
    state = FleetState(fleet_of([cluster(1, [with_others(node("n1", H), rdma=2)], [H])])).pool(0)
    state.give_back(0, np.full(len(RESOURCES) + 1, 5))
    assert state.free[-1, 0] == 2


def test_what_jobs_take_of_kept_nodes_is_missing_when_these_are_free_again():
    made = cluster(1, [with_others(node("n1", H), rdma=3, pages=2048)], [H])
    state, need = need_on(made, asking((RDMA, 1), (PAGES, 1024)))
    state.hide([0])
    assert state.free[:, 0].tolist() == [0] * (len(RESOURCES) + 2)
    state.take(0, need, 2)
    state.unhide([0])
    assert state.free[len(RESOURCES) :, 0].tolist() == [0, 1]
    assert state.site(need) is None
    assert not state.may_hold(need)


def test_a_run_that_ends_gives_back_each_of_its_other_resources():
    made = replace(with_others(node("n1", H), rdma=1, pages=2048), free_resources={RDMA: 0, PAGES: 2048})
    release = Release(NOW + timedelta(minutes=10), UUID(int=1), H.name, 1, 1000, 1024, {"n1": 1}, ((RDMA, 1),))
    known = replace(snapshot([cluster(1, [made], [H])], []), releases=(release,))
    found = quote(job(asking((RDMA, 1))), known)
    assert (found.offers, [(one.placement.cluster, one.expected_start) for one in found.later]) == (
        (),
        [("c1", release.at)],
    )


def test_a_node_without_a_resource_that_others_have_has_none_of_it():
    nodes = [with_others(node("a", H, 8, 8), rdma=8), node("b", H, 8, 8)]
    (pool,) = fleet_of([cluster(1, nodes, [H])]).pools
    assert pool.capacity[-1].tolist() == pool.free[-1].tolist() == [8, 0]


@pytest.mark.parametrize(
    ("asked", "code"),
    [((RDMA, 1), "no_such_resource"), ((PAGES, 3072), "never_fits"), ((PAGES, 2048), "not_enough_free")],
)
def test_what_even_an_empty_node_lacks_is_lacking_for_good(asked, code):
    full = cluster(1, [with_others(node("n1", H, 8, 0), pages=2048)], [H])
    [wait] = outcome(job(asking(asked)), clusters=[full]).waits
    [reason] = wait.per_cluster
    assert (reason.code, reason.is_for_good) == (code, code != "not_enough_free")
