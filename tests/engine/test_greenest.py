"""`greenest` places jobs where an hour of work emits least; what is not known is never zero."""

import json
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.answers.quotes import quote
from placement.answers.recording import decisions_text, snapshot_of, snapshot_text
from placement.cycle.cycle import decide
from placement.fleet.emissions import emissions_text, emitted_by
from placement.fleet.prices import Rates
from placement.values.emissions import Emissions, Emitted
from placement.values.model import ModelSpeed
from tests.laws import examples

from .fleets import A100, H100, flavor, job, pods, snapshot, uniform


def emitting(number, grams, *, price="2.00", model=H100, core=None, gib=None, **more):
    """A cluster of one flavor; `grams` None: not rated, "": no site or intensity."""
    given = (
        None if grams == "" else Emissions(*(None if each is None else Decimal(each) for each in (grams, core, gib)))
    )
    return uniform(number, of=replace(flavor(model, price=price), emissions=given), **more)


def placed(fleet, *asked, strategy="greenest", **more):
    (found,) = decide(snapshot(fleet, [job(*(asked or (pods(1, 1),)), strategy=strategy, **more)])).placements
    return found


def test_the_place_that_emits_least_wins_at_any_price():
    fleet = [emitting(1, "400", price="0.10"), emitting(2, "35.5", price="9.00"), emitting(3, "36")]
    found = placed(fleet)
    assert (found.cluster, found.emitted) == ("c2", Emitted(Decimal("35.500")))
    assert placed(fleet, strategy="cheapest").cluster == "c1"
    assert placed(fleet, strategy="cheapest").emitted is None


def test_of_equal_emissions_the_lower_price_wins():
    assert placed([emitting(1, "30", price="3.00"), emitting(2, "30", price="1.00")]).cluster == "c2"


@pytest.mark.parametrize("unknown", ["", None])
def test_what_is_not_known_is_not_zero(unknown):
    """Neither a place without a site or intensity nor one without a rating comes before the dirtiest known one."""
    fleet = [emitting(1, unknown, price="0.10"), emitting(2, "90000", price="500")]
    assert placed(fleet).cluster == "c2"
    # Not even before one without a price.
    assert placed([emitting(1, unknown), emitting(2, "90000", price=None)]).cluster == "c2"
    alone = placed([emitting(1, unknown)])
    assert (alone.cluster, alone.emitted) == ("c1", Emitted(None))


def test_where_nothing_is_known_the_price_decides():
    assert placed([emitting(1, "", price="3.00"), emitting(2, None, price="1.00")]).cluster == "c2"


def test_clean_power_is_zero_and_wins():
    assert placed([emitting(1, "1", price="0.10"), emitting(2, "0")]).cluster == "c2"


def test_all_that_pods_request_counts():
    """The second cluster has the cleaner GPU, but its cores and memory emit more."""
    fleet = [emitting(1, "40", core="0", gib="0"), emitting(2, "30", core="5", gib="1")]
    assert placed(fleet, pods(1, 1, cpu=1000, memory=1024)).cluster == "c2"
    found = placed(fleet, pods(3, 2, cpu=8000, memory=16 * 1024))
    assert (found.cluster, found.emitted) == ("c1", Emitted(Decimal("240.000")))
    assert placed(fleet[1:], pods(3, 2, cpu=8000, memory=16 * 1024)).emitted == Emitted(Decimal(3 * (60 + 40 + 16)))


@pytest.mark.parametrize(
    ("emissions", "with_gpu", "rates"),
    [
        (None, True, None),
        (None, False, None),
        (Emissions(Decimal(5)), True, Rates(Decimal(5), Decimal(0), Decimal(0))),
        (Emissions(Decimal(5)), False, None),
        (Emissions(None, Decimal(1), Decimal(2)), True, None),
        (Emissions(None, Decimal(1), Decimal(2)), False, Rates(Decimal(0), Decimal(1), Decimal(2))),
        (Emissions(Decimal(5), Decimal(1)), False, Rates(Decimal(0), Decimal(1), Decimal(0))),
    ],
)
def test_a_gpu_needs_its_rating_and_a_pod_without_one_that_of_cores(emissions, with_gpu, rates):
    assert emitted_by(replace(flavor(), emissions=emissions), with_gpu=with_gpu) == rates


def test_a_model_that_is_twice_as_fast_emits_for_half_the_time():
    fleet = [emitting(1, "50", model=A100), emitting(2, "90")]
    assert placed(fleet).cluster == "c1"
    speeds = (ModelSpeed(A100, 1), ModelSpeed(H100, 2))
    assert placed(fleet, throughput=speeds).cluster == "c2"


def test_a_quote_is_what_the_cycle_decides_and_a_recording_repeats_it():
    fleet = [emitting(1, "400", price="0.10"), emitting(2, "35.5", core="0.125"), emitting(3, "")]
    given = snapshot(fleet, [])
    asked = job(pods(1, 1), strategy="greenest")
    offers = quote(asked, given).offers
    assert [one.placement.cluster for one in offers] == ["c2", "c1", "c3"]
    assert [one.placement.emitted for one in offers] == [
        Emitted(Decimal("35.625")), Emitted(Decimal("400.000")), Emitted(None),
    ]  # fmt: skip
    whole = replace(given, queue=(asked,))
    again = snapshot_of(json.loads(snapshot_text(whole)))
    assert again == whole
    assert decisions_text(decide(again)) == decisions_text(decide(whole))


def test_texts_say_what_is_known():
    assert emissions_text(Decimal("35.625")) == "about 35.6 g CO2e an hour"
    assert emissions_text(None) == "what it emits there is not known"


grams = st.one_of(st.none(), st.just(""), st.decimals(0, 10**6, places=3).map(str))


@pytest.mark.law
@examples(100)
@given(st.lists(st.tuples(grams, st.integers(1, 9)), min_size=1, max_size=6), st.integers(1, 4))
def test_no_known_place_emits_less_than_the_chosen_one(places, gpus):
    fleet = [emitting(number, one, price=str(price)) for number, (one, price) in enumerate(places, 1)]
    found = placed(fleet, pods(1, gpus))
    known = [Decimal(one) * gpus for one, _ in places if one]
    if not known:
        assert found.emitted == Emitted(None)
    else:
        # Differences of less than a hundred thousandth do not outweigh a price.
        assert min(known) <= found.emitted.grams <= min(known) * Decimal("1.00001") + Decimal("0.001")
