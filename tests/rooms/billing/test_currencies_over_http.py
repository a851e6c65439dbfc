"""Currencies over the API, on the page and by the command."""

import html
import re
from datetime import date

import pytest
from django.core.management import CommandError, call_command

from billing.models import BillingCurrency, ExchangeRate, LedgerPeriod
from billing.operations import posting, record_runs
from tests.builders import bearer, bind, make_run, make_user

from .exchanging import OCTOBER, RATES, billed_in, imported
from .ledgers import at, priced_cluster

pytestmark = pytest.mark.django_db
CURRENCY = {"organisation": "acme", "effective_from": "2026-10", "currency": "EUR"}
RATE = {
    "organisation": "acme", "base": "USD", "quote": "EUR", "rate": "0.92", "valid_from": "2026-10-01", "valid_until": "2026-11-01",
    "reason": "contract",
}  # fmt: skip
FILE = {"organisation": "acme", "rates": RATES}


@pytest.fixture
def north():
    return priced_cluster()


@pytest.fixture
def finance(north):
    user = make_user()
    bind(user, "acme", "finance")
    return user


@pytest.fixture
def send(client, finance):
    def sent(path, body, user=finance):
        return client.post(f"/api/v1/{path}", body, "application/json", headers=bearer(user))

    return sent


def test_a_currency_is_set_and_listed(send, client, finance):
    created = send("billing-currencies", CURRENCY)
    assert created.status_code == 201
    assert {name: created.json()[name] for name in CURRENCY} == CURRENCY
    listed = client.get("/api/v1/billing-currencies", headers=bearer(finance)).json()["items"]
    assert listed == [created.json()]


def test_a_rate_is_set_and_listed_beside_imported_ones(send, client, finance):
    assert send("exchange-rates/import", FILE).json() == {"added": 11, "corrected": 0, "known": 0}
    assert send("exchange-rates/import", FILE).json() == {"added": 0, "corrected": 0, "known": 11}
    created = send("exchange-rates", RATE)
    assert created.status_code == 201
    assert created.json()["rate"] == "0.920000000000"
    listed = client.get("/api/v1/exchange-rates", headers=bearer(finance)).json()["items"]
    assert len(listed) == 12
    assert created.json() in listed
    other = send("exchange-rates/import", FILE | {"rates": RATES.replace("1.1000", "1.2000")})
    assert (other.status_code, other.json()["code"]) == (409, "rate_differs")


@pytest.mark.parametrize(
    ("path", "body", "field", "code"),
    [
        ("billing-currencies", CURRENCY | {"currency": "XAU"}, "currency", "unknown_currency"),
        ("billing-currencies", CURRENCY | {"effective_from": "2026-13"}, "effective_from", "not_a_month"),
        ("exchange-rates", RATE | {"quote": "USD"}, "quote", "same_currency"),
        ("exchange-rates", RATE | {"base": "usd"}, "base", "unknown_currency"),
        ("exchange-rates", RATE | {"rate": "1e3"}, "rate", "bad_format"),
        ("exchange-rates", RATE | {"rate": 1.5}, "rate", "invalid"),
        ("exchange-rates", RATE | {"rate": "0"}, "rate", "out_of_range"),
        ("exchange-rates", RATE | {"valid_until": "2026-10-01"}, "valid_until", "empty_period"),
        ("exchange-rates", RATE | {"valid_from": "yesterday"}, "valid_from", "not_a_day"),
        ("exchange-rates", RATE | {"reason": ""}, "reason", "blank"),
        ("exchange-rates/import", FILE | {"rates": "Date,USD\n2026-10-01,x\n"}, "rates", "bad_format"),
        ("exchange-rates/import", FILE | {"rates": "Date,USD\n2999-10-01,1\n"}, "rates", "in_the_future"),
        ("exchange-rates/import", FILE | {"since": "%00"}, "since", "not_a_day"),
    ],
)
def test_what_is_wrong_is_named(send, path, body, field, code):
    answer = send(path, body)
    assert answer.status_code == 422, answer.content
    assert (answer.json()["errors"][0]["field"], answer.json()["errors"][0]["code"]) == (field, code)
    assert not ExchangeRate.objects.exists()


def test_others_see_nothing_and_may_not(send, client):
    billed_in("EUR")
    imported()
    team, stranger = make_user(), make_user()
    bind(team, "acme/one", "manager")
    bind(stranger, "other", "admin")
    for user in (team, stranger):
        for path, body in (("billing-currencies", CURRENCY), ("exchange-rates", RATE), ("exchange-rates/import", FILE)):
            assert send(path, body, user).status_code == 404
        for path in ("billing-currencies", "exchange-rates"):
            assert client.get(f"/api/v1/{path}", headers=bearer(user)).json()["items"] == []


def test_the_page_sets_imports_and_says_what_is_wrong(client, finance):
    client.force_login(finance)
    own = {"organisation": "acme"}
    for body, told in (
        (
            {"what": "currency", "effective_from": "2026-10", "currency": "eur"},
            "Documents are in EUR from October 2026 on",
        ),
        (
            {"what": "file", "rates": RATES.replace("\n", "\r\n"), "source": "ECB"},
            "11 rates added, 0 corrected, 0 known.",
        ),
        ({**RATE, "what": "rate", "base": "usd"}, "One USD is worth 0.92 EUR"),
    ):
        answer = client.post("/currencies/", own | body, follow=True)
        assert told in answer.content.decode(), body
    for body, said in (
        ({"what": "currency", "effective_from": "x", "currency": "EUR"}, "choose a month"),
        ({"what": "rate"}, "a number such as 0.92"),
        ({**RATE, "what": "rate", "reason": " "}, "say why"),
        ({"what": "file", "rates": "nothing"}, "line 1"),
        ({"what": "x"}, "choose a month"),
    ):
        answer = client.post("/currencies/", own | body)
        assert answer.status_code == 422
        assert said in answer.content.decode(), body
    assert client.post("/currencies/", {"what": "currency", "effective_from": "2026-10"}).status_code in {404, 422}
    assert BillingCurrency.objects.count() == 1


def test_old_rates_are_on_further_pages(client, finance):
    client.force_login(finance)
    days = "\n".join(f"2026-10-{day:02d},1.1{day:02d}" for day in range(1, 21))
    client.post("/currencies/", {"organisation": "acme", "what": "file", "rates": f"Date,USD\n{days}", "source": "ECB"})
    first = client.get("/currencies/").content.decode()
    assert "1.12 USD" in first
    assert "1.101 USD" not in first
    (older,) = re.findall(r'href="(\?[^"]*cursor=[^"#]+)#rates"', first)
    second = client.get(f"/currencies/{html.unescape(older)}").content.decode()
    assert "1.101 USD" in second
    assert "Newest" in second
    assert client.get("/currencies/?cursor=x").status_code == 422


def test_a_missing_rate_is_on_the_months_page(client, finance, north):
    billed_in("EUR")
    record_runs([make_run(north, started_at=at(20, 10), until_at=at(20, 11))])
    posting.post_days()
    client.force_login(finance)
    shown = client.get(f"/months/{LedgerPeriod.objects.get(month=OCTOBER).id}/").content.decode()
    assert "No exchange rate for USD to EUR on 2026-10-20" in shown
    assert "All its charges are in the billing currency" in shown


def test_the_command_imports_for_all_or_one(north, tmp_path, capsys):
    file = tmp_path / "rates.csv"
    file.write_text(RATES, encoding="utf-8")
    call_command("import_exchange_rates", file, "--since", "2026-10-05")
    assert "7 rates added" in capsys.readouterr().out
    assert set(ExchangeRate.objects.values_list("organisation", flat=True)) == {None}
    assert ExchangeRate.objects.order_by("valid_from").first().valid_from == date(2026, 10, 5)
    call_command("import_exchange_rates", file, "--organisation", "acme")
    assert "11 rates added" in capsys.readouterr().out
    for arguments in ((tmp_path / "none.csv",), (file, "--organisation", "nobody")):
        with pytest.raises(CommandError):
            call_command("import_exchange_rates", *arguments)
