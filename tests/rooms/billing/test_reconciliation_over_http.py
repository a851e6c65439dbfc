"""Reconciliation over HTTP, on its page and at the command line: one month says the same everywhere."""

import csv
import io
import json

import pytest
from django.core.management import CommandError, call_command

from billing.models import AcceptedVariance, ProviderInvoiceLine, VarianceTolerance
from billing.operations import posting
from billing.queries.reconciliation import reconciliation
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_cluster, make_user

from .ledgers import priced_cluster
from .reconciling import HEAD, billed, period
from .test_idle import MONTH, offered, used

pytestmark = pytest.mark.django_db
PAGE = "/months/reconciliation/"
QUERY = "?organisation=acme&month=2026-10"


@pytest.fixture
def north():
    cluster = priced_cluster()
    offered(cluster)
    used(cluster, one=4)
    posting.post_days()
    return cluster


def person(role="finance", path="acme"):
    user = make_user()
    bind(user, path, role)
    return user


def post(client, user, what, body):
    return client.post(f"/api/v1/{what}", json.dumps(body), "application/json", headers=bearer(user))


def get(client, user, what):
    return client.get(f"/api/v1/{what}", headers=bearer(user))


def test_finance_imports_reads_accepts_and_closes(client, north):
    teller = person()
    file = {"organisation": "acme", "file": HEAD + "north,2026-10,=cmd(),2000.25,USD,@late\n"}
    done = post(client, teller, "provider-invoices/import", file)
    assert (done.status_code, done.json()) == (200, {"added": 1, "changed": 0, "known": 0})
    assert post(client, teller, "provider-invoices/import", file).json() == {"added": 0, "changed": 0, "known": 1}
    (line,) = get(client, teller, "provider-invoices").json()["items"]
    assert (line["reference"], line["amount"]) == ("=cmd()", {"amount": "2000.250000000000", "currency": "USD"})
    shown = get(client, teller, f"reconciliation{QUERY}").json()
    (cluster,) = shown["clusters"]
    assert {name: cluster[name] for name in ("charged", "idle", "cost", "invoiced", "variance", "percent", "settled")} == {
        "charged": "10.000000000000", "idle": "1850.000000000000", "cost": "1860.000000000000", "invoiced": "2000.250000000000",
        "variance": "140.250000000000", "percent": "7.5403", "settled": False,
    }  # fmt: skip
    assert (shown["tolerance_percent"], shown["currency"], shown["is_final"], shown["platform"]) == (
        "2",
        "",
        False,
        None,
    )
    items = get(client, teller, f"periods/{period().id}").json()["checklist"]
    (item,) = [one for one in items if one["name"] == "reconciled"]
    assert (item["fulfilled"], "north (+7.54 %)" in item["detail"]) == (False, True)
    ask = {"organisation": "acme", "month": "2026-10", "cluster": "north", "variance": "140", "note": "=1+1"}
    assert post(client, teller, "variance-acceptances", ask).json()["code"] == "variance_changed"
    made = post(client, teller, "variance-acceptances", ask | {"variance": cluster["variance"]})
    assert (made.status_code, made.json()["invoiced"]["amount"]) == (201, "2000.250000000000"), made.content
    assert get(client, teller, "variance-acceptances").json()["items"] == [made.json()]
    text = get(client, teller, f"reconciliation{QUERY}&format=csv")
    assert text["Content-Disposition"] == 'attachment; filename="reconciliation-2026-10-so-far.csv"'
    (row,) = csv.DictReader(io.StringIO(text.content.decode()))
    assert (row["variance"], row["note"], row["settled"]) == ("140.250000000000", "'=1+1", "True")
    assert post(client, teller, f"periods/{period().id}/close", {}).json()["state"] == "closing"
    late = post(client, teller, "provider-invoices/import", file | {"file": HEAD + "north,2026-10,B,1,USD,\n"})
    assert (late.status_code, late.json()["code"]) == (409, "month_is_closed")


def test_a_tolerance_is_set_over_http(client, north):
    teller = person()
    body = {"organisation": "acme", "effective_from": "2026-10", "percent": "2.5"}
    made = post(client, teller, "variance-tolerances", body)
    assert (made.status_code, made.json()["percent"]) == (201, "2.500")
    assert get(client, teller, "variance-tolerances").json()["items"] == [made.json()]
    for wrong in (
        {"percent": "1e2"},
        {"percent": "101"},
        {"percent": 2},
        {"effective_from": "2026-10-01"},
        {"more": 1},
    ):
        assert post(client, teller, "variance-tolerances", body | wrong).status_code == 422


def test_wrong_files_are_refused_with_line_and_column(client, north):
    make_cluster("other", name="theirs")
    teller = person()
    for text, said in (
        ("", "line 1"),
        (HEAD + "theirs,2026-10,A,1,USD,\n", "line 2, column cluster"),
        (HEAD + "north,2026-10,A,1,USX,\n", "line 2, column currency"),
        (HEAD + "north,2026-10,A,1,USD,\nnorth,2026-10,A,1,USD,\n", "line 3, column reference"),
        (HEAD + "north,2026-10,A,=1,USD,\n", "line 2, column amount"),
    ):
        refused = post(client, teller, "provider-invoices/import", {"organisation": "acme", "file": text})
        assert refused.status_code == 422
        (error,) = refused.json()["errors"]
        assert error["field"] == "file"
        assert said in error["detail"]
    huge = post(client, teller, "provider-invoices/import", {"organisation": "acme", "file": "x" * 2_000_001})
    assert huge.status_code == 422
    assert not ProviderInvoiceLine.objects.exists()


def test_who_may_do_what(client, north):
    file = {"organisation": "acme", "file": HEAD + "north,2026-10,A,2000,USD,\n"}
    accepting = {"organisation": "acme", "month": "2026-10", "cluster": "north", "variance": "140", "note": "x"}
    tolerance = {"organisation": "acme", "effective_from": "2026-10", "percent": "3"}
    for what, body in (
        ("provider-invoices/import", file),
        ("variance-acceptances", accepting),
        ("variance-tolerances", tolerance),
    ):
        assert post(client, person("viewer"), what, body).status_code == 403
        assert post(client, person("admin", "acme/one"), what, body).status_code == 404
        assert post(client, person("finance", "other"), what, body).status_code == 404
    billed("north,2026-10,A,2000,USD,")
    stranger = person("finance", "other")
    assert get(client, stranger, f"reconciliation{QUERY}").status_code == 404
    assert get(client, person("viewer"), f"reconciliation{QUERY}").status_code == 200
    for what in ("provider-invoices", "variance-acceptances", "variance-tolerances"):
        assert get(client, stranger, what).json()["items"] == []


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "required"), ("?organisation=acme&month=2026-13", "not_a_month"), ("?organisation=acme&month=9000-01", "in_the_future"),
        ("?organisation=acme&format=xml", "unknown_format"),
    ],
)  # fmt: skip
def test_a_wrong_question_is_refused(client, north, query, code):
    answer = get(client, person(), f"reconciliation{query}")
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, code)


def test_the_page_imports_accepts_and_shows_what_the_report_says(client, north):
    client.force_login(person())
    own = {"organisation": "acme", "month": "2026-10"}
    wrong = client.post(PAGE, {**own, "what": "file", "file": "nothing"})
    assert (wrong.status_code, "line 1" in wrong.content.decode()) == (422, True)
    assert (
        client.post(PAGE, {**own, "what": "file", "file": HEAD + "north,2026-10,A,2000,USD,<b>x\n"}).status_code == 302
    )
    text = client.get(PAGE + QUERY).content.decode().replace("\xa0", " ")
    for said in ("1,860.00 USD", "140.00 USD", "2,000.00 USD", "+7.53 %", "&lt;b&gt;x", "From jobs to what is billed"):
        assert said in text, said
    accepting = {**own, "what": "acceptance", "cluster": str(north.id), "variance": "140.000000000000"}
    assert client.post(PAGE, {**accepting, "note": " "}).status_code == 422
    assert client.post(PAGE, {**accepting, "note": "agreed"}).status_code == 302
    assert AcceptedVariance.objects.get().note == "agreed"
    assert "agreed" in client.get(PAGE + QUERY).content.decode()
    assert (
        client.post(PAGE, {**own, "what": "tolerance", "effective_from": "2026-10", "percent": "x"}).status_code == 422
    )
    assert (
        client.post(PAGE, {**own, "what": "tolerance", "effective_from": "2026-10", "percent": "3"}).status_code == 302
    )
    assert VarianceTolerance.objects.get().percent == 3
    month = client.get(f"/months/{period().id}/").content.decode()
    assert f"{PAGE}?organisation=acme&amp;month=2026-10" in month
    assert PAGE in client.get("/months/").content.decode()


def test_the_page_of_a_viewer_has_no_forms_and_that_of_a_stranger_no_figures(client, north):
    billed("north,2026-10,A,2000,USD,")
    client.force_login(person("viewer"))
    text = client.get(PAGE + QUERY).content.decode()
    assert "2,000.00" in text
    assert 'name="what"' not in text
    client.force_login(person("finance", "other"))
    assert "2,000.00" not in client.get(PAGE + QUERY).content.decode()


def test_operators_import_at_the_command_line(north, tmp_path, capsys):
    file = tmp_path / "invoices.csv"
    file.write_text(HEAD + "north,2026-10,A,1860,USD,\n")
    for said in ("Lines added: 1, changed: 0, known: 0.", "Lines added: 0, changed: 0, known: 1."):
        call_command("import_provider_invoices", str(file), "--organisation", "acme")
        assert capsys.readouterr().out.strip() == said
    assert reconciliation(SYSTEM, "acme", MONTH).rows[0].compared.variance == 0
    file.write_text(HEAD + "north,2026-10,A,1860,usd,\n")
    with pytest.raises(CommandError, match="line 2, column currency"):
        call_command("import_provider_invoices", str(file), "--organisation", "acme")
    with pytest.raises(CommandError):
        call_command("import_provider_invoices", str(tmp_path / "none.csv"), "--organisation", "acme")
