"""Two contents under one key: a person says which stands; the ledger remains balanced, and a month closes again."""

from decimal import Decimal
from typing import Any

import pytest
from django.db import DatabaseError

from billing.engine.conflicts import NotReadable, adjustment_of, replacement
from billing.engine.ledger import Entry, Line, reversal_of
from billing.models import LedgerEntry, LedgerLine, LedgerPeriod, PostingConflict
from billing.operations import periods, posting, record_runs
from billing.operations.conflicts import resolve_conflict
from billing.queries import discrepancies
from billing.queries.periods import checklist
from foundation.ids import new_id
from foundation.problems import Conflict, NotFound, PermissionDenied
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bind, make_run, make_tenant, make_user
from tests.processes_role import as_processes
from tests.refusals import constraint_of

from .ledgers import at, priced_cluster, settle_pending_checks
from .test_invoice_attacks import attack

pytestmark = pytest.mark.django_db


def adjustment(amount, organisation, reason="a test"):
    lines = (Line("rounding", "USD", Decimal(amount)), Line("adjustments", "USD", -Decimal(amount)))
    return Entry("adjustment/1", "adjustment", organisation.id, at(5).date(), lines, reason=reason)


@pytest.fixture
def conflict():
    """An adjustment of 1 that is posted, and one of 2 that was offered under its key."""
    acme = make_tenant("acme")
    for amount in ("1", "2"):
        posting.post(adjustment(amount, acme))
    settle_pending_checks()
    return PostingConflict.objects.get()


def amounts():
    return sorted(LedgerLine.objects.values_list("amount", flat=True))


def test_dismissed_the_posted_content_remains_and_the_month_closes(conflict):
    october = LedgerPeriod.objects.get()
    assert [item.name for item in checklist(october) if not item.is_fulfilled] == ["no_conflicts"]
    for _ in range(2):
        assert resolve_conflict(SYSTEM, conflict.id, "posted", "a copy with a typo").decision == "posted"
    assert AuditEntry.objects.filter(action="posting_conflict.resolve").count() == 1
    with pytest.raises(Conflict) as refused:
        resolve_conflict(SYSTEM, conflict.id, "offered", "no")
    assert refused.value.code == "conflict_resolved"
    assert amounts() == [-1, 1]
    periods.begin_closing(SYSTEM, october.id)
    assert periods.finish_closing(october.id)


def test_the_offered_content_takes_the_place_of_the_posted_one(conflict):
    resolve_conflict(SYSTEM, conflict.id, "offered", "the second is right")
    settle_pending_checks()
    assert amounts() == [-2, -1, -1, 1, 1, 2]
    assert set(LedgerEntry.objects.values_list("key", flat=True)) == {
        "adjustment/1", "reversal/adjustment/1", f"resolved/{conflict.id}",
    }  # fmt: skip
    assert posting.post(adjustment("2", make_tenant("acme"))) is False
    assert PostingConflict.objects.count() == 1
    assert discrepancies() == ()


def test_of_two_offers_only_one_takes_the_place(conflict):
    posting.post(adjustment("3", make_tenant("acme")))
    other = PostingConflict.objects.exclude(id=conflict.id).get()
    resolve_conflict(SYSTEM, conflict.id, "offered", "x")
    with pytest.raises(Conflict) as refused:
        resolve_conflict(SYSTEM, other.id, "offered", "x")
    assert refused.value.code == "conflict_needs_a_correction"
    assert resolve_conflict(SYSTEM, other.id, "posted", "neither").decision == "posted"


def test_usage_is_what_its_segments_cost_whatever_was_offered():
    record_runs([make_run(priced_cluster(), started_at=at(5, 10), until_at=at(5, 11))])
    posting.post_days()
    row = LedgerEntry.objects.get()
    forged = Entry(
        row.key, "usage", row.organisation_id, row.charge_day,
        (Line(f"tenant_expense:{row.tenant_id}", "USD", Decimal(9)), Line(f"cluster_pool:{row.cluster_id}", "USD", Decimal(-9))),
    )  # fmt: skip
    posting.post(forged)
    with pytest.raises(Conflict) as refused:
        resolve_conflict(SYSTEM, PostingConflict.objects.get().id, "offered", "x")
    assert refused.value.code == "conflict_needs_a_correction"
    assert "correct the price" in refused.value.detail


def test_only_finance_of_the_organisation_resolves(call, conflict):
    finance, viewer, stranger = make_user(), make_user(), make_user()
    bind(finance, "acme", "finance")
    bind(viewer, "acme", "viewer")
    bind(stranger, "other", "admin")
    body = {"decision": "posted", "reason": "a copy"}
    path = f"/posting-conflicts/{conflict.id}"
    with pytest.raises(NotFound):
        resolve_conflict(actor_for(stranger), conflict.id, "posted", "x")
    with pytest.raises(PermissionDenied):
        resolve_conflict(actor_for(viewer), conflict.id, "posted", "x")
    assert call(stranger, "get", path)[0] == 404
    assert call(stranger, "get", "/posting-conflicts")[1]["items"] == []
    assert call(viewer, "post", f"{path}/resolve", body)[0] == 403
    shown = call(viewer, "get", path)[1]
    assert (shown["state"], shown["posted"].count("1.000000000000"), shown["offered"].count("2.000000000000")) == (
        "open",
        2,
        2,
    )
    for wrong in ({"decision": "both", "reason": "x"}, {"decision": "posted"}, {"decision": "posted", "reason": ""}):
        assert call(finance, "post", f"{path}/resolve", wrong)[0] == 422
    assert call(finance, "post", f"{path}/resolve", body)[1]["resolved_by"] == finance.email
    assert len(call(viewer, "get", "/posting-conflicts?state=resolved")[1]["items"]) == 1
    assert call(viewer, "get", "/posting-conflicts?state=open")[1]["items"] == []
    assert call(viewer, "get", "/posting-conflicts?state=x")[0] == 422


def test_the_pages_show_and_resolve_it(client, conflict):
    finance, viewer = make_user(), make_user()
    bind(finance, "acme", "finance")
    bind(viewer, "acme", "viewer")
    client.force_login(viewer)
    assert "adjustment/1" in client.get("/months/conflicts/").content.decode()
    page = client.get(f"/months/conflicts/{conflict.id}/").content.decode()
    assert "Resolve it" not in page
    client.force_login(finance)
    assert (
        "Conflicts of postings not resolved: 1."
        in client.get(f"/months/{LedgerPeriod.objects.get().id}/").content.decode()
    )
    path = f"/months/conflicts/{conflict.id}/"
    assert client.post(path, {"decision": "posted", "reason": " "}).status_code == 422
    assert client.post(path, {"decision": "posted", "reason": "<b>a copy</b>"}).status_code == 302
    assert "&lt;b&gt;a copy" in client.get(path).content.decode()


def test_without_conflicts_the_page_says_so(client):
    client.force_login(make_user())
    assert "No conflicts" in client.get("/months/conflicts/").content.decode()


SET = "UPDATE billing_postingconflict SET resolved_at = now(), note = 'x'"
ATTACKS = {
    "resolved without a decision": (SET, "resolved_conflict_says_which_stands"),
    "decided, not resolved": ("UPDATE billing_postingconflict SET decision = 'posted'", "resolved_conflict_says_which_stands"),
    "offered without its entries": (f"{SET}, decision = 'offered'", "offered_content_is_posted"),
    "resolved without a reason": (f"{SET}, note = '', decision = 'posted'".replace("note = 'x', note", "note"), "resolved_conflict_says_how"),
    "offer rewritten": (f"{SET}, decision = 'posted', offered = 'x'", "conflict_is_resolved_once"),
    "born resolved": (
        ("INSERT INTO billing_postingconflict (id, organisation_id, key, month, standing_digest, offered_digest, offered,"
        " resolved_at, note, decision) SELECT %(id)s, organisation_id, 'k', month, '', '', '', now(), 'x', 'posted'"
        " FROM billing_postingconflict"),
        "conflict_begins_unresolved",
    ),
}  # fmt: skip


def test_the_database_refuses_other_resolutions(processes_role, conflict):
    with as_processes():
        for name, (statement, constraint) in ATTACKS.items():
            with pytest.raises(DatabaseError) as refused:
                attack(statement, {"id": new_id()})
            assert constraint_of(refused.value) == constraint, name


def test_an_adjustment_is_read_from_its_text_and_nothing_else_is():
    acme: Any = type("Organisation", (), {"id": new_id()})
    entry = adjustment("2", acme)
    assert adjustment_of(entry.text).text == entry.text
    for text in ("", "x", entry.text + "\n", entry.text.replace("adjustment\t", "usage\t"), entry.text.replace("2.0", "NaN"),
                 entry.text.replace("USD\t", "USD "), entry.text.replace(str(acme.id), "x"), entry.text.replace("2026", "x")):  # fmt: skip
        with pytest.raises(NotReadable):
            adjustment_of(text)
    posted = adjustment("1", acme, reason="other")
    assert replacement(acme.id, posted, entry.text)[0] == reversal_of(posted)
    with pytest.raises(NotReadable):
        replacement(acme.id, Entry("adjustment/2", "adjustment", acme.id, posted.charge_day, posted.lines), entry.text)
