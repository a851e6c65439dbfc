"""An error in one organisation's ledger keeps no other organisation from posting and closing; a close can be stopped."""

import pytest
from django.db import connection

from billing.models import LedgerPeriod
from billing.operations import periods, posting, record_runs
from billing.queries.ledger_proof import money_discrepancies
from billing.queries.periods import checklist
from foundation.problems import Conflict
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import bind, make_run, make_user

from .ledgers import at, priced_cluster, settle_pending_checks

pytestmark = pytest.mark.django_db


@pytest.fixture
def two():
    """An hour of October in each of two organisations, posted; their periods."""
    north = priced_cluster()
    record_runs([make_run(north, path, started_at=at(5, 10), until_at=at(5, 11)) for path in ("acme", "beta")])
    posting.post_days()
    settle_pending_checks()
    return [LedgerPeriod.objects.get(organisation__path=path) for path in ("acme", "beta")]


def forge(statement, *values):
    """What no process may do: past the triggers."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(statement, values)
        cursor.execute("SET LOCAL session_replication_role = origin")


OF_ONE = "entry_id IN (SELECT id FROM billing_ledgerentry WHERE organisation_id = %s)"
FORGERIES = (
    f"UPDATE billing_ledgerline SET amount = amount * 2 WHERE {OF_ONE}",
    f"UPDATE billing_ledgerline SET amount = 3 WHERE amount > 0 AND {OF_ONE}",
    "UPDATE billing_ledgerentry SET reason = 'x' WHERE organisation_id = %s",
    "UPDATE billing_tenantday SET cost = 1 WHERE organisation_id = %s",
    (
        "UPDATE billing_ledgerperiod SET state = 'closed', checksum = repeat('0', 64), closed_at = now(), closing_at = now(),"
        " revision = 1 WHERE organisation_id = %s"
    ),
)


@pytest.mark.parametrize("forgery", FORGERIES)
def test_an_error_of_one_organisation_blocks_only_its_own_close(two, forgery):
    acme, beta = two
    forge(forgery, acme.organisation_id)
    assert money_discrepancies(acme.organisation_id)
    assert money_discrepancies() == money_discrepancies(acme.organisation_id)
    assert all(item.is_fulfilled for item in checklist(beta))
    assert [item.name for item in checklist(acme) if not item.is_fulfilled] == ["proven"]
    periods.begin_closing(SYSTEM, beta.id)
    assert periods.finish_closing(beta.id)


def test_a_day_and_a_period_that_fail_keep_no_other_from_being_done(two, monkeypatch):
    acme, beta = two
    south = priced_cluster("south")
    record_runs([make_run(south, path, started_at=at(6), until_at=at(6, 1)) for path in ("acme", "beta")])
    whole_post, whole_checklist = posting.post, checklist

    def post(entry):
        if entry.organisation_id == acme.organisation_id:
            raise ValueError("no such day")
        return whole_post(entry)

    with monkeypatch.context() as patch:
        patch.setattr(posting, "post", post)
        with pytest.raises(ValueError, match="no such day"):
            periods.keep_ledger()
    assert set(LedgerPeriod.objects.filter(entries__charge_day=at(6).date()).values_list("id", flat=True)) == {beta.id}
    posting.post_days()
    for one in two:
        periods.begin_closing(SYSTEM, one.id)

    def failing(period, **more):
        if period.id == acme.id:
            raise ValueError("no such month")
        return whole_checklist(period, **more)

    monkeypatch.setattr(periods, "checklist", failing)
    with pytest.raises(ValueError, match="no such month"):
        periods.keep_ledger()
    assert [LedgerPeriod.objects.get(id=one.id).state for one in two] == ["closing", "closed"]


def test_a_closing_month_is_set_back_to_open_and_a_closed_one_is_not(two, call, client):
    acme, _ = two
    finance, viewer = make_user(), make_user()
    bind(finance, "acme", "finance")
    bind(viewer, "acme", "viewer")
    path = f"/periods/{acme.id}"
    call(finance, "post", f"{path}/close", {})
    assert call(viewer, "post", f"{path}/cancel-closing")[0] == 403
    for _ in range(2):
        assert call(finance, "post", f"{path}/cancel-closing")[1]["state"] == "open"
    assert AuditEntry.objects.filter(action="period.cancel_closing").count() == 1
    assert not periods.finish_closing(acme.id)

    client.force_login(finance)
    client.post(f"/months/{acme.id}/close/")
    assert "Stop closing it" in client.get(f"/months/{acme.id}/").content.decode()
    assert client.post(f"/months/{acme.id}/cancel-closing/").status_code == 302
    assert LedgerPeriod.objects.get(id=acme.id).state == "open"

    periods.begin_closing(SYSTEM, acme.id)
    assert periods.finish_closing(acme.id)
    with pytest.raises(Conflict) as refused:
        periods.cancel_closing(SYSTEM, acme.id)
    assert refused.value.code == "period_closed"
