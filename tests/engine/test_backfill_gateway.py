"""EASY backfill in a replay, against an example worked out by hand, the textbook rule, and a search of all times."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.backfill import EasyBackfill
from simulator.compared import COMPARED, NAMES, easy_backfill
from simulator.gateways import GATEWAYS, Known, Running
from simulator.queues import RatioOrder
from simulator.simulation import replay
from simulator.values import Conditions
from simulator.world import Layout
from tests.laws import examples

from .test_gateways import job as asked
from .test_gateways import plan

HEAD = 100
"""The number of the first waiting job; that of running ones is lower."""


def job(gpus, seconds, pods=1):
    return asked(pods, gpus, name=f"{gpus}x{pods}", estimated_seconds=seconds)


def world(running, nodes=(10,)):
    """Clusters with these numbers of nodes of 10 GPUs, on which (node, GPUs, end) run since second 0."""
    seen = Known(Layout([plan(f"c{n}", count, gpus=10, price=n + 1) for n, count in enumerate(nodes)]))
    for number, (node, gpus, end) in enumerate(running):
        one = job(gpus, end)
        seen.shelves.take(node, one)
        seen.running[int(seen.layout.cluster[node])][number] = Running(one, (node,), 0.0)
    return seen


def started(seen, queue, now=0.0):
    gateway = EasyBackfill(None)
    chosen = gateway.choose([(HEAD + n, one) for n, one in enumerate(queue)], seen, now)
    return {choice.number - HEAD: choice for choice in chosen}, gateway.reservation


def test_a_later_job_starts_if_it_ends_in_time_or_fits_beside_the_first():
    """6 of 10 GPUs are in use: 5 to second 100, one to second 50. The first job needs 8, so it can start at 100, with 2 to spare."""
    seen = world([(0, 5, 100), (0, 1, 50)], nodes=(1,))
    first = job(8, 500)
    chosen, reservation = started(seen, [first, job(3, 100), job(1, 500), job(1, 60)])
    assert (sorted(chosen), reservation.at) == ([1, 2], 100)  # then nothing is free
    chosen, reservation = started(seen, [first, job(3, 101), job(2, 500), job(1, 500), job(2, 90)])
    assert (sorted(chosen), reservation.at) == ([2, 4], 100)  # 3 late: only 2 to spare; then none is
    assert all(choice.is_pinned for choice in chosen.values())


def test_who_started_in_the_same_decision_counts_in_the_reservation():
    seen = world([(0, 2, 1000)], nodes=(1,))
    chosen, reservation = started(seen, [job(4, 70), job(8, 10), job(4, 70), job(4, 71)])
    assert (sorted(chosen), reservation.at) == ([0, 2], 70)


def test_other_clusters_are_not_held_back():
    seen = world([(0, 8, 50), (1, 9, 900)], nodes=(1, 1))
    chosen, reservation = started(seen, [job(10, 10), job(1, 10_000)])
    assert (reservation.cluster, reservation.at) == (0, 50)
    assert chosen[1].cluster == 1


def test_without_a_known_end_there_is_no_reservation():
    seen = world([(0, 8, None)], nodes=(1,))
    chosen, reservation = started(seen, [job(10, 10), job(2, None)])
    assert (sorted(chosen), reservation) == ([1], None)
    seen = world([(0, 8, 50)], nodes=(1,))
    assert sorted(started(seen, [job(10, 10), job(2, None)])[0]) == []  # it may run past the reservation


def test_the_first_gang_keeps_its_nodes_on_a_cluster_of_several():
    """Two nodes in use to second 100, one idle: the gang gets all three, so a longer job may not start on the third."""
    seen = world([(0, 10, 100), (1, 10, 100)], nodes=(3,))
    chosen, reservation = started(seen, [job(10, 10, pods=3), job(10, 101), job(10, 100)])
    assert (sorted(chosen), reservation.at) == ([2], 100)


def textbook(capacity, running, queue):
    """The numbers of the jobs that start, by EASY on one pool of processors, and the time of the reservation."""
    free = capacity - sum(gpus for gpus, _ in running)
    running, chosen, behind = list(running), [], None
    for number, (gpus, seconds) in enumerate(queue):
        if gpus > free:
            behind = number
            break
        free -= gpus
        running.append((gpus, seconds))
        chosen.append(number)
    if behind is None:
        return chosen, None

    def left(at):
        return capacity - sum(gpus for gpus, end in running if end > at)

    shadow = min(end for _, end in running if left(end) >= queue[behind][0])
    extra = left(shadow) - queue[behind][0]
    for number, (gpus, seconds) in enumerate(queue[behind + 1 :], behind + 1):
        is_long = seconds > shadow
        if gpus <= free and (not is_long or gpus <= extra):
            free -= gpus
            extra -= gpus if is_long else 0
            chosen.append(number)
    return chosen, shadow


SIZES = st.tuples(st.integers(1, 10), st.integers(60, 70))


@pytest.mark.law
@examples(200)
@given(st.lists(SIZES, max_size=6), st.lists(SIZES, min_size=1, max_size=10))
def test_on_one_node_it_is_what_the_textbook_says(wanted, queue):
    running, used = [], 0
    for gpus, end in wanted:
        if used + gpus <= 10:
            running.append((gpus, end))
            used += gpus
    chosen, reservation = started(
        world([(0, *one) for one in running], nodes=(1,)), [job(gpus, seconds) for gpus, seconds in queue]
    )
    expected, shadow = textbook(10, running, queue)
    assert sorted(chosen) == expected
    assert (None if reservation is None else reservation.at) == shadow


def earliest(layout, runs, asks):
    """The first time, of all ends, at which these pods fit on one cluster, if nothing else starts; `runs` are (node, GPUs, end)."""
    for at in sorted({0.0, *(end for _, _, end in runs)}):
        for cluster in range(len(layout.plans)):
            nodes = range(*layout.slice(cluster).indices(len(layout.machines)))
            free = [10 - sum(gpus for node, gpus, end in runs if node == one and end > at) for one in nodes]
            if sum(one // asks.gpus for one in free) >= asks.pods:
                return at
    return None


RUNS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 10), st.integers(60, 70)), max_size=8)
GANGS = st.tuples(st.sampled_from([1, 3, 5, 10]), st.integers(60, 75), st.integers(1, 2))


@pytest.mark.law
@examples(200)
@given(RUNS, st.lists(GANGS, min_size=1, max_size=8))
def test_no_later_job_delays_the_first(wanted, queue):
    """Two clusters of two nodes: when the first could start, had only the jobs before it started, it still can."""
    runs, used = [], [0] * 4
    for node, gpus, end in wanted:
        if used[node] + gpus <= 10:
            runs.append((node, gpus, end))
            used[node] += gpus
    seen = world(runs, nodes=(2, 2))
    jobs = [job(*one) for one in queue]
    chosen, reservation = started(seen, jobs)
    behind = next((n for n in range(len(jobs)) if n not in chosen), None)
    if behind is None:
        return
    starts = {n: [(node, jobs[n].gpus, jobs[n].estimated_seconds) for node in chosen[n].assumed] for n in chosen}
    before = [*runs, *(one for n in chosen if n < behind for one in starts[n])]
    after = [*runs, *(one for n in chosen for one in starts[n])]
    assert reservation.at == earliest(seen.layout, before, jobs[behind])
    assert earliest(seen.layout, after, jobs[behind]) == reservation.at
    for node in range(4):
        assert sum(gpus for on, gpus, _ in after if on == node) <= 10


def test_it_orders_its_queue_by_response_ratio():
    """Of two jobs that waited an hour, the one that runs shorter goes first; the engine's order says so."""
    seen = world([], nodes=(1,))
    long, short = asked(1, 10, estimated_seconds=9000), asked(1, 10, estimated_seconds=100)
    chosen = easy_backfill().choose([(1, long), (2, short)], seen, 3600.0)
    assert [choice.number for choice in chosen] == [2]
    assert [number for number, _ in RatioOrder().ordered([(1, long), (2, short)], seen, 3600.0)] == [2, 1]


def test_each_gateway_has_one_name():
    assert NAMES[: len(GATEWAYS)] == GATEWAYS
    assert sorted(NAMES) == sorted({*GATEWAYS, *COMPARED})


@pytest.mark.parametrize("name", NAMES[-2:])
def test_a_whole_trace_runs_to_its_end(name):
    jobs = [asked(1 + n % 2, 1 + n % 10, submitted=n * 10.0, estimated_seconds=60 + n % 7) for n in range(60)]
    figures = replay([plan("a", 2, gpus=10), plan("b", 2, gpus=10)], jobs, COMPARED[name](), Conditions())
    assert (figures.gateway, figures.finished) == (name, 60)
    assert figures.late_starts <= 1  # the cluster may put both pods of a gang on one of the nodes that are named


def test_parts_of_gpus_run_too():
    jobs = [asked(1, 1, submitted=n * 5.0, gpu_milli=300, estimated_seconds=60) for n in range(40)]
    jobs += [asked(1, 2, submitted=20.0, estimated_seconds=60)]
    figures = replay([plan("a", 1, gpus=2)], jobs, easy_backfill(), Conditions())
    assert figures.finished == 41
