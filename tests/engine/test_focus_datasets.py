"""Documents in the datasets of FOCUS: their details, and the rows that make costs and usage equal to them."""

import json
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from billing.engine.credits import INFRASTRUCTURE_CREDIT
from billing.engine.focus import VERSIONS, Posted, rows
from billing.engine.focus import columns as columns_of_costs
from billing.engine.focus import schema as schema_of_costs
from billing.engine.focus_datasets import (
    COLUMNS,
    DATASETS,
    NUMBERS,
    OBJECTS,
    TIMES,
    Document,
    DocumentLine,
    Period,
    columns,
    datasets_of,
    detail_rows,
    document_rows,
    period_row,
    schema,
)

NOVEMBER, DECEMBER = date(2026, 11, 1), date(2026, 12, 1)
# 1 January at 00:30 in Berlin is still December in UTC.
ISSUED = datetime(2027, 1, 1, 0, 30, tzinfo=timezone(timedelta(hours=1)))
USED = DocumentLine(
    1, "acme/ml", "north", "h100", NOVEMBER, exact=Decimal("10.004"), amount=Decimal("10.00"), is_adjustment=False
)
EXACT = replace(USED, number=2, flavor="l4", exact=Decimal("3.50"), amount=Decimal("3.50"))
ADJUSTED = DocumentLine(
    3, "acme", "", "", NOVEMBER, exact=Decimal("-1.006"), amount=Decimal("-1.01"), is_adjustment=True
)
DOCUMENT = Document(
    id=UUID(int=9), number="INV-000007", reference="", organisation_id=UUID(int=1), organisation="Acme", issuer="Acme GmbH",
    billing_month=DECEMBER, month=NOVEMBER, currency="EUR", tax=Decimal("2.37"), tax_name="VAT", issued_at=ISSUED,
    due_on=date(2027, 1, 14), payment_days=14, digest="d" * 64, lines=(USED, EXACT, ADJUSTED), is_detailed=True,
    is_correction=False,
)  # fmt: skip


def added(document=DOCUMENT, **more):
    """What the document adds to the rows of its jobs, in short."""
    return [
        (one.description, one.category, str(one.amount), one.tenant) for one in document_rows(replace(document, **more))
    ]


def test_a_line_is_usage_an_adjustment_or_a_credit_for_lost_work():
    assert [line.category for line in DOCUMENT.lines] == ["Usage", "Usage", "Adjustment"]
    assert replace(ADJUSTED, flavor=INFRASTRUCTURE_CREDIT).category == "Credit"


def test_an_old_version_has_costs_only():
    assert datasets_of("1.2") == ("cost-and-usage",)
    assert datasets_of("1.4") == DATASETS
    assert DATASETS == ("cost-and-usage", "billing-period", "invoice-detail", "contract-commitment")
    assert tuple(COLUMNS) == DATASETS[1:]


@pytest.mark.parametrize("version", VERSIONS)
def test_costs_have_the_columns_and_types_of_their_module(version):
    assert columns("cost-and-usage", version) == columns_of_costs(version)
    assert schema("cost-and-usage", version) == schema_of_costs(version)


@pytest.mark.parametrize("dataset", COLUMNS)
def test_the_schema_of_a_dataset_has_each_column_with_its_type(dataset):
    found: dict[str, Any] = schema(dataset, "1.4")
    assert (found["FocusVersion"], found["DataGenerator"]) == ("1.4", "Switchyard")
    assert found["SchemaId"] == f"switchyard-{dataset}-1.4-1"
    definitions = {one["ColumnName"]: one for one in found["ColumnDefinition"]}
    assert tuple(definitions) == columns(dataset, "1.4") == COLUMNS[dataset]
    for name, one in definitions.items():
        money = {"NumericPrecision": 38, "NumberScale": 12} if name in NUMBERS | {"BilledCost"} else {}
        instants = TIMES | {"BillingPeriodStart", "BillingPeriodEnd"}
        kind = "Decimal" if money else "JSON" if name in OBJECTS else "DateTime" if name in instants else "String"
        assert one == {"ColumnName": name, "DataType": kind, **money}


def test_a_period_is_open_until_it_is_closed():
    period = Period(DECEMBER, "Acme GmbH", is_closed=False, created_at=ISSUED, updated_at=ISSUED + timedelta(days=40))
    assert period_row(period) == {
        "BillingPeriodCreated": "2026-12-31T23:30:00Z", "BillingPeriodLastUpdated": "2027-02-09T23:30:00Z",
        "BillingPeriodStart": "2026-12-01T00:00:00Z", "BillingPeriodEnd": "2027-01-01T00:00:00Z",
        "BillingPeriodStatus": "Open", "InvoiceIssuerName": "Acme GmbH",
    }  # fmt: skip
    assert period_row(replace(period, is_closed=True))["BillingPeriodStatus"] == "Closed"


def test_each_line_is_a_detail_and_the_tax_is_the_last():
    used, exact, adjusted, tax = detail_rows(DOCUMENT)
    shared = {
        "BillingAccountId": str(UUID(int=1)), "BillingCurrency": "EUR", "BillingPeriodStart": "2026-12-01T00:00:00Z",
        "BillingPeriodEnd": "2027-01-01T00:00:00Z", "InvoiceDetailCreated": "2026-12-31T23:30:00Z",
        "InvoiceDetailLastUpdated": "2026-12-31T23:30:00Z", "InvoiceId": "INV-000007",
        "InvoiceIssueDate": "2026-12-31T23:30:00Z", "InvoiceIssueStatus": "Issued", "InvoiceIssuerName": "Acme GmbH",
        "PaymentDueDate": "2027-01-14T00:00:00Z", "PaymentTerms": "Net 14", "ReferenceInvoiceId": "INV-000007",
        "x_DocumentDigest": "d" * 64,
    }  # fmt: skip
    assert tax == shared | {
        "BilledCost": "2.370000000000", "ChargeCategory": "Tax", "InvoiceDetailDescription": "VAT",
        "InvoiceDetailId": f"{UUID(int=9)}/tax",
    }  # fmt: skip
    grain = used.pop("InvoiceDetailGrain")
    assert used == shared | {
        "BilledCost": "10.000000000000", "ChargeCategory": "Usage", "InvoiceDetailId": f"{UUID(int=9)}/1",
        "InvoiceDetailDescription": "acme/ml: h100 of north, 2026-11", "x_ClusterName": "north", "x_Flavor": "h100",
        "x_LineNumber": "1", "x_TenantPath": "acme/ml",
    }  # fmt: skip
    assert json.loads(grain) == {
        "x_ClusterName": "north", "x_Flavor": "h100", "x_TenantPath": "acme/ml", "x_UsageMonth": "2026-11"
    }  # fmt: skip
    assert exact["BilledCost"] == "3.500000000000"
    assert (adjusted["ChargeCategory"], adjusted["InvoiceDetailDescription"]) == (
        "Adjustment",
        "acme: adjustment, 2026-11",
    )
    # What a line is not about is no part of its grain.
    assert json.loads(adjusted["InvoiceDetailGrain"]) == {"x_TenantPath": "acme", "x_UsageMonth": "2026-11"}


def test_a_line_without_a_cluster_is_described_by_its_flavor():
    (row,) = detail_rows(replace(DOCUMENT, tax=Decimal(0), lines=[replace(ADJUSTED, flavor=INFRASTRUCTURE_CREDIT)]))
    assert row["InvoiceDetailDescription"] == f"acme: {INFRASTRUCTURE_CREDIT}, 2026-11"
    assert row["ChargeCategory"] == "Credit"


def test_a_credit_note_has_no_due_date_and_refers_to_its_invoice():
    note = replace(DOCUMENT, number="CN-1", reference="INV-000007", due_on=None, payment_days=None, tax_name="")
    *_, tax = detail_rows(note)
    assert (tax["PaymentDueDate"], tax["PaymentTerms"]) == ("", "Credit")
    assert (tax["InvoiceId"], tax["ReferenceInvoiceId"]) == ("CN-1", "INV-000007")
    assert tax["InvoiceDetailDescription"] == "Tax"


def test_a_detailed_document_adds_its_rounding_and_its_tax():
    assert added() == [
        ("Rounding of line 1 of INV-000007", "Usage", "-0.004", "acme/ml"),
        ("Rounding of line 3 of INV-000007", "Adjustment", "-0.004", "acme"),
        ("VAT of INV-000007", "Tax", "2.37", ""),
    ]


def test_a_document_of_charges_invoiced_before_adds_all_of_its_lines():
    assert added(is_detailed=False, tax=Decimal(0)) == [
        ("Line 1 of INV-000007", "Usage", "10.00", "acme/ml"),
        ("Line 2 of INV-000007", "Usage", "3.50", "acme/ml"),
        ("Line 3 of INV-000007", "Adjustment", "-1.01", "acme"),
    ]
    assert added(tax_name="", lines=()) == [("Tax of INV-000007", "Tax", "2.37", "")]


@pytest.mark.parametrize("is_detailed", [True, False])
def test_what_a_document_adds_and_the_exact_lines_of_its_jobs_are_its_total(is_detailed):
    document = replace(DOCUMENT, is_detailed=is_detailed)
    jobs = sum(line.exact for line in document.lines) if is_detailed else Decimal(0)
    details = sum(Decimal(row["BilledCost"]) for row in detail_rows(document))
    assert jobs + sum(one.amount for one in document_rows(document)) == details == Decimal("14.86")


def test_what_is_added_is_of_the_month_of_use_and_billed_with_the_document():
    earlier = replace(USED, month=date(2026, 10, 1))
    line, tax = document_rows(replace(DOCUMENT, lines=[earlier], is_correction=True))
    assert (line.month, line.start, line.until) == (DECEMBER, date(2026, 10, 1), NOVEMBER)
    assert (tax.month, tax.start, tax.until) == (DECEMBER, NOVEMBER, DECEMBER)
    assert line.is_correction
    assert tax.is_correction
    assert [one.invoice and one.invoice.detail for one in (line, tax)] == [f"{UUID(int=9)}/1", f"{UUID(int=9)}/tax"]


ENTRY = Posted(
    DECEMBER, NOVEMBER, DECEMBER, UUID(int=1), "Acme", "Acme GmbH", "EUR", Decimal("-2.5"), "Discount", "Adjustment",
    is_correction=True, tenant_id=UUID(int=2), tenant="acme/ml", cluster="north", region="eu", provider="AWS", owner="Umbrella",
    flavor="h100", entry_id=77,
)  # fmt: skip


def test_an_entry_is_one_row_of_costs_without_quantities():
    (row,) = rows(ENTRY, "1.4")
    costs = dict.fromkeys(("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"), "-2.500000000000")
    assert row == costs | {
        "BillingAccountId": str(UUID(int=1)), "BillingAccountName": "Acme", "BillingCurrency": "EUR",
        "BillingPeriodStart": "2026-12-01T00:00:00Z", "BillingPeriodEnd": "2027-01-01T00:00:00Z",
        "ChargeCategory": "Adjustment", "ChargeClass": "Correction", "ChargeDescription": "Discount",
        "ChargeFrequency": "Usage-Based", "ChargePeriodStart": "2026-11-01T00:00:00Z",
        "ChargePeriodEnd": "2026-12-01T00:00:00Z", "InvoiceIssuerName": "Acme GmbH", "RegionId": "eu", "RegionName": "eu",
        "ServiceCategory": "Compute", "ServiceName": "Switchyard jobs", "ServiceSubcategory": "Containers",
        "SubAccountId": str(UUID(int=2)), "SubAccountName": "acme/ml", "x_ClusterName": "north", "x_Flavor": "h100",
        "x_IsUnpriced": "false", "x_LedgerEntryId": "77", "ServiceProviderName": "Umbrella", "HostProviderName": "AWS",
    }  # fmt: skip


def test_what_an_entry_does_not_name_is_absent_and_its_organisation_provides_it():
    plain = replace(ENTRY, is_correction=False, tenant_id=None, tenant="", cluster="", region="", provider="", owner="",
                    flavor="", entry_id=None)  # fmt: skip
    (row,) = rows(plain, "1.4")
    absent = {"ChargeClass", "RegionId", "RegionName", "SubAccountId", "SubAccountName", "x_ClusterName", "x_Flavor",
              "x_LedgerEntryId", "InvoiceId"}  # fmt: skip
    assert not absent & row.keys()
    assert (row["ServiceProviderName"], row["HostProviderName"]) == ("Acme", "Acme")


def test_a_row_names_its_document_and_the_line_where_the_version_can():
    (line,) = document_rows(replace(DOCUMENT, lines=[USED], tax=Decimal(0)))
    (new,), (old,) = (rows(line, version) for version in VERSIONS)
    assert (new["InvoiceId"], new["InvoiceDetailId"]) == ("INV-000007", f"{UUID(int=9)}/1")
    assert old["InvoiceId"] == "INV-000007"
    assert "InvoiceDetailId" not in old
    (whole,) = rows(replace(line, invoice=replace(DOCUMENT.on_tax, detail="")), "1.4")
    assert "InvoiceDetailId" not in whole
