"""GPU-hours are of physical GPUs, in usage as in quota, and as they were when the usage began."""

import csv
import io
import itertools
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from django.db import IntegrityError

from billing.models import Meter
from billing.operations import create_price, record_runs
from billing.operations.prices import NewPrice
from billing.queries import discrepancies, usage_report
from billing.queries.pages import spend_this_month
from clusters.models import Flavor
from placement.fleet.amounts import MILLI, amounts_of
from tenancy.queries import SYSTEM
from tests.builders import actor_for, bearer, bind, make_cluster, make_flavor, make_run, make_user
from tests.engine import fleets
from tests.refusals import constraint_of

from .test_ledger import attack

pytestmark = pytest.mark.django_db
NOVEMBER = (datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))
SEVENTH = {"gpu_model": "H100-80GB", "sharing": "mig:1g.10gb"}
A_UNIT = {
    ("H100-80GB", "whole"): (fleets.pods(1, 1), Fraction(1)),
    ("H100-80GB", "mig:1g.10gb"): (fleets.pods(1, 1, mig="1g.10gb"), Fraction(1, 7)),
    ("A100-80GB", "mig:1g.10gb+me"): (fleets.pods(1, 1, mig="1g.10gb+me"), Fraction(1, 7)),
    ("H100-80GB", "mig:3g.40gb"): (fleets.pods(1, 1, mig="3g.40gb"), Fraction(3, 7)),
    ("H100-80GB", "mig:7g.80gb"): (fleets.pods(1, 1, mig="7g.80gb"), Fraction(1)),
    ("A30", "mig:1g.6gb"): (fleets.pods(1, 1, mig="1g.6gb"), Fraction(1, 4)),
    ("A30", "mig:4g.24gb"): (fleets.pods(1, 1, mig="4g.24gb"), Fraction(1)),
    ("RTX-PRO-6000", "mig:2g.48gb"): (fleets.pods(1, 1, mig="2g.48gb"), Fraction(1, 2)),
    ("T4", "timeslice:3"): (fleets.pods(1, 1, fraction=1), Fraction(1, 3)),
    ("L4", "timeslice:10"): (fleets.pods(1, 1, fraction=100), Fraction(1, 10)),
}
"""Of each GPU model and sharing: a pod set that takes one unit, and what that is of a GPU."""


def test_every_kind_of_flavor_there_is_is_compared():
    known: Any
    [known] = [one for one in Flavor._meta.constraints if one.name == "sharing_is_known"]
    pattern = dict(known.condition.children)["sharing__regex"]
    kinds = {kind.partition(":")[0] for kind in pattern.removeprefix("^(").removesuffix(")$").split("|")}
    assert {sharing.partition(":")[0] for _, sharing in A_UNIT} == kinds


@pytest.mark.parametrize("units", [1, 7])
@pytest.mark.parametrize(("flavor", "expected"), A_UNIT.items(), ids=map(" ".join, A_UNIT))
def test_quota_and_usage_count_a_flavor_alike(flavor, expected, units):
    model, sharing = flavor
    pod_set, share = expected
    asked = fleets.job(replace(pod_set, count=units))
    held = amounts_of(asked, {"worker": fleets.flavor(model, sharing=sharing)})["gpu"]
    record_runs([make_run(make_cluster(), gpu_units=1, gpu_model=model, sharing=sharing) for _ in range(units)])

    counted = sum(meter.gpu_units * meter.gpu_share for meter in Meter.objects.all())
    assert counted == units * share
    assert held == int(counted * MILLI)
    assert usage_report(SYSTEM, "acme", *NOVEMBER).total.gpu_hours == round(
        Decimal(units) * share.numerator / share.denominator, 6
    )


def test_seven_slices_for_an_hour_are_one_gpu_hour_at_the_price_of_seven_units(client):
    north = make_cluster(name="north")
    make_flavor(north, "slice", sharing="mig:1g.10gb")
    at = datetime(2026, 11, 1, tzinfo=UTC)
    create_price(SYSTEM, NewPrice("north", "slice", Decimal("0.3"), effective_from=at))
    record_runs([make_run(north, flavor="slice", **SEVENTH) for _ in range(7)])
    reader = make_user()
    bind(reader, "acme", "viewer")

    query = {"tenant": "acme", "month": "2026-11", "group_by": "job"}
    shown = client.get("/api/v1/usage", query, headers=bearer(reader)).json()
    totals = shown["totals"]
    assert (totals["gpu_hours"], totals["gpu_milliseconds"]) == ("1.000000", 7 * 3_600_000)
    assert totals["cost"]["amount"] == "2.100000"
    assert sum(Decimal(item["gpu_hours"]) for item in shown["items"]) == 1
    assert {item["gpu_hours"] for item in shown["items"]} == {"0.142857", "0.142858"}
    sheet = client.get("/api/v1/usage", {**query, "format": "csv"}, headers=bearer(reader)).content.decode()
    rows = csv.DictReader(io.StringIO(sheet, newline=""))
    assert [row["gpu_hours"] for row in rows] == [item["gpu_hours"] for item in shown["items"]]
    client.force_login(reader)
    page = client.get("/usage/?month=2026-11").content.decode()
    assert '<span class="figure-value">1.00</span><span class="figure-note">all priced' in page


def test_what_has_no_price_is_counted_in_physical_gpus_too(client, time_machine):
    time_machine.move_to(datetime(2026, 11, 21, tzinfo=UTC), tick=False)
    north = make_cluster(name="north")
    record_runs([make_run(north, gpu_units=2, **SEVENTH), make_run(north, gpu_model="T4", sharing="timeslice:3")])
    reader = make_user()
    bind(reader, "acme", "viewer")
    total = usage_report(SYSTEM, "acme", *NOVEMBER).total
    assert total.gpu_hours == total.unpriced_gpu_hours == Decimal("0.619048")  # 2/7 + 1/3
    spend = spend_this_month(actor_for(reader))
    assert (spend.gpu_hours, spend.unpriced_gpu_hours) == (Decimal("0.62"), Decimal("0.62"))
    client.force_login(reader)
    assert "0.62 GPU-hours" in client.get("/").content.decode()


def test_hours_of_slices_add_up_over_adjoining_periods():
    north = make_cluster(name="north")
    record_runs([make_run(north, gpu_units=number, **SEVENTH) for number in range(1, 5)])
    cuts = [NOVEMBER[0], datetime(2026, 11, 10, 12, 17, 3, 1000, tzinfo=UTC), NOVEMBER[1]]
    whole = usage_report(SYSTEM, "acme", *NOVEMBER).total
    parts = [usage_report(SYSTEM, "acme", *period).total for period in itertools.pairwise(cuts)]
    assert whole.gpu_hours == Decimal("1.428571")
    assert abs(sum(part.gpu_hours for part in parts) - whole.gpu_hours) <= Decimal("0.000001")


REPLICA = "SET LOCAL session_replication_role = replica;"
"""Past the triggers, to the constraints."""
ATTACKS = {
    "a unit of nothing": (REPLICA + "UPDATE billing_meter SET gpu_numerator = 0", "a_unit_is_a_part_of_a_gpu"),
    "a unit larger than a GPU": (REPLICA + "UPDATE billing_meter SET gpu_numerator = 8", "a_unit_is_a_part_of_a_gpu"),
    "another part": ("UPDATE billing_meter SET gpu_numerator = 2", "meter_keeps_what_it_was_opened_with"),
    "another division": ("UPDATE billing_meter SET gpu_denominator = 8", "meter_keeps_what_it_was_opened_with"),
    "another model": ("UPDATE billing_meter SET gpu_model = 'B200'", "meter_keeps_what_it_was_opened_with"),
    "another sharing": ("UPDATE billing_meter SET sharing = 'whole'", "meter_keeps_what_it_was_opened_with"),
}


@pytest.mark.parametrize(("statements", "constraint"), ATTACKS.values(), ids=ATTACKS.keys())
def test_the_database_keeps_what_a_unit_was(statements, constraint):
    record_runs([make_run(make_cluster(), is_final=False, **SEVENTH)])
    with pytest.raises(IntegrityError) as refused:
        attack(statements, {})
    assert constraint_of(refused.value) == constraint
    assert discrepancies() == ()
