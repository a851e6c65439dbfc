"""Data and throughput in placement: what moving data costs, work compared between GPU models, and what an offer is made of."""

import json
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from billing.engine.egress import EgressRate
from clusters.engine.datasets import Place
from placement.answers.estimates import Estimate, estimate_in, record_of
from placement.answers.expected_starts import expected_starts
from placement.answers.quotes import Quoter, quote
from placement.answers.recording import decisions_text, snapshot_of, snapshot_text
from placement.cycle.cycle import decide, run
from placement.fleet.egress import egress_text, egress_to
from placement.ranking.pace import pace_on, paced, ratios
from placement.ranking.runtimes import groups_of
from placement.values.datasets import DataNeed, Egress, Move
from placement.values.decisions import Placement
from placement.values.model import ModelSpeed, Release, Runtime
from tests.laws import examples

from .fleets import A100, H100, NOW, cluster, flavor, job, node, pods, snapshot, uniform

GIB = 2**30
HOUR = 3600
DAY = 24 * HOUR
REGIONS = ("eu-west", "us-east", "ap-south")
STRATEGIES = ["cheapest", "balanced", "soonest", "pack", "spread", "greenest"]
sizes = st.integers(1, 2**50)
prices = st.decimals(0, 1000, places=6)
speeds = st.integers(1, 1_000_000)


def rate(from_region="*", to_region="*", price="0.02", owner="acme", since=NOW - timedelta(days=1), until=None):
    return EgressRate(owner, from_region, to_region, Decimal(price), "USD", since, until)


def need(size=100 * GIB, *places, name="imagenet"):
    return DataNeed(name, size, places or (Place("eu-west"),))


def speed(**by_model):
    return tuple(ModelSpeed({"H": H100, "A": A100}[model], value) for model, value in sorted(by_model.items()))


def world(clusters, *queue, rates=()):
    return replace(snapshot(clusters, queue), egress=tuple(rates))


def offers(clusters, asked, rates=()):
    return quote(asked, world(clusters, rates=rates)).offers


def chosen(clusters, asked, rates=()):
    found = decide(world(clusters, asked, rates=rates)).placements[0]
    assert isinstance(found, Placement)
    return found


def in_regions(*given_prices):
    return [
        uniform(number, of=flavor(price=price), region=region)
        for number, (region, price) in enumerate(zip(REGIONS, given_prices, strict=False), 1)
    ]


def test_data_draws_a_short_job_to_it_and_lets_a_long_one_go():
    clusters, data = in_regions("2.00", "1.00"), (need(1000 * GIB),)
    asked = {"strategy": "cheapest", "data": data, "deadline_seconds": 30 * DAY}
    short = chosen(clusters, job(pods(1, 8), estimated_seconds=HOUR, **asked), [rate()])
    assert (short.cluster, short.egress) == ("c1", Egress(Decimal(0), ()))
    far = chosen(clusters, job(pods(1, 8), estimated_seconds=10 * HOUR, **asked), [rate()])
    assert far.cluster == "c2"
    assert far.egress == Egress(Decimal("20.000000"), (Move("imagenet", "eu-west", 1000 * GIB, Decimal("20.000000")),))
    assert chosen(clusters, job(pods(1, 8), strategy="cheapest", estimated_seconds=HOUR)).egress is None


def test_it_comes_from_the_cheapest_of_its_places_and_not_at_all_where_it_lies():
    asked = job(data=(need(GIB, Place("us-east"), Place("eu-west", UUID(int=7)), Place("eu-north")),))
    rates = [rate("us-east", price="3"), rate("eu-*", price="2"), rate("eu-north", price="1")]
    one = uniform(1, region="ap-south")
    assert egress_to(asked, one, rates, NOW).moves == (Move("imagenet", "eu-north", GIB, Decimal("1.000000")),)
    for here in (uniform(1, region="us-east"), uniform(7, region="ap-south"), uniform(1, region="eu-west")):
        assert egress_to(asked, here, rates, NOW) == Egress(Decimal(0), ())
    assert egress_to(job(), one, rates, NOW) is None


def test_of_places_that_cost_the_same_the_first_named_is_taken():
    asked = job(data=(need(GIB, Place("us-east"), Place("eu-west"), Place("eu-north")),))
    rates = [rate("us-east", price="3"), rate("eu-*", price="1")]
    assert egress_to(asked, uniform(1, region="ap-south"), rates, NOW).moves[0].from_region == "eu-west"


def test_two_clusters_without_a_region_are_not_taken_for_neighbours():
    asked = job(data=(need(GIB, Place("", UUID(int=7))),))
    assert egress_to(asked, uniform(1, region=""), [], NOW).cost is None
    assert egress_to(asked, uniform(1, region=""), [rate(price="3")], NOW).cost == 3
    assert egress_to(asked, uniform(7, region=""), [], NOW).cost == 0


def test_prices_of_another_organisation_and_of_another_time_do_not_count():
    asked, one = job(data=(need(GIB),)), uniform(1, region="us-east")
    ended, coming = rate(until=NOW), rate(since=NOW + timedelta(hours=1))
    assert egress_to(asked, one, [rate(owner="globex"), ended, coming], NOW).cost is None
    assert egress_to(asked, one, [coming], NOW + timedelta(hours=1)).cost == Decimal("0.020000")


def test_where_the_price_is_unknown_a_job_goes_last_and_the_offer_says_so():
    clusters, asked = in_regions("9.00", "1.00", "1.00"), {"strategy": "cheapest", "estimated_seconds": HOUR}
    told = offers(clusters, job(pods(1, 8), data=(need(),), **asked), [rate("eu-west", "ap-south")])
    assert [one.placement.cluster for one in told] == ["c3", "c1", "c2"]
    assert [one.estimated_cost is None for one in told] == [False, False, True]
    assert (told[2].estimate.run, told[2].estimate.egress) == (8, None)
    without = offers(clusters, job(pods(1, 8), data=(need(),), **asked))
    assert [one.placement.cluster for one in without] == ["c1", "c2", "c3"]
    assert egress_text(without[1].placement.egress.moves, "USD") == "100Gi of imagenet from eu-west at an unknown price"


def test_data_that_nobody_knows_any_more_stops_nothing():
    clusters, lost = in_regions("2.00", "1.00"), DataNeed("imagenet")
    told = offers(clusters, job(pods(1, 8), strategy="cheapest", data=(lost,)), [rate()])
    assert [one.placement.cluster for one in told] == ["c2", "c1"]
    assert told[0].placement.egress == Egress(None, (Move("imagenet", "", None, None),))
    assert egress_text(told[0].placement.egress.moves, "USD") == "the location of imagenet is unknown"


data_needs = st.lists(
    st.builds(
        lambda name, size, regions: DataNeed(name, size, tuple(map(Place, regions))),
        st.sampled_from("abc"),
        sizes,
        st.lists(st.sampled_from(REGIONS), max_size=3, unique=True),
    ),
    max_size=3,
    unique_by=lambda one: one.name,
).map(tuple)
rate_lists = st.lists(
    st.builds(rate, st.sampled_from(["*", *REGIONS]), st.sampled_from(["*", "us-*", *REGIONS]), prices.map(str)),
    max_size=4,
)


@given(data_needs, rate_lists, st.sampled_from(STRATEGIES), st.integers(1, 30 * DAY))
@examples(40)
def test_egress_never_makes_an_offer_cheaper(data, rates, strategy, seconds):
    clusters, asked = in_regions("2.00", "1.00", "0.50"), {"strategy": strategy, "estimated_seconds": seconds}
    plain = {one.placement.cluster: one.estimate for one in offers(clusters, job(pods(1, 8), **asked))}
    for one in offers(clusters, job(pods(1, 8), data=data, **asked), rates):
        before, after = plain[one.placement.cluster], one.estimate
        assert (after.run, after.interruptions) == (before.run, before.interruptions)
        assert after.egress is None or after.egress >= 0
        assert after.total is None or after.total >= before.total


@given(data_needs, rate_lists, st.tuples(prices, prices, prices), st.integers(1, 30 * DAY))
@example((need(1, Place("eu-west"), Place("ap-south")),), [], (Decimal("0.000001"), Decimal(0), Decimal("1.000000")), 1)
@examples(60)
def test_the_cheaper_total_wins_and_what_is_known_goes_before_what_is_not(data, rates, given_prices, seconds):
    clusters = in_regions(*map(str, given_prices))
    asked = job(pods(1, 8), data=data, strategy="cheapest", estimated_seconds=seconds, deadline_seconds=30 * DAY)
    totals = [one.estimated_cost for one in offers(clusters, asked, rates)]
    known = [total for total in totals if total is not None]
    assert totals == known + [None] * (len(totals) - len(known))
    for better, worse in pairwise(known):
        assert float(better) <= float(worse) * 1.001 + 1e-5


@given(speeds, speeds, st.integers(1, 50), st.sampled_from(STRATEGIES), prices, prices)
@examples(40)
def test_only_ratios_count(one, other, factor, strategy, first, second):
    clusters = [uniform(1, of=flavor(H100, price=str(first))), uniform(2, of=flavor(A100, price=str(second)))]
    asked = job(pods(1, 8), strategy=strategy, estimated_seconds=7 * HOUR, throughput=speed(H=one, A=other))
    scaled = replace(asked, throughput=speed(H=one * factor, A=other * factor))
    assert offers(clusters, asked) == offers(clusters, scaled)
    same = replace(asked, throughput=speed(H=one, A=one))
    plain = replace(asked, throughput=())
    assert offers(clusters, same) == offers(clusters, plain)


def test_price_is_compared_by_useful_work():
    clusters = [uniform(1, of=flavor(H100, price="4.00")), uniform(2, of=flavor(A100, price="2.00"))]
    asked = job(pods(1, 8), strategy="cheapest", estimated_seconds=10 * HOUR)
    assert chosen(clusters, asked).cluster == "c2"
    fast = replace(asked, throughput=speed(H=2500, A=1000))
    told = offers(clusters, fast)
    assert [one.placement.cluster for one in told] == ["c1", "c2"]
    assert [one.estimate.seconds for one in told] == [4 * HOUR, 10 * HOUR]
    assert [one.estimated_cost for one in told] == [128, 160]
    assert chosen(clusters, replace(asked, throughput=speed(H=1900, A=1000))).cluster == "c2"


def test_a_model_that_is_not_named_counts_as_the_slowest_and_a_gang_as_its_slowest_part():
    told = speed(H=3000, A=1000)
    assert pace_on(told, [H100]) == 1 / 3
    assert pace_on(told, [H100, A100]) == pace_on(told, ["L4"]) == pace_on(told, []) == pace_on((), [H100]) == 1
    both = cluster(1, [node("h", h := flavor(H100)), node("a", a := flavor(A100))], [h, a])
    gang = job(pods(1, 8, models=[H100]), pods(1, 8, models=[A100], name="rest"), throughput=told)
    assert chosen([both], gang).pace == 1
    alone = job(pods(1, 8, models=[H100]), pods(1, 0, name="driver"), throughput=told)
    assert chosen([both], alone).pace == 1 / 3


def test_a_deadline_cuts_the_run_where_it_is_slow_only():
    clusters = [uniform(1, of=flavor(H100)), uniform(2, of=flavor(A100))]
    asked = job(pods(1, 8), estimated_seconds=10 * HOUR, deadline_seconds=6 * HOUR, throughput=speed(H=2000, A=1000))
    assert {one.placement.cluster: one.estimate.seconds for one in offers(clusters, asked)} == {
        "c1": 5 * HOUR,
        "c2": 6 * HOUR,
    }


def test_what_runs_faster_is_expected_to_end_sooner():
    clusters = [uniform(1, nodes=1, of=flavor(H100))]
    asked = job(pods(1, 8), estimated_seconds=10 * HOUR, throughput=speed(H=2000, A=1000))
    waiting = job(pods(1, 8), estimated_seconds=HOUR, throughput=speed(H=4000, A=1000))
    last = job(pods(1, 8))
    taken = world(clusters, asked, waiting, last)
    taken = replace(taken, releases=(Release(NOW + timedelta(days=9), UUID(int=1), "none", 0, 0, 0, {}),))
    decided, cycle = run(taken)
    found = expected_starts(cycle, taken, decided.waits)
    assert [found[one.id].at for one in (waiting, last)] == [
        NOW + timedelta(hours=5),
        NOW + timedelta(hours=5, minutes=15),
    ]


def test_the_parts_of_a_cost_add_up_and_lost_work_is_one_of_them():
    spot = replace(flavor(price="1.00", capacity_type="spot"), interruptions_per_hour=0.1)
    clusters = [uniform(1, of=spot, region="us-east")]
    [one] = offers(clusters, job(pods(1, 8), estimated_seconds=10 * HOUR, data=(need(),)), [rate()])
    parts = one.estimate
    assert (parts.run, parts.egress) == (80, 2)
    times = 1 / (1 - one.placement.risk.lost_share)
    assert float(parts.interruptions) == pytest.approx(80 * (times - 1), rel=1e-4)
    assert one.estimated_cost == parts.run + parts.interruptions + parts.egress
    assert estimate_in(json.loads(json.dumps(record_of(parts, one.placement.egress)))) == (
        parts,
        one.placement.egress.moves,
    )


def test_faster_models_lose_less_to_an_interruption():
    spot = replace(flavor(H100, capacity_type="spot"), interruptions_per_hour=0.1)
    asked = job(pods(1, 8), estimated_seconds=10 * HOUR, throughput=speed(H=2000, A=1000))
    placed = chosen([uniform(1, of=spot)], asked)
    assert placed.risk.exposed_seconds == 5 * HOUR
    assert chosen([uniform(1, of=spot)], replace(asked, checkpoint_seconds=HOUR)).risk.exposed_seconds == HOUR


def test_an_offer_for_later_counts_the_egress_price_of_that_time():
    clusters = [uniform(1, nodes=1, region="us-east", free=0)]
    end = NOW + timedelta(hours=2)
    gone = Release(end, UUID(int=1), flavor().name, 8, 1000, 1024, {"c1-n000": 1})
    changing = [rate(until=end - timedelta(hours=1)), rate(price="0.05", since=end - timedelta(hours=1))]
    asked = job(pods(1, 8), estimated_seconds=HOUR, data=(need(),))
    found = quote(asked, replace(world(clusters, rates=changing), releases=(gone,)))
    assert [(one.expected_start, one.estimate.egress) for one in found.later] == [(end, 5)]


@given(
    st.lists(st.tuples(data_needs, st.tuples(speeds, speeds), st.integers(1, 30 * DAY)), min_size=1, max_size=4),
    rate_lists,
    st.sampled_from(STRATEGIES),
    st.sampled_from([0.0, 0.05]),
)
@examples(40)
def test_a_quote_is_what_the_cycle_would_do_and_both_survive_a_file(asked, rates, strategy, often):
    spot = replace(flavor(A100, price="1.50", capacity_type="spot"), interruptions_per_hour=often)
    clusters = [
        uniform(1, nodes=2, region="eu-west"),
        uniform(2, nodes=1, of=flavor(A100, price="1.00"), region="us-east"),
        uniform(3, nodes=1, of=spot, region="ap-south"),
    ]
    queue = [
        job(pods(1, 8), strategy=strategy, estimated_seconds=seconds, data=data, throughput=speed(H=h, A=a))
        for data, (h, a), seconds in asked
    ]
    known = {"k": Runtime(HOUR, 9 * HOUR, DAY, 3, "job")}
    wanted = replace(queue.pop(), kind="k", shape="asked")
    ahead = world(clusters, *queue, rates=rates)
    full = replace(world(clusters, *queue, wanted, rates=rates), runtimes=known)
    found, decided = Quoter(ahead).quote(wanted, known), decide(full)
    placed = next((one for one in decided.placements if one.job_id == wanted.id), None)
    assert (found.offers[0].placement if found.offers else None) == placed
    again = snapshot_of(json.loads(snapshot_text(full)))
    assert again == full
    assert decisions_text(decide(again)) == decisions_text(decided)


def test_jobs_of_one_shape_are_ranked_each_by_how_long_it_runs():
    clusters, data = in_regions("2.00", "1.00"), (need(1000 * GIB),)
    queue = [job(pods(1, 8), shape="s", strategy="cheapest", data=data, kind=kind) for kind in ("long", "short")]
    known = {"long": Runtime(DAY, DAY, DAY, 9, "job"), "short": Runtime(HOUR, HOUR, HOUR, 9, "job")}
    decided = decide(replace(world(clusters, *queue, rates=[rate()]), runtimes=known))
    assert [placed.cluster for placed in decided.placements] == ["c2", "c1"]


def test_an_estimate_of_which_a_part_is_unknown_has_no_total():
    full = Estimate(60, Decimal(1), Decimal(2), Decimal(3))
    assert full.total == 6
    for part in ("run", "interruptions", "egress"):
        assert replace(full, **{part: None}).total is None


def test_history_is_kept_apart_by_ratios_and_not_by_their_unit():
    plain = {"name": "train", "pod_sets": [{"count": 1}]}
    tenant = UUID(int=1)
    one, same, other = (
        groups_of(tenant, plain | {"throughput": told})
        for told in ({"a": 1, "b": 2.4}, {"b": 12, "a": 5}, {"a": 1, "b": 2})
    )
    assert one == same
    assert len({*one, *other, *groups_of(tenant, plain)}) == 9
    assert groups_of(tenant, plain | {"throughput": {}}) == groups_of(tenant, plain)
    assert ratios({"a": 0.5, "b": 1.2}) == [("a", 5), ("b", 12)]


def test_a_run_time_is_scaled_as_a_whole_and_never_to_nothing():
    usual = Runtime(1, 100, 201, 9, "job")
    assert paced(usual, 1.0) is usual
    assert paced(usual, 0.5) == Runtime(1, 50, 100, 9, "job")
