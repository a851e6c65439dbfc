"""A price from own costs is computed, checked and set by keyboard, on a phone and a wide screen, also without scripts."""

from decimal import Decimal

import pytest

from billing.models import Price
from billing.web.own_costs import LABELS
from clusters.models import Cluster
from tests.builders import make_flavor
from tests.own_costs import TEXTS

from .reading import fits, look

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def fill(w, **changes):
    w.page.get_by_label("Flavor").fill("h200")
    w.page.get_by_label("Currency").fill("USD")
    for name, text in (TEXTS | changes).items():
        w.page.get_by_label(LABELS[name], exact=True).fill(text)


def test_a_price_from_own_costs_is_shown_by_its_steps_and_then_set(window, admin):
    make_flavor(Cluster.objects.get(name="north"), "h200")
    w = window().sign_in(admin)
    w.open("/prices/")
    w.page.get_by_role("link", name="From own costs").press("Enter")
    w.page.get_by_role("heading", name="Price from own costs").wait_for()
    assert w.page.get_by_role("button", name="Set the price").count() == 0
    fill(w, utilisation_percent="0")
    w.page.get_by_label("Margin, %").press("Enter")
    w.page.locator("#e-utilisation_percent").wait_for()
    assert w.page.get_by_label(LABELS["purchase_price"], exact=True).input_value() == "280000"
    w.page.get_by_label(LABELS["utilisation_percent"]).fill("75")
    w.page.get_by_label("Margin, %").press("Enter")
    w.page.get_by_role("heading", name="Steps").wait_for()
    assert not Price.objects.filter(rate__flavor="h200").exists()
    assert w.page.get_by_role("region", name="Steps").get_by_text("2.43617 USD").count() == 1
    look(w, "/prices/own-costs/")
    fits(w, w.page.get_by_role("button", name="Set the price"), w.page.get_by_role("button", name="Show the steps"))

    w.page.get_by_label("Margin, %").fill("20")
    w.page.get_by_role("button", name="Set the price").press("Enter")
    w.page.get_by_text("not the one that was shown").wait_for()
    assert not Price.objects.filter(rate__flavor="h200").exists()
    w.page.get_by_role("button", name="Set the price 2.65764 USD").press("Enter")
    w.page.get_by_role("status").filter(has_text="costs 2.65764 USD").wait_for()
    assert Price.objects.get(rate__flavor="h200").unit_price == Decimal("2.657640")
    w.page.get_by_role("region", name="From own costs").get_by_text("Purchase price per node").wait_for()
    look(w, "/prices/")
    fits(w)
