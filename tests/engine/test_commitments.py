"""Commitments: what was paid is spread over the term to the last digit, and every hour of it is used or unused."""

from collections import defaultdict
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.commitment_entries import account_of_unused, entries_of
from billing.engine.commitment_usage import run_of
from billing.engine.commitments import (
    HOUR,
    QUANTITY_AN_HOUR,
    Commitment,
    Run,
    Worth,
    count_of_payments,
    payment_times,
    split_day,
)
from billing.engine.credits import Loss
from billing.engine.idle import IdleSplit
from billing.engine.ledger import PriceBook, RatedSegment, units
from billing.engine.rating import Load, PriceSpan
from billing.engine.shared_entries import missing_entries
from tests.laws import among, examples

DAY = datetime(2026, 10, 5, tzinfo=UTC)
NORTH, SOUTH, ORGANISATION, JOB = UUID(int=1), UUID(int=2), UUID(int=9), UUID(int=8)
E12 = 10**12


def at(hour, minute=0):
    return DAY + timedelta(hours=hour, minutes=minute)


def commitment(units=2, upfront=0, recurring=0, *, start=DAY, until=None, name="one", clusters=(NORTH,), **more):
    until = until or start + timedelta(days=1)
    given: dict[str, Any] = {
        "flavor": "h100",
        "capacity_type": "reserved",
        "currency": "USD",
        "number": 1,
        "id": UUID(int=77),
    }
    return Commitment(
        name=name, clusters=frozenset(clusters), units=units, start=start, until=until, upfront=upfront, recurring=recurring,
        **(given | more),
    )  # fmt: skip


def user(name="acme/a", cluster=NORTH):
    return str(cluster), name, name.rpartition("/")[2]


def run(start, until, units=1, cost=0, of=None, *, flavor="h100", capacity_type="reserved", currency="USD"):
    worth = [Worth(start, until, currency, cost)] if cost else []
    return Run(of or user(), flavor, capacity_type, start, until, units * 1000, worth)


def only(*commitments, runs=(), day=None):
    (found,) = split_day(day or DAY.date(), commitments, runs)
    return found


def test_an_hour_is_used_in_the_proportion_of_its_units():
    found = only(commitment(upfront=240 * E12), runs=[run(at(1), at(2, 30))])
    assert [one.used for one in found.hours] == [0, 5 * E12, 5 * E12 // 2, *[0] * 21]
    assert [one.amortised for one in found.hours] == [10 * E12] * 24
    assert found.unused == 240 * E12 - 7_500_000_000_000
    assert found.used == {user(): 7_500_000_000_000}
    assert found.quantities == {user(): QUANTITY_AN_HOUR * 3 // 2}


def test_more_use_than_units_is_covered_in_part_and_shared_in_proportion():
    one, other = user("acme/a"), user("acme/b")
    found = only(
        commitment(upfront=24 * E12),
        runs=[run(at(1), at(2), units=3, cost=300, of=one), run(at(1), at(2), cost=100, of=other)],
    )
    assert (found.hours[1].used, found.hours[1].unused) == (E12, 0)
    assert found.used == {one: 3 * E12 // 4, other: E12 // 4}
    assert found.covered == {one: {"USD": 150}, other: {"USD": 50}}


def test_what_is_covered_whole_is_taken_back_whole():
    found = only(commitment(units=9, upfront=1), runs=[run(at(0, 7), at(13, 11), cost=10_000_000_019)])
    assert found.covered == {user(): {"USD": 10_000_000_019}}


def test_the_earlier_start_is_applied_first_then_the_lesser_name():
    early = commitment(units=1, upfront=24 * E12, start=DAY - HOUR, until=at(24), name="z")
    a, b = commitment(units=1, name="a", upfront=24), commitment(units=1, name="b", upfront=24)
    runs = [run(at(3), at(4), units=2, cost=7)]
    for given_order in ([b, a, early], [a, early, b]):
        found = split_day(DAY.date(), given_order, runs)
        assert [one.commitment.name for one in found] == ["z", "a", "b"]
        assert [one.hours[3].used_quantity for one in found] == [QUANTITY_AN_HOUR, QUANTITY_AN_HOUR, 0]
        assert [dict(one.covered) for one in found] == [{user(): {"USD": 3}}, {user(): {"USD": 4}}, {}]


@pytest.mark.parametrize(
    "other",
    [
        {"flavor": "a100"}, {"capacity_type": "spot"}, {"of": user(cluster=SOUTH)},
    ],
)  # fmt: skip
def test_other_flavors_capacity_types_and_clusters_are_not_covered(other):
    found = only(commitment(upfront=24), runs=[run(at(1), at(2), **other)])
    assert found.unused == found.amortised == 24
    assert not found.used


def test_several_clusters_share_the_units():
    found = only(
        commitment(clusters=(NORTH, SOUTH), upfront=24 * E12),
        runs=[run(at(1), at(2), of=user(cluster=one)) for one in (NORTH, SOUTH)],
    )
    assert found.hours[1].unused == 0
    assert found.used == {user(cluster=NORTH): E12 // 2, user(cluster=SOUTH): E12 // 2}


def test_only_hours_of_the_term_are_split():
    found = only(commitment(upfront=6, start=at(20), until=at(26)), runs=[run(at(0), at(24))])
    assert [one.hour.hour for one in found.hours] == [20, 21, 22, 23]
    assert found.amortised == 4
    assert not split_day(date(2026, 10, 7), [commitment(upfront=6)], [])


def test_payments_are_at_the_start_and_each_month_after_it():
    one = commitment(
        upfront=5, recurring=2, start=datetime(2028, 1, 31, tzinfo=UTC), until=datetime(2028, 5, 1, tzinfo=UTC)
    )
    assert one.payments == [
        (date(2028, 1, 31), 7),
        (date(2028, 2, 29), 2),
        (date(2028, 3, 31), 2),
        (date(2028, 4, 30), 2),
    ]
    assert one.total == 13
    assert list(payment_times(DAY, DAY)) == []
    december = list(payment_times(datetime(2026, 11, 15, 7, tzinfo=UTC), datetime(2027, 1, 15, 8, tzinfo=UTC)))
    assert [f"{each:%Y-%m-%d %H}" for each in december] == ["2026-11-15 07", "2026-12-15 07", "2027-01-15 07"]


TERMS = st.tuples(
    st.datetimes(datetime(2019, 1, 1), datetime(2031, 1, 1)), st.integers(1, 24 * 1500), st.integers(0, 10**18), st.integers(0, 10**17)
)  # fmt: skip


@pytest.mark.law
@given(term=TERMS, cuts=st.lists(st.integers(0, 24 * 1500)))
@examples(150)
def test_the_hours_of_any_term_add_up_to_what_was_paid(term, cuts):
    begins, hours, upfront, recurring = term
    start = begins.replace(minute=0, second=0, microsecond=0, tzinfo=UTC)
    one = commitment(upfront=upfront, recurring=recurring, start=start, until=start + hours * HOUR)
    edges = sorted({0, hours, *(cut for cut in cuts if cut < hours)})
    parts = [one.amortised(start + a * HOUR, start + b * HOUR) for a, b in pairwise(edges)]
    assert sum(parts) == one.total == sum(amount for _, amount in one.payments)
    for part, (a, b) in zip(parts, pairwise(edges), strict=True):
        assert abs(part - Fraction(one.total * (b - a), hours)) < 1


@st.composite
def days(draw):
    """Random commitments and usage of one day."""
    number = draw(st.integers(0, 4))
    commitments = [
        commitment(
            units=draw(st.integers(1, 5)), upfront=draw(st.integers(0, 10**15)), name=f"c{index}", id=UUID(int=index + 1),
            start=at(draw(st.integers(-30, 20))), until=at(draw(st.integers(21, 60))),
            clusters=draw(among((NORTH,), (SOUTH,), (NORTH, SOUTH))), flavor=draw(among("h100", "a100")),
        )
        for index in range(number)
    ]  # fmt: skip
    runs = []
    for _ in range(draw(st.integers(0, 8))):
        first = draw(st.integers(0, 86_399_999))
        last = draw(st.integers(first + 1, 86_400_000))
        start, until = DAY + timedelta(milliseconds=first), DAY + timedelta(milliseconds=last)
        whose = user(draw(among("acme/a", "acme/b", "acme/c")), draw(among(NORTH, SOUTH)))
        flavor, cost = draw(among("h100", "a100")), draw(st.integers(0, 10**13))
        runs.append(run(start, until, draw(st.integers(1, 6)), cost, whose, flavor=flavor))
    return commitments, runs


def oracle(commitments, runs):
    """What each user has of each commitment and hour as a fraction of it, and what of their charges is covered: no rounding."""
    left, whole, worth = defaultdict(Fraction), defaultdict(Fraction), defaultdict(Fraction)
    for one in runs:
        for number in range(24):
            inside = max(timedelta(), min(one.until, at(number + 1)) - max(one.start, at(number)))
            key = one.user, one.flavor, number
            left[key] += Fraction(one.rate, 1000) * Fraction(inside / timedelta(milliseconds=1)) / 3_600_000
            whole[key] = left[key]
            for part in one.worth:
                worth[key] += (
                    part.cost
                    * Fraction(inside / timedelta(milliseconds=1))
                    / Fraction((part.until - part.start) / timedelta(milliseconds=1))
                )
    used, covered = defaultdict(Fraction), defaultdict(Fraction)
    for one in sorted(commitments, key=lambda each: (each.start, each.name)):
        for number in range(24):
            if not one.start <= at(number) < one.until:
                continue
            those = [
                key
                for key in left
                if key[1:] == (one.flavor, number) and key[0][0] in map(str, one.clusters) and left[key]
            ]
            asked = sum(left[key] for key in those)
            for key in those:
                taken = left[key] * min(1, Fraction(one.units) / asked)
                used[one.name, number, key[0]] = taken / one.units
                covered[one.name, key[0]] += worth[key] * taken / whole[key]
                left[key] -= taken
    return used, covered


@pytest.mark.law
@given(given_day=days(), seed=st.integers(0, 2**32))
@examples(120)
def test_splits_equal_an_independent_model_whatever_the_order_of_reports(given_day, seed):
    commitments, runs = given_day
    found = split_day(DAY.date(), commitments, runs)
    shuffled = Random(seed)
    again_runs, again = list(runs), list(commitments)
    shuffled.shuffle(again_runs)
    shuffled.shuffle(again)
    assert split_day(DAY.date(), again, again_runs) == found
    used, covered = oracle(commitments, runs)
    charged = defaultdict(int)
    for one in runs:
        charged[one.user, one.flavor] += sum(part.cost for part in one.worth)
    for one in found:
        name = one.commitment.name
        assert sum(one.used.values()) + one.unused == one.amortised == one.commitment.amortised(at(0), at(24))
        for hour in one.hours:
            of_hour = [part for (whose, number, _), part in used.items() if (whose, number) == (name, hour.hour.hour)]
            # A covered quantity differs by less than a thousandth of a unit and millisecond for each user and commitment before.
            assert abs(Fraction(hour.used_quantity, hour.quantity) - sum(of_hour)) < Fraction(50, hour.quantity)
            assert abs(hour.used - hour.amortised * sum(of_hour)) <= 6 + hour.amortised * Fraction(50, hour.quantity)
            assert 0 <= hour.used <= hour.amortised
        for whose, amounts in one.covered.items():
            error = 2 + charged[whose, one.commitment.flavor] * Fraction(24 * 50, QUANTITY_AN_HOUR // 1000)
            assert abs(amounts["USD"] - covered[name, whose]) <= error
    for (whose, flavor), cost in charged.items():
        back = sum(
            one.covered.get(whose, {}).get("USD", 0) for one in found if one.commitment.flavor == flavor
        )  # fmt: skip
        assert 0 <= back <= cost


@pytest.mark.law
@given(given_day=days())
@examples(100)
def test_entries_add_up_to_zero_and_leave_the_asset_with_what_is_not_yet_amortised(given_day):
    commitments, runs = given_day
    entries = entries_of(ORGANISATION, split_day(DAY.date(), commitments, runs), IdleSplit.CENTRAL)
    sums = defaultdict(int)
    for entry in entries:
        assert sum(line.amount for line in entry.lines) == 0
        for line in entry.lines:
            sums[line.account] += units(line.amount)
    paid = sum(amount for one in commitments for day, amount in one.payments if day == DAY.date())
    amortised = sum(one.amortised(at(0), at(24)) for one in commitments)
    assert sums["commitment"] == paid - amortised
    assert sums["purchases"] == -paid
    assert sum(amount for name, amount in sums.items() if name.startswith("tenant_expense")) == (
        amortised - sums["commitment_unused"] - sums["commitment_covered"]
    )
    assert len({entry.key for entry in entries}) == len(entries)


def test_unused_stands_where_idle_capacity_does():
    assert account_of_unused(IdleSplit.CENTRAL) == "commitment_unused"
    assert account_of_unused(IdleSplit.PROPORTIONAL) == account_of_unused(IdleSplit.RESERVATIONS) == "idle"
    (entry,) = [
        one
        for one in entries_of(ORGANISATION, [only(commitment(upfront=24, start=at(0)))], IdleSplit.RESERVATIONS)
        if one.kind == "commitment"
    ]
    assert [(line.account, units(line.amount)) for line in entry.lines] == [("idle", 24), ("commitment", -24)]


def test_a_free_commitment_covers_and_costs_nothing():
    entries = entries_of(
        ORGANISATION, [only(replace(commitment(), upfront=0), runs=[run(at(1), at(2), cost=5)])], IdleSplit.CENTRAL
    )
    assert [(line.account, units(line.amount)) for entry in entries for line in entry.lines] == [
        ("commitment_covered", 5), ("tenant_expense:a", -5),
    ]  # fmt: skip


def segment(start, until, load=None, **more):
    load = load or Load("gpu", 2, 4000, at(0))
    return RatedSegment(load, "reserved", "h100", "cpu", start, until, Decimal(0), "USD", JOB, **more)


def rated(its, losses=None, causes=()):
    books = {("h100", "reserved"): PriceBook((PriceSpan(UUID(int=5), Decimal(3), "USD", at(-9)),))}
    return list(run_of(user(), its, books, losses or {}, causes))


def test_usage_is_worth_what_it_is_charged():
    (found,) = rated(segment(at(1), at(3)))
    assert (found.rate, found.start, found.until) == (2000, at(1), at(3))
    assert found.worth == [Worth(at(1), at(3), "USD", 12 * E12)]


def test_lost_work_that_is_credited_is_no_usage():
    losses = {JOB: Loss("node_lost", at(2))}
    (found,) = rated(segment(at(1), at(3)), losses, {"node_lost"})
    assert (found.until, found.worth[0].cost) == (at(2), 6 * E12)
    assert rated(segment(at(2), at(3)), losses, {"node_lost"}) == []
    (whole,) = rated(segment(at(1), at(3)), losses, {"spot"})
    assert whole.until == at(3)


def test_guests_on_gpu_nodes_use_no_units_and_cores_are_units_of_cpu_flavors():
    assert rated(segment(at(1), at(2), Load("gpu", 0, 4000, at(0)))) == []
    (found,) = rated(segment(at(1), at(2), Load("core", 0, 4000, at(0))))
    assert found.rate == 4000


@given(st.datetimes(datetime(2024, 1, 1), datetime(2044, 1, 1)), st.integers(1, 20 * 8766))
def test_payments_are_counted_without_listing_them(start, hours):
    start = start.replace(minute=0, second=0, microsecond=0, tzinfo=UTC)
    until = start + timedelta(hours=hours)
    times = list(payment_times(start, until))
    assert count_of_payments(start, until) == len(times) == len({(at.year, at.month) for at in times})
    assert times[0] == start
    assert times[-1] < until
    assert until <= times[-1] + timedelta(days=31)


def test_a_part_whose_quantity_changes_is_posted_again_although_it_costs_the_same():
    """Of a commitment that costs next to nothing, a little usage moves no amount."""
    cheap = commitment(units=1, upfront=24)
    before, after = (
        entries_of(ORGANISATION, [only(cheap, runs=[run(at(1), at(1, minutes))])], IdleSplit.CENTRAL)
        for minutes in (1, 2)
    )
    assert [entry.lines[0].amount for entry in before] == [entry.lines[0].amount for entry in after]
    posted = missing_entries(before, [], {})
    assert missing_entries(before, posted, {entry.key: 1 for entry in before}) == ()
    changed = missing_entries(after, posted, {entry.key: 1 for entry in before})
    assert [entry.kind for entry in changed] == ["reversal", "commitment"]
