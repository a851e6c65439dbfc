"""What placement takes a job to cost an hour is what metering will charge it an hour, part by part."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.rating import Load, PriceSpan, rate
from placement.answers.quotes import quote
from placement.cycle.cycle import decide
from placement.fleet.fleet import fleet_of
from placement.fleet.prices import cost_over, hourly_cost
from placement.ranking.candidates import ask_of
from placement.values.model import PriceChange, Topology

from .fleets import NOW, cluster, flavor, job, node, pods, snapshot, uniform

amounts = st.none() | st.decimals(0, 100, places=6)


@given(st.tuples(amounts, amounts, amounts), st.booleans(), st.integers(0, 4), st.integers(1, 3), st.integers(1, 64))
def test_the_forecast_is_what_an_hour_is_charged(prices, has_gpus, gpus, count, size):
    unit, cpu, memory = prices
    gpus = gpus if has_gpus else 0
    one = replace(flavor() if has_gpus else flavor("", name="cpu"), unit_price=unit, cpu_price=cpu, memory_price=memory)
    one = replace(one, guest_cpu_price=cpu, guest_memory_price=memory) if unit is not None else one
    asked = pods(count, gpus, cpu=size * 500, memory=size * 1000)
    load = Load("gpu" if has_gpus else "core", gpus, size * 500, NOW, size * 1000)
    span = (
        [PriceSpan(UUID(int=1), unit, "USD", NOW, None, cpu if has_gpus else None, memory)] if unit is not None else []
    )
    charged = rate(load, NOW, NOW + timedelta(hours=1), span)

    cost = hourly_cost((asked,), (one,))
    if cost is None:
        assert charged[0].price_id is None
    else:
        assert charged[0].price_id is not None
        assert abs(cost - count * charged[0].cost) < count * Decimal("1e-12")
    fleet = fleet_of([cluster(1, [node("n", one, 8 if has_gpus else 0)], [one])])
    scored = ask_of(fleet, (asked,), Topology(), fleet.largest_free).hourly_cost
    assert scored == pytest.approx([np.nan if cost is None else float(cost)], nan_ok=True)


def test_pods_without_gpus_prefer_cpu_nodes_then_priced_gpu_nodes():
    sold_by_core = replace(flavor(price="1"), guest_cpu_price=Decimal("0.01"))
    on_cpus = uniform(3, of=flavor("", price="9", name="cpu"), total=0)
    silent = uniform(1, of=flavor(price="1"))
    priced = uniform(2, of=sold_by_core)
    places = decide(snapshot([silent, priced, on_cpus], [job(pods(1, 0))])).placements
    assert (places[0].cluster, places[0].hourly_cost, places[0].unit_price) == ("c3", Decimal(9), Decimal(9))
    places = decide(snapshot([silent, priced], [job(pods(1, 0))])).placements
    assert (places[0].cluster, places[0].hourly_cost, places[0].unit_price) == ("c2", Decimal("0.01"), Decimal("0.01"))
    places = decide(snapshot([silent], [job(pods(1, 0))])).placements
    assert (places[0].hourly_cost, places[0].unit_price) == (None, None)


def test_an_announced_price_counts_from_its_beginning_on():
    """Two hours at 2, then 5; a third flavor's change is none of the job's business, nor is one after its end."""
    later = tuple(PriceChange(NOW + timedelta(hours=n), Decimal(price)) for n, price in ((2, 5), (40, 100)))
    dear = uniform(1, of=replace(flavor(price="2"), price_changes=later))
    plain = uniform(2, of=flavor(price="3"))
    asked = job(pods(1, 2), estimated_seconds=4 * 3600)
    costs = {
        offer.placement.cluster: offer.estimated_cost for offer in quote(asked, snapshot([dear, plain], [])).offers
    }
    assert costs == {"c1": 2 * (2 * 2 + 2 * 5), "c2": 2 * 4 * 3}
    brief = quote(job(pods(1, 2), estimated_seconds=2 * 3600), snapshot([dear], [])).offers[0]
    assert (brief.estimated_cost, brief.placement.hourly_cost) == (8, 4)


@given(st.lists(st.integers(1, 10_000), max_size=5, unique=True), st.integers(0, 10_000), st.integers(1, 10_000))
def test_the_cost_of_a_time_is_the_sum_of_its_parts(instants, first, second):
    changes = tuple(PriceChange(NOW + timedelta(seconds=at), Decimal(at)) for at in sorted(instants))
    one, asked = replace(flavor(price="7"), price_changes=changes), pods(1, 3)
    whole = cost_over((asked,), (one,), NOW, first + second)
    parts = cost_over((asked,), (one,), NOW, first), cost_over((asked,), (one,), NOW + timedelta(seconds=first), second)
    assert abs(whole - sum(parts)) < Decimal("1e-15")


def test_cores_and_memory_beside_gpus_decide_between_equal_gpu_prices():
    dear = uniform(1, of=replace(flavor(price="2"), cpu_price=Decimal("0.05"), memory_price=Decimal("0.01")))
    plain = uniform(2, of=flavor(price="2"))
    (placed,) = decide(
        snapshot([dear, plain], [job(pods(1, 1, cpu=4000, memory=8192), strategy="cheapest")])
    ).placements
    assert (placed.cluster, placed.hourly_cost) == ("c2", Decimal(2))
    (placed,) = decide(snapshot([dear], [job(pods(2, 1, cpu=4000, memory=8192))])).placements
    assert placed.hourly_cost == 2 * (2 + Decimal("0.2") + Decimal("0.08"))


def test_a_part_of_a_gpu_costs_and_counts_its_part():
    of = flavor(sharing="divisible", price="2.00")
    fleet = fleet_of([cluster(1, [node("n", of, 8)], [of])])
    whole, half = (pods(3, 1, cpu=1, memory=1),), (pods(3, 0, fraction=500, cpu=1, memory=1),)
    assert (hourly_cost(whole, (of,)), hourly_cost(half, (of,))) == (Decimal(6), Decimal(3))
    one, part = (ask_of(fleet, asked, Topology(), fleet.largest_free) for asked in (whole, half))
    assert part.hourly_cost.tolist() == [3.0]
    assert part.lead_share.tolist() == pytest.approx([one.lead_share.item(0) / 2])
    assert one.lead_share.item(0) > 0
