"""What the cycle places, where, and what it says about the rest."""

from collections import Counter
from dataclasses import replace
from decimal import Decimal

import pytest

from placement.answers.quotes import quote
from placement.cycle.cycle import decide
from placement.fleet.fleet import FleetIndex
from placement.ranking.fragmentation import typical_of
from placement.values.model import ClusterRefusal
from placement.values.strategies import STRATEGIES

from .fleets import A100, H100, cluster, flavor, job, limit, node, pods, snapshot, uniform


def only_wait(decisions):
    assert not decisions.placements
    (wait,) = decisions.waits
    return wait


def only_placement(decisions):
    assert not decisions.waits, decisions.waits
    (placement,) = decisions.placements
    return placement


def reasons(wait):
    return {reason.cluster: reason.code for reason in wait.per_cluster}


def test_a_job_goes_to_the_cheapest_cluster_that_holds_it():
    fleet = [
        uniform(1, of=flavor(price="3")),
        uniform(2, of=flavor(price="2")),
        uniform(3, of=flavor(price="1"), total=4),
    ]
    placement = only_placement(decide(snapshot(fleet, [job(pods(gpus=8))])))
    assert placement.cluster == "c2"
    assert placement.unit_price == Decimal(2)
    assert placement.hourly_cost == Decimal(16)
    assert placement.amounts == {"cpu": 1000, "memory": 1024, "gpu": 8000, f"gpu:{H100}": 8000, "jobs": 1}


def test_equal_prices_are_settled_by_cluster_id():
    fleet = [uniform(9), uniform(4), uniform(7)]
    assert only_placement(decide(snapshot(fleet, [job()]))).cluster == "c4"


def test_what_has_no_price_comes_after_what_has():
    fleet = [uniform(1, of=flavor(price=None)), uniform(2, of=flavor(price="99"))]
    decisions = decide(snapshot(fleet, [job(pods(4, 8)), job(pods(4, 8))]))
    assert [placement.cluster for placement in decisions.placements] == ["c2", "c1"]
    assert decisions.placements[1].hourly_cost is None


def test_two_and_two_free_is_not_four_free():
    of = flavor()
    fleet = [cluster(1, [node("gpu-1", of, 8, 2), node("gpu-2", of, 8, 2)], [of])]
    wait = only_wait(decide(snapshot(fleet, [job(pods(gpus=4, models=[H100]))])))
    assert wait.code == "waiting_for_capacity"
    assert reasons(wait) == {"c1": "fragmented"}
    assert "needs 4 H100-80GB on one node; largest free block is 2 on gpu-1" in wait.message


def test_a_gang_runs_whole_or_not_at_all():
    fleet = [uniform(1, nodes=4), uniform(2, nodes=4)]
    decisions = decide(snapshot(fleet, [job(pods(5, 8)), job(pods(3, 8)), job(pods(2, 8))]))
    assert [wait.code for wait in decisions.waits] == ["waiting_for_capacity"]
    assert [(p.cluster, sum(p.pod_sets[0].nodes.values())) for p in decisions.placements] == [("c1", 3), ("c2", 2)]


def test_the_pod_sets_of_a_job_go_to_one_cluster_together():
    of, cpu = flavor(), flavor("", price="0.05")
    split = [cluster(1, [node("g", of)], [of]), cluster(2, [node("c", cpu, 0)], [cpu])]
    both = cluster(3, [node("g", of), node("c", cpu, 0)], [of, cpu])
    asked = job(pods(1, 8), pods(2, 0, name="reader", cpu=4000))
    placement = only_placement(decide(snapshot(split, [asked])))
    assert placement.cluster == "c1", "pods without a GPU may sit beside GPU pods where there is no other node"
    tight = job(pods(1, 8, cpu=128_000), pods(2, 0, name="reader", cpu=4000))
    placement = only_placement(decide(snapshot([*split, both], [tight])))
    assert placement.cluster == "c3"
    assert [placed.flavor for placed in placement.pod_sets] == [of.name, cpu.name]
    assert placement.hourly_cost == Decimal("16.4")


def test_pod_sets_that_fit_alone_but_not_together_wait():
    fleet = [uniform(1, nodes=1)]
    wait = only_wait(decide(snapshot(fleet, [job(pods(1, 5), pods(1, 5, name="other"))])))
    assert reasons(wait) == {"c1": "not_enough_free"}


def test_only_the_models_asked_for_are_used():
    fleet = [uniform(1, of=flavor(A100, price="1")), uniform(2)]
    assert only_placement(decide(snapshot(fleet, [job(pods(models=[H100]))]))).cluster == "c2"
    wait = only_wait(decide(snapshot(fleet[:1], [job(pods(models=[H100]))])))
    assert reasons(wait) == {"c1": "no_such_model"}


def test_a_mig_slice_goes_to_its_profile_only():
    small, large = flavor(sharing="mig:1g.10gb", price="0.3"), flavor(sharing="mig:3g.40gb", price="0.2")
    fleet = [cluster(1, [node("m", [small, large], [4, 1])], [small, large]), uniform(2, of=flavor(price="0.1"))]
    placement = only_placement(decide(snapshot(fleet, [job(pods(gpus=2, mig="1g.10gb"))])))
    assert placement.pod_sets[0].flavor == small.name
    assert placement.amounts["gpu"] == 2 * 1000 // 7


def test_a_fraction_takes_as_many_shares_as_cover_it():
    shared = flavor(sharing="timeslice:4", price="0.5")
    fleet = [cluster(1, [node("s", shared, 8)], [shared])]
    decisions = decide(snapshot(fleet, [job(pods(fraction=300)) for _ in range(5)]))
    assert len(decisions.placements) == 4
    assert decisions.placements[0].amounts["gpu"] == 500
    assert decisions.placements[0].hourly_cost == Decimal(1)


def test_jobs_without_a_gpu_prefer_nodes_without_one():
    cpu = flavor("", price="0.05")
    fleet = [uniform(1), cluster(2, [node("c", cpu, 0, cpu=4000)], [cpu])]
    decisions = decide(snapshot(fleet, [job(pods(gpus=0, cpu=4000)), job(pods(gpus=0, cpu=4000))]))
    assert [placement.cluster for placement in decisions.placements] == ["c2", "c1"]
    assert decisions.placements[0].hourly_cost == Decimal("0.2")
    assert "gpu" not in decisions.placements[0].amounts


def test_flavors_of_one_node_share_its_cores():
    small, large = flavor(sharing="mig:1g.10gb"), flavor(sharing="mig:3g.40gb")
    fleet = [cluster(1, [node("m", [small, large], [4, 2], cpu=8000)], [small, large])]
    queue = [job(pods(mig="1g.10gb", cpu=5000)), job(pods(mig="3g.40gb", cpu=5000)), job(pods(mig="3g.40gb", cpu=3000))]
    decisions = decide(snapshot(fleet, queue))
    assert [placement.job_id for placement in decisions.placements] == [queue[0].id, queue[2].id]


@pytest.mark.parametrize(
    ("constraint", "code"),
    [
        ({"clusters": ("other",)}, "cluster_excluded"),
        ({"exclude_clusters": ("c1",)}, "cluster_excluded"),
        ({"regions": ("us-*", "ap-*")}, "region_excluded"),
        ({"capacity_types": ("spot",)}, "capacity_type_excluded"),
    ],
)
def test_constraints_leave_clusters_out(constraint, code):
    wait = only_wait(decide(snapshot([uniform(1)], [job(**constraint)])))
    assert reasons(wait) == {"c1": code}
    assert wait.per_cluster[0].is_for_good


def test_a_cluster_that_refused_the_object_is_left_out_in_its_own_words_and_others_are_not():
    refused = (ClusterRefusal(uniform(1).id, "quota of the namespace: exceeded"),)
    wait = only_wait(decide(snapshot([uniform(1)], [job(refusals=refused)])))
    assert reasons(wait) == {"c1": "refused_by_cluster"}
    assert not wait.per_cluster[0].is_for_good
    assert "quota of the namespace: exceeded" in wait.message
    assert only_placement(decide(snapshot([uniform(1), uniform(2)], [job(refusals=refused)]))).cluster == "c2"


def test_regions_may_hold_wildcards():
    assert only_placement(decide(snapshot([uniform(1)], [job(regions=("us-*", "eu-*"))]))).cluster == "c1"


@pytest.mark.parametrize("state", ["cordoned", "draining", "unreachable", "auth_failed"])
def test_a_cluster_that_is_closed_takes_nothing(state):
    wait = only_wait(decide(snapshot([uniform(1, state=state)], [job()])))
    assert reasons(wait) == {"c1": state}
    assert wait.code == ("clusters_unreachable" if state in ("unreachable", "auth_failed") else "waiting_for_capacity")


def test_clusters_that_do_not_answer_are_named_whatever_the_cause():
    fleet = [uniform(n, state=state) for n, state in enumerate(("unreachable", "auth_failed", "stale"), start=1)]
    wait = only_wait(decide(snapshot(fleet, [job()])))
    assert (wait.code, wait.message.partition(": ")[2]) == ("clusters_unreachable", "c1, c2, c3")
    assert only_wait(decide(snapshot([*fleet, uniform(4, free=0)], [job()]))).code == "waiting_for_capacity"


def test_a_degraded_cluster_still_takes_work():
    assert only_placement(decide(snapshot([uniform(1, state="degraded")], [job()]))).cluster == "c1"


def test_a_cluster_of_another_organisation_is_not_even_named():
    fleet = [
        uniform(1, owner_path="globex"),
        uniform(2, owner_path="acme/ml-platform"),
        uniform(3, owner_path="acme/ml", total=2),
    ]
    wait = only_wait(decide(snapshot(fleet, [job(pods(gpus=4))])))
    assert reasons(wait) == {"c3": "never_fits"}


def test_nodes_that_cannot_be_used_hold_nothing():
    of = flavor()
    nodes = [node("sick", of, is_usable=False, why_unusable="not ready"), node("well", of, 8, 3)]
    wait = only_wait(decide(snapshot([cluster(1, nodes, [of])], [job(pods(gpus=8))])))
    assert wait.per_cluster[0].message.endswith(
        "largest free block is 3 on well; nodes that cannot be used: 1 not ready"
    )


def test_a_gang_takes_the_smallest_domain_that_holds_it():
    of = flavor()
    racks = {"r1": 4, "r2": 2, "r3": 4}
    nodes = [node(f"{rack}-{n}", of, domain=("z", "b", rack)) for rack, size in racks.items() for n in range(size)]
    queue = [job(pods(2, 8)), job(pods(8, 1)), job(pods(8, 8))]
    decisions = decide(snapshot([cluster(1, nodes, [of])], queue))
    first, second = decisions.placements
    assert (first.pod_sets[0].level, first.pod_sets[0].domain) == ("rack", ("z", "b", "r2"))
    assert second.pod_sets[0].level == "node"
    (wait,) = decisions.waits
    assert (wait.code, reasons(wait)) == ("behind_in_queue", {"c1": "not_enough_free"})


def test_a_required_level_is_kept_and_a_preferred_one_widens():
    fleet = [uniform(1, nodes=8, per_rack=4)]
    wait = only_wait(decide(snapshot(fleet, [job(pods(6, 8), level="rack", mode="required")])))
    assert reasons(wait) == {"c1": "topology_not_met"}
    assert "needs 6 pods inside one rack; the roomiest z1/b1/r00 has room for 4" in wait.message
    placement = only_placement(decide(snapshot(fleet, [job(pods(6, 8), level="rack", mode="preferred")])))
    assert placement.pod_sets[0].level == "block"
    assert sorted(placement.pod_sets[0].nodes) == [f"c1-n{n:03d}" for n in range(6)]


def test_racks_of_equal_name_in_different_blocks_are_different():
    of = flavor()
    nodes = [node(f"{block}-{n}", of, domain=("z", block, "r1")) for block in ("b1", "b2") for n in range(2)]
    wait = only_wait(decide(snapshot([cluster(1, nodes, [of])], [job(pods(3, 8), level="rack", mode="required")])))
    assert reasons(wait) == {"c1": "topology_not_met"}


def test_a_gang_prefers_one_clique():
    of = flavor()
    nodes = [node(f"n{n}", of, 4, clique=f"k{n // 2}", domain=("z", "b", "r")) for n in range(4)]
    placement = only_placement(
        decide(snapshot([cluster(1, nodes, [of])], [job(pods(2, 4), level="clique", mode="required")]))
    )
    assert placement.pod_sets[0].domain == ("z", "b", "r", "k0")


def test_unknown_domains_never_count_as_one():
    of = flavor()
    nodes = [node(f"n{n}", of, domain=("z", "", "")) for n in range(2)]
    wait = only_wait(decide(snapshot([cluster(1, nodes, [of])], [job(pods(2, 8), level="rack", mode="required")])))
    assert reasons(wait) == {"c1": "topology_not_met"}


def test_quota_is_kept_on_the_whole_path():
    limits = [limit("acme", "gpu", 10_000, held=4_000), limit("acme/ml", f"gpu:{H100}", 99_000)]
    decisions = decide(snapshot([uniform(1)], [job(pods(gpus=4)), job(pods(gpus=4)), job(pods(gpus=2))], limits))
    assert len(decisions.placements) == 2
    (wait,) = decisions.waits
    assert wait.code == "waiting_for_quota"
    assert reasons(wait) == {"c1": "quota_reached"}
    assert wait.message == "needs 4 GPUs; acme has 2 GPUs left of its 10 GPUs"


def test_of_several_clusters_whose_quota_is_used_up_the_first_is_told():
    limits = [limit("acme", "gpu", left * 1000, clusters=[name]) for name, left in (("c2", 0), ("c1", 1))]
    wait = only_wait(decide(snapshot([uniform(2), uniform(1)], [job(pods(gpus=4))], limits)))
    assert reasons(wait) == {"c1": "quota_reached", "c2": "quota_reached"}
    assert wait.message == "needs 4 GPUs; acme has 1 GPU left of its 1 GPU on c1"


def test_a_limit_on_one_cluster_sends_the_job_to_another():
    limits = [limit("acme", "gpu", 0, clusters=["c1"])]
    assert only_placement(decide(snapshot([uniform(1), uniform(2)], [job()], limits))).cluster == "c2"


def test_a_limit_on_one_model_sends_the_job_to_another_model():
    limits = [limit("acme/ml", f"gpu:{A100}", 500)]
    fleet = [uniform(1, of=flavor(A100, price="1")), uniform(2)]
    assert only_placement(decide(snapshot(fleet, [job(pods(models=[H100, A100]))], limits))).cluster == "c2"


def test_a_quota_of_another_tenant_is_not_touched():
    limits = [limit("acme/vision", "gpu", 0)]
    assert only_placement(decide(snapshot([uniform(1)], [job(tenant="acme/ml")], limits))).cluster == "c1"


def test_jobs_ahead_in_the_queue_are_named_when_they_take_the_room():
    queue = [job(pods(4, 8)), job(pods(1, 8))]
    (wait,) = decide(snapshot([uniform(1)], queue)).waits
    assert wait.job_id == queue[1].id
    assert wait.code == "behind_in_queue"


def test_no_cluster_at_all_is_said():
    assert only_wait(decide(snapshot([], [job()]))).code == "waiting_for_capacity"


def test_an_index_gives_the_same_decisions_when_clusters_change_between_cycles():
    index = FleetIndex()
    full, empty = uniform(1, free=0), uniform(1)
    queue = [job(pods(2, 8))]
    for clusters in ([full], [empty], [empty, uniform(2)], [full, uniform(2)], [uniform(2)], [full]):
        assert decide(snapshot(clusters, queue), index) == decide(snapshot(clusters, queue))


def test_cpu_and_memory_are_kept_too():
    wait = only_wait(decide(snapshot([uniform(1)], [job(pods(gpus=1, cpu=200_000))])))
    assert wait.per_cluster[0].message == "needs 200 cores on one node; the largest has 128 cores"
    of = flavor()
    busy = node("busy", of, free_cpu_millicores=2000)
    wait = only_wait(decide(snapshot([cluster(1, [busy], [of])], [job(pods(gpus=1, cpu=4000))])))
    assert "at most 2 cores and 1024 GiB are free there" in wait.message


@pytest.mark.parametrize("count", [1, 2])
def test_a_pod_may_take_a_node_to_the_last_core_and_mebibyte(count):
    fleet = [uniform(1, nodes=count)]
    only_placement(decide(snapshot(fleet, [job(pods(count, 8, cpu=128_000, memory=1_048_576))])))
    for more in ({"cpu": 128_001}, {"memory": 1_048_577}):
        assert reasons(only_wait(decide(snapshot(fleet, [job(pods(count, 8, **more))])))) == {"c1": "never_fits"}


def test_a_shape_that_lacks_room_together_tells_nothing_of_one_that_lacks_it_alone():
    """Both want the same devices; the first has room for each of its pod sets, the second for neither."""
    of = flavor()
    fleet = [cluster(1, [node("n", of, cpu=8000)], [of])]
    pairs = [job(pods(1, 1, cpu=cpu, name="a"), pods(1, 1, cpu=cpu, name="b")) for cpu in (5000, 9000)]
    together, alone = decide(snapshot(fleet, pairs)).waits
    assert together.per_cluster[0].message == "has room for each pod set alone, but not for all together"
    assert alone.per_cluster == only_wait(decide(snapshot(fleet, pairs[1:]))).per_cluster
    assert alone.per_cluster != together.per_cluster


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_of_equal_offers_the_cluster_that_was_given_least_in_the_cycle_is_taken(strategy):
    """Pods without a GPU leave the free part of the GPUs as it is, so the clusters remain equal."""
    fleet = [uniform(n) for n in (3, 1, 2)]
    queue = [job(pods(1, 0, memory=1 + n), strategy=strategy) for n in range(9)]
    asked = snapshot(fleet, queue)
    decisions = decide(asked)
    got = [placement.cluster for placement in decisions.placements]
    assert Counter(got) == {"c1": 3, "c2": 3, "c3": 3}
    assert got[:3] == ["c1", "c2", "c3"]
    for number, placement in enumerate(decisions.placements):
        ahead = replace(asked, queue=asked.queue[:number], typical_pods=typical_of(queue))
        assert quote(queue[number], ahead).offers[0].placement == placement


def test_a_dearer_cluster_is_no_equal_offer_however_little_it_was_given():
    fleet = [uniform(1, of=flavor("", price="0.05"), total=0), uniform(2, of=flavor("", price="0.10"), total=0)]
    decisions = decide(snapshot(fleet, [job(pods(1, 0)) for _ in range(9)]))
    assert {placement.cluster for placement in decisions.placements} == {"c1"}
