"""The four datasets of FOCUS: they agree with each other, with the documents and with the ledger, to the last digit."""

import csv
import io
import json
from collections import defaultdict
from decimal import Decimal
from hashlib import sha256

import pytest
from django.core.management import CommandError, call_command
from focus_data_toolkit.cli import main as toolkit
from focus_data_toolkit.model import lint_focus_1_4_structure
from focus_data_toolkit.validate import validate_dataset_bundle

from billing.engine.focus_datasets import DATASETS, schema
from billing.engine.invoices import Terms
from billing.models import Invoice, LedgerLine, LedgerPeriod, Meter, PeriodReopening, Price
from billing.operations import TrueEnd, correct_ends, create_price, periods, posting, record_runs
from billing.operations.corrections import NewCorrection, correct_price
from billing.operations.invoices import credit_invoice, put_terms
from billing.operations.prices import NewPrice
from billing.queries.invoices import content_of
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import actor_for, bearer, bind, make_cluster, make_flavor, make_run, make_user

from .invoicing import OCTOBER, closed, closed_month, issued
from .ledgers import at, priced_cluster, settle_pending_checks
from .test_credits import lose, ran, waive
from .test_focus import WHAT_WE_SUPPORT
from .test_idle import offered, policy

pytestmark = pytest.mark.django_db
NAMES = {
    "cost-and-usage": "Cost and Usage", "billing-period": "Billing Period", "invoice-detail": "Invoice Detail",
    "contract-commitment": "Contract Commitment",
}  # fmt: skip
SUPPORTED = (*WHAT_WE_SUPPORT, "Supports payable invoices")


@pytest.fixture
def north():
    return priced_cluster(amount="2.333333", cpu_price=Decimal("0.017"))


@pytest.fixture
def take(client):
    """The files of a month by dataset, as lists of rows."""

    def taken(month, tenant="", path="acme", role="finance"):
        user = make_user()
        bind(user, path, role)
        found = {}
        for dataset, name in NAMES.items():
            query = {"month": month, "tenant": tenant, "dataset": dataset}
            response = client.get("/api/v1/exports/focus", query, headers=bearer(user))
            assert response.status_code == 200, response.content
            text = b"".join(response.streaming_content).decode()
            found[name] = list(csv.DictReader(io.StringIO(text)))
        return found

    return taken


def problems(bundle):
    """What the validators say of the files, each alone and together."""
    found = [
        str(one) for name, rows in bundle.items() if rows
        for one in lint_focus_1_4_structure(name, rows, supported_conditions=SUPPORTED).violations
    ]  # fmt: skip
    report = validate_dataset_bundle(bundle, invoice_detail_authoritative=True, rounding_tolerance=Decimal(0))
    return [*found, *(one.format() for one in (*report.errors, *report.warnings))]


def joined(*bundles):
    """Files of several months as a consumer stores them."""
    return {name: [row for bundle in bundles for row in bundle[name]] for name in NAMES.values()}


def total(rows, **of):
    return sum(
        (Decimal(row["BilledCost"]) for row in rows if all(row[name] == value for name, value in of.items())),
        Decimal(0),
    )


def agree(bundle):
    """Each document equals its details and its rows of cost, line by line."""
    costs, details = bundle["Cost and Usage"], bundle["Invoice Detail"]
    of_line = defaultdict(Decimal)
    for row in costs:
        of_line[row["InvoiceDetailId"]] += Decimal(row["BilledCost"])
    for row in details:
        assert of_line[row["InvoiceDetailId"]] == Decimal(row["BilledCost"]), row
    for number in {row["InvoiceId"] for row in details}:
        invoice = Invoice.objects.get(number=number)
        lines = content_of(invoice)["lines"]
        its = [row for row in details if row["InvoiceId"] == number]
        assert [Decimal(row["BilledCost"]) for row in its if row["ChargeCategory"] != "Tax"] == [
            Decimal(line["amount"]) for line in lines
        ]
        assert total(its) == total(costs, InvoiceId=number) == invoice.total
        assert {row["x_DocumentDigest"] for row in its} == {invoice.digest}


def rich_month(cluster):
    """A month with odd amounts, two teams, a correction, idle capacity and a platform that are shared, and late usage."""
    offered(cluster)
    policy(idle="proportional", platform="proportional", platform_cost=Decimal("10.01"), platform_currency="USD")
    record_runs([
        make_run(cluster, f"acme/{('one', 'two', 'one/deep')[number % 3]}", started_at=at(5, number), until_at=at(5, number + 1),
                 workload_name=f"=job {number}", cpu_millicores=1000 + 7 * number)
        for number in range(9)
    ])  # fmt: skip
    posting.post_days()
    price = Price.objects.get()
    correct_price(SYSTEM, NewCorrection(price.id, Decimal("1.000001"), "USD", at(5, 3), at(5, 4), reason="as agreed"))


def test_a_closed_month_with_an_invoice_is_a_bundle_that_agrees_to_the_last_digit(north, take):
    rich_month(north)
    put_terms(SYSTEM, "acme", Terms(issuer="Platform Ltd", tax_rate=Decimal(19), tax_name="VAT", payment_days=14))
    closed()
    invoice = issued()
    bundle = take("2026-10")
    assert problems(bundle) == []
    agree(bundle)
    costs, details = bundle["Cost and Usage"], bundle["Invoice Detail"]
    assert {row["InvoiceId"] for row in costs} == {"INV-000001"}
    assert total(costs) == invoice.total
    assert total(costs, ChargeCategory="Tax") == invoice.tax > 0
    roundings = [row for row in costs if row["ChargeDescription"].startswith("Rounding of line")]
    assert total(costs) - invoice.tax - total(roundings) == invoice.exact
    expense = LedgerLine.objects.filter(account__kind="tenant_expense", entry__period__month=OCTOBER)
    assert sum(line.amount for line in expense) == invoice.exact
    assert {row["x_Flavor"] for row in details} == {"h100", "idle capacity", "shared platform", ""}
    (period,) = bundle["Billing Period"]
    assert (period["BillingPeriodStatus"], period["InvoiceIssuerName"]) == ("Closed", "Platform Ltd")
    first = next(row for row in details if (row["x_Flavor"], row["x_TenantPath"]) == ("h100", "acme/one"))
    assert (first["InvoiceIssueStatus"], first["PaymentTerms"], first["ReferenceInvoiceId"]) == (
        "Issued", "Net 14", "INV-000001",
    )  # fmt: skip
    assert json.loads(first["InvoiceDetailGrain"]) == {
        "x_ClusterName": "north", "x_Flavor": "h100", "x_TenantPath": "acme/one", "x_UsageMonth": "2026-10",
    }  # fmt: skip
    assert bundle["Contract Commitment"] == []
    assert {row["x_IsUnpriced"] for row in costs} == {"false"}


def test_credits_for_lost_work_are_rows_of_their_line(north, take):
    waive("node_lost")
    lose(ran(north, "acme/one"))
    lose(ran(north, "acme/two", start=at(6), hours=3))
    posting.post_days()
    unclosed = take("2026-10")
    assert problems(unclosed) == []
    closed()
    invoice = issued()
    lose(late := ran(north, "acme/one", start=at(7)))
    posting.post_days()
    bundle = take("2026-10")
    assert problems(bundle) == []
    agree(bundle)
    costs = bundle["Cost and Usage"]
    exact = [row for row in costs if not row["ChargeDescription"].startswith("Rounding of line")]
    assert total(unclosed["Cost and Usage"], ChargeCategory="Credit") == total(exact, ChargeCategory="Credit") < 0
    assert total(costs) == invoice.total
    assert {row["ChargeCategory"] for row in bundle["Invoice Detail"]} == {"Usage", "Credit"}
    corrections = take("2026-11")["Cost and Usage"]
    assert total(corrections, ChargeCategory="Credit") < 0, late.run_id


def test_each_file_that_is_broken_fails(north, take):
    closed_month(north)
    issued()
    bundle = take("2026-10")
    assert problems(bundle) == []

    def broken(name, **changes):
        first, *others = bundle[name]
        return problems({**bundle, name: [{**first, **changes}, *others]})

    assert broken("Cost and Usage", BilledCost="1.000000000000")
    assert broken("Cost and Usage", InvoiceDetailId="another")
    assert broken("Cost and Usage", InvoiceIssuerName="another")
    assert broken("Invoice Detail", BilledCost="9.980000000001")
    assert broken("Invoice Detail", ChargeCategory="Credit")
    assert broken("Invoice Detail", InvoiceIssueStatus="Paid")
    assert broken("Invoice Detail", InvoiceDetailId=bundle["Invoice Detail"][1]["InvoiceDetailId"])
    assert broken("Billing Period", BillingPeriodStatus="Closing")
    assert broken("Billing Period", InvoiceIssuerName="another")
    assert problems({**bundle, "Cost and Usage": bundle["Cost and Usage"][1:]})
    assert problems({**bundle, "Billing Period": []}) == []
    assert not validate_dataset_bundle({**bundle, "Invoice Detail": bundle["Invoice Detail"][1:]}).ok


def test_late_usage_and_corrections_leave_a_closed_month_as_it_was_and_are_rows_of_the_next(north, take):
    closed_month(north)
    issued()
    before = take("2026-10")
    record_runs([make_run(north, "acme/one", started_at=at(5, 20), until_at=at(5, 22))])
    posting.post_days()
    price = Price.objects.get()
    correct_price(SYSTEM, NewCorrection(price.id, Decimal("1.5"), "USD", at(6), at(7), "the contract says 1.50"))
    posting.post_days()
    assert take("2026-10") == before
    entries = [row for row in take("2026-11")["Cost and Usage"] if row["x_LedgerEntryId"]]
    assert {row["ChargeClass"] for row in entries} == {"Correction"}
    assert {row["BillingPeriodStart"] for row in entries} == {"2026-11-01T00:00:00Z"}
    assert {row["ChargePeriodStart"] for row in entries} == {"2026-10-05T00:00:00Z", "2026-10-06T00:00:00Z"}
    expense = LedgerLine.objects.filter(account__kind="tenant_expense", entry__period__month=at(1, month=11).date())
    assert total(entries) == sum(line.amount for line in expense) != 0
    assert problems(joined(before, take("2026-11"))) == []


def test_time_that_a_late_report_takes_back_is_a_row_of_the_next_month_that_says_so(north, take):
    guess = make_run(
        north, "acme/one", started_at=at(7, 10), until_at=at(7, 14), certain_until=at(7, 10), is_estimated=True
    )
    record_runs([guess])
    closed_month(north)
    issued()
    before = take("2026-10")
    segment = Meter.objects.get(source_uid=guess.source_uid).segments.get()
    assert correct_ends([TrueEnd(guess.key, at(7, 11))])
    posting.post_days()
    assert take("2026-10") == before
    (row,) = (row for row in take("2026-11")["Cost and Usage"] if row["x_LedgerEntryId"])
    assert (row["ChargeDescription"], row["ChargeClass"], row["ChargeCategory"], row["ChargePeriodStart"]) == (
        "Estimated but not used: h100 of north", "Correction", "Usage", "2026-10-07T00:00:00Z",
    )  # fmt: skip
    assert Decimal(row["BilledCost"]) == -segment.cost * 3 / 4
    assert problems(joined(before, take("2026-11"))) == []


def test_credits_and_another_edition_are_of_the_month_in_which_they_were_issued(north, take):
    put_terms(SYSTEM, "acme", Terms(tax_rate=Decimal(19)))
    closed_month(north)
    first = issued()
    before = take("2026-10")
    credit_invoice(SYSTEM, first.id, "two hours were free", {1: Decimal("3.33")})
    credit_invoice(SYSTEM, first.id, "all of it", None)
    settle_pending_checks()
    second = issued()
    assert take("2026-10") == before
    bundle = joined(before, take(f"{second.issued_at:%Y-%m}"))
    assert problems(bundle) == []
    agree(bundle)
    details = bundle["Invoice Detail"]
    assert {row["InvoiceId"]: row["ReferenceInvoiceId"] for row in details} == {
        "INV-000001": "INV-000001", "CN-000001": "INV-000001", "CN-000002": "INV-000001", "INV-000002": "INV-000002",
    }  # fmt: skip
    assert {row["PaymentTerms"] for row in details if row["InvoiceId"].startswith("CN")} == {"Credit"}
    assert total(details) == first.total
    hours = [row["x_GpuHours"] for row in bundle["Cost and Usage"] if row["x_GpuHours"]]
    assert sum(Decimal(each) for each in hours) == 6


def test_a_month_that_opened_again_is_restated_and_its_first_invoice_stays_beside_its_credit(north, take):
    period = closed_month(north)
    first = issued()
    credit_invoice(SYSTEM, first.id, "wrong price", None)
    settle_pending_checks()
    PeriodReopening.objects.create(
        period=period, revision=1, reason="wrong price", requested_by_id=make_user().id, requested_by_name="a"
    )
    row = PeriodReopening.objects.get()
    person = make_user()
    bind(person, "acme", "finance")
    periods.approve_reopening(actor_for(person), row.period_id)
    settle_pending_checks()
    agree(joined(take("2026-10"), take(f"{first.issued_at:%Y-%m}")))
    assert take("2026-10")["Billing Period"][0]["BillingPeriodStatus"] == "Open"
    record_runs([make_run(north, "acme/two", started_at=at(7, 1), until_at=at(7, 2))])
    closed()
    second = issued()
    bundle = joined(take("2026-10"), take(f"{first.issued_at:%Y-%m}"))
    assert problems(bundle) == []
    agree(bundle)
    assert total(bundle["Cost and Usage"]) == second.total
    assert total(take("2026-10")["Cost and Usage"], InvoiceId="INV-000001") == first.total


def test_a_team_sees_its_rows_without_the_invoice_of_its_organisation(north, take):
    closed_month(north)
    issued()
    bundle = take("2026-10", path="acme/two", role="viewer")
    assert {row["SubAccountName"] for row in bundle["Cost and Usage"]} == {"acme/two"}
    assert not any(row["InvoiceId"] or row["InvoiceDetailId"] for row in bundle["Cost and Usage"])
    assert bundle["Invoice Detail"] == []
    assert problems(bundle) == []
    ours = take("2026-10", "acme/one")
    assert {row["SubAccountName"] for row in ours["Cost and Usage"]} == {"acme/one"}
    assert ours["Invoice Detail"] == []
    assert problems(ours) == []


def test_two_currencies_are_two_invoices_and_unpriced_time_is_on_none(north, take):
    south = make_cluster(name="south", owner="beta")
    make_flavor(south)
    create_price(SYSTEM, NewPrice("south", "h100", Decimal(3), "EUR", effective_from=at(1)))
    record_runs([make_run(each, "acme/one", started_at=at(3, 1), until_at=at(3, 2)) for each in (north, south)])
    record_runs([make_run(north, "acme/one", flavor="none", started_at=at(3, 1), until_at=at(3, 2))])
    posting.post_days()
    period = LedgerPeriod.objects.get(month=OCTOBER, organisation__path="acme")
    periods.begin_closing(SYSTEM, period.id, accepts_unpriced=True)
    assert periods.finish_closing(period.id)
    for currency in ("EUR", "USD"):
        issued(currency=currency)
    bundle = take("2026-10")
    assert problems(bundle) == []
    agree(bundle)
    assert {(row["InvoiceId"], row["BillingCurrency"]) for row in bundle["Invoice Detail"]} == {
        ("INV-000001", "EUR"), ("INV-000002", "USD"),
    }  # fmt: skip
    assert {row["InvoiceId"] for row in bundle["Cost and Usage"] if row["x_IsUnpriced"] == "true"} == {""}


def test_usage_that_was_recorded_while_the_month_closed_is_a_difference(north, take, monkeypatch):
    closed_month(north)
    before = total(take("2026-10")["Cost and Usage"])
    record_runs([make_run(north, "acme/one", started_at=at(9, 20), until_at=at(9, 22))])
    # As if it had begun before the close, and committed after it.
    monkeypatch.setattr("billing.queries.focus.LATE", "SELECT 0 WHERE %(start)s IS NULL")
    after = take("2026-10")["Cost and Usage"]
    assert total(after) == before
    assert [row["ChargeClass"] for row in after if "while the month was closing" in row["ChargeDescription"]] == [
        "Correction"
    ]


def test_the_command_writes_a_bundle_that_the_validator_takes(north, tmp_path, capsys):
    closed_month(north)
    issued()
    call_command("export", "--month", "2026-10", "--tenant", "acme", "--into", str(tmp_path))
    sums = dict(line.split()[::-1] for line in (tmp_path / "SHA256SUMS").read_text().splitlines())
    assert len(sums) == len(DATASETS)
    for name, digest in sums.items():
        assert sha256((tmp_path / name).read_bytes()).hexdigest() == digest
        columns = json.loads((tmp_path / f"{name}.schema.json").read_text())["ColumnDefinition"]
        header = (tmp_path / name).read_text().splitlines()[0].split(",")
        assert [column["ColumnName"] for column in columns] == header
    assert AuditEntry.objects.filter(action="usage.export").count() == len(DATASETS)
    assert toolkit(["validate-bundle", "--directory", str(tmp_path)]) == 0
    for dataset in ("cost-and-usage", "billing-period", "invoice-detail"):
        (file,) = [
            name
            for name in sums
            if (dataset in name) or (dataset == "cost-and-usage" and name.startswith("focus-1.4-acme"))
        ]
        assert toolkit(["validate", str(tmp_path / file), "--dataset", dataset]) == 0
    detail = tmp_path / "focus-1.4-invoice-detail-acme-2026-10.csv"
    detail.write_text(detail.read_text().replace("Issued", "Paid"))
    assert toolkit(["validate", str(detail), "--dataset", "invoice-detail"]) == 1


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--month", "2026-13"], "month"), (["--month", "2026-10", "--tenant", "none"], "not"),
        (["--month", "2026-10", "--into", "/none"], "/none"),
    ],
)  # fmt: skip
def test_the_command_says_what_is_wrong(north, tmp_path, more, told):
    with pytest.raises(CommandError, match=told):
        call_command("export", *(more if "--into" in more else [*more, "--into", str(tmp_path)]))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "query", [{"dataset": "invoices"}, {"dataset": "billing-period", "version": "1.2"}, {"dataset": ""}]
)
def test_a_dataset_that_a_version_does_not_have_is_named(client, query):
    user = make_user()
    bind(user, "acme", "viewer")
    for path in ("/api/v1/exports/focus", "/api/v1/exports/focus/schema"):
        answer = client.get(path, query, headers=bearer(user))
        assert answer.status_code == 422
        assert [(error["field"], error["code"]) for error in answer.json()["errors"]] == [
            ("dataset", "unknown_dataset")
        ]


@pytest.mark.parametrize("dataset", DATASETS)
def test_each_dataset_has_its_schema(client, dataset):
    user = make_user()
    bind(user, "acme", "viewer")
    answer = client.get("/api/v1/exports/focus/schema", {"dataset": dataset}, headers=bearer(user))
    assert answer.json() == schema(dataset, "1.4")


def test_the_page_offers_the_files_of_a_month(north, client):
    closed_month(north)
    issued()
    user = make_user()
    bind(user, "acme", "finance")
    client.force_login(user)
    text = client.get("/usage/files/?month=2026-10&tenant=acme").content.decode()
    assert "INV-000001" in text
    assert "month=2026-10&amp;tenant=acme&amp;dataset=invoice-detail&amp;version=1.4" in text
    assert text.count("exports/focus/schema") == len(DATASETS) + 1
    assert client.get("/usage/files/").status_code == 200
    assert client.get("/usage/files/?tenant=acme/none").status_code == 404
