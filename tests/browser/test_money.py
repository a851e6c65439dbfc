"""Costs in several currencies, and a policy that is previewed and set by keyboard, on a phone and a wide screen."""

import os
from datetime import UTC, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from billing.models import CreditPolicy, PriceCorrection, SharingPolicy
from billing.operations import create_price, record_lost_work, record_runs
from billing.operations.exchange import NewRate, set_billing_currency, set_exchange_rate
from billing.operations.prices import NewPrice
from clusters.models import Cluster
from foundation.clock import now
from foundation.ids import new_id
from tenancy.queries import SYSTEM
from tests.builders import make_budget, make_cluster, make_flavor, make_run

from .reading import LOOKS, fits, look

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
PICTURES = "SWITCHYARD_TEST_PICTURES"
"""A folder for pictures of these pages, if someone wants to see them."""


def pictured(w, name):
    if folder := os.environ.get(PICTURES):
        for width, scheme in ((1440, "light"), (1440, "dark"), *LOOKS, (390, "light")):
            w.page.set_viewport_size({"width": width, "height": 900})
            w.page.emulate_media(color_scheme=scheme)
            w.page.screenshot(path=str(Path(folder) / f"{name}-{width}-{scheme}.png"), full_page=True)


def two_currencies():
    """Dollars and francs of this month, of an organisation that is billed in euros; and its budget in euros."""
    today = now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    month = today.replace(day=1)
    north, south = Cluster.objects.get(name="north"), make_cluster("acme", "south-of-the-alps")
    make_flavor(south, "h100")
    for cluster, currency in ((north, "USD"), (south, "CHF")):
        if currency == "CHF":
            set_billing_currency(SYSTEM, "acme", month.date(), "EUR")
        create_price(SYSTEM, NewPrice(cluster.name, "h100", Decimal("2.25"), currency, effective_from=month))
        rate = NewRate(
            "acme", currency, "EUR", Decimal("0.93"), month.date(), month.date() + timedelta(days=40), "agreed"
        )
        set_exchange_rate(SYSTEM, rate)
    paths = ("acme/research", "acme/a-team-with-a-rather-long-name")
    budget = make_budget(paths[0], "5000", currency="EUR", period="month", starts_at=None, ends_at=None)
    for path in (*paths, paths[0]):
        record_runs([
            make_run(cluster, path, run_id=new_id(), source_uid=f"{new_id()}", started_at=month, until_at=month + timedelta(hours=5))
            for cluster in (north, south)
        ])  # fmt: skip
    set_exchange_rate(
        SYSTEM,
        NewRate("acme", "USD", "EUR", Decimal("0.95"), month.date(), month.date() + timedelta(days=40), "corrected"),
    )
    return budget


def test_a_finance_user_reads_several_currencies_and_sets_a_policy_by_keyboard(window, admin):
    budget = two_currencies()
    w = window(reduced_motion="reduce").sign_in(admin)
    w.open(f"/budgets/{budget.id}/")
    w.page.get_by_role("heading", name="Charged in other currencies").wait_for()
    look(w, "/budgets/")
    fits(w)
    pictured(w, "budget")
    w.open("/forecast/?tenant=acme")
    w.page.get_by_role("heading", name="Posted by currency of the price").wait_for()
    look(w, "/forecast/")
    fits(w)
    pictured(w, "forecast")

    w.page.set_viewport_size({"width": 1440, "height": 900})
    w.open("/idle/")
    w.page.get_by_role("link", name="Policies").press("Enter")
    w.page.get_by_label("Idle capacity").select_option("proportional")
    w.page.get_by_label("Cost of the platform").select_option("fixed")
    w.page.get_by_label("Platform, each month").fill("90")
    w.page.get_by_label("Currency").fill("EUR")
    w.page.get_by_label("Fixed weights").fill("acme/research 2\nacme/a-team-with-a-rather-long-name 1")
    w.page.get_by_role("button", name="Preview").press("Enter")
    w.page.get_by_role("heading", name="Preview of").wait_for()
    assert not SharingPolicy.objects.exists()
    assert w.page.get_by_label("Platform, each month").input_value() == "90"
    look(w, "/idle/policies/")
    fits(w, w.page.get_by_role("button", name="Set the policy"))
    pictured(w, "policies")
    w.page.get_by_role("button", name="Set the policy").press("Enter")
    w.page.get_by_text("The policy applies from").wait_for()
    assert SharingPolicy.objects.get().platform_cost == 90


def lost_last_month():
    """Four GPU-hours of the last month, of which infrastructure lost three; a price of 2.25 dollars."""
    first = now().astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    month = (first - timedelta(days=1)).replace(day=1)
    create_price(SYSTEM, NewPrice("north", "h100", Decimal("2.25"), "USD", effective_from=month))
    run = make_run(
        Cluster.objects.get(name="north"), "acme/a-team-with-a-rather-long-name", run_id=new_id(), source_uid=f"{new_id()}",
        started_at=month + timedelta(hours=5), until_at=month + timedelta(hours=9),
    )  # fmt: skip
    record_runs([run])
    record_lost_work({run.run_id: ("node_lost", month + timedelta(hours=6))})


def test_a_finance_user_tries_a_credit_policy_and_a_price_by_keyboard_before_setting_them(window, admin):
    lost_last_month()
    w = window(reduced_motion="reduce").sign_in(admin)
    w.page.set_viewport_size({"width": 1440, "height": 900})
    w.open("/lost-work/")
    w.page.get_by_role("checkbox", name="Node lost").press("Space")
    w.page.get_by_role("button", name="Preview").press("Enter")
    w.page.get_by_role("heading", name="Preview of").wait_for()
    preview = w.page.get_by_role("region", name="Preview of")
    assert (
        preview.get_by_text("-6.75 USD").count() == 4
    )  # by this policy and the difference, of the row and of the total
    assert not CreditPolicy.objects.exists()
    assert w.page.get_by_role("checkbox", name="Node lost").is_checked()
    look(w, "/lost-work/")
    fits(w, w.page.get_by_role("button", name="Set the policy"))
    pictured(w, "lost-work")
    w.page.get_by_role("button", name="Set the policy").press("Enter")
    w.page.get_by_text("The policy applies from").wait_for()
    assert CreditPolicy.objects.get().causes == ["node_lost"]

    w.page.set_viewport_size({"width": 1440, "height": 900})
    w.open("/prices/")
    w.page.get_by_role("link", name="h100").press("Enter")
    w.page.get_by_label("Price per unit-hour").fill("2.00")
    w.page.get_by_role("button", name="Preview").press("Enter")
    w.page.get_by_role("heading", name="Preview").wait_for()
    assert w.page.get_by_role("region", name="Preview").get_by_text("-1.00 USD").count() == 2
    assert not PriceCorrection.objects.exists()
    look(w, "/prices/")
    fits(w, w.page.get_by_role("button", name="Correct the price"))
    pictured(w, "price")
    w.page.get_by_label("Reason").fill("as agreed")
    w.page.get_by_role("button", name="Correct the price").press("Enter")
    w.page.get_by_text("The price was corrected to 2 USD").wait_for()
    assert PriceCorrection.objects.get().unit_price == 2
