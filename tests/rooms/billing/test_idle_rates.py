"""Idle capacity in other currencies than the bill's: a month closes only with the rates that its shares need."""

from decimal import Decimal

import pytest

from billing.operations.conversion import convert_days
from billing.operations.exchange import import_reference_rates, set_billing_currency
from billing.queries import discrepancies
from foundation.problems import Conflict
from tenancy.queries import SYSTEM
from tests.builders import make_tenant

from .test_idle import MONTH, close, north, policy, used

pytestmark = pytest.mark.django_db
assert north  # a fixture


def rates(text):
    import_reference_rates(SYSTEM, "acme", text, "test")


def test_a_month_does_not_begin_to_close_without_the_rate_that_its_shares_need(north):
    policy()
    set_billing_currency(SYSTEM, "acme", MONTH, "EUR")
    rates("Date,USD\n2026-10-05,1.08\n")
    used(north, one=4)
    with pytest.raises(Conflict, match="No exchange rate for USD to EUR on 2026-10-31:"):
        close()
    rates("Date,USD\n2026-10-30,1.10\n")
    assert close()


def test_a_fixed_share_of_the_platform_in_another_currency_needs_its_rate(north):
    make_tenant("acme/one")
    set_billing_currency(SYSTEM, "acme", MONTH, "EUR")
    given = {"platform_cost": Decimal(110), "platform_currency": "GBP", "platform_weights": {"acme/one": 1}}
    policy(platform="fixed", **given)
    rates("Date,USD\n2026-10-05,1.08\n2026-10-30,1.10\n")
    used(north, one=4)
    with pytest.raises(Conflict, match="No exchange rate for GBP to EUR on 2026-10-31:"):
        close()
    rates("Date,GBP\n2026-10-30,0.87\n")
    assert close()
    assert discrepancies() == ()


def test_a_month_that_lacks_a_rate_after_all_closes_when_there_is_one_however_often_it_was_tried(north, monkeypatch):
    """A pool's balances of a close are recorded once."""
    policy()
    set_billing_currency(SYSTEM, "acme", MONTH, "EUR")
    rates("Date,USD\n2026-10-05,1.08\n")
    used(north, one=4)
    monkeypatch.setattr("billing.queries.periods._lacking_for_shares", lambda _period: [])
    assert not close()
    assert not close()
    rates("Date,USD\n2026-10-30,1.10\n")
    convert_days()
    assert close()
    assert discrepancies() == ()
