"""A quote says what the cycle would do; a capacity says how often."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.answers import quotes
from placement.answers.quotes import Quoter, capacity, quote
from placement.cycle.cycle import decide
from placement.fleet.fleet import FleetIndex
from placement.values.model import Release
from placement.values.shares import COUNTED, FairShare, TenantShare
from tests.laws import among, examples

from .checker import check
from .fleets import A100, H100, NOW, cluster, flavor, job, limit, node, pods, reservation, snapshot, uniform
from .test_placement_laws import TENANTS, any_jobs, jobs, snapshots

shares_of_tenant = st.dictionaries(st.sampled_from(COUNTED), st.integers(0, 20_000))
rows_of_shares = st.lists(
    st.builds(
        TenantShare, st.sampled_from(TENANTS), st.sampled_from([0.5, 1, 1, 4]), shares_of_tenant, shares_of_tenant
    ),
    max_size=4,
    unique_by=lambda one: one.path,
)
fair_shares = st.builds(
    lambda rows, weight, part: FairShare(tuple(rows), weight, part),
    rows_of_shares,
    st.sampled_from([0.0, 1.0]),
    st.sampled_from([None, 0.0, 0.25]),
)
shares_or_none = st.one_of(st.none(), fair_shares)


@st.composite
def ordered(draw):
    """A snapshot with its queue in order: three priorities, and among equals as they came; half of them with shares."""
    drawn = draw(snapshots)
    queue = [replace(one, priority=draw(among(-100, 0, 0, 100))) for one in drawn.queue]
    fair = draw(shares_or_none)
    return replace(drawn, queue=tuple(sorted(queue, key=lambda one: -one.priority)), fair_share=fair)


def submitted(asked, given_snapshot, depth=None):
    """The snapshot after the job was submitted last."""
    queue = sorted((*given_snapshot.queue, asked), key=lambda one: -one.priority)
    return replace(given_snapshot, queue=tuple(queue[:depth]))


@pytest.mark.law
@given(ordered(), any_jobs, st.sampled_from([-100, 0, 100]))
@examples(150)
def test_the_first_offer_is_what_the_cycle_decides_and_none_means_it_waits_for_the_same_reasons(
    given_snapshot, asked, priority
):
    asked = replace(asked, priority=priority)
    decisions = decide(submitted(asked, given_snapshot))
    quoted = quote(asked, given_snapshot)
    placed = [placement for placement in decisions.placements if placement.job_id == asked.id]
    assert [offer.placement for offer in quoted.offers[:1]] == placed
    waits = {wait.job_id: wait for wait in decisions.waits}
    if asked.id in waits and asked.submitted_at in {None, NOW}:
        # of one that has waited for long, the cycle also says for whom it keeps nodes
        assert quoted.wait == waits[asked.id]
    assert (quoted.wait is None) == bool(quoted.offers) == (asked.id not in waits)
    if quoted.wait is not None:
        assert quoted.why_not == quoted.wait.per_cluster == waits[asked.id].per_cluster


@pytest.mark.law
@given(ordered(), st.lists(any_jobs, min_size=2, max_size=5))
@examples(40)
def test_quotes_on_one_snapshot_are_as_if_each_were_the_first(given_snapshot, asked):
    quoter = Quoter(given_snapshot, FleetIndex())
    for one in (*asked, *asked):
        assert quoter.quote(one) == quote(one, given_snapshot)


@pytest.mark.law
@given(ordered(), any_jobs, st.integers(1, 12))
@examples(60)
def test_a_round_that_considers_only_the_first_jobs_is_quoted_as_such(given_snapshot, asked, depth):
    cut = replace(given_snapshot, queue=given_snapshot.queue[:depth], fair_share=None)
    decisions = decide(submitted(asked, cut, depth))
    quoted = Quoter(cut, depth=depth).quote(asked)
    assert [offer.placement for offer in quoted.offers[:1]] == [
        placement for placement in decisions.placements if placement.job_id == asked.id
    ]
    if asked.id not in {one.id for one in submitted(asked, cut, depth).queue}:
        assert (quoted.wait.code, quoted.why_not, quoted.ahead) == ("behind_in_queue", (), depth)


@pytest.mark.law
@given(snapshots, any_jobs)
@examples(80)
def test_every_offer_could_be_taken(given_snapshot, asked):
    alone = replace(given_snapshot, queue=(asked,))
    for offer in quote(asked, replace(given_snapshot, queue=())).offers:
        check(alone, replace(decide(alone), placements=(offer.placement,), waits=()))


@pytest.mark.law
@given(snapshots, jobs())
@examples(60)
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


@pytest.mark.law
@given(snapshots, jobs(), st.integers(0, 11))
@examples(80)
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


def test_a_quote_says_whose_turn_takes_its_room():
    first = TenantShare("acme/other", 1.0, {}, {})
    shares = FairShare((first, TenantShare("acme/ml", 1.0, {"gpu": 8000}, {})), 1.0)
    crowded = snapshot([uniform(1, nodes=1)], [job(pods(1, 8), tenant="acme/other")])
    assert quote(job(pods(1, 8)), crowded).wait.code == "behind_in_queue"
    assert quote(job(pods(1, 8)), replace(crowded, fair_share=shares)).wait.code == "waiting_for_share"


def test_a_round_that_ends_before_the_job_makes_no_offer():
    """The round considers one job: the queue's, unless the asked one has a higher priority."""
    quoter = Quoter(snapshot([uniform(1)], [job(pods(1, 1))]), depth=1)
    found = quoter.quote(job(pods(1, 1)))
    assert (found.offers, found.wait.code, found.ahead) == ((), "behind_in_queue", 1)
    assert "only the first 1 jobs" in found.wait.message
    assert quoter.quote(job(pods(1, 1), priority=1)).offers
    assert Quoter(snapshot([uniform(1)], [job(pods(1, 1))]), depth=2).quote(job(pods(1, 1))).offers


def ending(number, minutes=10):
    return Release(
        NOW + timedelta(minutes=minutes), UUID(int=number), flavor().name, 8, 1000, 1024, {f"c{number}-n000": 1}
    )


def test_only_what_lacks_room_is_offered_for_later():
    """c2 is full, c3 has no such devices, c4 has room but no quota, the job excludes c5."""
    fleet = [uniform(1), uniform(2, 1, free=0), uniform(3, 1, of=flavor(A100)), uniform(4, 2), uniform(5, 1, free=0)]
    limits = [limit("acme", "gpu", 0, clusters=("c4",))]
    known = replace(snapshot(fleet, [], limits), releases=(ending(2), ending(3), ending(4), ending(5)))
    found = quote(job(pods(1, 8, models=[H100]), exclude_clusters=("c5",)), known)
    assert [offer.placement.cluster for offer in found.offers] == ["c1"]
    assert {reason.cluster: reason.code for reason in found.why_not} == {
        "c2": "not_enough_free", "c3": "no_such_model", "c4": "quota_reached", "c5": "cluster_excluded",
    }  # fmt: skip
    assert [offer.placement.cluster for offer in found.later] == ["c2"]


def test_a_reservation_makes_no_offer_for_later():
    named = reservation(7, "c1-n000", tenant="acme/ml")
    known = replace(snapshot([uniform(1, 1, free=0)], [], reservations=[named]), releases=(ending(1),))
    asked = job(pods(1, 8), reservation=str(named.id), deadline_seconds=60)
    assert quote(asked, known).later == ()
    assert quote(job(pods(1, 8), deadline_seconds=60), replace(known, reservations=())).later


def test_without_limits_quota_allows_all_that_fit():
    found = capacity(job(pods(1, 1)), snapshot([uniform(1, nodes=40)], []))
    assert (found.total, found.within_quota, found.is_at_least) == (320, 320, False)
    nowhere = capacity(job(pods(1, 1)), snapshot([], []))
    assert (nowhere.total, nowhere.within_quota, nowhere.clusters) == (0, 0, ())


def test_single_pods_are_all_counted_however_many_and_whatever_domain_they_must_keep_to(monkeypatch):
    monkeypatch.setattr(quotes, "MOST_COUNTED", 20)
    found = capacity(job(pods(1, 1), level="rack", mode="required"), snapshot([uniform(1, nodes=4, per_rack=2)], []))
    assert (found.total, found.is_at_least) == (32, False)


def test_a_gang_that_only_prefers_a_domain_is_counted_by_nodes_and_one_that_must_keep_to_it_is_not():
    """Racks of three nodes hold one gang of two each; nodes of any rack hold three."""
    fleet = [uniform(1, nodes=6, per_rack=3)]
    for level, mode, count in (("rack", "required", 2), ("rack", "preferred", 3), ("cluster", "required", 3)):
        assert capacity(job(pods(2, 8), level=level, mode=mode), snapshot(fleet, [])).total == count


def test_capacity_while_a_reservation_has_not_begun_is_none_with_its_reason():
    named = reservation(7, "c1-n000", starts=10)
    found = capacity(job(pods(1, 1), reservation=str(named.id)), snapshot([uniform(1)], [], reservations=[named]))
    assert (found.total, [room.why_none.code for room in found.clusters]) == (0, ["waiting_for_reservation"])


def test_of_the_devices_of_a_cluster_quota_counts_those_that_it_allows_most_of():
    h100, a100 = flavor(), flavor(A100)
    both = cluster(1, [node("h", h100), node("a", a100)], [h100, a100])
    limits = [
        limit("acme", f"gpu:{H100}", 1000),
        limit("acme", f"gpu:{A100}", 5000),
        limit("acme", "cpu", 10**6, held=10**7),
    ]
    found = capacity(job(pods(1, 1)), snapshot([both], [], limits[:2]))
    assert [(room.count, room.within_quota) for room in found.clusters] == [(16, 5)]
    assert found.within_quota == 5
    assert capacity(job(pods(1, 1)), snapshot([both], [], limits)).within_quota == 0


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


def test_counting_stops_somewhere_and_says_so():
    crowded = [uniform(n, nodes=40) for n in range(1, 3)]
    pair = (pods(1, 1, cpu=1, memory=1), pods(1, 0, cpu=1, memory=1, name="head"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quotes, "MOST_COUNTED", 60)
        found = capacity(job(*pair), snapshot(crowded, []))
        assert [(room.count, room.is_at_least) for room in found.clusters] == [(30, True), (30, True)]
        assert found.is_at_least
    assert not capacity(job(*pair), snapshot(crowded, [])).is_at_least


def test_a_cluster_with_many_ways_to_run_the_job_makes_few_offers():
    many = [flavor(price=str(n), name=f"f{n}") for n in range(1, 9)]
    fleet = [cluster(1, [node(f"n{n}", one, 8) for n, one in enumerate(many)], many), uniform(2, of=flavor(price="20"))]
    quoted = quote(job(pods(1, 8), strategy="cheapest"), snapshot(fleet, []))
    assert [offer.placement.cluster for offer in quoted.offers] == ["c1"] * 4 + ["c2"]
    assert [offer.placement.hourly_cost for offer in quoted.offers[:4]] == [8, 16, 24, 32]


def test_what_quota_leaves_is_told_by_cluster_and_in_all():
    fleet = [uniform(1), uniform(2), uniform(3, owner_path="globex")]
    limits = [limit("acme", "gpu", 16_000, clusters=("c1",)), limit("acme", "gpu", 40_000)]
    found = capacity(job(pods(1, 8)), snapshot(fleet, [], limits))
    assert [(room.cluster, room.count, room.within_quota) for room in found.clusters] == [("c1", 4, 2), ("c2", 4, 4)]
    assert (found.total, found.within_quota) == (8, 5)


@pytest.mark.parametrize("ahead", ["cheapest", "pack"])
def test_the_pods_of_a_job_that_was_quoted_before_are_not_usual_for_the_next_one(ahead):
    fleet = [uniform(1, 2, flavor(H100)), uniform(2, 1, flavor(A100))]
    first = job(pods(1, 1, models=[H100]), strategy=ahead, priority=2)
    before = job(pods(1, 8, models=[A100]), strategy="pack", priority=1)
    asked = job(pods(1, 2), strategy="pack", priority=1)
    quoter = Quoter(snapshot(fleet, [first]))
    quoter.quote(before)
    # If jobs named it, packing would leave the A100 to them.
    assert quote(asked, snapshot(fleet, [first, before])).offers[0].placement.cluster == "c1"
    assert quoter.quote(asked).offers[0].placement.cluster == "c2"
