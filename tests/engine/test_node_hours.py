"""A node's hour: what it cost is what jobs paid, overhead and idle, exactly; and why jobs paid too much."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.idle import Offered, worth_of
from billing.engine.ledger import units
from billing.engine.node_hours import HOUR, Cause, Offer, Use, balances, cause_of, offers_of, uses_of
from billing.engine.rating import MILLISECOND, READINGS_AN_HOUR, Load, PriceSpan, rate
from tests.laws import examples

DAY = datetime(2026, 10, 5, tzinfo=UTC)
PRICE = UUID(int=7)
AN_HOUR = HOUR // MILLISECOND


def at(hour, minute=0):
    return DAY + timedelta(hours=hour, minutes=minute)


def offer(start, until, rate=10, units=2, **more):
    return Offer(start, until, "USD", rate, units, **more)


def use(start, until, rate=10, units=1, meter=1, pod="", **more):
    return Use(meter, pod or f"pod-{meter}", start, until, "USD", rate, units, PRICE, **more)


def by_hour(offers, uses):
    found = balances(offers, uses, DAY, at(24))
    return {hour.hour: (b.cost, b.charged, b.overhead, b.idle) for (hour, _), b in found.items()}


def test_hours_are_cut_where_they_end_and_what_is_left_is_idle():
    found = by_hour([offer(at(1), at(3))], [use(at(1, 30), at(2, 15), rate=4)])
    assert found == {
        1: (10 * AN_HOUR, 4 * AN_HOUR // 2, 0, 8 * AN_HOUR), 2: (10 * AN_HOUR, AN_HOUR, 0, 9 * AN_HOUR),
    }  # fmt: skip


def test_time_without_jobs_on_a_node_that_takes_none_is_overhead():
    closed = [offer(at(1), at(1, 30), is_available=False), offer(at(1, 30), at(2))]
    assert by_hour(closed, []) == {1: (10 * AN_HOUR, 0, 5 * AN_HOUR, 5 * AN_HOUR)}
    assert by_hour(closed, [use(at(1), at(2), rate=9)]) == {1: (10 * AN_HOUR, 9 * AN_HOUR, AN_HOUR, 0)}


def test_a_guest_at_another_flavors_price_costs_beside_the_node():
    assert by_hour([offer(at(1), at(2))], [use(at(1), at(2), rate=3, is_beside=True)]) == {
        1: (13 * AN_HOUR, 3 * AN_HOUR, 0, 10 * AN_HOUR)
    }


def test_currencies_and_limits_are_kept_apart():
    euros = Offer(at(1), at(3), "EUR", 5, 1)
    found = balances([offer(at(0), at(9)), euros], [], at(1), at(2))
    assert {key: b.cost for key, b in found.items()} == {(at(1), "EUR"): 5 * AN_HOUR, (at(1), "USD"): 10 * AN_HOUR}


def test_negative_is_what_is_charged_too_much_by_the_smallest_unit_of_money():
    (almost,) = balances([offer(at(1), at(2), rate=1)], [use(at(1), at(2), rate=1), use(at(1), at(1) + MILLISECOND, rate=1, meter=2)],
                         DAY, at(24)).values()  # fmt: skip
    assert (almost.idle, almost.is_negative) == (-1, False)
    (more,) = balances([], [use(at(1), at(1) + MILLISECOND, rate=READINGS_AN_HOUR)], DAY, at(24)).values()
    assert (more.idle, more.is_negative) == (-READINGS_AN_HOUR, True)
    assert more.overhead == 0


@pytest.mark.parametrize(
    ("offers", "uses", "is_known", "cause"),
    [
        ([], [use(at(1), at(2))], False, Cause.UNKNOWN_NODE),
        ([], [use(at(1), at(2))], True, Cause.NODE_SEEN_LATE),
        ([offer(at(1, 20), at(2))], [use(at(1), at(2))], True, Cause.NODE_SEEN_LATE),
        ([offer(at(1), at(2))], [use(at(1), at(2), meter=n, pod="same") for n in (1, 2)], True, Cause.DOUBLE_REPORT),
        ([offer(at(1), at(2))], [use(at(1), at(2), meter=n, units=2) for n in (1, 2)], True, Cause.OVERLAP),
        ([offer(at(1), at(2), rate=9)], [use(at(1), at(2))], True, Cause.PRICES_DIFFER),
        ([offer(at(1), at(2))], [use(at(1), at(2), is_beside=True)], True, Cause.PRICES_DIFFER),
        # Of two reasons, the larger part: ten minutes late, fifty minutes of two pods on one GPU.
        ([offer(at(1, 10), at(2), units=1)], [use(at(1), at(2), meter=n) for n in (1, 2)], True, Cause.OVERLAP),
        ([offer(at(1, 50), at(2), units=1)], [use(at(1), at(2), meter=n) for n in (1, 2)], True, Cause.NODE_SEEN_LATE),
    ],
)  # fmt: skip
def test_the_cause_is_that_of_the_largest_part(offers, uses, is_known, cause):
    assert cause_of(offers, uses, at(1), is_known=is_known) is cause


moments = st.integers(0, 86_400_000).map(lambda ms: DAY + ms * MILLISECOND)
spans = st.tuples(moments, moments).map(sorted).filter(lambda two: two[0] < two[1])
amounts = st.decimals("0", "99", places=6)


@pytest.mark.law
@examples(100)
@given(
    spans, st.lists(moments, max_size=3), amounts, amounts, st.tuples(st.integers(0, 8), st.integers(0, 64_000)), spans
)
def test_hours_of_a_run_add_up_to_its_charge_and_those_of_a_node_to_its_cost(span, changes, unit, cpu, asked, node):
    """Rounded once for each day and price, as the ledger does; the cost of the node is exact."""
    edges = sorted({DAY, *changes, DAY + timedelta(days=1)})
    book = [
        PriceSpan(UUID(int=number), unit + number, "USD", a, b, cpu) for number, (a, b) in enumerate(pairwise(edges))
    ]
    load = Load("gpu", asked[0], asked[1], span[0])
    uses = list(uses_of(1, "pod", load, tuple(span), (book, ())))
    parts = {}
    for one in uses:
        hours = balances([], [one], DAY, DAY + timedelta(days=1))
        parts[one.price] = parts.get(one.price, 0) + sum(b.charged for b in hours.values())
    assert sum(part // READINGS_AN_HOUR for part in parts.values()) == sum(
        units(piece.cost) for piece in rate(load, span[0], span[1], book)
    )
    offered = Offered(node[0], node[1], "gpu", 8, 64_000, 0)
    offers = list(offers_of(offered, book))
    found = balances(offers, uses, DAY, DAY + timedelta(days=1))
    assert all(b.charged + b.overhead + b.idle == b.cost for b in found.values())
    assert sum(b.cost for b in found.values()) == sum(worth.whole for worth in worth_of([offered], book).values())
