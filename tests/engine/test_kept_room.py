"""A gang that has waited too long gets its nodes, whatever keeps coming behind it."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from placement.cycle.cycle import decide
from placement.values.decisions import Wait
from placement.values.model import Release

from .fleets import NOW, cluster, flavor, job, node, pods, snapshot, uniform

LONG_AGO = NOW - timedelta(hours=1)
JUST_NOW = NOW - timedelta(minutes=1)


def gang(**more):
    return job(pods(4, 8), submitted_at=LONG_AGO, **more)


def fleet(*free):
    of = flavor()
    return [cluster(1, [node(f"n{n}", of, 8, units) for n, units in enumerate(free)], [of])]


def outcome(decisions, one) -> Wait | None:
    return next((wait for wait in decisions.waits if wait.job_id == one.id), None)


def test_nodes_that_come_free_are_kept_for_a_gang_that_waited_too_long():
    large, small = gang(), job(pods(1, 1))
    decisions = decide(snapshot(fleet(8, 8, 8, 3), [large, small]))
    assert not decisions.placements
    assert outcome(decisions, large).message.endswith("nodes that become free on c1 are kept for it")
    assert outcome(decisions, small).code == "reserved_for_gang"
    assert [reason.code for reason in outcome(decisions, small).per_cluster] == ["reserved_for_gang"]


def test_a_gang_that_came_just_now_keeps_nothing():
    large, small = job(pods(4, 8), submitted_at=JUST_NOW), job(pods(1, 1))
    assert len(decide(snapshot(fleet(8, 8, 8, 3), [large, small])).placements) == 1


def test_only_the_nodes_that_are_nearest_are_kept():
    large, small = job(pods(2, 8), submitted_at=LONG_AGO), job(pods(1, 1))
    (placement,) = decide(snapshot(fleet(8, 1, 5, 2), [large, small])).placements
    assert set(placement.pod_sets[0].nodes) & {"n0", "n2"} == set()


def test_room_is_kept_where_the_gang_fits_and_not_on_a_better_cluster_that_is_too_small():
    cheap, dear = flavor(price="1"), flavor(price="2")
    small = cluster(1, [node(f"n{n}", cheap, 8, 7, domain=("z", "b", f"r{n}")) for n in range(4)], [cheap])
    large = cluster(2, [node(f"n{n}", dear, 8, 7) for n in range(4)], [dear])
    patient = gang(level="rack", mode="required")
    decisions = decide(snapshot([small, large], [patient]))
    assert outcome(decisions, patient).message.endswith("nodes that become free on c2 are kept for it")


def test_jobs_ahead_of_the_gang_are_not_held_up():
    first, large = job(pods(1, 8), submitted_at=LONG_AGO), gang()
    (placement,) = decide(snapshot(fleet(8, 8, 8, 8), [first, large])).placements
    assert placement.job_id == first.id


def test_a_gang_that_waits_for_quota_or_could_never_run_keeps_nothing():
    impossible, small = job(pods(5, 8), submitted_at=LONG_AGO), job(pods(1, 1))
    assert len(decide(snapshot(fleet(8, 8, 8, 3), [impossible, small])).placements) == 1


def test_room_is_kept_in_the_domain_that_the_gang_must_keep_to():
    of = flavor()
    nodes = [node(f"r{rack}-n{n}", of, 8, free, domain=("z", "b", f"r{rack}")) for rack, n, free in
             [(1, 0, 8), (1, 1, 0), (2, 0, 8), (2, 1, 7), (3, 0, 8)]]  # fmt: skip
    large = job(pods(2, 8), submitted_at=LONG_AGO, level="rack", mode="required")
    decisions = decide(snapshot([cluster(1, nodes, [of])], [large, job(pods(1, 8)), job(pods(1, 8)), job(pods(1, 1))]))
    placed = [set(placement.pod_sets[0].nodes) for placement in decisions.placements]
    assert {"r3-n0"} in placed
    kept = {"r1-n0", "r1-n1"} if {"r2-n0"} in placed else {"r2-n0", "r2-n1"}
    assert not any(nodes & kept for nodes in placed)


def test_of_several_domains_the_one_is_kept_that_lacks_least():
    of = flavor()
    racks = [node(f"n{n}", of, 8, free, domain=("z", "b", f"r{n // 2}")) for n, free in enumerate((8, 7, 7, 6))]
    large, small = job(pods(2, 8), level="rack", mode="required", submitted_at=LONG_AGO), job(pods(1, 6))
    (placement,) = decide(snapshot([cluster(1, racks, [of])], [large, small])).placements
    assert next(iter(placement.pod_sets[0].nodes)) in {"n2", "n3"}


@pytest.mark.parametrize("clusters", [1, 2])
def test_a_gang_starts_in_the_end_though_small_jobs_never_stop_coming(clusters):
    """Each round one small job ends somewhere and two more come; without patience the gang would wait for ever."""

    def rounds(patience):
        free = {(c, n): 0 for c in range(clusters) for n in range(4)}
        large = gang()
        for number in range(150):
            slot = sorted(free)[number * 7 % len(free)]
            free[slot] = min(8, free[slot] + 1)
            of = flavor()
            now = [cluster(c + 1, [node(f"n{n}", of, 8, free[c, n]) for n in range(4)], [of]) for c in range(clusters)]
            queue = [large, *(job(pods(1, 1)) for _ in range(2))]
            decisions = decide(replace(snapshot(now, queue), patience_seconds=patience))
            for placement in decisions.placements:
                if placement.job_id == large.id:
                    return number
                for name, count in placement.pod_sets[0].nodes.items():
                    free[int(placement.cluster[1:]) - 1, int(name[1:])] -= count
        return None

    assert rounds(patience=10**6) is None
    assert rounds(patience=600) is not None


def test_a_packing_job_finds_the_nodes_beside_those_that_are_kept():
    large = job(pods(2, 8), submitted_at=LONG_AGO)
    queue = [large, *(job(pods(1, 2), strategy="pack") for _ in range(3))]
    decisions = decide(snapshot(fleet(8, 7, 3, 2), queue))
    assert [list(placed.pod_sets[0].nodes) for placed in decisions.placements] == [["n3"], ["n2"]]


def test_other_clusters_stay_open_to_the_jobs_behind():
    large, small = gang(clusters=("c1",)), job(pods(1, 8))
    (placement,) = decide(snapshot([uniform(1, free=7), uniform(2)], [large, small])).placements
    assert placement.cluster == "c2"


@pytest.mark.parametrize(("seconds", "keeps"), [(600, False), (600.001, True)])
def test_a_gang_is_patient_for_ten_minutes(seconds, keeps):
    large = job(pods(2, 8), submitted_at=NOW - timedelta(seconds=seconds))
    (wait,) = decide(snapshot(fleet(8, 7), [large])).waits
    assert ("kept for it" in wait.message) == keeps


def test_room_is_kept_for_at_most_four_jobs():
    queue = [job(pods(1, 8, cpu=cpu), submitted_at=LONG_AGO) for cpu in range(6)]
    told = [wait.message for wait in decide(snapshot(fleet(*[7] * 6), queue)).waits]
    assert ["kept for it" in message for message in told] == [True] * 4 + [False] * 2


@pytest.mark.parametrize(
    ("count", "minutes", "told"),
    [
        (
            1,
            20,
            "room is expected about 12:20 UTC on c1: the node it would take is held by jobs that should end by then",
        ),
        (
            2,
            1500,
            "room is expected about 02 Mar 13:00 UTC on c1: 1 of its 2 nodes are held by jobs that should end by then",
        ),
    ],
)
def test_a_gang_whose_room_is_kept_is_told_when_to_expect_it(count, minutes, told):
    large = job(pods(count, 8), submitted_at=LONG_AGO)
    ends = Release(NOW + timedelta(minutes=minutes), UUID(int=1), flavor().name, 8, 1000, 1024, {"n0": 1})
    free = (0, 8) if count == 2 else (0, 0)
    (wait,) = decide(replace(snapshot(fleet(*free), [large]), releases=(ends,))).waits
    assert wait.message.endswith(f"nodes that become free on c1 are kept for it; {told}")


def test_a_gang_without_gpus_has_nodes_kept_too():
    cpu = flavor("", name="cpu")
    nodes = [node(f"n{n}", cpu, 0, cpu=8000, free_cpu_millicores=free) for n, free in enumerate((6000, 2000, 8000))]
    large = job(pods(2, 0, cpu=8000), submitted_at=LONG_AGO)
    decisions = decide(snapshot([cluster(1, nodes, [cpu])], [large, *(job(pods(1, 0, cpu=1000)) for _ in range(4))]))
    assert [list(placed.pod_sets[0].nodes) for placed in decisions.placements] == [["n1"]] * 2, (
        "the one that has room for a pod and the first of the others are kept"
    )


def test_the_nodes_kept_are_fewest_and_those_with_most_room():
    """Eight pods of two devices need two nodes of eight; the third and fourth stay open to others."""
    large = job(pods(8, 2), submitted_at=LONG_AGO)
    decisions = decide(snapshot(fleet(2, 5, 3, 4), [large, *(job(pods(1, 1)) for _ in range(9))]))
    used = {name for placed in decisions.placements for name in placed.pod_sets[0].nodes}
    assert used == {"n0", "n2"}
    assert len(decisions.placements) == 5


def test_of_a_job_of_two_flavors_both_have_nodes_kept():
    one, other = flavor(name="a"), flavor("A100-80GB", name="b")
    nodes = [node("a", one, 8, 4), node("b0", other, 8, 8), node("b1", other, 8, 8)]
    both = job(pods(1, 8, models=["H100-80GB"]), pods(1, 8, models=["A100-80GB"], name="rest"), submitted_at=LONG_AGO)
    decisions = decide(
        snapshot([cluster(1, nodes, [one, other])], [both, *(job(pods(1, 8, models=["A100"])) for _ in range(2))])
    )
    assert len(decisions.placements) == 1
    assert "kept for it" in outcome(decisions, both).message


def test_a_job_that_no_node_can_hold_is_not_told_that_room_is_kept_though_one_with_the_same_gpus_is():
    small, wide = job(pods(1, 1), shape="small"), job(pods(1, 1, cpu=200_000), shape="wide")
    decisions = decide(snapshot(fleet(8, 8, 8, 3), [gang(), small, wide]))
    assert [outcome(decisions, one).per_cluster[0].code for one in (small, wide)] == [
        "reserved_for_gang",
        "not_enough_free",
    ]
