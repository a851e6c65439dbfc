"""FOCUS of commitments: payments, used and unused parts, and contracts, which a validator takes and which add up."""

from decimal import Decimal

import pytest

from billing.operations import record_runs
from tests.builders import make_cluster, make_flavor, make_run

from .committing import HOURS, committed, split
from .exchanging import billed_in, override
from .invoicing import closed, issued
from .ledgers import at, priced_cluster, settle_pending_checks
from .test_focus_datasets import SUPPORTED, agree, joined, problems, rich_month, take, total  # noqa: F401 - a fixture

pytestmark = pytest.mark.django_db
COMMITTED = "Supports commitment discounts"


@pytest.fixture
def north():
    return priced_cluster(amount="2.333333", cpu_price=Decimal("0.017"))


def of(bundle, **which):
    return [row for row in bundle["Cost and Usage"] if all(row[name] == value for name, value in which.items())]


def summed(rows, name):
    return sum((Decimal(row[name]) for row in rows), Decimal(0))


def test_a_closed_month_agrees_and_effective_costs_add_up_to_what_was_paid(north, take):  # noqa: F811
    rich_month(north)
    committed({"upfront": "700.000001", "recurring": "44.1"})
    closed()
    invoice = issued()
    bundle = take("2026-10")
    assert problems(bundle) == []
    agree(bundle)
    used, unused = of(bundle, CommitmentDiscountStatus="Used"), of(bundle, CommitmentDiscountStatus="Unused")
    (paid,) = of(bundle, ChargeCategory="Purchase")
    assert summed(used, "EffectiveCost") + summed(unused, "EffectiveCost") == Decimal("744.100001")
    assert Decimal(paid["BilledCost"]) == Decimal("744.100001")
    assert (Decimal(paid["EffectiveCost"]), summed(unused, "BilledCost")) == (0, 0)
    assert (paid["ChargeFrequency"], paid["PricingCategory"]) == ("Recurring", "Committed")
    quantities = summed(used, "CommitmentDiscountQuantity") + summed(unused, "CommitmentDiscountQuantity")
    assert quantities == Decimal(paid["CommitmentDiscountQuantity"]) == 2 * HOURS
    covered = [row for row in of(bundle, ChargeCategory="Adjustment") if row["CommitmentDiscountId"]]
    assert summed(covered, "BilledCost") < 0
    assert {row["CommitmentDiscountName"] for row in (*used, *unused, *covered, paid)} == {"one"}
    assert {row["InvoiceId"] for row in (*used, *covered)} == {invoice.number}
    assert {row["InvoiceId"] for row in (*unused, paid)} == {""}
    (contract,) = bundle["Contract Commitment"]
    assert contract["ContractCommitmentId"] == paid["CommitmentDiscountId"]
    assert (contract["ContractCommitmentCost"], contract["ContractCommitmentQuantity"]) == (
        "744.100001000000",
        f"{2 * HOURS}.000000000000",
    )
    assert contract["ContractCommitmentLifecycleStatus"] == "Expired"


def test_a_validator_refuses_a_broken_file(north, take):  # noqa: F811
    record_runs([make_run(north, "acme/one", started_at=at(5, 2), until_at=at(5, 4))])
    committed()
    closed()
    bundle = take("2026-10")
    assert problems(bundle) == []
    (paid,) = of(bundle, ChargeCategory="Purchase")
    (contract,) = bundle["Contract Commitment"]
    used = of(bundle, CommitmentDiscountStatus="Used")[0]
    for row, column, wrong in (
        (paid, "ChargeFrequency", "Usage-Based"), (paid, "ChargeCategory", "Bought"), (used, "CommitmentDiscountStatus", "Spent"),
        (used, "CommitmentDiscountQuantity", ""), (used, "CommitmentDiscountQuantity", "many"), (used, "CommitmentDiscountCategory", "Both"),
        (contract, "ContractCommitmentCategory", "Both"), (contract, "ContractCommitmentCost", "much"),
        (contract, "ContractCommitmentPeriodEnd", "later"), (contract, "ContractCommitmentApplicability", "{"),
    ):  # fmt: skip
        kept, row[column] = row[column], wrong
        assert problems(bundle), (column, wrong)
        row[column] = kept


def test_corrections_after_a_close_are_rows_of_the_next_month(north, take):  # noqa: F811
    committed()
    closed()
    before = take("2026-10")
    record_runs([make_run(north, "acme/one", started_at=at(5, 2), until_at=at(5, 4))])
    split()
    assert take("2026-10") == before
    late = take("2026-11")
    rows = [row for row in of(late) if row["CommitmentDiscountId"]]
    assert {row["ChargePeriodStart"] for row in rows} == {"2026-10-05T00:00:00Z"}
    assert {row["ChargeClass"] for row in rows} == {"Correction"}
    both = joined(before, late)
    assert problems(late) == []
    statuses = [row for row in both["Cost and Usage"] if row["CommitmentDiscountStatus"]]
    assert summed(statuses, "EffectiveCost") == HOURS
    used = [row for row in statuses if row["CommitmentDiscountStatus"] == "Used"]
    assert summed(used, "EffectiveCost") == 1


def test_an_open_month_has_what_is_split_by_now(north, take):  # noqa: F811
    record_runs([make_run(north, "acme/one", started_at=at(5, 2), until_at=at(5, 4))])
    committed()
    bundle = take("2026-10")
    assert problems(bundle) == []
    assert summed(of(bundle, CommitmentDiscountStatus="Used"), "EffectiveCost") == 1
    assert bundle["Contract Commitment"]


def test_a_team_sees_its_used_part_only(north, take):  # noqa: F811
    record_runs([make_run(north, f"acme/{name}", started_at=at(5, 2), until_at=at(5, 4)) for name in ("one", "two")])
    committed()
    bundle = take("2026-10", tenant="acme/one", path="acme/one", role="viewer")
    rows = [row for row in of(bundle) if row["CommitmentDiscountId"]]
    assert {row["SubAccountName"] for row in rows} == {"acme/one"}
    assert {row["CommitmentDiscountStatus"] for row in rows} == {"Used", ""}
    assert bundle["Contract Commitment"] == []


def test_in_another_billing_currency_list_costs_are_counted_once(north, take):  # noqa: F811
    record_runs([make_run(north, "acme/one", started_at=at(5, 2), until_at=at(5, 4))])
    billed_in("EUR")
    override("0.5")
    committed()
    closed()
    invoice = issued()
    bundle = take("2026-10")
    assert problems(bundle) == []
    agree(bundle)
    (used,) = of(bundle, CommitmentDiscountStatus="Used")
    assert (Decimal(used["BilledCost"]), Decimal(used["ListCost"])) == (Decimal("0.5"), 0)
    assert invoice.currency == "EUR"
    settle_pending_checks()
    assert total(of(bundle, InvoiceId=invoice.number)) == invoice.total


def test_a_payment_of_an_earlier_version_is_taken_back_with_its_quantity(north, take):  # noqa: F811
    committed({"recurring": 3})
    committed({"recurring": 4})
    bundle = take("2026-10")
    assert problems(bundle) == []
    paid = of(bundle, ChargeCategory="Purchase")
    assert len(paid) == 3
    assert summed(paid, "BilledCost") == HOURS + 4
    assert summed(paid, "CommitmentDiscountQuantity") == 2 * HOURS


def test_flavors_of_others_do_not_change_the_unit(north, take):  # noqa: F811
    make_flavor(make_cluster("other", "theirs"), "h100", gpu_model="", vendor="", resource_name="")
    committed()
    bundle = take("2026-10")
    assert {row["CommitmentDiscountUnit"] for row in of(bundle, CommitmentDiscountName="one")} <= {"", "GPU-Hours"}
    assert bundle["Contract Commitment"][0]["ContractCommitmentUnit"] == "GPU-Hours"
