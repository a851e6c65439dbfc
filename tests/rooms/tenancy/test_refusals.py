"""What refused strangers may add to an append-only audit trail."""

import io
import threading
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.models import F
from django.test import Client

from foundation.clock import now
from foundation.requests import current_source
from tenancy.models import AuditEntry, RefusalCount
from tenancy.operations import note_stranger_refused, record_audit, refusals, tell_counted_refusals
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_user
from tests.kept_sessions import end_sessions

pytestmark = pytest.mark.django_db(transaction=True)


def refuse(times=1, source="192.0.2.1", action="session.start"):
    reset = current_source.set(source)
    try:
        for _ in range(times):
            note_stranger_refused(action, object_kind="user", detail={"why": "wrong_credentials"})
    finally:
        current_source.reset(reset)


def a_minute_passes():
    RefusalCount.objects.update(minute_at=F("minute_at") - timedelta(days=1))


def is_whole():
    out = io.StringIO()
    call_command("verify_audit", stdout=out)
    return out.getvalue().startswith("intact")


@pytest.fixture
def _one_minute(monkeypatch):
    """The clock stays inside one minute."""
    at = now().replace(second=30)
    monkeypatch.setattr("tenancy.operations.refusals.now", lambda: at)


@pytest.mark.usefixtures("_one_minute")
def test_a_thousand_refusals_of_one_source_in_a_minute_are_two_entries_that_tell_them_all():
    refuse(1000)
    assert AuditEntry.objects.count() == 1
    a_minute_passes()
    tell_counted_refusals()
    first, further = AuditEntry.objects.order_by("id")
    assert (first.source, first.detail) == ("192.0.2.1", {"why": "wrong_credentials"})
    assert (further.source, further.outcome, further.detail["further"]) == ("192.0.2.1", "refused", 999)
    assert further.detail["others"] is False
    assert is_whole()


@pytest.mark.usefixtures("_one_minute")
def test_refusals_from_any_number_of_sources_are_a_bounded_number_of_entries():
    for number in range(400):
        refuse(2, f"198.51.{number // 200}.{number % 200}")
    a_minute_passes()
    tell_counted_refusals()
    entries = AuditEntry.objects.all()
    assert entries.count() <= 2 * (refusals.MOST_SOURCES + 1)
    told = sum(entry.detail.get("further", 1) for entry in entries)
    assert told == 800, "none is lost"
    assert entries.get(detail__others=True).source is None
    assert is_whole()


@pytest.mark.usefixtures("_one_minute")
def test_refusals_at_the_same_moment_are_all_counted_and_bounded():
    barrier = threading.Barrier(16)

    def run(number):
        barrier.wait()
        try:
            refuse(20, f"198.51.100.{number % 4}")
        finally:
            end_sessions()

    threads = [threading.Thread(target=run, args=[number]) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert AuditEntry.objects.count() == 4
    a_minute_passes()
    tell_counted_refusals()
    assert sum(entry.detail.get("further", 1) for entry in AuditEntry.objects.all()) == 320


def test_a_count_is_told_by_the_next_refusal_too_when_no_routine_runs():
    refuse(3)
    a_minute_passes()
    refuse(1)
    assert AuditEntry.objects.filter(detail__further=2).count() == 1


def test_a_lone_refusal_is_told_once():
    refuse(1)
    a_minute_passes()
    tell_counted_refusals()
    assert AuditEntry.objects.count() == 1


def test_an_entry_tells_the_address_it_came_from_and_the_systems_own_work_none(client):
    user = make_user()
    bind(user, "acme", "admin")
    asked = {"data": {"name": "x"}, "content_type": "application/json", "headers": bearer(user)}
    assert client.post("/api/v1/tokens", **asked, REMOTE_ADDR="2001:db8::7").status_code == 201
    record_audit(SYSTEM, "thing.change", object_kind="thing")
    assert list(AuditEntry.objects.order_by("id").values_list("source", flat=True)) == ["2001:db8::7", None]
    [item] = client.get("/api/v1/audit", {"action": "token.create"}, headers=bearer(user)).json()["items"]
    assert item["source"] == "2001:db8::7"
    browser = Client()
    browser.force_login(user)
    assert "2001:db8::7" in browser.get("/audit/").content.decode()
    assert is_whole()


def test_an_address_that_is_none_is_no_source(client):
    client.post("/login/", {"email": "a@example.org", "password": "x"}, REMOTE_ADDR="nonsense")
    assert AuditEntry.objects.get().source is None


@pytest.mark.parametrize("change", ["'192.0.2.2'", "NULL", "'192.0.2.1/24'"])
def test_an_edited_source_is_found(change):
    refuse(1)
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute(f"UPDATE tenancy_auditentry SET source = {change}")
        cursor.execute("SET session_replication_role = origin")
    with pytest.raises(Exception, match="edited"):
        is_whole()
