"""A quote says what the cycle would do; a capacity says how often."""

from dataclasses import replace
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from federation.engine.cycle import decide
from federation.engine.fleet import FleetIndex
from federation.engine.quotes import capacity, quote

from .checker import check
from .fleets import A100, H100, NOW, cluster, flavor, job, limit, node, pods, snapshot, uniform
from .test_placement_laws import jobs, snapshots


@given(snapshots, jobs())
@settings(max_examples=150, deadline=None)
def test_the_first_offer_is_what_the_cycle_decides(given_snapshot, asked):
    decisions = decide(replace(given_snapshot, queue=(*given_snapshot.queue, asked)))
    quoted = quote(asked, given_snapshot)
    placed = [placement for placement in decisions.placements if placement.job_id == asked.id]
    assert [offer.placement for offer in quoted.offers[:1]] == placed
    for wait in decisions.waits:
        if wait.job_id == asked.id:
            assert quoted.why_not == wait.per_cluster


@given(snapshots, jobs())
@settings(max_examples=80, deadline=None)
def test_every_offer_could_be_taken(given_snapshot, asked):
    alone = replace(given_snapshot, queue=(asked,))
    for offer in quote(asked, replace(given_snapshot, queue=())).offers:
        check(alone, replace(decide(alone), placements=(offer.placement,), waits=()))


@given(snapshots, jobs())
@settings(max_examples=60, deadline=None)
def test_capacity_is_how_many_the_cycle_would_place(given_snapshot, asked):
    unlimited = replace(given_snapshot, queue=(), limits=())
    found = capacity(asked, unlimited)
    copies = tuple(job(*asked.pod_sets, tenant=asked.tenant_path) for _ in range(found.total + 3))
    copies = tuple(replace(asked, id=one.id, strategy="cheapest") for one in copies)
    placed = decide(replace(unlimited, queue=copies)).placements
    assert found.total == sum(room.count for room in found.clusters)
    assert (found.total == 0) == (not placed)
    if len(asked.pod_sets) == 1 and asked.pod_sets[0].count == 1 and not _shares_nodes(unlimited):
        assert len(placed) == found.total


def _shares_nodes(given_snapshot):
    return any(len(one.total) > 1 for each in given_snapshot.clusters for one in each.nodes)


@given(snapshots, jobs(), st.integers(0, 11))
@settings(max_examples=80, deadline=None)
def test_more_room_never_makes_the_cheapest_offer_dearer(given_snapshot, asked, taken):
    """Less in the fleet's way: the same job sees at least the same offers."""
    asked = replace(asked, strategy="cheapest")
    used = quote(asked, replace(given_snapshot, limits=(), queue=given_snapshot.queue[:taken]))
    empty = quote(asked, replace(given_snapshot, limits=(), queue=()))
    prices = [offer.placement.hourly_cost for offer in used.offers]
    better = [offer.placement.hourly_cost for offer in empty.offers]
    assert len(better) >= len(prices)
    if prices and prices[0] is not None and better[0] is not None:
        assert better[0] <= prices[0]


def test_offers_are_ranked_with_their_cost_and_the_rest_says_why_not():
    fleet = [
        uniform(1, of=flavor(price="3")),
        uniform(2, of=flavor(price="2")),
        uniform(3, free=0, of=flavor(price="1")),
        uniform(4, of=flavor(A100, price="1")),
    ]
    quoted = quote(job(pods(2, 8, models=[H100]), estimated_seconds=5400), snapshot(fleet, []))
    assert [(o.placement.cluster, o.estimated_cost, o.expected_start) for o in quoted.offers] == [
        ("c2", Decimal(48), NOW),
        ("c1", Decimal(72), NOW),
    ]
    assert [(reason.cluster, reason.code) for reason in quoted.why_not] == [
        ("c3", "not_enough_free"),
        ("c4", "no_such_model"),
    ]


def test_a_quote_stands_behind_the_queue():
    fleet = [uniform(1)]
    assert not quote(job(pods(1, 8)), snapshot(fleet, [job(pods(4, 8))])).offers


def test_capacity_says_where_and_what_quota_leaves():
    fleet = [uniform(1), uniform(2, free=4), uniform(3, state="cordoned")]
    limits = [limit("acme", "gpu", 40_000, held=8000)]
    found = capacity(job(pods(1, 8)), snapshot(fleet, [], limits), FleetIndex())
    assert [(room.cluster, room.count) for room in found.clusters] == [("c1", 4), ("c2", 0), ("c3", 0)]
    assert [room.why_none and room.why_none.code for room in found.clusters] == [None, "fragmented", "cordoned"]
    assert (found.total, found.within_quota) == (4, 4)
    assert capacity(job(pods(1, 4)), snapshot(fleet, [], limits)).within_quota == 8


def test_capacity_counts_gangs_and_shared_nodes_one_by_one():
    small, large = flavor(sharing="mig:1g.10gb"), flavor(sharing="mig:3g.40gb")
    shared = cluster(1, [node("m", [small, large], [4, 2], cpu=3000)], [small, large])
    assert capacity(job(pods(mig="1g.10gb", cpu=1000)), snapshot([shared], [])).total == 3
    assert capacity(job(pods(3, 8)), snapshot([uniform(1, nodes=7)], [])).total == 2
