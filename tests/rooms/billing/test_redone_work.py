"""Usage of work that was lost and done again is counted as such, once its run has ended."""

import csv
import io
import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import IntegrityError

from billing.models import Meter
from billing.operations import record_runs
from billing.queries import discrepancies, usage_report
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_cluster, make_run, make_user
from tests.refusals import constraint_of

from .test_ledger import attack

pytestmark = pytest.mark.django_db
START = datetime(2026, 11, 10, 23, 30, tzinfo=UTC)
MONTH = (datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))
HOUR = timedelta(hours=1)


@pytest.fixture
def north():
    return make_cluster(name="north")


def run(north, minutes, **fields):
    """A run of two hours over midnight, on a seventh of a GPU, whose work is redone from so many minutes on."""
    redone_from = None if minutes is None else START + timedelta(minutes=minutes)
    given: dict[str, Any] = {
        "gpu_model": "H100-80GB",
        "sharing": "mig:1g.10gb",
        "gpu_units": 7,
        "until_at": START + 2 * HOUR,
    }
    return make_run(north, started_at=START, redone_from=redone_from, **(given | fields))


def lost(*period):
    return usage_report(SYSTEM, "acme", *(period or MONTH)).total.lost_gpu_hours


@pytest.mark.parametrize(
    ("minutes", "hours"), [(None, 0), (0, 2), (-60, 2), (15, 1.75), (30, 1.5), (90, 0.5), (120, 0), (500, 0)]
)
def test_lost_usage_is_what_follows_the_last_work_that_was_kept(north, minutes, hours):
    record_runs([run(north, minutes)])
    assert lost() == Decimal(hours)
    assert usage_report(SYSTEM, "acme", *MONTH).total.gpu_hours == 2
    assert discrepancies() == ()


def test_lost_usage_adds_up_over_days_and_adjoining_periods(north):
    record_runs([run(north, 10), run(north, 50)])
    days = usage_report(SYSTEM, "acme", *MONTH, ["day"])
    assert [float(row.lost_gpu_hours) for row in days.rows] == [pytest.approx(1 / 3), pytest.approx(1.5 + 7 / 6)]
    assert sum(row.lost_gpu_hours for row in days.rows) == days.total.lost_gpu_hours == 3
    cuts = [MONTH[0], START + timedelta(minutes=20), START + timedelta(minutes=45), START + HOUR, MONTH[1]]
    assert [lost(*period) for period in itertools.pairwise(cuts)] == [
        Decimal("0.166667"), Decimal("0.416667"), Decimal("0.416667"), 2,
    ]  # fmt: skip


def test_only_the_end_of_a_run_says_what_was_lost(north):
    first = run(north, 30)
    record_runs([replace(first, is_final=False, until_at=START + HOUR)])
    assert (lost(), Meter.objects.get().redone_from) == (0, None)
    record_runs([replace(first, is_final=False, until_at=START + HOUR), first])
    assert lost() == Decimal("1.5")
    record_runs([replace(first, redone_from=START)])
    assert lost() == Decimal("1.5")


def test_lost_hours_stand_in_the_spreadsheet_and_on_the_page(north, client):
    record_runs([run(north, 30), run(north, None)])
    reader = make_user()
    bind(reader, "acme", "viewer")
    query = {"month": "2026-11", "group_by": "tenant", "format": "csv"}
    sheet = client.get("/api/v1/usage", query, headers=bearer(reader)).content.decode()
    [row] = csv.DictReader(io.StringIO(sheet, newline=""))
    assert (row["gpu_hours"], row["lost_gpu_hours"]) == ("4.000000", "1.500000")
    client.force_login(reader)
    page = client.get("/usage/?month=2026-11").content.decode()
    assert "1.50 lost in interruptions" in page
    assert page.count('<td data-label="Lost" class="num">1.50</td>') == 2


SET = "UPDATE billing_meter SET is_closed = true, redone_from = "
ATTACKS = {
    "before its end": (
        "UPDATE billing_meter SET redone_from = metered_from",
        "redone_work_is_of_a_closed_meters_time",
    ),
    "before its beginning": (SET + "metered_from - interval '1 ms'", "redone_work_is_of_a_closed_meters_time"),
    "after its end": (SET + "metered_until", "redone_work_is_of_a_closed_meters_time"),
    "at no time": (SET + "'infinity'", "redone_work_is_of_a_closed_meters_time"),
    "finer than a millisecond": (
        SET + "metered_from + interval '1 microsecond'",
        "meter_redoes_from_a_whole_millisecond",
    ),
    "once it is closed": (SET + "NULL;UPDATE billing_meter SET redone_from = metered_from", "meter_only_runs_on"),
}


@pytest.mark.parametrize(("statements", "constraint"), ATTACKS.values(), ids=ATTACKS.keys())
def test_the_database_refuses(north, statements, constraint):
    record_runs([run(north, None, is_final=False)])
    with pytest.raises(IntegrityError) as refused:
        attack(statements, {})
    assert constraint_of(refused.value) == constraint
