"""Every place that shows a month shows the same amounts: exact where it is exact, else rounded once from the exact amount."""

import csv
import io
import re
import zlib
from collections import defaultdict
from decimal import Decimal
from typing import Any

import pyarrow.parquet
import pytest

from billing.models import Price
from billing.operations import record_runs
from billing.operations.corrections import NewCorrection, correct_price
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_run, make_tenant, make_user

from .invoicing import closed, issued
from .ledgers import at, priced_cluster
from .test_credits import lose, ran, waive
from .test_usage_files import from_xlsx

pytestmark = pytest.mark.django_db
WINDOW = "2026-10-01T00:00:00Z,2026-11-01T00:00:00Z"
TEAMS = ("acme/one", "acme/two")


@pytest.fixture
def october():
    """A closed month with costs of six and more decimals, a price that was corrected, and work that was lost."""
    north = priced_cluster(amount="2.333333")
    waive("node_lost")
    lose(ran(north, "acme/two", start=at(9, 3)))
    record_runs([
        make_run(north, path, started_at=at(day, 23), until_at=at(day + 1, 1 + day % 3, 10))
        for day, path in ((3, "acme/one"), (4, "acme/two"), (7, "acme/one"), (12, "acme/one"))
    ])  # fmt: skip
    correct_price(SYSTEM, NewCorrection(Price.objects.get().id, Decimal("1.111111"), "USD", at(7), at(8), "as agreed"))
    closed()


@pytest.fixture
def ask(client, october):
    make_tenant("acme")
    user = make_user()
    bind(user, "acme", "finance")
    client.force_login(user)

    def asked(path, **query):
        answer = client.get(path, query, headers=bearer(user))
        assert answer.status_code == 200, answer.content
        return b"".join(answer.streaming_content) if answer.streaming else answer.content

    asking: Any = asked
    asking.json = lambda path, **query: client.get(path, query, headers=bearer(user)).json()
    return asking


def by_team(pairs):
    sums = defaultdict(Decimal)
    for team, amount in pairs:
        sums[team] += Decimal(amount)
    return dict(sums)


def rows_of(content):
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def text_of(pdf):
    """The strings that a PDF of ours draws."""
    found = []
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL):
        try:
            found += re.findall(rb"\((.*?)\) Tj", zlib.decompress(stream))
        except zlib.error:
            continue
    return [one.decode("latin-1") for one in found]


def shown(page):
    return page.decode().replace("\xa0", " ").replace("&nbsp;", " ").replace("\u202f", "").replace(",", "")


def exact_amounts(ask):
    """The month of each team by each way that has exact amounts, as files that no document was issued for."""
    usage = {"month": "2026-10", "tenant": "acme"}
    tables = {kind: ask("/api/v1/exports/usage", **usage, format=kind) for kind in ("csv", "xlsx", "parquet")}
    parquet = pyarrow.parquet.read_table(io.BytesIO(tables["parquet"])).to_pylist()
    focus = rows_of(ask("/api/v1/exports/focus", **usage))
    journal = rows_of(ask("/api/v1/exports/journal", organisation="acme", month="2026-10"))
    idle = ask.json("/api/v1/idle", organisation="acme", month="2026-10")["tenants"]
    return {
        "csv": by_team((row["tenant"], row["cost"]) for row in rows_of(tables["csv"])),
        "xlsx": by_team((row["tenant"], row["cost_exact"]) for row in from_xlsx(tables["xlsx"])),
        "parquet": by_team((row["tenant"], row["cost"]) for row in parquet),
        "focus": by_team(
            (row["x_TenantPath"] if "x_TenantPath" in row else row["SubAccountName"], row["BilledCost"])
            for row in focus
        ),
        "journal": by_team(
            (row["tenant"], row["debit"] or f"-{row['credit']}")
            for row in journal
            if row["account"].startswith("tenant_expense")
        ),
        "idle": by_team((row["tenant"], row["total"]) for row in idle),
    }


def test_one_month_is_the_same_everywhere(ask):
    exact = exact_amounts(ask)
    teams = exact["journal"]
    assert set(teams) == set(TEAMS)
    assert all(amount == round(amount, 12) != round(amount, 5) for amount in teams.values())
    assert {name: amounts for name, amounts in exact.items() if amounts != teams} == {}

    # The API shows six decimals: the total is rounded once, and its parts add up to it.
    whole = sum(teams.values())
    report = ask.json("/api/v1/usage", month="2026-10", group_by="tenant")
    amounts = {row["tenant"]: Decimal(row["cost"]["amount"]) for row in report["items"]}
    assert sum(amounts.values()) == Decimal(report["totals"]["cost"]["amount"]) == round(whole, 6)
    assert all(abs(amounts[team] - teams[team]) < Decimal("0.000001") for team in TEAMS)
    text = rows_of(ask("/api/v1/usage", month="2026-10", group_by="tenant", format="csv"))
    assert {row["tenant"]: Decimal(row["cost"]) for row in text} == amounts
    (allocation,) = ask.json("/api/v1/allocation", window=WINDOW, aggregate="namespace")["data"]
    assert {team: Decimal(str(row["totalCost"])) for team, row in allocation.items()} == amounts
    for team in TEAMS:
        own = ask.json("/api/v1/usage", month="2026-10", tenant=team)
        assert Decimal(own["totals"]["cost"]["amount"]) == round(teams[team], 6)

    # Pages and documents show cents: of the exact amount, rounded once.
    page = shown(ask("/usage/", month="2026-10"))
    assert f"{round(whole, 2)} USD" in page
    for path, owed in (("acme", whole), *teams.items()):
        document = issued(path)
        assert (document.exact, document.total) == (owed, round(owed, 2))
        assert document.total == sum(line.amount for line in document.lines.all())
        assert f"{round(owed, 2)} USD" in shown(ask(f"/invoices/{document.id}/"))
        drawn = "\n".join(text_of(ask(f"/api/v1/invoices/{document.id}.pdf"))).replace(",", "")
        assert re.search(rf"(?<![0-9.]){re.escape(str(round(owed, 2)))}", drawn), drawn
    invoice = next(one for one in ask.json("/api/v1/invoices", tenant="acme")["items"] if one["kind"] == "invoice")
    billed = [row for row in rows_of(ask("/api/v1/exports/focus", month="2026-10", tenant="acme")) if row["InvoiceId"]]
    assert sum(Decimal(row["BilledCost"]) for row in billed) == Decimal(invoice["total"]) == round(whole, 2)
