"""Savings plans in the ledger, in documents, in FOCUS and in reports; raw SQL against their promises."""

import csv
import io
from decimal import Decimal

import pytest
from django.db import DatabaseError, connection, transaction

from billing.models import CommitmentHour, CommitmentVersion, LedgerLine, LedgerPeriod
from billing.operations import create_price, record_runs
from billing.operations.commitments import apply_commitments, plan_commitments
from billing.operations.prices import NewPrice
from billing.queries import discrepancies
from foundation.problems import Invalid
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_flavor, make_run, make_user
from tests.kept_rows import written_once
from tests.processes_role import as_processes
from tests.refusals import constraint_of

from .committing import HOURS, MONTH, balances, split
from .invoicing import closed, issued
from .ledgers import at, priced_cluster
from .test_focus_datasets import agree, problems, take  # noqa: F401 - `take` is a fixture

pytestmark = pytest.mark.django_db
PLAN = """commitments:
- name: {name}
  kind: savings_plan
  clusters: [north]
  hourly: {hourly}
  rates: [{{flavor: h100, capacity_type: on_demand, rate: 1.5}}, {{flavor: a100, capacity_type: on_demand, rate: 0.5}}]
  start: 2026-10-01T00:00:00Z
  until: 2026-10-07T00:00:00Z
  upfront: {upfront}
  currency: USD
  withdrawn: {withdrawn}
"""


def planned(name="plan", hourly="2", upfront="0", withdrawn="false"):
    plan = apply_commitments(
        SYSTEM, "acme", PLAN.format(name=name, hourly=hourly, upfront=upfront, withdrawn=withdrawn)
    )
    split()
    return plan


@pytest.fixture(scope="module")
def used(processes_role, django_db_setup, django_db_blocker):
    """A plan of 2 an hour for six days. At 2.50 for an H100 (40 % off) and 1 for an A100 (50 % off), three hours of both."""
    with written_once(django_db_blocker, _used) as found:
        yield found


def _used():
    north = priced_cluster()
    make_flavor(north, "a100")
    create_price(SYSTEM, NewPrice("north", "a100", Decimal(1), effective_from=at(1)))
    record_runs([
        make_run(north, "acme/one", started_at=at(5, 1), until_at=at(5, 4), flavor="h100"),
        make_run(north, "acme/two", started_at=at(5, 1), until_at=at(5, 4), flavor="a100"),
    ])  # fmt: skip
    LedgerPeriod.objects.create(organisation=north.owner, month=MONTH)
    planned()
    return north


@pytest.fixture
def north(used, db):
    return used


def test_tenants_bear_the_rates_of_what_the_plan_paid_for(north):
    # Each hour, 0.50 pays for the A100 and 1.50 for the H100: the spend is used up.
    assert balances() == {
        "acme/one": Decimal("4.5"), "acme/two": Decimal("1.5"), "cluster_pool": Decimal("-10.5"), "commitment_covered": Decimal("10.5"),
        "commitment_unused": 2 * HOURS - 6, "purchases": -2 * HOURS,
    }  # fmt: skip
    hours = CommitmentHour.objects.filter(used__gt=0)
    assert {(one.used, one.unused, one.used_quantity) for one in hours} == {(2, 0, 2 * 10**12)}
    assert (
        not LedgerLine.objects.filter(entry__kind="commitment", quantity__isnull=False)
        .exclude(entry__reversed_by=None)
        .exists()
    )
    assert discrepancies() == ()


def test_late_usage_and_versions_split_the_hours_again(north):
    record_runs([make_run(north, "acme/three", started_at=at(5, 1), until_at=at(5, 2), flavor="a100")])
    split()
    # 1 of the 2 pays for both A100, and 1 for two thirds of the H100, in that hour.
    assert balances()["acme/three"] == Decimal("0.5")
    assert round(balances()["acme/one"], 9) == round(3 + 1 + Decimal(5) / 6, 9)
    planned(hourly="1")
    assert balances()["acme/three"] == Decimal("0.5")
    assert balances()["commitment_unused"] == HOURS - 3
    assert discrepancies() == ()
    planned(hourly="1", withdrawn="true")
    assert balances() == {"acme/one": Decimal("7.5"), "acme/two": 3, "acme/three": 1, "cluster_pool": Decimal("-11.5")}
    assert discrepancies() == ()


@pytest.mark.parametrize(("upfront", "paid"), [("0", [288]), ("88.5", [288]), ("288", [288])])
def test_what_is_paid_is_the_spend_of_all_hours(north, upfront, paid):
    planned(upfront=upfront)
    lines = LedgerLine.objects.filter(entry__kind="purchase", account__kind="commitment", entry__reversed_by=None)
    assert list(lines.order_by("entry__charge_day").values_list("amount", flat=True)) == paid
    assert "commitment" not in balances()


def test_a_closed_month_agrees_in_focus_and_documents(north, take):  # noqa: F811
    closed()
    invoice = issued()
    lines = {(row.tenant_path, row.flavor): (row.exact, row.quantity) for row in invoice.lines.all()}
    assert lines["acme/one", "used commitment"] == (Decimal("4.5"), None)
    assert lines["acme/one", "covered by commitment"][0] == Decimal("-7.5")
    assert invoice.exact == 6
    bundle = take("2026-10")
    assert problems(bundle) == []
    agree(bundle)
    rows = [row for row in bundle["Cost and Usage"] if row["CommitmentDiscountName"] == "plan"]
    assert {row["CommitmentDiscountCategory"] for row in rows} == {"Spend"}
    assert {row["CommitmentDiscountType"] for row in rows} == {"Savings Plan"}
    quantities = {
        status: sum(
            Decimal(row["CommitmentDiscountQuantity"]) for row in rows if row["CommitmentDiscountStatus"] == status
        )
        for status in ("Used", "Unused")
    }
    assert quantities == {"Used": 6, "Unused": 2 * HOURS - 6}
    assert {row["CommitmentDiscountUnit"] for row in rows if row["CommitmentDiscountStatus"]} == {"USD"}
    effective = sum(Decimal(row["EffectiveCost"]) for row in rows if row["CommitmentDiscountStatus"])
    bought = [row for row in rows if row["ChargeCategory"] == "Purchase"]
    assert effective == sum(Decimal(row["BilledCost"]) for row in bought) == 2 * HOURS
    assert sum(Decimal(row["CommitmentDiscountQuantity"]) for row in bought) == 2 * HOURS
    [contract] = [row for row in bundle["Contract Commitment"] if row["ContractCommitmentType"] == "Savings Plan"]
    assert (contract["ContractCommitmentCategory"], contract["ContractCommitmentUnit"]) == ("Spend", "USD")
    assert Decimal(contract["ContractCommitmentQuantity"]) == 2 * HOURS


def test_the_report_the_page_and_the_list_show_it(north, client):
    user = make_user()
    bind(user, "acme", "finance")
    asked = {"organisation": "acme", "month": "2026-10"}
    shown = client.get("/api/v1/commitments/report", asked, headers=bearer(user)).json()
    [plan] = [one for one in shown["commitments"] if one["kind"] == "savings_plan"]
    assert (plan["hourly"], plan["flavors"], plan["unit_hours"]) == ("2.000000", ["a100", "h100"], None)
    assert (plan["used"], plan["unused"], plan["amortised"]) == (
        "6.000000000000",
        "282.000000000000",
        "288.000000000000",
    )
    text = client.get("/api/v1/commitments/report", {**asked, "format": "csv"}, headers=bearer(user)).content.decode()
    assert ("plan", "", "6.000000000000") in {
        (row["name"], row["unit_hours"], row["used"]) for row in csv.DictReader(io.StringIO(text))
    }
    items = client.get("/api/v1/commitments", headers=bearer(user)).json()["items"]
    [listed] = [one for one in items if one["name"] == "plan"]
    assert listed["rates"] == [
        {"flavor": "a100", "capacity_type": "on_demand", "rate": "0.500000"},
        {"flavor": "h100", "capacity_type": "on_demand", "rate": "1.500000"},
    ]
    client.force_login(user)
    page = client.get("/commitments/", asked).content.decode()
    assert "2 USD an hour for a100, h100, on north" in page


def test_a_plan_is_planned_before_it_is_applied(north):
    plan = plan_commitments(SYSTEM, "acme", PLAN.format(name="more", hourly="1", upfront="0", withdrawn="false"))
    assert [(one.action, one.name, one.after["hourly"]) for one in plan.changes] == [("create", "more", "1.000000")]
    again = plan_commitments(SYSTEM, "acme", PLAN.format(name="plan", hourly="2", upfront="0", withdrawn="false"))
    assert again.changes == ()


def test_a_flavor_that_no_cluster_has_is_named(north):
    text = PLAN.format(name="more", hourly="1", upfront="0", withdrawn="false").replace("flavor: a100", "flavor: b200")
    with pytest.raises(Invalid) as refused:
        plan_commitments(SYSTEM, "acme", text)
    # Rates are read in the order of their flavors.
    assert [(one.field, one.code) for one in refused.value.errors] == [
        ("commitments[0].rates[0].flavor", "unknown_flavor")
    ]


COLUMNS = (
    "commitment_id, number, kind, clusters, flavor, capacity_type, units, start, until, upfront, recurring, total, currency, made_by_name,"
    " hourly, rates"
)


def version(**changes):
    given = {name: name for name in COLUMNS.split(", ")} | {"number": "number + 1"} | changes
    return (
        f"INSERT INTO billing_commitmentversion ({', '.join(given)}) SELECT {', '.join(given.values())} FROM billing_commitmentversion"
        " WHERE kind = 'savings_plan' ORDER BY number DESC LIMIT 1"
    )


@pytest.mark.parametrize(
    ("attack", "constraint"),
    [
        (version(total="total + 1"), "commitment_total_is_paid"),
        (version(upfront="total + 1"), "commitment_total_is_paid"),
        (version(hourly="hourly + 1"), "commitment_total_is_paid"),
        (version(hourly="0", total="0"), "commitment_has_units"),
        (version(units="1"), "commitment_has_units"),
        (version(recurring="1"), "commitment_has_units"),
        (version(kind="'own_purchase'", upfront="total"), "commitment_has_units"),
        (version(flavor="'h100'"), "commitment_names_its_flavor"),
        (version(rates="'[]'"), "plan_has_its_rates"),
        (version(rates="'{}'"), "plan_has_its_rates"),
        (version(rates="rates || rates"), "plan_has_its_rates"),
        (version(rates="jsonb_build_array(rates->1, rates->0)"), "plan_has_its_rates"),
        (version(rates="""'[["h100", "on_demand", "0.000000"]]'"""), "plan_has_its_rates"),
        (version(rates="""'[["h100", "on_demand", "-1.000000"]]'"""), "plan_has_its_rates"),
        (version(rates="""'[["h100", "on_demand", 1]]'"""), "plan_has_its_rates"),
        (version(rates="""'[["h100", "on_demand"]]'"""), "plan_has_its_rates"),
        (version(rates="""'["h100"]'"""), "plan_has_its_rates"),
        (
            ("INSERT INTO billing_commitmenthour (day_id, hour, quantity, used_quantity, amortised, used, unused)"
            " SELECT h.day_id, h.hour - interval '1 day', h.quantity, h.used_quantity, h.amortised, h.used - 1, h.unused + 1"
            " FROM billing_commitmenthour AS h WHERE h.used > 0 AND h.quantity = 2000000000000 LIMIT 1"),
            "commitment_is_used_or_unused",
        ),
    ],
)  # fmt: skip
def test_the_database_refuses_the_processes_role(north, attack, constraint):
    with as_processes(), pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"{attack}; SET CONSTRAINTS ALL IMMEDIATE")
    assert constraint_of(refused.value) == constraint


def test_rates_never_change(north):
    with as_processes(), pytest.raises(DatabaseError, match="permission denied"), transaction.atomic():
        CommitmentVersion.objects.update(rates=[])
