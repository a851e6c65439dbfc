"""Which egress price applies, and which regions one may name."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from billing.engine.egress import EgressRate, is_region, rate_between

NOW = datetime(2026, 3, 1, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)


def rate(from_region, to_region, *, since=NOW, until=None):
    return EgressRate("acme", from_region, to_region, Decimal(1), "USD", since, until)


@pytest.mark.parametrize("text", ["*", "eu-*", "eu-west-1", "EU_west.1", "9", "a" * 63])
def test_a_price_may_name_a_region_by_letters_digits_and_a_star(text):
    assert is_region(text)


@pytest.mark.parametrize("text", ["", "-eu", ".eu", "eu west", "eu/west", "é", "eu-1\n", "a" * 64])
def test_other_names_of_regions_are_refused(text):
    assert not is_region(text)


@pytest.mark.parametrize(
    "pairs",
    [
        [("eu-west-1", "us-east"), ("eu-west-1", "*")],
        [("eu-*", "us-east"), ("eu-west-*", "us-*")],
        [("eu-west-*", "*"), ("eu-*", "*")],
        [("eu-west-*", "us-*"), ("eu-*", "us-eas*")],
        [("eu-*", "us-*"), ("*", "us-*")],
        [("*", "us-*"), ("*", "*")],
    ],
)
def test_the_first_of_these_pairs_is_the_more_specific(pairs):
    for order in (pairs, pairs[::-1]):
        found = rate_between([rate(*pair) for pair in order], "eu-west-1", "us-east", NOW)
        assert (found.from_region, found.to_region) == pairs[0]


@pytest.mark.parametrize(
    ("since", "until", "applies"),
    [(0, None, True), (1, None, False), (-1, 0, False), (-1, 1, True), (0, 1, True)],
)
def test_a_price_applies_from_its_start_until_before_its_end(since, until, applies):
    one = rate("*", "*", since=NOW + since * MOMENT, until=None if until is None else NOW + until * MOMENT)
    assert (rate_between([one], "eu", "us", NOW) is one) == applies


def test_a_price_of_other_regions_does_not_apply():
    assert rate_between([rate("us-*", "*"), rate("*", "eu-*")], "eu-west-1", "us-east", NOW) is None
