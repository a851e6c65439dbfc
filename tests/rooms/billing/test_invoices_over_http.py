"""Invoices over HTTP and on pages: repeated, of others, huge, negative, hostile; the PDF has the same bytes each time."""

from decimal import Decimal

import pytest

from billing.engine.invoices import Terms
from billing.models import Invoice
from billing.operations.invoices import put_terms
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_user

from .invoicing import closed_month, issued
from .ledgers import priced_cluster

pytestmark = pytest.mark.django_db
BODY = {"tenant": "acme", "month": "2026-10"}


@pytest.fixture
def people():
    """Finance, viewer and team viewer of acme, and an admin of another organisation, with October closed."""
    closed_month(priced_cluster())
    users = {name: make_user() for name in ("finance", "viewer", "team", "stranger")}
    for name, path, role in (
        ("finance", "acme", "finance"), ("viewer", "acme", "viewer"), ("team", "acme/one", "viewer"), ("stranger", "other", "admin"),
    ):  # fmt: skip
        bind(users[name], path, role)
    return users


def test_a_document_is_issued_once_per_key_and_read_by_those_who_see_its_tenant(call, people):
    key = {"Idempotency-Key": "october"}
    status, made = call(people["finance"], "post", "/invoices", BODY, **key)
    assert (status, made["number"], made["document"]["total"], made["credited"]) == (201, "INV-000001", "15.00", "0")
    assert call(people["finance"], "post", "/invoices", BODY, **key)[1] == made
    assert call(people["finance"], "post", "/invoices", {**BODY, "tenant": "acme/one"}, **key)[0] in {409, 422}
    assert call(people["finance"], "post", "/invoices", BODY)[1]["code"] == "already_invoiced"
    statement = call(people["finance"], "post", "/invoices", {**BODY, "tenant": "acme/one"})[1]
    path = f"/invoices/{made['id']}"
    assert call(people["viewer"], "get", path)[1]["document"] == made["document"]
    assert call(people["viewer"], "post", "/invoices", BODY)[0] == 403
    for name in ("team", "stranger"):
        for where in (path, f"{path}.pdf", f"{path}/credit-notes"):
            assert call(people[name], "get", where)[0] == 404
        assert call(people[name], "post", f"{path}/credit-notes", {"reason": "x"})[0] == 404
    assert [one["number"] for one in call(people["team"], "get", "/invoices")[1]["items"]] == [statement["number"]]
    assert call(people["stranger"], "get", "/invoices")[1]["items"] == []
    assert len(call(people["viewer"], "get", "/invoices?month=2026-10&tenant=acme")[1]["items"]) == 2
    assert call(people["viewer"], "get", "/invoices?month=2026-09")[1]["items"] == []
    assert call(people["viewer"], "get", "/invoices?month=x")[0] == 422
    for name in ("team", "stranger"):
        assert call(people[name], "post", "/invoices", BODY)[0] in {403, 404}


@pytest.mark.parametrize(
    "body",
    [
        {}, {**BODY, "month": "2026-13"}, {**BODY, "month": "0000-01"}, {**BODY, "month": 202610}, {**BODY, "currency": "usd"},
        {**BODY, "currency": "EUR"}, {**BODY, "remark": "x" * 501}, {**BODY, "remark": "a\nb"}, {**BODY, "force": True},
        {**BODY, "tenant": "x" * 1200},
    ],
)  # fmt: skip
def test_other_bodies_are_refused_and_use_up_no_number(call, people, body):
    assert call(people["finance"], "post", "/invoices", body)[0] == 422
    assert issued().number == "INV-000001"


def test_credit_notes_take_back_what_was_invoiced_and_no_more(call, people):
    invoice = issued()
    path = f"/invoices/{invoice.id}/credit-notes"
    assert call(people["viewer"], "post", path, {"reason": "x"})[0] == 403
    for lines in (
        [{"line": 1, "amount": "10.01"}], [{"line": 1, "amount": "-1"}], [{"line": 3, "amount": "1"}], [{"line": 0, "amount": "1"}],
        [{"line": 1, "amount": "1e3"}], [{"line": 1, "amount": "NaN"}], [{"line": 1, "amount": "9" * 31}], [{"line": 1, "amount": "0.001"}],
        [{"line": 1, "amount": "1"}, {"line": 1, "amount": "1"}], [{"line": 1, "amount": 1}], [{"line": True, "amount": "1"}], "all", [],
    ):  # fmt: skip
        assert call(people["finance"], "post", path, {"reason": "x", "lines": lines})[0] in {409, 422}, lines
    assert call(people["finance"], "post", path, {"lines": None})[0] == 422
    assert not Invoice.objects.filter(kind="credit_note").exists()
    key = {"Idempotency-Key": "credit"}
    body = {"reason": "free", "lines": [{"line": 1, "amount": "2.50"}]}
    status, note = call(people["finance"], "post", path, body, **key)
    assert (status, note["total"], note["reference"]) == (201, "-2.50", str(invoice.id))
    assert call(people["finance"], "post", path, body, **key)[1] == note
    assert [one["number"] for one in call(people["viewer"], "get", path)[1]["items"]] == ["CN-000001"]
    shown = call(people["viewer"], "get", f"/invoices/{invoice.id}")[1]
    assert (Decimal(shown["credited"]), shown["credited_in_full"]) == (Decimal("2.5"), False)


def test_the_pdf_has_the_same_bytes_each_time_whatever_the_texts_say(client, people):
    put_terms(SYSTEM, "acme", Terms("日本 {nb} **bold** <b>", Decimal(19), "TVA é", 0, "=1+1", "\\", "x" * 500))
    invoice = issued()
    url, headers = f"/api/v1/invoices/{invoice.id}.pdf", bearer(people["viewer"])
    one, other = (client.get(url, headers=headers) for _ in range(2))
    assert one.content == other.content
    assert (one.content[:5], one["Content-Type"]) == (b"%PDF-", "application/pdf")
    assert one["Content-Disposition"] == 'attachment; filename="acme-INV-000001.pdf"'
    assert len(one.content) < 20_000


def test_terms_are_set_by_finance_and_seen_by_viewers(call, people):
    body = {"tenant": "acme", "tax_rate": "19", "tax_name": "VAT", "payment_days": 14, "issuer": "Platform"}
    assert call(people["viewer"], "put", "/invoice-terms", body)[0] == 403
    assert call(people["stranger"], "put", "/invoice-terms", body)[0] == 404
    assert call(people["finance"], "put", "/invoice-terms", body)[1]["tax_rate"] in {"19", "19.000"}
    for wrong in (
        {"tax_rate": "-1"},
        {"tax_rate": "0"},
        {"tax_rate": "x"},
        {"tax_rate": 19},
        {"payment_days": 366},
        {"issuer": "a\tb"},
        {"x": 1},
    ):
        assert call(people["finance"], "put", "/invoice-terms", {**body, **wrong})[0] == 422, wrong
    assert [one["payment_days"] for one in call(people["viewer"], "get", "/invoice-terms")[1]["items"]] == [14]
    assert call(people["stranger"], "get", "/invoice-terms")[1]["items"] == []


def test_the_pages_issue_show_and_credit(client, people):
    client.force_login(people["viewer"])
    page = client.get("/invoices/").content.decode()
    assert "No invoices yet" in page
    assert "Issue a document" not in page
    assert client.post("/invoices/", BODY).status_code == 403
    assert "No tenant to set terms for" in client.get("/invoices/terms/").content.decode()

    client.force_login(people["finance"])
    terms = {"tenant": "acme", "tax_rate": "19", "tax_name": "<i>VAT</i>", "payment_days": "14", "remark": "thanks"}
    assert client.post("/invoices/terms/", {**terms, "tax_rate": "x", "payment_days": "-"}).status_code == 422
    assert client.post("/invoices/terms/", terms).status_code == 302
    assert 'value="14"' in client.get("/invoices/terms/?tenant=acme").content.decode()
    assert client.post("/invoices/", {**BODY, "month": "x"}).status_code == 422
    assert client.post("/invoices/", BODY).status_code == 302
    invoice = Invoice.objects.get()
    path = f"/invoices/{invoice.id}/"
    page = client.get(path).content.decode()
    assert "&lt;i&gt;VAT" in page
    for text in (
        "17.85 USD",
        invoice.digest,
        "4.000000 GPU-hours",
        f"/api/v1/invoices/{invoice.id}.pdf",
        "Payable until",
    ):
        assert text in page
    for wrong in (
        {"reason": ""},
        {"reason": "x", "line": "1"},
        {"reason": "x", "line": "1", "amount": "99"},
        {"reason": "x", "amount": "1"},
        {"reason": "x", "line": "1", "amount": "1e99999999"},
        {"reason": "x", "line": "1", "amount": "1e-99999999"},
    ):
        assert client.post(path, wrong).status_code == 422
    assert client.post(path, {"reason": "free", "line": "1", "amount": "2.50"}).status_code == 302
    note = Invoice.objects.get(kind="credit_note")
    assert "INV-000001" in client.get(f"/invoices/{note.id}/").content.decode()
    assert "partly credited" in client.get("/invoices/").content.decode()
    assert client.post(path, {"reason": "all"}).status_code == 302
    assert "Credit it" not in client.get(path).content.decode()
    client.force_login(people["stranger"])
    assert client.get(path).status_code == 404
