"""The page of one price: a preview says what the API says and what the correction then does, and only managers of prices set one."""

import re
from decimal import Decimal

import pytest

from billing.models import Price, PriceCorrection
from billing.operations import posting, record_runs
from tenancy.models import AuditEntry
from tests.builders import bearer, make_run

from .invoicing import closed_month
from .ledgers import at, expense, priced_cluster, settle_pending_checks

pytestmark = pytest.mark.django_db
GIVEN = {
    "unit_price": "1.00",
    "effective_from": "2026-10-05",
    "effective_until": "2026-10-06",
    "reason": "the contract says 1.00",
}


@pytest.fixture
def price():
    north = priced_cluster()
    record_runs([
        make_run(north, "acme/one", started_at=at(5, 10), until_at=at(5, 14)),
        make_run(north, "acme/two", started_at=at(5, 23), until_at=at(6, 1)),
    ])  # fmt: skip
    return Price.objects.get()


def amounts(page):
    part = page.content.decode().split('id="preview"', 1)[1].split("</section>", 1)[0]
    return re.findall(r"(-?[0-9.]+) USD", part.replace("\xa0", " ").replace("&nbsp;", " ").replace("\u2212", "-"))


def test_a_preview_writes_nothing_says_what_the_api_says_and_what_the_correction_then_does(price, as_):
    client = as_()
    address = f"/prices/{price.id}/"
    shown = client.post(address, GIVEN | {"what": "preview", "reason": ""})
    assert (shown.status_code, PriceCorrection.objects.count()) == (200, 0)
    assert amounts(shown) == ["10.00", "4.00", "-6.00", "2.50", "1.00", "-1.50", "12.50", "5.00", "-7.50"]
    said = client.post(
        f"/api/v1/prices/{price.id}/corrections",
        {
            "effective_from": "2026-10-05T00:00:00Z", "effective_until": "2026-10-06T00:00:00Z", "unit_price": "1.00",
            "reason": "x", "dry_run": True,
        },
        content_type="application/json", headers=bearer(client.user),
    ).json()["effects"]  # fmt: skip
    assert [Decimal(one["new"]["amount"]) for one in said] == [4, 1]
    assert not AuditEntry.objects.filter(action="price.correct").exists()

    assert client.post(address, GIVEN | {"what": "set"}).status_code == 302
    made = PriceCorrection.objects.get()
    assert (made.unit_price, made.span.lower, made.span.upper, made.made_by_name) == (
        1,
        at(5),
        at(6),
        client.user.email,
    )
    assert AuditEntry.objects.filter(action="price.correct").count() == 1
    posting.post_days()
    settle_pending_checks()
    assert expense() == Decimal("7.50")
    page = client.get(address).content.decode()
    for words in ("the contract says 1.00", client.user.email, "Correct the price"):
        assert words in page
    again = client.post(address, GIVEN | {"what": "preview"})
    assert amounts(again)[-1] == "0.00"


def test_the_form_begins_with_the_price_as_it_is_and_the_last_month(price, as_, time_machine):
    time_machine.move_to(at(9, month=11), tick=False)
    page = as_().get(f"/prices/{price.id}/").content.decode()
    for value in ('value="2.5"', 'value="2026-10-01"', 'value="2026-11-01"'):
        assert value in page
    assert f"/prices/{price.id}/" in as_().get("/prices/").content.decode()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"unit_price": ""}, "a number such as 2.74"),
        ({"unit_price": "-1"}, "a number such as 2.74"),
        ({"unit_price": "1e400"}, "a number such as 2.74"),
        ({"memory_price": "NaN"}, "a number such as 2.74"),
        ({"effective_from": "soon"}, "choose a day"),
        ({"effective_until": ""}, "choose a day"),
        ({"effective_until": "2026-10-05"}, "the period ends before it begins"),
        ({"effective_until": "2199-01-01"}, "a correction is of past time"),
        ({"reason": " "}, "say why"),
        ({"reason": "x" * 2000}, "at most"),
    ],
)
def test_a_mistake_is_named_at_its_field_and_nothing_is_set(price, as_, changes, words):
    refused = as_().post(f"/prices/{price.id}/", GIVEN | changes | {"what": "set"})
    assert (refused.status_code, PriceCorrection.objects.count()) == (422, 0)
    assert words in refused.content.decode()


def test_a_preview_of_days_without_usage_says_so(price, as_):
    days = {"effective_from": "2026-10-20", "effective_until": "2026-10-21", "what": "preview"}
    assert "Nothing was used in this time" in as_().post(f"/prices/{price.id}/", GIVEN | days).content.decode()


def test_who_only_sees_the_price_sees_its_corrections_and_no_form(price, as_):
    client = as_("viewer")
    page = client.get(f"/prices/{price.id}/")
    assert (page.status_code, "Correct the price" in page.content.decode()) == (200, False)
    for what in ("preview", "set"):
        assert client.post(f"/prices/{price.id}/", GIVEN | {"what": what}).status_code == 403
    stranger = as_("admin", "other")
    assert stranger.get(f"/prices/{price.id}/").status_code == 404
    assert stranger.post(f"/prices/{price.id}/", GIVEN | {"what": "set"}).status_code == 404
    assert not PriceCorrection.objects.exists()


def test_the_reason_is_shown_as_text_and_a_closed_month_keeps_its_figures(as_):
    closed_month(priced_cluster())
    price = Price.objects.get()
    before = expense()
    client = as_()
    assert client.post(f"/prices/{price.id}/", GIVEN | {"reason": "<b>=1+1</b>", "what": "set"}).status_code == 302
    posting.post_days()
    settle_pending_checks()
    assert expense(entry__period__month=at(1).date()) == before
    assert "&lt;b&gt;=1+1&lt;/b&gt;" in client.get(f"/prices/{price.id}/").content.decode()
