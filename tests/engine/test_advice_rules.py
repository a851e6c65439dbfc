"""What is recommended: each rule just where it begins, what no rule may recommend, and its amounts recomputed by hand."""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.recommendations import Kind, Needs, Offer, Use, cheaper, smaller, spot, together
from billing.engine.recommended_sums import CommittedDay, FoundJob, Labelled, missing_label, of_jobs, unused_commitment
from federation.engine.advice_words import summary_of
from placement.ranking.interruptions import slowdown_of
from tests.laws import examples

HOME, AWAY, TENANT = UUID(int=1), UUID(int=2), UUID(int=9)
GIB = 1024
A100 = Offer(
    cluster_id=HOME, cluster="north", region="eu-north", flavor="a100", vendor="nvidia", gpu_model="A100-80GB", sharing="whole",
    memory_mib=80 * GIB, capacity_type="on_demand", currency="USD", unit_price=Decimal(3), most_units=8,
)  # fmt: skip
THERE = replace(A100, cluster_id=AWAY, cluster="south", region="us-east", unit_price=Decimal(2))
SPOT = replace(
    A100, flavor="a100-spot", capacity_type="spot", unit_price=Decimal(1), interruptions_per_hour=Decimal("0.1")
)
SLICE = replace(A100, flavor="a100-1g", sharing="mig:1g.10gb", memory_mib=10 * GIB, unit_price=Decimal("0.5"))
L4 = replace(A100, flavor="l4", gpu_model="L4", memory_mib=24 * GIB, unit_price=Decimal(1))
USE = Use(
    tenant_id=TENANT, name="train-#", cluster_id=HOME, cluster="north", flavor="a100", vendor="nvidia", gpu_model="A100-80GB",
    sharing="whole", memory_mib=80 * GIB, capacity_type="on_demand", currency="USD", cost=Fraction(300), unit_hours=Fraction(100),
    measured_hours=Fraction(80), active_hours=Fraction(80), active=Fraction(8), peak_mib=8 * GIB, jobs=4, needs=frozenset({Needs()}),
)  # fmt: skip


def times(rate, seconds):
    return slowdown_of(float(rate), seconds)


def spot_of(use, offers, usual="0.05"):
    return spot(use, offers, times, Decimal(usual))


@pytest.mark.parametrize(
    ("use", "offer", "is_found"),
    [
        ({}, {}, True),
        ({}, {"unit_price": Decimal("2.7")}, True),
        ({}, {"unit_price": Decimal("2.71")}, False),
        ({}, {"unit_price": Decimal(3)}, False),
        ({"cost": Fraction(3), "unit_hours": Fraction(1)}, {}, True),
        ({"cost": Fraction("2.99"), "unit_hours": Fraction(1)}, {}, False),
        ({}, {"currency": "EUR"}, False),
        ({}, {"vendor": "amd"}, False),
        ({}, {"gpu_model": "H100-80GB"}, False),
        ({}, {"sharing": "mig:1g.10gb"}, False),
        ({}, {"capacity_type": "reserved"}, True),
        ({}, {"capacity_type": "spot"}, False),
        ({"capacity_type": "spot"}, {"capacity_type": "spot"}, True),
        ({}, {"most_units": 1}, True),
        ({"units_per_pod": 2}, {"most_units": 1}, False),
        ({}, {"cpu_price": Decimal(1)}, True),
        ({"core_hours": Fraction(71)}, {"cpu_price": Decimal(1)}, False),
        ({"gib_hours": Fraction(71)}, {"memory_price": Decimal(1)}, False),
        ({"gpu_model": ""}, {"gpu_model": ""}, False),
    ],
)
def test_the_same_gpu_elsewhere_must_save_a_tenth_and_a_unit(use, offer, is_found):
    assert (cheaper(replace(USE, **use), [replace(THERE, **offer)]) is not None) == is_found


@pytest.mark.parametrize(
    ("needs", "is_allowed"),
    [
        ({}, True),
        ({"clusters": frozenset({"south"})}, True),
        ({"clusters": frozenset({"north"})}, False),
        ({"exclude_clusters": frozenset({"south"})}, False),
        ({"regions": ("us-*",)}, True),
        ({"regions": ("eu-*",)}, False),
        ({"regions": ("eu-*", "us-east")}, True),
        ({"capacity_types": frozenset({"spot"})}, False),
        ({"capacity_types": frozenset({"on_demand", "spot"})}, True),
        ({"is_bound": True}, False),
    ],
)
def test_constraints_of_any_job_forbid_a_place(needs, is_allowed):
    both = replace(USE, needs=frozenset({Needs(), Needs(**needs)}))
    assert (cheaper(both, [THERE]) is not None) == is_allowed


def test_the_cheapest_place_is_recommended_with_what_it_saves():
    found = cheaper(USE, [replace(THERE, unit_price=Decimal("2.5")), A100, THERE, SPOT])
    assert (found.kind, found.tenant_id, found.subject, found.currency) == (
        Kind.CHEAPER,
        TENANT,
        "train-# on A100-80GB, on_demand",
        "USD",
    )
    assert (found.low, found.high, found.confidence) == (100, 100, Decimal("0.8"))
    assert (found.evidence["to_cluster"], found.evidence["to_cost"], found.evidence["cost"]) == (
        "south",
        "200.000000",
        "300.000000",
    )


@pytest.mark.parametrize(
    ("use", "offer", "is_found"),
    [
        ({"checkpoint_seconds": 600}, {}, True),
        ({"checkpoint_seconds": None}, {}, False),
        ({"checkpoint_seconds": 600, "capacity_type": "spot"}, {}, False),
        ({"checkpoint_seconds": 600}, {"capacity_type": "on_demand"}, False),
        ({"checkpoint_seconds": 600}, {"interruptions_per_hour": Decimal(20)}, False),
        ({"checkpoint_seconds": 600}, {"interruptions_per_hour": Decimal(0)}, True),
        ({"checkpoint_seconds": 600, "needs": frozenset({Needs(capacity_types=frozenset({"on_demand"}))})}, {}, False),
        ({"checkpoint_seconds": 600}, {"unit_price": Decimal("2.9")}, False),
    ],
)
def test_spot_is_for_jobs_that_write_checkpoints_and_pays_for_interruptions(use, offer, is_found):
    assert (spot_of(replace(USE, **use), [replace(SPOT, **offer)]) is not None) == is_found


def test_what_spot_saves_at_least_is_with_the_work_that_is_repeated():
    found = spot_of(replace(USE, checkpoint_seconds=3600), [SPOT])
    assert found.high == 200
    assert abs(found.low - (300 - 100 * Decimal(slowdown_of(0.1, 3600)))) < Decimal("0.001")
    assert found.low < 195
    assert (found.confidence, found.evidence["is_rate_stated"]) == (Decimal("0.8"), True)
    usual = spot_of(replace(USE, checkpoint_seconds=3600), [replace(SPOT, interruptions_per_hour=None)])
    assert (usual.confidence, usual.evidence["is_rate_stated"]) == (Decimal("0.5"), False)
    assert usual.low > found.low


def test_a_dearer_spot_place_with_fewer_interruptions_is_better_if_it_costs_less_in_the_end():
    calm = replace(SPOT, flavor="calm", unit_price=Decimal("1.2"), interruptions_per_hour=Decimal(0))
    wild = replace(SPOT, flavor="wild", interruptions_per_hour=Decimal(2))
    assert spot_of(replace(USE, checkpoint_seconds=1800), [wild, calm]).evidence["to_flavor"] == "calm"


@pytest.mark.parametrize(
    ("use", "offer", "is_found"),
    [
        ({}, {}, True),
        ({"peak_mib": None}, {}, False),
        ({"active_hours": Fraction(0), "active": Fraction(0)}, {}, False),
        ({"measured_hours": Fraction(50)}, {}, True),
        ({"measured_hours": Fraction("49.9")}, {}, False),
        ({"peak_mib": 8 * GIB + 1}, {}, False),
        ({"active": Fraction(80, 7) * Fraction(4, 5)}, {}, True),
        ({"active": Fraction(80, 7) * Fraction(4, 5) + Fraction(1, 1000)}, {}, False),
        ({}, {"sharing": "timeslice:4"}, False),
        ({"sharing": "timeslice:4"}, {}, False),
        ({}, {"capacity_type": "spot"}, False),
        ({}, {"vendor": "amd"}, False),
        ({}, {"unit_price": Decimal("2.8")}, False),
        ({"units_per_pod": 9}, {}, False),
    ],
)
def test_a_slice_must_have_room_for_the_memory_and_the_work(use, offer, is_found):
    assert (smaller(replace(USE, **use), [replace(SLICE, **offer)]) is not None) == is_found


@pytest.mark.parametrize(
    ("use", "is_found"),
    [
        ({"active": Fraction(80) * Fraction("0.2999")}, True),
        ({"active": Fraction(80) * Fraction("0.3")}, False),
        ({"peak_mib": 19660}, True),
        ({"peak_mib": 19661}, False),
        ({"needs": frozenset({Needs(is_particular=True)})}, False),
        ({"sharing": "mig:3g.40gb", "memory_mib": 40 * GIB}, False),
        ({"memory_mib": 24 * GIB}, False),
    ],
)
def test_another_model_is_for_jobs_that_hardly_use_theirs(use, is_found):
    assert (smaller(replace(USE, **use), [L4]) is not None) == is_found


def test_what_smaller_ones_save_if_jobs_take_longer():
    on_slice, other = smaller(USE, [SLICE]), smaller(USE, [L4])
    assert (on_slice.low, on_slice.high, on_slice.confidence) == (Decimal("237.5"), 250, Decimal("0.72"))
    assert (other.low, other.high, other.confidence) == (100, 200, Decimal("0.4"))
    assert smaller(USE, [replace(L4, unit_price=Decimal(2))]).low == 0
    assert smaller(USE, [SLICE, L4]).evidence["to_flavor"] == "a100-1g"


def test_jobs_of_several_clusters_are_one_recommendation():
    west = replace(USE, cluster_id=UUID(int=3), cluster="west", cost=Fraction(600), unit_hours=Fraction(200), jobs=2)
    small = replace(USE, name="other-#")
    found = together(cheaper(use, [THERE]) for use in (USE, west, small, replace(USE, currency="USD", name="train-#x")))
    assert [(one.subject, one.high) for one in found] == [
        ("train-# on A100-80GB, on_demand", 300), ("other-# on A100-80GB, on_demand", 100), ("train-#x on A100-80GB, on_demand", 100),
    ]  # fmt: skip
    facts = found[0].evidence
    assert (facts["jobs"], facts["cost"], facts["to_cost"]) == (6, "900.000000", "600.000000")
    assert [place["cluster"] for place in facts["places"]] == ["west", "north"]
    assert found[0].confidence == Decimal("0.8")


def jobs(*amounts, measured="1"):
    return [
        FoundJob(UUID(int=number), Decimal(one), Decimal(1), Decimal(measured)) for number, one in enumerate(amounts)
    ]


def test_the_first_two_failures_may_have_been_needed():
    found = of_jobs(Kind.LATE_FAILURES, TENANT, "train", "USD", jobs(5, 4, 3, 2))
    assert (found.low, found.high, found.confidence) == (5, 14, 1)
    idle = of_jobs(Kind.IDLE, TENANT, "train", "USD", jobs(5, 4, measured="0.25"))
    assert (idle.low, idle.high, idle.confidence) == (9, 9, Decimal("0.25"))
    assert of_jobs(Kind.IDLE, TENANT, "train", "USD", jobs("0.5", "0.4")) is None
    assert of_jobs(Kind.IDLE, TENANT, "train", "USD", []) is None


def days(number, quantity=10, unused=1, cost=5):
    return [CommittedDay(Fraction(quantity), Fraction(unused), Fraction(cost))] * number


@pytest.mark.parametrize(
    ("split", "is_found"),
    [
        (days(7), True), (days(6), False), ([], False), (days(30, unused=Fraction("0.999")), False), (days(30, quantity=0, unused=0), False),
        (days(10, cost=Fraction("0.09")), False),
    ],
)  # fmt: skip
def test_a_commitment_is_unused_from_a_tenth_and_a_week_on(split, is_found):
    assert (unused_commitment(TENANT, HOME, "c", "USD", split) is not None) == is_found


def test_what_was_unused_on_every_day_is_certain():
    found = unused_commitment(TENANT, HOME, "c", "USD", [*days(14, unused=2), *days(1, unused=0, cost=0)])
    assert (found.low, found.high, found.confidence, found.subject) == (0, 70, Decimal("0.5"), str(HOME))
    assert unused_commitment(TENANT, HOME, "c", "USD", [*days(29), *days(1, cost=2)]).low == 60


@pytest.mark.parametrize(
    ("cost", "missing", "is_found"),
    [(100, 5, True), (100, "4.99", False), (10, "0.99", False), (10, 1, True), (0, 0, False)],
)
def test_a_label_is_missing_from_a_twentieth_on(cost, missing, is_found):
    one = Labelled(TENANT, "team", "USD", Fraction(cost), Fraction(missing), 3)
    found = missing_label(one)
    assert (found is not None) == is_found
    if found is not None:
        assert found.low == found.high == Decimal(missing)


PRICES = st.decimals(min_value=0, max_value=9, places=6)
OFFERS = st.lists(
    st.builds(
        replace, st.sampled_from([A100, THERE, SPOT, SLICE, L4]), unit_price=PRICES, most_units=st.integers(0, 9)
    ),
    max_size=5,
)
HOURS = st.fractions(min_value=0, max_value=1000, max_denominator=97)
USES = st.builds(
    replace, st.just(USE), cost=HOURS, unit_hours=HOURS, measured_hours=HOURS, active_hours=HOURS, active=HOURS,
    peak_mib=st.none() | st.integers(0, 90 * GIB), checkpoint_seconds=st.none() | st.integers(1, 10**6),
)  # fmt: skip


@examples(200)
@given(use=USES, offers=OFFERS)
def test_no_recommendation_promises_more_than_the_jobs_cost(use, offers):
    for found in (cheaper(use, offers), smaller(use, offers), spot_of(use, offers)):
        if found is not None:
            assert 0 <= found.low <= found.high <= use.cost
            assert 0 <= found.confidence <= 1
            assert summary_of(found.kind, found.evidence)
            assert found.evidence["to_flavor"] != use.flavor or found.evidence["to_cluster"] != use.cluster
