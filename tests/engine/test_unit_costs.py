"""Rows of unit costs: what is joined, what is divided, and that all that is shown adds up."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.engine.unit_costs import Part, bridges, unit_cost_rows

HOUR = 3_600_000
amounts = st.fractions(-10, 100, max_denominator=999)
positive = st.fractions(0, 10 * HOUR, max_denominator=7)
parts_of_few_keys = st.lists(
    st.builds(
        Part,
        keys=st.fixed_dictionaries(
            {"tenant": st.sampled_from(["a", "b"]), "label:team": st.sampled_from([None, "", "x"])}
        ),
        state=st.sampled_from(["succeeded", "failed", "cancelled"]),
        currency=st.sampled_from(["", "EUR", "USD"]),
        jobs=st.integers(0, 5),
        gpu=positive,
        unpriced=positive,
        cost=amounts,
        inside=amounts,
    ),
    max_size=12,
)


def part(state="succeeded", currency="USD", jobs=1, cost="1", *, gpu=0, unpriced=0, inside="0", **keys):
    return Part(keys, state, currency, jobs, Fraction(gpu), Fraction(unpriced), Fraction(cost), Fraction(inside))


def test_the_parts_of_a_row_are_joined_by_keys_and_currency():
    rows, totals = unit_cost_rows([
        part("succeeded", jobs=2, cost="1", gpu=HOUR, tenant="a"),
        part("failed", jobs=1, cost="1/3", gpu=2 * HOUR, unpriced=HOUR, tenant="a"),
        part("cancelled", jobs=4, cost="0", tenant="a"),
        part("failed", "EUR", jobs=1, cost="5", tenant="a"),
    ])  # fmt: skip
    euro, dollar = rows
    assert (euro.jobs, euro.succeeded, euro.cost, euro.cost_per_successful_job, euro.unsuccessful_share) == (
        1,
        0,
        5,
        None,
        1,
    )
    assert (dollar.jobs, dollar.succeeded, dollar.failed, dollar.cancelled) == (7, 2, 1, 4)
    assert (dollar.cost, dollar.unsuccessful_cost) == (Decimal("1.333333"), Decimal("0.333333"))
    assert (dollar.gpu_hours, dollar.unsuccessful_gpu_hours, dollar.unpriced_gpu_hours) == (3, 2, 1)
    assert (dollar.cost_per_job, dollar.cost_per_successful_job) == (Decimal("0.190476"), Decimal("0.666667"))
    assert (dollar.gpu_hours_per_job, dollar.gpu_hours_per_successful_job) == (Decimal("0.428571"), Decimal("1.5"))
    assert dollar.unsuccessful_share == Decimal("0.25")
    assert [total.currency for total in totals] == ["EUR", "USD"]


@pytest.mark.parametrize(
    ("beside", "currency"),
    [
        ([], "USD"),
        ([part(currency="EUR", tenant="other")], "EUR"),
        ([part(currency="CHF", tenant="other"), part(currency="EUR", tenant="a")], "EUR"),
        ([part(currency="USD", tenant="a"), part(currency="EUR", tenant="a")], "EUR"),
        ([part(currency="EUR", tenant="a"), part(currency="USD", tenant="a")], "EUR"),
    ],
)
def test_jobs_without_a_price_join_a_row_of_their_keys_else_the_first_currency(beside, currency):
    rows, _ = unit_cost_rows([part("failed", "", jobs=10, cost="0", tenant="a"), *beside])
    assert [row.currency for row in rows if row.failed == 10] == [currency]


def test_a_user_is_one_row_under_each_name_and_no_label_is_not_an_empty_one():
    rows, _ = unit_cost_rows(
        [part(user="old", user_id="1"), part(user="new", user_id="1"), part(user="new", user_id="2")]
    )
    assert [(row.keys["user_id"], row.jobs) for row in rows] == [("2", 1), ("1", 2)]
    rows, _ = unit_cost_rows([part(**{"label:a": None}), part(**{"label:a": ""})])
    assert [(row.keys["label:a"], row.jobs) for row in rows] == [(None, 1), ("", 1)]


def test_nothing_has_a_total_of_nothing():
    rows, (total,) = unit_cost_rows([])
    assert (rows, total.currency, total.jobs, total.cost, total.cost_per_job, total.unsuccessful_share) == (
        (),
        "USD",
        0,
        0,
        None,
        None,
    )
    assert bridges([], {"USD": Decimal("0.000000")}) == ()


def test_the_bridge_adds_up_where_parts_have_more_digits_than_are_shown():
    third = [part(cost="1/3", inside="1/6"), part("failed", cost="1/3", inside="1/6"), part(currency="", cost="0")]
    (one,) = bridges(third, {"USD": Decimal("2.000000")})
    assert (one.cost, one.outside + one.inside, one.others) == (Decimal("0.666667"), one.cost, 2 - one.inside)
    assert [one.currency for one in bridges(third, {"EUR": Decimal(1)})] == ["EUR", "USD"]
    assert [(one.others, one.usage_cost) for one in bridges(third, {})] == [(-one.inside, 0)]


@given(parts_of_few_keys)
def test_rows_add_up_to_totals_and_totals_are_the_exact_sums(parts):
    rows, totals = unit_cost_rows(parts)
    for total in totals:
        own = [row for row in rows if row.currency == total.currency]
        for name in ("jobs", "succeeded", "failed", "cancelled", "cost", "unsuccessful_cost", "gpu_hours", "unsuccessful_gpu_hours", "unpriced_gpu_hours"):  # fmt: skip
            assert sum(getattr(row, name) for row in own) == getattr(total, name)
    assert sum(total.jobs for total in totals) == sum(one.jobs for one in parts)
    exact = sum((one.gpu for one in parts), Fraction(0)) / HOUR
    assert abs(Fraction(sum(total.gpu_hours for total in totals)) - exact) <= Fraction(len(totals), 10**6)
    assert len({(row.currency, *row.keys.items()) for row in rows}) == len(rows)
