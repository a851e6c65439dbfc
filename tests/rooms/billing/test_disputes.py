"""Remarks on lines of documents: pinned to entries, answered, resolved; disputes block closes, and nothing said changes."""

import pytest
from django.db import DatabaseError

from billing.models import InvoiceRemark, LedgerEntry, LedgerPeriod
from billing.operations import periods, record_runs
from billing.operations.disputes import answer_remark, open_remark, resolve_remark
from billing.queries.periods import checklist
from foundation.ids import new_id
from foundation.problems import Conflict, Invalid, NotFound, PermissionDenied
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM, actor_for
from tests.builders import bind, make_run, make_tenant, make_user
from tests.processes_role import as_processes
from tests.refusals import constraint_of

from .invoicing import OCTOBER, SEPTEMBER, closed_month, issued
from .ledgers import at, priced_cluster
from .test_invoice_attacks import attack

pytestmark = pytest.mark.django_db


@pytest.fixture
def north():
    return priced_cluster()


@pytest.fixture
def invoice(north):
    closed_month(north)
    return issued()


def person(role="finance", path="acme"):
    user = make_user()
    bind(user, path, role)
    return actor_for(user)


def test_a_dispute_is_pinned_to_its_entries_and_blocks_closes_until_it_is_resolved(north):
    closed_month(north, 9)
    invoice = issued(month=SEPTEMBER)
    record_runs([make_run(north, "acme/one", started_at=at(3, 1), until_at=at(3, 2))])
    dispute = open_remark(SYSTEM, invoice.id, 1, "dispute", "the node was broken")
    open_remark(SYSTEM, invoice.id, 1, "remark", "see above")
    assert dispute.entries == list(LedgerEntry.objects.filter(tenant__path="acme/one").values_list("id", flat=True))
    periods.keep_ledger()
    october = LedgerPeriod.objects.get(month=OCTOBER)
    assert [item.name for item in checklist(october) if not item.is_fulfilled] == ["no_disputes"]
    with pytest.raises(Conflict):
        periods.begin_closing(SYSTEM, october.id)
    with pytest.raises(Conflict):
        resolve_remark(SYSTEM, dispute.id, "rejected")
    answer_remark(SYSTEM, dispute.id, "it was not")
    with pytest.raises(Conflict):
        answer_remark(SYSTEM, dispute.id, "it was")
    assert [item.name for item in checklist(october) if not item.is_fulfilled] == ["no_disputes"]
    assert resolve_remark(SYSTEM, dispute.id, "rejected").state == "resolved"
    periods.begin_closing(SYSTEM, october.id)
    assert periods.finish_closing(october.id)
    assert AuditEntry.objects.filter(action__startswith="invoice_remark.").count() == 4


def test_who_opens_answers_and_resolves(invoice):
    manager, finance, viewer, stranger = person("manager"), person(), person("viewer"), person("admin", "other")
    for actor, refusal in ((viewer, PermissionDenied), (stranger, NotFound), (person("manager", "acme/one"), NotFound)):
        with pytest.raises(refusal):
            open_remark(actor, invoice.id, 1, "dispute", "x")
    with pytest.raises(Invalid):
        open_remark(manager, invoice.id, 3, "dispute", "x")
    remark = open_remark(manager, invoice.id, 1, "dispute", "x")
    for actor, refusal in ((manager, PermissionDenied), (stranger, NotFound)):
        with pytest.raises(refusal):
            answer_remark(actor, remark.id, "x")
    own = open_remark(finance, invoice.id, 2, "dispute", "x")
    for one in (remark, own):
        answer_remark(finance, one.id, "x")
    with pytest.raises(PermissionDenied):
        resolve_remark(finance, own.id, "accepted")
    assert resolve_remark(finance, remark.id, "accepted").outcome == "accepted"
    for _ in range(20):
        open_remark(manager, invoice.id, 1, "remark", "x")
    with pytest.raises(Conflict) as refused:
        open_remark(manager, invoice.id, 1, "remark", "x")
    assert refused.value.code == "too_many_remarks"


def test_remarks_over_http(call, invoice):
    manager, finance, stranger = make_user(), make_user(), make_user()
    for user, path, role in ((manager, "acme", "manager"), (finance, "acme", "finance"), (stranger, "other", "admin")):
        bind(user, path, role)
    path, body = f"/invoices/{invoice.id}/remarks", {"line": 1, "kind": "dispute", "text": "too much"}
    for wrong in ({"line": 0}, {"line": "1"}, {"kind": "x"}, {"text": ""}, {"text": "x" * 501}, {"line": 99}):
        assert call(manager, "post", path, body | wrong)[0] == 422
    key = {"Idempotency-Key": "dispute"}
    status, made = call(manager, "post", path, body, **key)
    assert (status, made["state"], len(made["entries"])) == (201, "open", 1)
    assert call(manager, "post", path, body, **key)[1] == made
    where = f"/invoice-remarks/{made['id']}"
    assert call(stranger, "get", where)[0] == call(stranger, "post", path, body)[0] == 404
    assert call(stranger, "get", "/invoice-remarks")[1]["items"] == []
    assert call(manager, "post", f"{where}/answer", {"answer": "x"})[0] == 403
    assert call(finance, "post", f"{where}/answer", {"answer": "it is right"})[1]["state"] == "answered"
    assert call(finance, "post", f"{where}/resolve", {"outcome": "x"})[0] == 422
    assert call(finance, "post", f"{where}/resolve", {"outcome": "accepted"})[1]["resolved_by"] == finance.email
    assert [one["line"] for one in call(manager, "get", path)[1]["items"]] == [1]
    assert len(call(manager, "get", "/invoice-remarks?state=resolved")[1]["items"]) == 1
    assert call(manager, "get", "/invoice-remarks?state=x")[0] == 422


def test_remarks_on_pages(client, invoice):
    manager, finance = make_user(), make_user()
    bind(manager, "acme", "manager")
    bind(finance, "acme", "finance")
    client.force_login(manager)
    assert "No remarks" in client.get("/invoices/remarks/").content.decode()
    path = f"/invoices/{invoice.id}/remarks/"
    for wrong in (
        {"line": "x", "kind": "remark", "text": "x"},
        {"line": "1", "kind": "", "text": "x"},
        {"line": "1", "kind": "remark", "text": " "},
    ):
        assert client.post(path, wrong).status_code == 422
    assert client.post(path, {"line": "1", "kind": "dispute", "text": "<b>no</b>"}).status_code == 302
    assert "&lt;b&gt;no" in client.get(path).content.decode()
    one = f"/invoices/remarks/{InvoiceRemark.objects.get().id}/"
    page = client.get(one).content.decode()
    assert "usage/2026-10-05/" in page
    assert "Answer it" not in page
    assert client.post(one, {"answer": "x"}).status_code == 403
    client.force_login(finance)
    assert client.post(one, {"answer": ""}).status_code == 422
    assert client.post(one, {"answer": "yes"}).status_code == 302
    assert client.post(one, {"outcome": "x"}).status_code == 422
    assert client.post(one, {"outcome": "accepted"}).status_code == 302
    assert "accepted" in client.get(one).content.decode()


ANSWER = "UPDATE billing_invoiceremark SET state = 'answered', answer = 'x', answered_at = now()"
ATTACKS = {
    "struck out": ("DELETE FROM billing_invoiceremark", ""),
    "rewritten": ("UPDATE billing_invoiceremark SET text = 'x'", "remark_goes_its_way"),
    "entries rewritten": (f"{ANSWER}, entries = '{{}}'", "remark_goes_its_way"),
    "resolved without an answer": ("UPDATE billing_invoiceremark SET state = 'resolved', outcome = 'rejected', resolved_at = now()", "remark_goes_its_way"),
    "answered with nothing": (f"{ANSWER}, answer = ''".replace("answer = 'x', ", ""), "answered_remark_has_its_answer"),
    "answered with an outcome": (f"{ANSWER}, outcome = 'accepted'", "resolved_remark_has_its_outcome"),
    "answer rewritten": (f"{ANSWER};UPDATE billing_invoiceremark SET state = 'resolved', answer = 'y', outcome = 'rejected', resolved_at = now()", "remark_goes_its_way"),
    "own dispute accepted": (
        f"{ANSWER};UPDATE billing_invoiceremark SET state = 'resolved', outcome = 'accepted', resolved_at = now(), resolved_by_id = opened_by_id",
        "accepted_dispute_needs_two_people",
    ),
    "born answered": (
        ("INSERT INTO billing_invoiceremark (id, organisation_id, line_id, kind, text, opened_by_name, state, answer, answered_at)"
        " SELECT %(new)s, organisation_id, line_id, kind, text, '', 'answered', 'x', now() FROM billing_invoiceremark"),
        "remark_begins_open",
    ),
    "of another organisation": (
        ("INSERT INTO billing_invoiceremark (id, organisation_id, line_id, kind, text, opened_by_name)"
        " SELECT %(new)s, %(other)s, line_id, kind, text, '' FROM billing_invoiceremark"),
        "remark_begins_open",
    ),
}  # fmt: skip


def test_the_database_refuses_the_processes_role(invoice, processes_role):
    open_remark(person("manager"), invoice.id, 1, "dispute", "x")
    given = {"new": new_id(), "other": make_tenant("other").id}
    with as_processes():
        for name, (statements, constraint) in ATTACKS.items():
            with pytest.raises(DatabaseError) as refused:
                attack(statements, given)
            assert constraint_of(refused.value) == constraint, name
