from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from billing.models import Meter, UsageSegment
from billing.operations import create_price, record_runs
from billing.operations.prices import NewPrice
from billing.queries import costs_of, discrepancies
from foundation.ids import new_id
from tenancy.queries import SYSTEM
from tests.builders import make_cluster, make_flavor, make_run
from tests.laws import examples

pytestmark = pytest.mark.django_db
START = datetime(2026, 11, 10, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


@pytest.fixture
def north():
    cluster = make_cluster(name="north")
    make_flavor(cluster, "h100")
    create_price(SYSTEM, NewPrice("north", "h100", Decimal("2.5"), effective_from=START - 24 * HOUR))
    return cluster


def lines():
    return [
        (segment.period.lower, segment.period.upper, segment.gpu_milliseconds, segment.cost)
        for segment in UsageSegment.objects.order_by("meter_id", "period")
    ]


def test_a_finished_run_is_metered_to_the_millisecond_and_closed(north):
    until = START + timedelta(seconds=90, microseconds=123_999)
    record_runs([make_run(north, gpu_units=2, until_at=until)])

    assert lines() == [(START, START + timedelta(seconds=90, milliseconds=123), 2 * 90_123, Decimal("0.125170833333"))]
    assert Meter.objects.get().is_closed
    assert discrepancies() == ()


def test_a_running_pod_is_metered_piece_by_piece_without_gaps(north):
    run = make_run(north, is_final=False)
    for minutes in (0, 7, 30, 59):
        record_runs([replace(run, until_at=START + minutes * MINUTE)])
    record_runs([replace(run, is_final=True)])

    assert [line[1] for line in lines()] == [START + minutes * MINUTE for minutes in (7, 30, 59, 60)]
    assert sum(line[3] for line in lines()) == Decimal("2.5")
    assert discrepancies() == ()


def test_a_run_reported_again_or_with_an_earlier_end_changes_nothing(north):
    run = make_run(north, is_final=False)
    record_runs([run])
    before = lines()

    record_runs([run, replace(run, until_at=START + MINUTE), replace(run, until_at=START - HOUR)])
    assert lines() == before
    record_runs([replace(run, is_final=True)])
    record_runs([replace(run, until_at=START + 5 * HOUR)])
    assert lines() == before
    assert Meter.objects.get().metered_until == START + HOUR


def test_several_reports_of_one_pod_in_a_batch_count_as_the_furthest(north):
    run = make_run(north)
    record_runs([replace(run, is_final=True, until_at=START + MINUTE), replace(run, is_final=False)])
    assert Meter.objects.get().metered_until == START + HOUR
    assert Meter.objects.get().is_closed


def test_a_run_over_a_price_change_is_split_there(north):
    run = make_run(north, is_final=False, until_at=START + 10 * MINUTE)
    record_runs([run])
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(10), effective_from=START + 30 * MINUTE))
    record_runs([replace(run, is_final=True, until_at=START + HOUR)])

    assert [(line[0], line[1]) for line in lines()] == [
        (START, START + 10 * MINUTE),
        (START + 10 * MINUTE, START + 30 * MINUTE),
        (START + 30 * MINUTE, START + HOUR),
    ]
    assert sum(line[3] for line in lines()) == Decimal("1.25") + 5
    assert discrepancies() == ()


def test_a_run_without_a_price_is_kept_at_no_cost(north):
    record_runs([make_run(north, flavor="a100")])
    segment = UsageSegment.objects.get()
    assert (segment.cost, segment.price_id, segment.currency, segment.gpu_milliseconds) == (0, None, "", 3_600_000)
    assert discrepancies() == ()


def test_cpu_only_work_costs_its_cores_on_gpu_nodes_too(north):
    make_flavor(north, "cpu", gpu_model="", vendor="")
    create_price(SYSTEM, NewPrice("north", "cpu", Decimal("0.05"), effective_from=START))
    on_cpu_nodes = make_run(north, flavor="cpu", gpu_units=0, cpu_millicores=4000)
    on_gpu_nodes = make_run(north, gpu_units=0, cpu_millicores=4000)

    record_runs([on_cpu_nodes, on_gpu_nodes])

    costs = costs_of([on_cpu_nodes.workload_id, on_gpu_nodes.workload_id])
    assert costs[on_cpu_nodes.workload_id].amount == Decimal("0.2")
    assert costs[on_gpu_nodes.workload_id].amount == Decimal("0.2")
    assert Meter.objects.get(source_uid=on_gpu_nodes.source_uid).cpu_flavor == "cpu"
    assert discrepancies() == ()


def test_a_run_that_lasted_no_time_has_a_meter_and_no_segment(north):
    record_runs([make_run(north, until_at=START - HOUR)])
    assert (Meter.objects.get().is_closed, lines()) == (True, [])


def test_estimated_time_is_marked(north):
    record_runs([make_run(north, is_estimated=True)])
    assert UsageSegment.objects.get().is_estimated


def test_a_contradicting_report_is_said_aloud_and_the_first_stands(north, caplog):
    run = make_run(north, is_final=False)
    record_runs([run])
    record_runs([replace(run, gpu_units=8, until_at=START + 2 * HOUR)])
    assert "differs from an earlier one" in caplog.text
    assert Meter.objects.get().gpu_units == 1
    assert discrepancies() == ()


def test_nothing_observed_writes_nothing(north, django_assert_num_queries):
    with django_assert_num_queries(0):
        record_runs([])


def test_a_batch_takes_the_same_number_of_queries_whatever_its_size(north, django_assert_max_num_queries):
    runs = [make_run(north) for _ in range(100)]
    with django_assert_max_num_queries(10):
        record_runs(runs)
    assert Meter.objects.count() == 100


def test_a_running_job_shows_its_cost_so_far_as_provisional(north, time_machine):
    job = new_id()
    time_machine.move_to(START + 3 * HOUR, tick=False)
    record_runs(
        [
            make_run(north, workload_id=job),
            make_run(north, workload_id=job, is_final=False, until_at=START + MINUTE),
            make_run(north, workload_id=new_id()),
        ]
    )

    running = costs_of([job, new_id()])
    assert set(running) == {job}
    assert (running[job].amount, running[job].currency, running[job].is_provisional) == (Decimal(10), "USD", True)


def test_the_cost_of_a_finished_job_is_final(north):
    run = make_run(north)
    record_runs([run])
    view = costs_of([run.workload_id])[run.workload_id]
    assert (view.amount, view.is_provisional) == (Decimal("2.5"), False)


reports = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 200_000_000), st.booleans()), min_size=1, max_size=12)


@pytest.mark.law
@examples(25, suppressed=[HealthCheck.function_scoped_fixture])
@given(reports)
def test_reports_in_any_order_and_number_meter_each_moment_once(north, observed):
    runs = [make_run(north, gpu_units=number) for number in range(3)]
    furthest = [0, 0, 0]
    closed = [False, False, False]
    for number, milliseconds, is_final in observed:
        until_at = START + timedelta(milliseconds=milliseconds)
        record_runs([replace(runs[number], until_at=until_at, is_final=is_final)])
        if not closed[number]:
            furthest[number] = max(furthest[number], milliseconds)
            closed[number] = is_final
    for number, run in enumerate(runs):
        segments = UsageSegment.objects.filter(meter__source_uid=run.source_uid)
        assert sum(segment.gpu_milliseconds for segment in segments) == number * furthest[number]
    assert discrepancies() == ()
