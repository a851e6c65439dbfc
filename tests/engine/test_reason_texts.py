"""What a user reads of a cluster that does not take the job: what is missing there, in numbers."""

from dataclasses import replace

import pytest

from placement.cycle.cycle import decide

from .fleets import A100, H100, cluster, flavor, job, limit, node, pods, snapshot, uniform

GPU, CPU = flavor(), flavor("", name="cpu")
SHARED, DIVISIBLE, SLICES = flavor(sharing="timeslice:4"), flavor(sharing="divisible"), flavor(sharing="mig:1g.10gb")
TPU = replace(flavor("tpu", name="tpu"), slice_hosts=4, vendor="google")


def of(one, *nodes):
    return cluster(1, nodes, [one])


def parts(*free):
    """A node of two devices of which so much is free."""
    return of(DIVISIBLE, node("n", DIVISIBLE, 2, 0, device_free_milli={DIVISIBLE.name: free}))


def cores(free):
    return of(CPU, node("c", CPU, 0, cpu=4000, free_cpu_millicores=free))


def in_slices():
    """Four hosts, of which the clique's label wrongly joins only two."""
    return of(TPU, *(node(f"n{n}", TPU, 4, clique=f"k{n // 2}") for n in range(4)))


def partly_closed():
    return of(
        GPU,
        node("a", GPU, 8, 2),
        node("b", GPU, is_usable=False, why_unusable="not ready"),
        node("c", GPU, is_usable=False),
    )


RACKS = uniform(1, nodes=4, per_rack=2)
FULL = node("full", CPU, 0, cpu=4000, free_pods=0)
SMALL = node("small", CPU, 0, cpu=4000, free_cpu_millicores=1000)
NARROW = node("narrow", CPU, 0, cpu=4000, free_memory_mib=1024)
BUSY = of(GPU, node("n", GPU, free_cpu_millicores=500))


@pytest.mark.parametrize(
    ("where", "asked", "code", "told"),
    [
        (uniform(1, nodes=2), job(pods(3, 8)), "not_enough_free", "needs 3 pods of 8 GPUs at the same time; there is room for 2"),
        (uniform(1, nodes=2, free=4), job(pods(1, 8)), "fragmented", "needs 8 GPUs on one node; largest free block is 4 on c1-n000"),
        (uniform(1, nodes=2, free=4), job(pods(3, 4)), "not_enough_free", "needs 3 pods of 4 GPUs at the same time; there is room for 2"),
        (uniform(1, nodes=2, free=0), job(pods(1, 1)), "not_enough_free", "needs 1 GPU on one node; none is free"),
        (of(GPU), job(pods(1, 1)), "never_fits", "needs 1 GPU on one node; the largest node has 0"),
        (uniform(1, nodes=1), job(pods(1, 9)), "never_fits", "needs 9 GPUs on one node; the largest node has 8"),
        (of(SHARED, node("n", SHARED, 8, 0)), job(pods(fraction=500)), "not_enough_free",
         "needs 0.5 of a time-sliced GPU on one node; none is free"),
        (parts(300, 200), job(pods(fraction=500)), "not_enough_free",
         "needs 0.5 of a time-sliced GPU on one node; largest free block is 0.3 GPUs on n"),
        (parts(600, 200), job(pods(2, fraction=500)), "not_enough_free",
         "needs 2 pods of 0.5 of a time-sliced GPU at the same time; there is room for 1"),
        (of(SLICES, node("n", SLICES, 4, 1)), job(pods(gpus=2, mig="1g.10gb")), "not_enough_free",
         "needs 2 MIG slice 1g.10gb of any GPU on one node; largest free block is 1 on n"),
        (of(SLICES, node("n", SLICES, 4, 1)), job(pods(gpus=2, mig="1g.10gb", models=[H100])), "not_enough_free",
         "needs 2 MIG slice 1g.10gb of H100-80GB on one node; largest free block is 1 on n"),
        (uniform(1), job(pods(mig="2g.20gb")), "no_such_model", "has no MIG slice 2g.20gb of any GPU"),
        (uniform(1), job(pods(fraction=250)), "no_such_model", "has no time-sliced GPU"),
        (uniform(1), job(pods(models=[A100, "L4"])), "no_such_model", "has no A100-80GB or L4"),
        (BUSY, job(pods(1, 1, cpu=1000)), "not_enough_free",
         "needs 1 core and 1 GiB with 1 GPU on one node; at most 0.5 cores and 1024 GiB are free there"),
        (of(GPU, node("n", GPU)), job(pods(1, 1, memory=2_000_000)), "never_fits",
         "needs 1953.125 GiB on one node; the largest has 1024 GiB"),
        (cores(1000), job(pods(1, 0, cpu=2000, memory=1536)), "not_enough_free",
         "needs 2 cores and 1.5 GiB on one node; at most 1 core and 1024 GiB are free there"),
        (cores(1000), job(pods(1, 0, cpu=4000)), "not_enough_free",
         "needs 4 cores and 1 GiB on one node; at most 1 core and 1024 GiB are free there"),
        (of(CPU, FULL, FULL), job(pods(1, 0, cpu=1000)), "not_enough_free",
         "needs 1 core and 1 GiB on one node; the 2 nodes with that much free have no room for another pod"),
        (of(CPU, FULL, SMALL), job(pods(1, 0, cpu=2000)), "not_enough_free",
         "needs 2 cores and 1 GiB on one node; the one node with that much free has no room for another pod"),
        (of(CPU, SMALL, NARROW), job(pods(1, 0, cpu=2000, memory=2048)), "not_enough_free",
         "needs 2 cores and 2 GiB on one node; at most 4 cores and 1024 GiB are free there, but not on the same node"),
        (cores(1000), job(pods(3, 0, cpu=500)), "not_enough_free",
         "needs 3 pods of 0.5 cores and 1 GiB at the same time; there is room for 2"),
        (uniform(1, state="stale", minutes_unseen=7), job(), "stale",
         "it was last observed 7 min ago, so its free capacity is unknown"),
        (uniform(1, state="unreachable"), job(), "unreachable", "it does not answer"),
        (uniform(1, state="odd"), job(), "odd", "it is odd"),
        (uniform(1, region=""), job(regions=("eu-*", "us-*")), "region_excluded",
         "is in region unknown; the job wants eu-*, us-*"),
        (uniform(1, of=flavor(capacity_type="spot")), job(pods(models=[H100]), capacity_types=("on_demand", "reserved")),
         "capacity_type_excluded", "offers H100-80GB only as spot; the job wants on_demand, reserved"),
        (RACKS, job(pods(3, 8), level="rack", mode="required"), "topology_not_met",
         "needs 3 pods inside one rack; the roomiest z1/b1/r00 has room for 2"),
        (RACKS, job(pods(9, 1), level="node", mode="required"), "topology_not_met",
         "needs 9 pods inside one node; the roomiest has room for 8"),
        (RACKS, job(pods(33, 1), level="zone", mode="required"), "not_enough_free",
         "needs 33 pods of 1 GPU at the same time; there is room for 32"),
        (in_slices(), job(pods(4, 4, models=["tpu"])), "topology_not_met",
         "needs 4 pods inside one slice; the roomiest z1/b1/r1/k0 has room for 2"),
        (partly_closed(), job(pods(1, 4)), "not_enough_free",
         "needs 4 GPUs on one node; largest free block is 2 on a; nodes that cannot be used: 1 not ready, 1 not usable"),
    ],
)  # fmt: skip
def test_what_a_cluster_lacks_is_told_in_numbers(where, asked, code, told):
    (wait,) = decide(snapshot([where], [asked])).waits
    (reason,) = wait.per_cluster
    assert (reason.cluster, reason.code, reason.message) == ("c1", code, told)
    if wait.code == "waiting_for_capacity":
        assert wait.message == f"c1: {told}"


@pytest.mark.parametrize(
    ("asked", "resource", "cap", "held", "told"),
    [
        (pods(1, 1, memory=2048), "memory", 2048, 1024, "needs 2 GiB of memory; acme has 1 GiB left of its 2 GiB"),
        (pods(1, 1, cpu=1500), "cpu", 1000, 2000, "needs 1.5 cores; acme has 0 cores left of its 1 core"),
        (pods(1, 2), f"gpu:{H100}", 1500, 0, f"needs 2 GPUs of {H100}; acme has 1.5 GPUs left of its 1.5 GPUs"),
        (pods(2, 1), "gpu", 1000, 0, "needs 2 GPUs; acme has 1 GPU left of its 1 GPU"),
    ],
)
def test_what_quota_lacks_is_told_in_the_units_of_its_resource(asked, resource, cap, held, told):
    for clusters, where in (((), ""), (("c1", "c2"), " on c1, c2")):
        (wait,) = decide(snapshot([uniform(1)], [job(asked)], [limit("acme", resource, cap, held, clusters)])).waits
        assert (wait.code, wait.message) == ("waiting_for_quota", told + where)


def test_of_several_clusters_the_first_reason_is_told_for_all():
    (wait,) = decide(snapshot([uniform(1), uniform(2)], [job(pods(5, 8))])).waits
    assert wait.message == ("no cluster has room now; c1: needs 5 pods of 8 GPUs at the same time; there is room for 4")


def test_of_several_flavors_the_one_nearest_to_having_room_is_told():
    """The nodes of one flavor are too small; those of the other only have their free devices in pieces."""
    small, large = flavor(name="small"), flavor(name="large")
    nodes = [node("s", small, 4), node("l1", large, 8, 4), node("l2", large, 8, 4)]
    (wait,) = decide(snapshot([cluster(1, nodes, [small, large])], [job(pods(1, 8))])).waits
    assert [(reason.code, reason.message) for reason in wait.per_cluster] == [
        ("fragmented", "needs 8 GPUs on one node; largest free block is 4 on l1 (flavor large)")
    ]


def test_up_to_four_reasons_against_nodes_are_named_the_most_frequent_first():
    def told(*reasons):
        nodes = [node(f"n{n}", GPU, is_usable=False, why_unusable=why) for n, why in enumerate(reasons)]
        (wait,) = decide(snapshot([of(GPU, *nodes, node("x", GPU, 8, 1))], [job(pods(1, 8))])).waits
        return wait.message.partition("nodes that cannot be used: ")[2]

    assert told("a", "b", "b", "c", "d") == "2 b, 1 a, 1 c, 1 d"
    assert told("a", "b", "b", "c", "d", "e", "f") == "2 b, 1 a, 1 c, 1 d, 2 for other reasons"
