"""Months close once everything in them is known and proven, take nothing afterwards, and reopen by two people."""

import hashlib
from datetime import date

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.models import Sum

from billing.models import LedgerEntry, LedgerPeriod, PeriodClose, Price
from billing.operations import periods, posting, record_runs
from billing.operations.corrections import NewCorrection, correct_price
from billing.queries import discrepancies
from billing.queries.periods import checklist
from foundation.ids import new_id
from foundation.problems import Conflict, NotFound, PermissionDenied
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bind, make_run, make_user
from tests.refusals import constraint_of

from .ledgers import at, expense, priced_cluster, settle_pending_checks

pytestmark = pytest.mark.django_db


@pytest.fixture
def north():
    return priced_cluster()


def person(role="finance", path="acme"):
    user = make_user()
    bind(user, path, role)
    return actor_for(user)


def close(month=10, **more):
    posting.post_days()
    period = LedgerPeriod.objects.get(month=at(1, month=month).date())
    periods.begin_closing(SYSTEM, period.id, **more)
    assert periods.finish_closing(period.id)
    settle_pending_checks()
    period.refresh_from_db()
    return period


def lines_of(period):
    rows = LedgerEntry.objects.filter(period=period).values_list(
        "key", "charge_day", "lines__account__kind", "lines__account__tenant_id", "lines__account__cluster_id",
        "lines__currency", "lines__amount",
    )  # fmt: skip
    return sorted(
        f"{key}\t{day}\t{':'.join(str(part) for part in account if part)}\t{currency}\t{amount}\n"
        for key, day, *account, currency, amount in rows
    )


def test_a_closed_month_has_the_checksum_of_its_lines_and_what_is_late_goes_into_the_next(north):
    record_runs([make_run(north, started_at=at(5, 10), until_at=at(5, 14))])
    october = close()
    assert october.checksum == hashlib.sha256("".join(lines_of(october)).encode()).hexdigest()
    assert PeriodClose.objects.get().checksum == october.checksum

    record_runs([make_run(north, started_at=at(5, 20), until_at=at(5, 22))])
    price = Price.objects.get()
    correct_price(SYSTEM, NewCorrection(price.id, price.unit_price * 2, "USD", at(5), at(6), "typo"))
    posting.post_days()
    settle_pending_checks()

    assert expense(entry__period=october) == 10
    late = LedgerEntry.objects.exclude(period=october)
    assert {(f"{e.period.month:%Y-%m}", str(e.charge_day)) for e in late} == {("2026-11", "2026-10-05")}
    assert expense() == 30
    assert discrepancies() == ()
    assert periods.finish_closing(october.id)
    assert periods.begin_closing(SYSTEM, october.id).checksum == october.checksum


def test_nothing_enters_a_closed_month_and_its_row_stands(north):
    record_runs([make_run(north, started_at=at(5, 10), until_at=at(5, 14))])
    october = close()
    for statement, constraint in (
        (
            (
                "INSERT INTO billing_ledgerentry (organisation_id, period_id, key, kind, tenant_path, flavor, charge_day, reason,"
                " line_count, digest) SELECT organisation_id, id, 'x', 'adjustment', '', '', '2026-10-05', 'x', 2, '' FROM"
                " billing_ledgerperiod"
            ),
            "closed_period_stands",
        ),
        ("UPDATE billing_ledgerperiod SET checksum = repeat('0', 64)", "period_goes_its_way"),
        (
            "UPDATE billing_ledgerperiod SET state = 'open', checksum = '', closed_at = NULL, closing_at = NULL",
            "reopening_is_approved",
        ),
        (
            (
                f"INSERT INTO billing_periodreopening (id, period_id, revision, reason, requested_by_id, requested_by_name,"
                f" approved_by_id, approved_at) SELECT '{new_id()}', id, 1, 'x', id, '', organisation_id, now()"
                " FROM billing_ledgerperiod"
            ),
            "reopening_begins_as_a_request",
        ),
    ):
        with pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
        assert constraint_of(refused.value) == constraint
    assert LedgerPeriod.objects.get().checksum == october.checksum


def test_a_month_does_not_close_before_it_is_fully_metered_posted_and_priced(north):
    run = {
        "source_uid": "a",
        "run_id": new_id(),
        "workload_id": new_id(),
        "user_id": new_id(),
        "started_at": at(31, 10),
    }
    record_runs([make_run(north, until_at=at(31, 20), is_final=False, **run)])
    record_runs([make_run(north, flavor="a100", started_at=at(4), until_at=at(4, 1))])
    record_runs([make_run(north, started_at=at(5, 10), until_at=at(5, 14))])
    posting.post_days()
    october = LedgerPeriod.objects.get()
    missing = {item.name for item in checklist(october) if not item.is_fulfilled}
    assert missing == {"fully_metered", "posted", "priced"}
    with pytest.raises(Conflict) as refused:
        periods.begin_closing(SYSTEM, october.id)
    assert refused.value.code == "period_not_ready"
    assert "north" in refused.value.detail

    record_runs([make_run(north, until_at=at(1, 1, month=11), is_final=True, **run)])
    assert close(accepts_unpriced=True).state == "closed"


def test_a_month_that_has_not_ended_or_follows_an_open_one_does_not_close(north):
    record_runs([make_run(north, started_at=at(5, month=9), until_at=at(5, 1, month=9))])
    record_runs([make_run(north, started_at=at(5), until_at=at(5, 1))])
    posting.post_days()
    october = LedgerPeriod.objects.get(month="2026-10-01")
    assert [item.name for item in checklist(october) if not item.is_fulfilled] == ["earlier_periods"]
    close(9)
    later = LedgerPeriod.objects.create(organisation=october.organisation, month=date(2046, 10, 1))
    names = {item.name for item in checklist(later) if not item.is_fulfilled}
    assert names == {"month_ended", "earlier_periods"}


def test_reopening_needs_two_people_and_gives_a_new_checksum(north):
    record_runs([make_run(north, started_at=at(5, 10), until_at=at(5, 14))])
    october, (one, other) = close(), (person(), person("admin"))
    for nobody, refusal in ((person("viewer"), PermissionDenied), (person("admin", "other"), NotFound)):
        with pytest.raises(refusal):
            periods.begin_closing(nobody, october.id)
        with pytest.raises(refusal):
            periods.request_reopening(nobody, october.id, "x")
    with pytest.raises(Conflict):
        periods.approve_reopening(other, october.id)
    periods.request_reopening(one, october.id, "a bill came late")
    periods.request_reopening(other, october.id, "again")
    with pytest.raises(PermissionDenied):
        periods.approve_reopening(one, october.id)
    assert periods.approve_reopening(other, october.id).state == "open"

    record_runs([make_run(north, started_at=at(5, 20), until_at=at(5, 22))])
    again = close()
    settle_pending_checks()
    assert again.revision == 2
    assert again.checksum != october.checksum
    assert list(PeriodClose.objects.order_by("id").values_list("checksum", flat=True)) == [
        october.checksum,
        again.checksum,
    ]
    assert LedgerEntry.objects.filter(period=again).aggregate(sum=Sum("lines__amount"))["sum"] == 0
    with pytest.raises(Conflict):
        periods.approve_reopening(other, october.id)
    assert discrepancies() == ()


def test_a_close_that_was_killed_is_finished_by_the_routine(north, monkeypatch):
    record_runs([make_run(north, started_at=at(5, 10), until_at=at(5, 14))])
    posting.post_days()
    october = LedgerPeriod.objects.get()
    periods.begin_closing(SYSTEM, october.id)
    with monkeypatch.context() as patch:
        patch.setattr(periods, "checksum_of", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt), transaction.atomic():
            periods.keep_ledger()
    assert LedgerPeriod.objects.get().state == "closing"
    periods.keep_ledger()
    assert LedgerPeriod.objects.get().state == "closed"


def test_months_close_and_reopen_over_http(call, north):
    record_runs([make_run(north, started_at=at(5, 10), until_at=at(5, 14))])
    posting.post_days()
    people = {name: make_user() for name in ("finance", "admin", "viewer")}
    for role, user in people.items():
        bind(user, "acme", role)
    path = f"/periods/{LedgerPeriod.objects.get().id}"
    status, shown = call(people["viewer"], "get", path)
    assert (status, shown["state"], all(item["fulfilled"] for item in shown["checklist"])) == (200, "open", True)
    assert call(people["viewer"], "post", f"{path}/close", {})[0] == 403
    assert call(people["finance"], "post", f"{path}/close", {"force": True})[0] == 422
    assert call(people["finance"], "post", f"{path}/close", {})[1]["state"] == "closing"
    periods.keep_ledger()
    listed = call(people["viewer"], "get", "/periods")[1]["items"]
    assert [(item["month"], item["state"], item["closed_by"]) for item in listed] == [
        ("2026-10", "closed", people["finance"].email)
    ]
    assert call(people["finance"], "post", f"{path}/close", {})[1]["checksum"] == listed[0]["checksum"]
    assert call(people["admin"], "post", f"{path}/reopening/approve")[0] == 409
    assert call(people["finance"], "post", f"{path}/reopening", {"reason": "late bill"})[0] == 201
    assert call(people["finance"], "post", f"{path}/reopening/approve")[0] == 403
    assert call(people["admin"], "post", f"{path}/reopening/approve")[1]["state"] == "open"


def test_the_pages_of_months_close_and_reopen_one_by_two_people(north, client):
    record_runs([make_run(north, started_at=at(5, 10), until_at=at(5, 14))])
    posting.post_days()
    period = LedgerPeriod.objects.get()
    ann, bob, guest = (make_user(f"{name}@acme.example") for name in ("ann", "bob", "guest"))
    for user, role in ((ann, "finance"), (bob, "finance"), (guest, "viewer")):
        bind(user, "acme", role)

    client.force_login(guest)
    assert "October 2026" in client.get("/months/").content.decode()
    page = client.get(f"/months/{period.id}/").content.decode()
    assert "Before it can close" in page
    assert "Close the month" not in page
    assert client.post(f"/months/{period.id}/close/").status_code == 403

    client.force_login(ann)
    assert "Close the month" in client.get(f"/months/{period.id}/").content.decode()
    assert client.post(f"/months/{period.id}/close/").status_code == 302
    assert periods.finish_closing(period.id)
    page = client.get(f"/months/{period.id}/").content.decode()
    assert LedgerPeriod.objects.get().checksum in page
    assert client.post(f"/months/{period.id}/", {"reason": " "}).status_code == 422
    assert client.post(f"/months/{period.id}/", {"reason": "a wrong price"}).status_code == 302
    assert "Another person who may close months" in client.get(f"/months/{period.id}/").content.decode()
    assert client.post(f"/months/{period.id}/approve/").status_code == 403

    client.force_login(bob)
    assert "a wrong price" in client.get(f"/months/{period.id}/").content.decode()
    assert client.post(f"/months/{period.id}/approve/").status_code == 302
    assert LedgerPeriod.objects.get().state == "open"


def test_a_month_that_lacks_only_prices_is_closed_by_accepting_that(north, client):
    priced = make_run(north, started_at=at(5, 10), until_at=at(5, 14))
    record_runs([priced, make_run(north, flavor="unpriced", started_at=at(5, 10), until_at=at(5, 14))])
    posting.post_days()
    period, user = LedgerPeriod.objects.get(), make_user()
    bind(user, "acme", "finance")
    client.force_login(user)
    assert "Close it although some of its time has no price" in client.get(f"/months/{period.id}/").content.decode()
    client.post(f"/months/{period.id}/close/", {"accept_unpriced": "yes"})
    assert periods.finish_closing(period.id)


def test_without_months_the_page_says_when_one_appears(client):
    client.force_login(make_user())
    assert "No months yet" in client.get("/months/").content.decode()
