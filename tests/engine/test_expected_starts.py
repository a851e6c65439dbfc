"""When room is expected: from what runs and ends, past what waits ahead, and unknown where nobody can tell."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given

from placement.answers.expected_starts import MOST_FOLLOWED, expected_starts
from placement.answers.quotes import quote
from placement.cycle.cycle import run
from placement.cycle.timeline import instant_text
from placement.values.model import PriceChange, Release, Runtime
from tests.laws import examples

from .fleets import NOW, cluster, flavor, job, limit, node, pods, snapshot
from .test_placement_laws import jobs, snapshots

OF = flavor()


def fleet(*clusters):
    """Clusters c1, c2, ... by what is free on each of their nodes of eight GPUs."""
    return [
        cluster(c + 1, [node(f"n{n}", OF, 8, units) for n, units in enumerate(free)], [OF])
        for c, free in enumerate(clusters)
    ]


def release(minutes, number=1, units=8, **nodes):
    return Release(NOW + timedelta(minutes=minutes), UUID(int=number), OF.name, units, 1000, 1024, nodes)


def told(clusters, queue, *releases, **more):
    given_snapshot = replace(snapshot(clusters, queue), releases=releases, **more)
    decisions, done = run(given_snapshot)
    return expected_starts(done, given_snapshot, decisions.waits)


def minutes(start):
    return (start.at - NOW).total_seconds() / 60


def test_a_job_starts_when_enough_has_ended():
    large = job(pods(3, 8))
    start = told(fleet((0, 8, 0)), [large], release(10, n0=1), release(50.5, n2=1))[large.id]
    assert (minutes(start), start.cluster, start.nodes, start.awaited) == (51, "c1", 3, 2)


def test_it_starts_on_the_cluster_where_room_comes_first():
    one = job(pods(1, 8))
    start = told(fleet((0,), (0,)), [one], release(30, n0=1), release(10, number=2, n0=1))[one.id]
    assert (minutes(start), start.cluster) == (10, "c2")


def test_what_waits_ahead_takes_the_room_first_and_gives_it_back():
    ahead, behind = job(pods(1, 8), estimated_seconds=600), job(pods(1, 8))
    found = told(fleet((0,)), [ahead, behind], release(10, n0=1))
    assert [minutes(found[one.id]) for one in (ahead, behind)] == [10, 20]


def test_behind_a_job_of_unknown_length_nothing_is_known():
    ahead, behind = job(pods(1, 8)), job(pods(1, 8))
    assert set(told(fleet((0,)), [ahead, behind], release(10, n0=1))) == {ahead.id}


def test_what_this_cycle_placed_is_expected_to_end_too():
    first, second = job(pods(1, 8), estimated_seconds=600), job(pods(1, 8))
    assert minutes(told(fleet((8,)), [first, second], release(90, n0=1))[second.id]) == 10


def test_history_is_believed_before_the_estimate():
    first, second = job(pods(1, 8), estimated_seconds=600, kind="k"), job(pods(1, 8))
    known = {"k": Runtime(60, 1200, 2400, 9, "job")}
    assert minutes(told(fleet((8,)), [first, second], release(90, n0=1), runtimes=known)[second.id]) == 20


def test_nothing_is_told_without_knowledge_or_of_what_quota_stops():
    waiting = job(pods(1, 8))
    assert not told(fleet((0,)), [waiting])
    held = replace(snapshot(fleet((8,)), [waiting], [limit("acme", "gpu", 0)]), releases=(release(10, n0=1),))
    decisions, done = run(held)
    assert not expected_starts(done, held, decisions.waits)


def test_a_pod_that_ends_makes_room_for_one_pod():
    clusters = [cluster(1, [node("n0", OF, 8, 0, free_pods=0)], [OF])]
    pair = job(pods(2, 1))
    ends = (release(10, units=4, n0=1), release(20, units=4, n0=1))
    assert minutes(told(clusters, [pair], *ends)[pair.id]) == 20


def test_room_on_nodes_that_are_gone_closed_or_elsewhere_never_comes():
    nodes = [node("n0", OF, 8, 0, is_usable=False), node("n1", OF, 8, 0)]
    waiting = job(pods(1, 8))
    assert not told([cluster(1, nodes, [OF])], [waiting], release(10, n0=1, n9=1), release(10, number=7, n1=1))


@pytest.mark.parametrize(("units", "is_expected"), [(500, True), (501, False)])
def test_nothing_is_expected_beyond_the_five_hundredth_end(units, is_expected):
    large, waiting = flavor(), job(pods(1, units))
    clusters = [cluster(1, [node("n0", large, 1000, 0)], [large])]
    ends = [release(minute, units=1, n0=1) for minute in range(1, 600)]
    assert (waiting.id in told(clusters, [waiting], *ends)) == is_expected


def test_no_more_comes_free_than_there_is():
    waiting = job(pods(2, 8))
    assert not told(fleet((8, 0)), [waiting], release(10, n0=5), release(20, n0=1))


def test_only_the_head_of_the_queue_is_followed():
    queue = [job(pods(1, 8), estimated_seconds=60) for _ in range(MOST_FOLLOWED + 5)]
    assert set(told(fleet((0,)), queue, release(10, n0=1))) == {one.id for one in queue[:MOST_FOLLOWED]}


def test_a_quote_names_the_clusters_that_have_room_later():
    asked = job(pods(1, 8), estimated_seconds=3600)
    clusters = fleet((8,), (0,), (0,))
    given_snapshot = replace(snapshot(clusters, []), releases=(release(30, number=2, n0=1),))
    found = quote(asked, given_snapshot)
    assert [offer.placement.cluster for offer in found.offers] == ["c1"]
    (later,) = found.later
    assert later.placement.cluster == "c2"
    assert later.expected_start == NOW + timedelta(minutes=30)
    assert later.placement.pod_sets[0].nodes == {"n0": 1}


def test_a_later_offer_costs_what_is_announced_for_its_time():
    asked = job(pods(1, 8, cpu=0, memory=0), estimated_seconds=3600)
    dearer = PriceChange(NOW + timedelta(minutes=20), unit_price=OF.unit_price * 3)
    changing = replace(OF, price_changes=(dearer,))
    clusters = [replace(one, flavors={OF.name: changing}) for one in fleet((0,), (0,))]
    ends = release(10, n0=1), release(30, number=2, n0=1)
    found = quote(asked, replace(snapshot(clusters, []), releases=ends)).later
    hour = 8 * OF.unit_price
    assert [offer.estimated_cost for offer in found] == [hour / 6 + hour * 3 * 5 / 6, hour * 3]


def test_a_quote_waits_behind_the_queue():
    ahead, asked = job(pods(1, 8), estimated_seconds=600), job(pods(1, 8))
    given_snapshot = replace(snapshot(fleet((0,)), [ahead]), releases=(release(30, n0=1),))
    (later,) = quote(asked, given_snapshot).later
    assert later.expected_start == NOW + timedelta(minutes=40)


@pytest.mark.law
@examples(60)
@given(snapshots, jobs())
def test_looking_ahead_changes_no_decision(given_snapshot, asked):
    ends = tuple(
        Release(NOW + timedelta(minutes=n + 1), one.id, name, 2, 1000, 64, {each.name: 1 for each in one.nodes})
        for one in given_snapshot.clusters
        for n, name in enumerate(one.flavors)
    )
    decisions, done = run(replace(given_snapshot, patience_seconds=10**9))
    before = run(replace(given_snapshot, patience_seconds=10**9))[0]
    for start in expected_starts(done, replace(given_snapshot, releases=ends), decisions.waits).values():
        assert start.at > NOW
        assert 0 <= start.awaited <= start.nodes
    assert decisions == before
    found = quote(asked, replace(given_snapshot, releases=ends))
    assert {offer.placement.cluster for offer in found.later}.isdisjoint(
        offer.placement.cluster for offer in found.offers
    )


def test_instants_are_told_with_their_day_when_it_is_another():
    assert instant_text(NOW.replace(hour=14, minute=20), NOW) == "14:20 UTC"
    assert instant_text(NOW + timedelta(days=1), NOW) == "02 Mar 12:00 UTC"
