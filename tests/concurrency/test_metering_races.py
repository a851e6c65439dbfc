"""Many writers of one meter at once, with real commits: its segments stay one chain, and the sums are theirs."""

import itertools
import random
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError, connection, transaction

from billing.models import Meter, MeterDay, MeterRevision, TenantDay, UsageSegment
from billing.operations import TrueEnd, correct_ends, create_price, record_runs
from billing.operations.prices import NewPrice
from billing.queries import discrepancies
from foundation.transactions import retried
from tenancy.queries import SYSTEM
from tests.builders import make_cluster, make_flavor, make_run

from .test_quota_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)
MINUTE = timedelta(minutes=1)
WRITERS = 12
EXTEND = """
INSERT INTO billing_usagesegment (meter_id, period, gpu_milliseconds, cpu_millicore_milliseconds, price_id, cost, currency,
    is_estimated)
SELECT m.id, piece.period, piece.length, piece.length * 2000, p.id,
    billing_cost(false, 1, 2000, 0, m.metered_from, p.unit_price, NULL, NULL, p.valid, piece.period), 'USD', false
FROM billing_meter AS m, billing_price AS p, (SELECT tstzrange(%(start)s, %(until)s) AS period, %(length)s::bigint AS length) AS piece
"""


@pytest.fixture
def run():
    """An open run that is metered for an hour."""
    north = make_cluster(name="north")
    make_flavor(north)
    run = make_run(north, is_final=False)
    create_price(SYSTEM, NewPrice("north", "h100", Decimal("2.333333"), effective_from=run.started_at))
    record_runs([run])
    return run


def raw(run, start, until, *, segment_first):
    """Whether PostgreSQL accepted that the meter runs on to `until` with one segment, written without any lock of ours."""
    known = {"start": start, "until": until, "length": (until - start) // timedelta(milliseconds=1)}
    statements = [EXTEND, "UPDATE billing_meter SET metered_until = %(until)s"]
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            if not segment_first:
                statements.reverse()
            for statement in statements:
                cursor.execute(statement, known)
    except IntegrityError:
        return False
    return True


@pytest.mark.parametrize("isolation", ["READ COMMITTED", "REPEATABLE READ"])
def test_of_writers_that_continue_one_meter_one_succeeds(run, isolation):
    end = run.until_at

    @retried
    def write(number):
        with connection.cursor() as cursor:
            cursor.execute(f"SET default_transaction_isolation = '{isolation}'")
        return raw(run, end, end + (1 + number % 3) * MINUTE, segment_first=False)

    outcomes = at_once([lambda number=number: write(number) for number in range(WRITERS)])
    assert sum(outcomes) == 1
    assert UsageSegment.objects.count() == 2
    assert discrepancies() == ()


def test_overlaps_and_gaps_of_concurrent_writers_are_refused(run):
    end = run.until_at
    chosen = random.Random(7)

    def write(number):
        start = end + chosen.choice((-5, 0, 0, 5)) * MINUTE
        return retried(raw)(run, start, start + (5 + number % 2 * 5) * MINUTE, segment_first=False)

    at_once([lambda number=number: write(number) for number in range(WRITERS)])
    assert discrepancies() == ()
    meter = Meter.objects.get()
    periods = [each.period for each in UsageSegment.objects.order_by("period")]
    assert periods[-1].upper == meter.metered_until
    assert all(one.upper == following.lower for one, following in itertools.pairwise(periods))


def test_of_observers_that_report_different_ends_at_once_the_first_counts(run):
    """Each reports ends of runs that were assumed for two days, in another order."""
    guesses = [
        replace(run, source_uid=f"guess-{number}", until_at=run.started_at + timedelta(days=2), is_final=True,
                certain_until=run.started_at)
        for number in range(4)
    ]  # fmt: skip
    record_runs(guesses)

    @retried
    def report(number):
        chosen = random.Random(number)
        ends = [TrueEnd(one.key, run.started_at + (1 + number) * 90 * MINUTE) for one in guesses]
        chosen.shuffle(ends)
        correct_ends(ends[:3])
        record_runs([replace(run, source_uid=f"more-{number}", until_at=run.started_at + timedelta(days=1))])

    at_once([lambda number=number: report(number) for number in range(6)])
    assert MeterRevision.objects.count() == len(guesses)
    for revision in MeterRevision.objects.select_related("meter"):
        assert revision.meter.metered_until == revision.until == revision.meter.certain_until
    assert discrepancies() == ()


def test_routines_that_meter_the_same_pods_at_once_count_each_moment_once(run):
    others = [replace(run, source_uid=f"pod-{number}") for number in range(6)]

    @retried
    def meter(number):
        chosen = random.Random(number)
        for step in range(1, 6):
            until = run.until_at + (10 * step + number) * MINUTE
            reports = [replace(one, until_at=until) for one in (run, *others)]
            chosen.shuffle(reports)
            record_runs(reports)

    at_once([lambda number=number: meter(number) for number in range(6)])
    assert discrepancies() == ()
    furthest = run.until_at + 55 * MINUTE - run.started_at
    milliseconds = furthest // timedelta(milliseconds=1)
    assert [day.milliseconds for day in MeterDay.objects.all()] == [milliseconds] * 7
    assert TenantDay.objects.get().gpu_milliseconds == 7 * milliseconds
