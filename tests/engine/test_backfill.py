"""Kept nodes are lent to what ends before they are needed, and to nothing else."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.answers.quotes import quote
from placement.cycle.cycle import decide
from placement.values.model import Release
from tests.laws import examples

from .checker import check
from .fleets import NOW, cluster, flavor, job, limit, node, pods, snapshot

OF = flavor()
LONG_AGO = NOW - timedelta(hours=1)


def fleet(*free):
    return [cluster(1, [node(f"n{n}", OF, 8, units) for n, units in enumerate(free)], [OF])]


def release(minutes, **nodes):
    """Eight GPUs a node come free so many minutes from now."""
    return Release(NOW + timedelta(minutes=minutes), UUID(int=1), OF.name, 8, 1000, 1024, nodes)


def exact(minutes, **more):
    """A job that runs exactly so long: its deadline stops it."""
    return job(pods(1, 1), deadline_seconds=minutes * 60, **more)


def gang(count=2, **more):
    return job(pods(count, 8), submitted_at=LONG_AGO, deadline_seconds=3600, **more)


def decided(free, queue, *releases, **more):
    return decide(replace(snapshot(fleet(*free), queue), releases=releases, **more))


def test_what_ends_before_the_room_is_needed_may_use_it():
    large, short, long = gang(), exact(29), exact(31)
    found = decided((8, 0), [large, short, long], release(30, n1=1))
    assert [placed.job_id for placed in found.placements] == [short.id]
    wait, late = found.waits
    assert wait.message.endswith(
        "kept for it; room is expected about 12:30 UTC on c1: 1 of its 2 nodes are held by jobs that should end by then"
    )
    assert wait.start.at == NOW + timedelta(minutes=30)
    assert late.code == "reserved_for_gang"


def test_what_ends_in_the_very_instant_is_in_time():
    small = exact(30)
    assert decided((8, 0), [gang(), small], release(30, n1=1)).placements[0].job_id == small.id


def test_nothing_is_lent_while_nobody_knows_when_it_is_needed():
    assert not decided((8, 0), [gang(), exact(1)]).placements


def test_nothing_is_lent_to_what_may_run_for_ever():
    assert not decided((8, 0), [gang(), job(pods(1, 1))], release(30, n1=1)).placements


def test_the_estimate_is_believed_pessimistically():
    assert not decided((8, 0), [gang(), job(pods(1, 1), estimated_seconds=1000)], release(30, n1=1)).placements
    assert decided((8, 0), [gang(), job(pods(1, 1), estimated_seconds=800)], release(30, n1=1)).placements


def test_a_packing_job_borrows_too_and_what_it_took_is_gone():
    small = [exact(5, strategy="pack") for _ in range(3)]
    queue = [gang(), *(replace(one, pod_sets=(pods(1, 3),)) for one in small)]
    assert len(decided((8, 0), queue, release(30, n1=1)).placements) == 2


def test_what_is_lent_is_lent_once():
    small = [exact(5) for _ in range(10)]
    assert len(decided((8, 0), [gang(), *small], release(30, n1=1)).placements) == 8


def test_quota_holds_for_what_is_lent():
    limited = replace(
        snapshot(fleet(8, 0), [gang(), exact(5), exact(5)], [limit("acme", "gpu", 1000)]), releases=(release(30, n1=1),)
    )
    assert len(decide(limited).placements) == 1


def test_the_nodes_kept_are_those_that_come_free_first():
    found = decided((0, 8, 0), [gang(), exact(10_000)], release(60, n0=1), release(30, n2=1))
    assert found.waits[0].start.at == NOW + timedelta(minutes=30)
    assert not found.placements


def test_a_quote_tells_of_what_is_lent():
    asked = exact(29)
    given_snapshot = replace(snapshot(fleet(8, 0), [gang()]), releases=(release(30, n1=1),))
    (offer,) = quote(asked, given_snapshot).offers
    assert offer.placement == decide(replace(given_snapshot, queue=(*given_snapshot.queue, asked))).placements[0]


running = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 8), st.integers(1, 60)), max_size=8
)  # node, GPUs, minutes left
arrivals = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 8), st.integers(1, 60)), max_size=12
)  # minute of arrival, GPUs, minutes


class World:
    """Four nodes of eight GPUs and a clock; every run takes exactly as long as expected."""

    def __init__(self, busy, nodes=4):
        self.nodes = [f"n{n}" for n in range(nodes)]
        self.runs = []
        for at, units, minutes in busy:
            if self.free(f"n{at}") >= units:
                self.runs.append((NOW + timedelta(minutes=minutes), f"n{at}", units))

    def free(self, name):
        return 8 - sum(units for _, at, units in self.runs if at == name)

    def cycle(self, now, queue):
        self.runs = [run for run in self.runs if run[0] > now]
        clusters = [cluster(1, [node(name, OF, 8, self.free(name)) for name in self.nodes], [OF])]
        releases = tuple(
            Release(end, clusters[0].id, OF.name, units, 0, 0, {name: 1}) for end, name, units in self.runs
        )
        given_snapshot = replace(snapshot(clusters, queue), now=now, releases=releases)
        decisions = decide(given_snapshot)
        check(given_snapshot, decisions)
        asked = {one.id: one for one in queue}
        for placed in decisions.placements:
            one = asked[placed.job_id]
            end = now + timedelta(seconds=one.deadline_seconds)
            for name, count in placed.pod_sets[0].nodes.items():
                self.runs.append((end, name, one.pod_sets[0].gpu.count * count))
        return decisions


@pytest.mark.law
@examples(60)
@given(running, arrivals, st.integers(1, 4))
def test_backfill_never_delays_the_job_that_room_is_kept_for(busy, coming, size):
    """Whatever comes behind it, each cycle promises the gang no later start than the one before, and keeps the promise."""
    world, large = World(busy), gang(size)
    waiting = [(NOW + timedelta(minutes=at), exact(length)) for at, _, length in coming]
    waiting = [
        (at, replace(one, pod_sets=(pods(1, units),))) for (at, one), (_, units, _) in zip(waiting, coming, strict=True)
    ]
    alone = start_alone(busy, size)
    promised = None
    for minute in range(200):
        now = NOW + timedelta(minutes=minute)
        here = [one for at, one in waiting if at <= now]
        decisions = world.cycle(now, [large, *here])
        placed = {one.job_id for one in decisions.placements}
        waiting = [(at, one) for at, one in waiting if one.id not in placed]
        if large.id in placed:
            assert now == alone
            return
        (wait,) = (one for one in decisions.waits if one.job_id == large.id)
        assert wait.start is not None
        assert promised is None or wait.start.at <= promised
        promised = wait.start.at
    raise AssertionError("it never started")


def start_alone(busy, size):
    """When the gang starts if nothing comes behind it."""
    world, large = World(busy), gang(size)
    for minute in range(200):
        now = NOW + timedelta(minutes=minute)
        if world.cycle(now, [large]).placements:
            return now
    raise AssertionError("it never started")
