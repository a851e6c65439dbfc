"""The export for finance tools: what is in it, that its costs are those of the ledger, and that a validator takes it."""

import csv
import io
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from focus_data_toolkit.model import lint_focus_1_4_structure

from billing.engine import focus
from billing.models import Meter, Price, UsageSegment
from billing.operations import create_price, record_lost_work, record_runs
from billing.operations.corrections import NewCorrection, correct_price
from billing.operations.credits import NewCreditPolicy, set_credit_policy
from billing.operations.prices import NewPrice
from billing.queries import usage_report
from tenancy.models import AuditEntry, Tenant
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_cluster, make_flavor, make_run, make_tenant, make_user

pytestmark = pytest.mark.django_db
WHAT_WE_SUPPORT = (
    "Publishes unit prices exclusive of discounts",
    "Supports a sub account construct",
    "Supports billing based on provisioned resources",
    "Supports billing based on provisioned resources and supports assigning types to resources",
    "Supports deploying resources or services within a region",
    "Supports more than one pricing category across all SKUs",
    "Supports negotiated pricing concepts",
    "Supports the measurement of usage",
    "Supports unit pricing concepts and publishes price lists, publicly or as part of contracting",
)
"""The conditions of the specification that make a column mandatory for us."""
MONTH = (datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))


@pytest.fixture
def november():
    """GPU, core, slice and guest work at all kinds of prices, in two organisations' currencies, over midnights and month
    ends, with spot, unpriced time and a price change.
    """
    north, south = make_cluster(name="north"), make_cluster(name="south")
    begins = datetime(2026, 10, 1, tzinfo=UTC)
    for cluster in (north, south):
        make_flavor(cluster, "h100")
        make_flavor(cluster, "spot", capacity_type="spot")
        make_flavor(cluster, "cpu", gpu_model="")
    for name, unit, cpu, memory in (
        ("h100", "2.333333", None, None),
        ("spot", "1.1", Decimal("0.031"), Decimal("0.0047")),
        ("cpu", "0.05", None, Decimal("0.003")),
    ):
        price = NewPrice("north", name, Decimal(unit), effective_from=begins, cpu_price=cpu, memory_price=memory)
        create_price(SYSTEM, price)
    later = datetime(2026, 11, 12, 5, tzinfo=UTC)
    create_price(SYSTEM, NewPrice("north", "h100", Decimal("3.777777"), effective_from=later))
    create_price(SYSTEM, NewPrice("south", "h100", Decimal(2), effective_from=begins))
    runs = []
    for number in range(40):
        started_at = datetime(2026, 10, 30, 23, 17, 3, tzinfo=UTC) + timedelta(hours=19 * number, milliseconds=number)
        flavor = ("h100", "spot", "cpu", "none")[number % 4]
        runs.append(
            make_run(
                south if number % 5 == 4 else north,
                f"acme/{('research', 'sales', 'research/vision')[number % 3]}",
                started_at=started_at,
                until_at=started_at + timedelta(hours=5, milliseconds=7919 * number),
                flavor=flavor,
                gpu_units=0 if flavor == "cpu" else number % 3,
                memory_mib=700 + 37 * number,
                capacity_type="spot" if flavor == "spot" else "on_demand",
                workload_name=f"=train {number}",
            )
        )
    record_runs(runs)


def export(client, user, **query):
    response = client.get("/api/v1/exports/focus", query, headers=bearer(user))
    assert response.status_code == 200, response.content
    return b"".join(response.streaming_content).decode()


def lines(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def reader():
    user = make_user()
    bind(user, "acme", "viewer")
    return user


@pytest.mark.parametrize("tenant", ["acme", "acme/research", "acme/research/vision", ""])
def test_its_costs_and_quantities_are_those_of_the_report(november, client, reader, tenant):
    rows = lines(export(client, reader, month="2026-11", tenant=tenant))
    report = usage_report(SYSTEM, tenant or "acme", *MONTH)
    assert len(rows) > 20
    for column in ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost"):
        assert round(sum(Decimal(row[column]) for row in rows), 6) == report.total.cost
    for column, hours in (
        ("x_GpuHours", report.total.gpu_hours),
        ("x_CpuCoreHours", report.total.cpu_core_hours),
        ("x_MemoryGibHours", report.total.memory_gib_hours),
    ):
        assert round(sum(Decimal(row[column] or 0) for row in rows), 6) == hours
    unpriced = [row for row in rows if row["x_IsUnpriced"] == "true"]
    assert unpriced
    assert not any(Decimal(row["BilledCost"]) or row["SkuPriceId"] for row in unpriced)


def test_each_price_and_day_add_up_to_the_ledger_exactly(november, client, reader):
    found = defaultdict(Decimal)
    for row in lines(export(client, reader, month="2026-11", tenant="acme")):
        found[row["SkuPriceId"].partition("/")[0], row["ChargePeriodStart"][:10]] += Decimal(row["BilledCost"])
    expected = defaultdict(Decimal)
    for segment in UsageSegment.objects.filter(period__startswith__gte=MONTH[0], period__startswith__lt=MONTH[1]):
        expected[str(segment.price_id or ""), f"{segment.period.lower:%Y-%m-%d}"] += segment.cost
    assert found == expected


def test_corrected_prices_are_rows_of_their_own_that_make_up_the_report(november, client, reader):
    span = datetime(2026, 11, 3, tzinfo=UTC), datetime(2026, 11, 20, 7, tzinfo=UTC)
    price = Price.objects.filter(rate__cluster__name="north", rate__flavor="h100").earliest("valid")
    correct_price(SYSTEM, NewCorrection(price.id, Decimal("1.000001"), "USD", *span, reason="as agreed"))
    rows = lines(export(client, reader, month="2026-11", tenant="acme"))
    report = usage_report(SYSTEM, "acme", *MONTH)
    corrected = [row for row in rows if row["ChargeClass"]]
    assert {row["ChargeClass"] for row in corrected} == {"Correction"}
    assert round(sum(Decimal(row["BilledCost"]) for row in corrected), 6) == report.total.corrections != 0
    assert round(sum(Decimal(row["BilledCost"]) for row in rows), 6) == report.total.cost
    assert not lint_focus_1_4_structure("Cost and Usage", rows, supported_conditions=WHAT_WE_SUPPORT).violations


def test_credits_are_rows_of_their_own_that_make_up_the_report(november, client, reader):
    set_credit_policy(SYSTEM, NewCreditPolicy("acme", MONTH[0].date(), ["node_lost"]))
    meters = Meter.objects.filter(tenant_path__startswith="acme/research").order_by("id")[:9]
    record_lost_work({one.run_id: ("node_lost", one.metered_from + timedelta(hours=1)) for one in meters})
    rows = lines(export(client, reader, month="2026-11", tenant="acme"))
    report = usage_report(SYSTEM, "acme", *MONTH)
    credited = [row for row in rows if row["ChargeCategory"] == "Credit"]
    assert round(sum(Decimal(row["BilledCost"]) for row in credited), 6) == report.total.credits < 0
    assert round(sum(Decimal(row["BilledCost"]) for row in rows), 6) == report.total.cost
    assert not lint_focus_1_4_structure("Cost and Usage", rows, supported_conditions=WHAT_WE_SUPPORT).violations


def test_each_row_is_its_price_times_its_quantity(november, client, reader):
    for row in lines(export(client, reader, month="2026-11", tenant="acme")):
        if row["SkuPriceId"]:
            product = Fraction(row["ListUnitPrice"]) * Fraction(row["PricingQuantity"])
            assert abs(product - Fraction(row["ListCost"])) < Fraction(1, 10**9), row
            assert row["ConsumedQuantity"] == row["PricingQuantity"]


def test_a_validator_takes_it_and_refuses_a_broken_one(november, client, reader):
    def problems(rows):
        return lint_focus_1_4_structure("Cost and Usage", rows, supported_conditions=WHAT_WE_SUPPORT).violations

    rows = lines(export(client, reader, month="2026-11", tenant="acme"))
    assert problems(rows) == ()
    for column, wrong in (
        ("BilledCost", ""),
        ("ChargeCategory", "Use"),
        ("ChargePeriodEnd", "tomorrow"),
        ("ListUnitPrice", "-1"),
    ):
        assert problems([rows[0] | {column: wrong}]), column


def test_periods_are_half_open_months_and_days(november, client, reader):
    rows = lines(export(client, reader, month="2026-11"))
    assert {row["BillingPeriodStart"] for row in rows} == {"2026-11-01T00:00:00Z"}
    assert {row["BillingPeriodEnd"] for row in rows} == {"2026-12-01T00:00:00Z"}
    for row in rows:
        start, end = (datetime.fromisoformat(row[f"ChargePeriod{edge}"]) for edge in ("Start", "End"))
        assert end - start == timedelta(days=1)
        assert MONTH[0] <= start < MONTH[1]


def test_the_older_version_names_the_provider_as_it_was_named_then(november, client, reader):
    old, new = (lines(export(client, reader, month="2026-11", version=v))[0] for v in ("1.2", "1.4"))
    assert set(old) - set(new) == {"ProviderName", "PublisherName"}
    assert set(new) - set(old) == {"HostProviderName", "InvoiceDetailId", "ServiceProviderName"}
    assert old["ProviderName"] == new["ServiceProviderName"] == "acme"


def test_the_schema_describes_the_columns_of_the_file(november, client, reader):
    for version in focus.VERSIONS:
        header = export(client, reader, month="2026-11", version=version).partition("\r\n")[0].split(",")
        schema = client.get("/api/v1/exports/focus/schema", {"version": version}, headers=bearer(reader)).json()
        assert [column["ColumnName"] for column in schema["ColumnDefinition"]] == header
        own = [name for name in header if name.startswith("x_")]
        assert header == sorted(set(header) - set(own)) + sorted(own)


def test_it_holds_only_what_the_reader_may_see_and_names_run_no_formula(november, client):
    seller = make_user("seller@acme.example")
    bind(seller, "acme/sales", "viewer")
    rows = lines(export(client, seller, month="2026-11"))
    assert {row["SubAccountName"] for row in rows} == {"acme/sales"}
    assert all(row["ResourceName"].startswith("'=train") for row in rows)
    hidden = client.get("/api/v1/exports/focus", {"tenant": "acme/research"}, headers=bearer(seller))
    assert hidden.status_code == 404


def test_an_export_leaves_an_audit_entry(november, client, reader):
    export(client, reader, month="2026-11", tenant="acme/research")
    entry = AuditEntry.objects.get(action="usage.export")
    assert (entry.actor_id, entry.object_id) == (reader.id, "focus-1.4")
    assert entry.tenant_id == Tenant.objects.get(path="acme/research").id


@pytest.mark.parametrize(
    ("query", "field", "code"),
    [
        ({"version": "2.0"}, "version", "unknown_version"),
        ({"month": "2026-13"}, "month", "not_a_month"),
        ({"from": "2026-11-01"}, "from", "unknown_filter"),
    ],
)
def test_mistakes_are_named(client, reader, query, field, code):
    answer = client.get("/api/v1/exports/focus", query, headers=bearer(reader))
    assert answer.status_code == 422
    assert [(error["field"], error["code"]) for error in answer.json()["errors"]] == [(field, code)]


def test_an_error_of_the_database_comes_before_the_file(november, client, reader, monkeypatch):
    monkeypatch.setattr("billing.queries.focus.CHARGES", "SELECT 1 / 0 WHERE %(day)s IS NOT NULL")
    client.raise_request_exception = False
    assert client.get("/api/v1/exports/focus", headers=bearer(reader)).status_code == 500


def test_a_month_without_usage_is_a_header(client, reader):
    make_tenant("acme/research")
    assert lines(export(client, reader, month="2020-01")) == []
    assert export(client, reader, month="2020-01").startswith("BilledCost,")
