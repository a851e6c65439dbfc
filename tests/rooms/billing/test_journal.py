"""The journal of a month: each line once, as debit or credit, and all that the checksum of a closed month is made of."""

import csv
import io
from collections import defaultdict
from decimal import Decimal
from hashlib import sha256
from typing import Any

import pytest
from django.core.management import call_command

from billing.models import InvoiceTerms, LedgerEntry, LedgerLine, LedgerPeriod, Price
from billing.operations import posting, record_runs
from billing.operations.corrections import NewCorrection, correct_price
from tenancy.models import AuditEntry, Tenant
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_run, make_tenant, make_user

from .exchanging import billed_in, override
from .invoicing import closed_month
from .ledgers import at, priced_cluster, settle_pending_checks
from .test_credits import lose, ran, waive

pytestmark = pytest.mark.django_db


@pytest.fixture
def north():
    return priced_cluster(amount="2.333333")


@pytest.fixture
def take(client):
    def taken(path="acme", role="finance", status=200, **query):
        make_tenant(path)
        user = make_user()
        bind(user, path, role)
        query = {"organisation": "acme", "month": "2026-10"} | query
        answer = client.get("/api/v1/exports/journal", query, headers=bearer(user))
        assert answer.status_code == status, answer.content
        if status != 200:
            return answer.json()
        taking.name = answer["Content-Disposition"]
        return rows_of(b"".join(answer.streaming_content))

    taking: Any = taken
    return taking


def rows_of(content):
    return list(csv.DictReader(io.StringIO(content.decode(), newline="")))


def signed(row):
    assert bool(row["debit"]) != bool(row["credit"])
    return Decimal(row["debit"] or f"-{row['credit']}")


def checksum(rows):
    """That of the period, recomputed from the file as the documentation says."""
    lines = sorted(
        (row["entry"].encode(), row["account"].encode(), row["currency"], row["priced_currency"], row["charge_day"], f"{signed(row)}")
        for row in rows
    )  # fmt: skip
    text = "".join(
        f"{key.decode()}\t{day}\t{account.decode()}\t{currency}\t{amount}\n"
        for key, account, currency, _, day, amount in lines
    )
    return sha256(text.encode()).hexdigest()


def test_the_file_of_a_closed_month_has_each_line_once_and_makes_its_checksum(north, take):
    waive("node_lost")
    lose(ran(north, "acme/two"))
    closed_month(north)
    rows = take()
    period = LedgerPeriod.objects.get()
    assert take.name == 'attachment; filename="journal-acme-2026-10.csv"'
    assert len(rows) == LedgerLine.objects.filter(entry__period=period).count() > 4
    assert checksum(rows) == period.checksum
    sums = defaultdict(Decimal)
    for row in rows:
        sums[row["entry"], row["currency"]] += signed(row)
    assert set(sums.values()) == {0}
    assert {row["kind"] for row in rows} == {"usage", "credit"}
    assert {row["digest"] for row in rows} == set(LedgerEntry.objects.values_list("digest", flat=True))


def test_converted_lines_say_what_they_were_and_the_checksum_still_follows(north, take):
    billed_in("EUR")
    override("0.9")
    closed_month(north)
    rows = take()
    assert checksum(rows) == LedgerPeriod.objects.get().checksum
    converted = [row for row in rows if row["priced_currency"]]
    assert {(row["currency"], row["priced_currency"], Decimal(row["rate"])) for row in converted} == {
        ("EUR", "USD", Decimal("0.9"))
    }
    for row in converted:
        assert signed(row) == round(Decimal(row["priced_amount"]) * Decimal("0.9"), 12)
        assert row["converts"].startswith("usage/")


def test_what_a_correction_after_the_close_posts_is_in_the_next_month_and_names_what_it_reverses(north, take):
    closed_month(north)
    before = take()
    price = Price.objects.get()
    correct_price(SYSTEM, NewCorrection(price.id, Decimal(1), "USD", at(5), at(6), "=as agreed"))
    posting.post_days()
    settle_pending_checks()
    assert take() == before
    rows = take(month="2026-11")
    assert take.name.endswith('-so-far.csv"')
    assert {row["kind"] for row in rows} == {"reversal", "reentry"}
    assert {row["charge_day"] for row in rows} == {"2026-10-05"}
    assert {row["reverses"] for row in rows if row["kind"] == "reversal"} == {
        row["entry"] for row in before if row["charge_day"] == "2026-10-05"
    }


def test_accounts_have_the_codes_of_the_nearest_terms_and_a_moved_team_its_place_then_and_now(north, take):
    closed_month(north)
    for path, centre, account in (("acme", "CC-1", "4711"), ("acme/two", "=cmd()", "")):
        tenant = Tenant.objects.get(path=path)
        InvoiceTerms.objects.create(tenant=tenant, cost_centre=centre, gl_account=account)
    team = Tenant.objects.get(path="acme/one")
    change_tenant(SYSTEM, team.id, name="uno")
    rows = take()
    assert checksum(rows) == LedgerPeriod.objects.get().checksum
    seen = {
        (row["account"].partition(":")[0], row["tenant"], row["tenant_then"], row["cost_centre"], row["gl_account"])
        for row in rows
    }
    assert seen == {
        ("tenant_expense", "acme/uno", "acme/one", "CC-1", "4711"),
        ("cluster_pool", "acme", "acme/one", "CC-1", "4711"),
        ("tenant_expense", "acme/two", "acme/two", "'=cmd()", ""),
        ("cluster_pool", "acme", "acme/two", "CC-1", "4711"),
    }  # fmt: skip


def test_many_entries_are_read_a_piece_at_a_time_and_none_twice(north, take, monkeypatch):
    monkeypatch.setattr("billing.queries.journal.ENTRIES_AT_ONCE", 2)
    record_runs([make_run(north, f"acme/t{day}", started_at=at(day), until_at=at(day, 1)) for day in range(1, 8)])
    posting.post_days()
    rows = take()
    assert (len(rows), len({row["entry"] for row in rows})) == (14, 7)


def test_who_sees_only_a_part_of_an_organisation_or_another_one_gets_none(north, take):
    closed_month(north)
    assert take("acme/one", "admin", 404)["code"] == "not_found"
    assert take("other", "admin", 404)["code"] == "not_found"
    assert take(status=404, organisation="acme/one")["code"] == "not_found"
    assert not AuditEntry.objects.filter(action="usage.export").exists()
    take(role="viewer")
    entry = AuditEntry.objects.get(action="usage.export")
    assert (entry.object_id, entry.detail["tenant"]) == ("journal", "acme")


@pytest.mark.parametrize(
    ("query", "code"),
    [({"organisation": ""}, "required"), ({"month": "2026-13"}, "not_a_month"), ({"more": "1"}, "unknown_filter")],
)
def test_mistakes_are_named(take, query, code):
    refused = take(status=422, **query)
    assert refused["errors"][0]["code"] == code


def test_a_month_without_entries_is_a_header(take):
    assert take() == []


def test_operators_write_it_beside_the_other_files(north, tmp_path):
    closed_month(north)
    call_command("export", "--month", "2026-10", "--journal", "--into", str(tmp_path))
    sums = dict(line.split()[::-1] for line in (tmp_path / "SHA256SUMS").read_text().splitlines())
    content = (tmp_path / "journal-acme-2026-10.csv").read_bytes()
    assert sums["journal-acme-2026-10.csv"] == sha256(content).hexdigest()
    assert checksum(rows_of(content)) == LedgerPeriod.objects.get().checksum


def test_the_pages_of_files_and_of_the_month_lead_to_it(north, client):
    closed_month(north)
    user = make_user()
    bind(user, "acme", "finance")
    client.force_login(user)
    period = LedgerPeriod.objects.get()
    for page in ("/usage/files/?month=2026-10", f"/months/{period.id}/"):
        text = client.get(page).content.decode().replace("&amp;", "&")
        assert "/api/v1/exports/journal?organisation=acme&month=2026-10" in text
    team = make_user()
    bind(team, "acme/one", "finance")
    client.force_login(team)
    assert "exports/journal" not in client.get("/usage/files/?month=2026-10").content.decode()
