"""A wrong price is corrected for past time: segments remain, reports and the ledger show the corrected cost."""

import csv
import io
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.db.models import Sum

from billing.models import LedgerEntry, Price, PriceCorrection, UsageSegment
from billing.operations import create_price, posting, record_runs
from billing.operations.corrections import NewCorrection, correct_price, preview_correction
from billing.operations.prices import NewPrice
from billing.queries import costs_of, discrepancies, usage_report
from billing.queries.pages import spend_this_month
from clusters.models import Cluster
from foundation.clock import now
from foundation.problems import Invalid
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_flavor, make_run, make_user

from .ledgers import OCTOBER, at, expense, priced_cluster, settle_pending_checks

pytestmark = pytest.mark.django_db
MONTH = (OCTOBER, at(1, month=11))


def correct(amount, start, until, **given):
    more: dict[str, Any] = {
        "currency": "USD",
        "reason": "a typo",
        "price_id": Price.objects.earliest("created_at").id,
    } | given
    return correct_price(SYSTEM, NewCorrection(unit_price=Decimal(amount), start=start, until=until, **more))


def post_and_prove():
    posting.post_days()
    settle_pending_checks()
    assert discrepancies() == ()


def kinds():
    return list(LedgerEntry.objects.order_by("id").values_list("kind", flat=True))


def test_a_correction_reverses_and_enters_again_and_leaves_what_was_observed():
    north = priced_cluster()
    run = make_run(north, "acme/one", started_at=at(5, 10), until_at=at(5, 14))
    record_runs([run, make_run(north, "acme/two", started_at=at(6, 10), until_at=at(6, 11))])
    post_and_prove()
    segments = list(UsageSegment.objects.order_by("id").values())

    _, effects = correct("1", at(5, 12), at(6))

    assert [(e.tenant_path, e.old, e.new) for e in effects] == [("acme/one", Decimal(5), Decimal(2))]
    report = usage_report(SYSTEM, "acme", *MONTH, ["tenant"])
    assert [(row.cost, row.corrections) for row in report.rows] == [(7, -3), (Decimal("2.5"), 0)]
    assert (report.total.cost, report.total.corrections) == (Decimal("9.5"), -3)
    assert costs_of([run.workload_id])[run.workload_id].amount == 7
    post_and_prove()
    assert kinds() == ["usage", "usage", "reversal", "reentry"]
    assert expense() == Decimal("9.5")
    assert list(UsageSegment.objects.order_by("id").values()) == segments

    correct("0", at(5), at(5, 13))
    correct("2.5", at(5), at(5, 13))
    post_and_prove()
    assert expense() == Decimal(11) == usage_report(SYSTEM, "acme", *MONTH).total.cost


def test_the_price_of_a_removed_cluster_is_corrected_too(client):
    north = priced_cluster()
    record_runs([make_run(north, "acme/one", started_at=at(5, 10), until_at=at(5, 14))])
    post_and_prove()
    Cluster.objects.filter(id=north.id).update(removed_at=now())

    correct("1", at(5), at(6))

    post_and_prove()
    assert expense() == 4
    user = make_user()
    bind(user, "acme", "viewer")
    path = f"/api/v1/prices/{Price.objects.get().id}/corrections"
    assert len(client.get(path, headers=bearer(user)).json()["items"]) == 1
    assert client.get(path, headers=bearer(make_user())).status_code == 404


def test_correcting_back_restores_the_sum_to_the_last_decimal():
    north = priced_cluster(amount="2.333333")
    record_runs([make_run(north, started_at=at(5, 1), until_at=at(5, 9) + timedelta(milliseconds=7919), gpu_units=3)])
    post_and_prove()
    first = expense()
    correct("7.1", at(5, 3), at(5, 4))
    post_and_prove()
    assert expense() != first
    correct("2.333333", at(5, 2), at(5, 5))
    posting.post_days()
    settle_pending_checks()
    assert abs(expense() - first) <= Decimal("0.000000000003")


def test_unpriced_time_gets_a_price():
    north = priced_cluster(since=at(20))
    record_runs([make_run(north, started_at=at(5, 10), until_at=at(5, 14), gpu_units=2)])
    post_and_prove()
    assert usage_report(SYSTEM, "acme", *MONTH).total.unpriced_gpu_milliseconds == 8 * 3_600_000

    correct("3", at(1), at(5, 12))

    total = usage_report(SYSTEM, "acme", *MONTH).total
    assert (total.cost, total.corrections, total.unpriced_gpu_milliseconds) == (12, 12, 4 * 3_600_000)
    assert total.unpriced_gpu_hours == 4
    post_and_prove()
    assert kinds() == ["reentry"]
    correct("3", at(5, 12), at(6))
    post_and_prove()
    assert (kinds(), expense()) == (["reentry", "reversal", "reentry"], 24)


def test_late_time_in_a_corrected_span_is_corrected_too():
    north = priced_cluster()
    correct("1", at(5), at(6))
    record_runs([make_run(north, started_at=at(5, 10), until_at=at(5, 14))])
    post_and_prove()
    assert kinds() == ["usage", "reversal", "reentry"]
    assert expense() == 4
    record_runs([make_run(north, started_at=at(5, 20), until_at=at(5, 22))])
    post_and_prove()
    assert expense() == 6 == usage_report(SYSTEM, "acme", *MONTH).total.cost


def test_guests_pay_the_corrected_price_of_cores_or_that_of_the_flavor_that_stands_in():
    """Two cores of a flavor with GPUs, for two hours, at the price of the cluster's CPU-only flavor."""
    north = priced_cluster()
    make_flavor(north, "cpu", gpu_model="", gpu_memory_mib=0, resource_name="")
    create_price(SYSTEM, NewPrice("north", "cpu", Decimal("0.1"), effective_from=at(1)))
    record_runs([make_run(north, gpu_units=0, memory_mib=1024, started_at=at(5, 10), until_at=at(5, 12))])
    post_and_prove()
    assert expense() == Decimal("0.4")
    stand_in = Price.objects.get(rate__flavor="cpu").id
    correct("0.3", at(5, 11), at(6), price_id=stand_in, memory_price=Decimal(1))
    post_and_prove()
    assert expense() == Decimal("1.8")
    correct("2.5", at(5, 11), at(6), cpu_price=Decimal("0.5"))
    post_and_prove()
    assert expense() == Decimal("1.2")


def test_reports_of_adjoining_periods_add_up_and_csv_and_page_say_that_a_correction_is_in_it(client):
    north = priced_cluster(amount="2.333333")
    runs = [
        make_run(
            north, f"acme/{'ab'[n % 2]}", started_at=at(3, n), until_at=at(3, n) + timedelta(hours=3, milliseconds=n)
        )
        for n in range(8)
    ]
    record_runs(runs)
    correct("3.1", at(3, 2), at(3, 6))
    whole = usage_report(SYSTEM, "acme", *MONTH).total
    cut = at(3, 4) + timedelta(milliseconds=77)
    parts = [usage_report(SYSTEM, "acme", *span).total for span in ((MONTH[0], cut), (cut, MONTH[1]))]
    assert abs(sum(part.corrections for part in parts) - whole.corrections) <= Decimal("0.000001")
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(c.cost) FROM billing_usagesegment s, billing_corrected(s.meter_id, s.period) c")
        assert whole.cost == round(cursor.fetchone()[0], 6)
    reader = make_user()
    bind(reader, "acme", "viewer")
    query = {"month": "2026-10", "group_by": "tenant,job"}
    shown = client.get("/api/v1/usage", query, headers=bearer(reader)).json()
    for name in ("cost", "corrections"):
        assert sum(Decimal(item[name]["amount"]) for item in shown["items"]) == Decimal(shown["totals"][name]["amount"])
    sheet = client.get("/api/v1/usage", {**query, "format": "csv"}, headers=bearer(reader)).content.decode()
    rows = list(csv.DictReader(io.StringIO(sheet, newline="")))
    assert [row["corrections"] for row in rows] == [item["corrections"]["amount"] for item in shown["items"]]
    client.force_login(reader)
    page = client.get("/usage/", {"month": "2026-10"}).content.decode()
    assert "Prices of this month were corrected" in page
    assert "were corrected" not in client.get("/usage/", {"month": "2026-09"}).content.decode()


def test_the_overview_counts_what_the_ledger_corrected(monkeypatch):
    north = priced_cluster()
    today = now()
    hour = today - timedelta(hours=1)
    record_runs([make_run(north, started_at=hour, until_at=today)])
    before = spend_this_month(SYSTEM).amount
    assert before > 0
    monkeypatch.setattr("billing.queries.pages.now", lambda: at(28))
    record_runs([make_run(north, started_at=at(5, 10), until_at=at(5, 14))])
    correct("1", at(5), at(6))
    post_and_prove()
    assert spend_this_month(SYSTEM).amount == 4


@pytest.fixture
def finance():
    user = make_user()
    bind(user, "acme", "finance")
    return user


BODY: dict[str, Any] = {
    "effective_from": "2026-10-05T00:00:00Z", "effective_until": "2026-10-06T00:00:00Z", "unit_price": "1", "reason": "typo"
}  # fmt: skip


def test_finance_previews_and_corrects_over_http(call, finance):
    record_runs([make_run(priced_cluster(), started_at=at(5, 10), until_at=at(5, 14))])
    path = f"/prices/{Price.objects.get().id}/corrections"

    status, shown = call(finance, "post", path, {**BODY, "dry_run": True})
    assert (status, shown["id"], shown["dry_run"]) == (200, None, True)
    assert not PriceCorrection.objects.exists()
    status, made = call(finance, "post", path, BODY, **{"Idempotency-Key": "once"})
    assert status == 201
    assert (
        made["effects"]
        == shown["effects"]
        == [
            {
                "tenant": "acme",
                "old": {"amount": "10.000000000000", "currency": "USD"},
                "new": {"amount": "4.000000000000", "currency": "USD"},
            }
        ]
    )
    assert call(finance, "post", path, BODY, **{"Idempotency-Key": "once"}) == (201, made)
    assert PriceCorrection.objects.count() == 1
    entry = AuditEntry.objects.get(action="price.correct")
    assert (entry.detail["reason"], entry.detail["unit_price"]) == ("typo", "1")
    status, listed = call(finance, "get", path)
    assert (status, [item["made_by"] for item in listed["items"]]) == (200, [finance.email])


def test_corrections_are_refused_with_what_to_do(call, finance):
    priced_cluster()
    path = f"/prices/{Price.objects.get().id}/corrections"
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"effective_until": "2036-10-06T00:00:00Z"}, "in_the_future"),
        ({"effective_until": "2026-10-05T00:00:00Z"}, "empty_period"),
        ({"effective_from": "2026-10-07T00:00:00Z"}, "empty_period"),
        ({"unit_price": {"amount": "1", "currency": "EUR"}}, "mixed_currencies"),
        ({"unit_price": "-1"}, "not_money"),
        ({"cpu_price": {"amount": "1", "currency": "EUR"}}, "mixed_currencies"),
        ({"reason": ""}, "blank"),
        ({"reason": "x" * 501}, "max_length"),
    ]
    for changes, code in refusals:
        status, answer = call(finance, "post", path, {**BODY, **changes})
        assert (status, answer["errors"][0]["code"]) == (422, code)
    viewer, stranger = make_user(), make_user()
    bind(viewer, "acme", "manager")
    bind(stranger, "other", "admin")
    assert call(viewer, "post", path, BODY)[0] == 403
    assert call(viewer, "post", path, {**BODY, "dry_run": True})[0] == 403
    assert call(stranger, "post", path, BODY)[0] == 404
    assert call(stranger, "get", path)[0] == 404
    assert not PriceCorrection.objects.exists()


def test_a_correction_of_too_much_is_refused(monkeypatch):
    monkeypatch.setattr("billing.queries.corrections.MOST_SEGMENTS", 1)
    record_runs([make_run(priced_cluster(), started_at=at(5), until_at=at(8))])
    with pytest.raises(Invalid) as refused:
        correct("1", at(1), at(9))
    assert refused.value.errors[0].code == "span_too_large"
    correct("1", at(6), at(7))


def test_a_preview_is_what_the_correction_does():
    north = priced_cluster()
    record_runs([make_run(north, f"acme/{n % 2}", started_at=at(5, n), until_at=at(5, 2 * n + 1)) for n in range(5)])
    wanted = NewCorrection(Price.objects.get().id, Decimal("1.7"), "USD", at(5, 2), at(5, 6), "typo")
    shown = preview_correction(SYSTEM, wanted)
    charged = UsageSegment.objects.aggregate(sum=Sum("cost"))["sum"]
    correct_price(SYSTEM, wanted)
    post_and_prove()
    assert expense() - charged == sum(effect.new - effect.old for effect in shown) != 0
