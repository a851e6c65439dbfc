"""A gang that has waited too long gets its nodes, whatever keeps coming behind it."""

from dataclasses import replace
from datetime import timedelta

import pytest

from placement.cycle.cycle import decide
from placement.values.decisions import Wait

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


@pytest.mark.parametrize("clusters", [1, 2])
def test_a_gang_starts_in_the_end_though_small_jobs_never_stop_coming(clusters):
    """Each round one small job ends somewhere and two more come; without patience the gang would wait for ever."""

    def rounds(patience):
        free = {(c, n): 0 for c in range(clusters) for n in range(4)}
        large = gang()
        for number in range(400):
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


def test_other_clusters_stay_open_to_the_jobs_behind():
    large, small = gang(clusters=("c1",)), job(pods(1, 8))
    (placement,) = decide(snapshot([uniform(1, free=7), uniform(2)], [large, small])).placements
    assert placement.cluster == "c2"
