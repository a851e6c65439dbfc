"""What runs is in the figures while it runs, and what it turned out to be once it has ended, without a break between."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest

from billing.models import Meter
from billing.operations import create_price, record_runs
from billing.operations.prices import NewPrice
from billing.queries import costs_of, usage_report
from billing.queries.pages import spend_this_month
from clusters.models import Flavor
from federation.models import Attempt, Job, PodRun, RemoteObject
from federation.operations import accrue_running, settle_attempts
from federation.queries.metering import runs_of, unsettled_runs
from foundation import clock
from foundation.ids import new_id
from tenancy.queries import SYSTEM
from tests.builders import actor_for, bearer, bind, make_cluster, make_flavor, make_spec, make_user, redate, submit

pytestmark = pytest.mark.django_db
START = datetime(2026, 11, 10, 12, tzinfo=UTC)
MONTH = (datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))
HOUR = timedelta(hours=1)


@pytest.fixture
def north(time_machine, monkeypatch):
    """At an instant that the test holds, by the database's clock too."""
    time_machine.move_to(START - HOUR, tick=False)
    monkeypatch.setattr(clock, "database_now", clock.now)
    cluster = make_cluster(name="north")
    make_flavor(cluster)
    create_price(SYSTEM, NewPrice("north", "h100", Decimal(2), effective_from=START - 24 * HOUR))
    return cluster


@pytest.fixture
def user():
    user = make_user("ada@acme.example")
    bind(user, "acme", "admin")
    bind(user, "acme/research", "admin")
    return user


def running_job(user, cluster, *, pods=1, state="running", tenant="acme/research"):
    job = submit(actor_for(user), {"tenant": tenant, **make_spec()})
    Job.objects.filter(id=job.id).update(state="running", started_at=START)
    attempt = Attempt.objects.create(
        job=job, number=1, cluster=cluster, state=state, flavor="h100", namespace="swy-x", spec_hash="0" * 32,
        started_at=START, next_action_at=None,
    )  # fmt: skip
    remote = RemoteObject.objects.create(
        attempt=attempt, position=0, name="swy-o", flavor="h100", capacity_type="on_demand", pods=pods, gpu_units=2,
        cpu_millicores=1000, memory_mib=1024,
    )  # fmt: skip
    for number in range(pods):
        PodRun.objects.create(
            attempt=attempt, cluster_id=cluster.id, remote_object=remote, index=number, place=number, uid=str(new_id()), name=f"p{number}", node="n1", phase="Running", started_at=START,
            observed_at=START + HOUR,
        )  # fmt: skip
    return job, attempt


def finish(job, attempt, at, **end):
    attempt.pods.filter(finished_at=None).update(finished_at=at, phase="Succeeded", observed_at=at)
    redate(Attempt.objects.filter(id=attempt.id), **{"state": "succeeded", "finished_at": at} | end)
    redate(Job.objects.filter(id=job.id), state="succeeded", finished_at=at)


def test_a_running_job_costs_what_it_ran_so_far_before_anything_is_recorded(north, user, client, time_machine):
    job, _ = running_job(user, north, pods=3)
    time_machine.move_to(START + HOUR / 2, tick=False)

    shown = client.get(f"/api/v1/jobs/{job.id}", headers=bearer(user)).json()["cost"]
    assert shown == {
        "amount": "6.000000",
        "currency": "USD",
        "provisional": True,
        "unpriced": False,
        "not_charged": "0.000000",
        "beside": [],
    }
    listed = client.get("/api/v1/jobs", headers=bearer(user)).json()["items"][0]["cost"]
    assert listed == shown
    client.force_login(user)
    page = client.get(f"/jobs/{job.id}/").content.decode()
    assert "no usage yet" not in page
    assert "provisional" in page


def test_usage_says_how_many_jobs_still_run_and_counts_them_so_far(north, user, client, time_machine):
    running_job(user, north, pods=2)
    running_job(user, north, tenant="acme")
    time_machine.move_to(START + HOUR, tick=False)

    query = {"tenant": "acme", "month": "2026-11", "group_by": "tenant"}
    shown = client.get("/api/v1/usage", query, headers=bearer(user)).json()
    assert (shown["is_complete"], shown["running_jobs"], shown["as_of"]) == (False, 2, "2026-11-10T13:00:00.000Z")
    assert [(i["tenant"], i["running_jobs"], i["provisional_cost"]["amount"]) for i in shown["items"]] == [
        ("acme", 1, "4.000000"),
        ("acme/research", 1, "8.000000"),
    ]
    assert shown["totals"]["cost"] == shown["totals"]["provisional_cost"] == {"amount": "12.000000", "currency": "USD"}
    sheet = client.get("/api/v1/usage", {**query, "format": "csv"}, headers=bearer(user))
    assert "so-far" in sheet["Content-Disposition"]
    assert (
        sheet.content.decode()
        .splitlines()[1]
        .endswith(",4.000000,USD,2.000000,7200000,3600000000,1.000000,4.000000,1,0.000000,0.000000")
    )
    assert (shown["totals"]["memory_gib_hours"], shown["totals"]["provisional_memory_gib_hours"]) == ("3.000000",) * 2
    client.force_login(user)
    page = client.get("/usage/?month=2026-11&group_by=tenant").content.decode()
    assert "2 jobs still running; figures are provisional" in page
    assert re.findall(r'data-label="GiB-hours" class="num">([0-9.]+)<', page) == ["1.00", "2.00", "3.00"]
    assert "complete" in client.get("/usage/?month=2026-10").content.decode()


def test_each_moment_counts_once_however_far_it_is_recorded(north, user, time_machine):
    job, attempt = running_job(user, north)
    seen = []
    for minutes in (10, 20, 45):
        time_machine.move_to(START + timedelta(minutes=minutes), tick=False)
        accrue_running()
        total = usage_report(SYSTEM, "acme", *MONTH).total
        assert total.cost == costs_of([job.id])[job.id].amount.quantize(total.cost)
        assert total.cost == (Decimal(4 * minutes) / 60).quantize(total.cost)
        assert total.gpu_milliseconds == 2 * minutes * 60_000
        assert total.memory_gib_hours == (Decimal(minutes) / 60).quantize(total.cost)
        assert total.provisional_memory_gib_hours == Decimal("0.033333")
        assert spend_this_month(actor_for(user)).gpu_hours == total.gpu_hours.quantize(Decimal("0.01"))
        assert total.provisional_gpu_milliseconds == 2 * 2 * 60_000  # what accrual leaves: the last two minutes
        seen.append(total.cost)
    finish(job, attempt, START + timedelta(minutes=45))
    assert usage_report(SYSTEM, "acme", *MONTH).total.running_jobs == 1
    settle_attempts()

    report = usage_report(SYSTEM, "acme", *MONTH)
    assert report.is_complete
    assert (report.total.cost, report.total.provisional_cost) == (seen[-1], 0)
    assert (costs_of([job.id])[job.id].amount, costs_of([job.id])[job.id].is_provisional) == (Decimal(3), False)


def test_running_parts_add_up_by_day_and_over_adjoining_periods(north, user, time_machine):
    running_job(user, north, pods=2)
    create_price(SYSTEM, NewPrice("north", "h100", Decimal("3.777777"), effective_from=START + 29 * HOUR))
    time_machine.move_to(START + 51 * HOUR + timedelta(milliseconds=7919), tick=False)

    whole = usage_report(SYSTEM, "acme", *MONTH)
    days = usage_report(SYSTEM, "acme", *MONTH, ["day", "job"])
    assert [row.keys["day"] for row in days.rows] == ["2026-11-10", "2026-11-11", "2026-11-12"]
    assert sum(row.cost for row in days.rows) == days.total.cost == whole.total.cost
    assert sum(row.gpu_milliseconds for row in days.rows) == whole.total.gpu_milliseconds
    cut = START + 33 * HOUR + timedelta(milliseconds=13)
    before, after = (usage_report(SYSTEM, "acme", *part).total for part in ((MONTH[0], cut), (cut, MONTH[1])))
    assert before.gpu_milliseconds + after.gpu_milliseconds == whole.total.gpu_milliseconds
    assert abs(before.cost + after.cost - whole.total.cost) <= Decimal("0.000001")
    assert (before.running_jobs, after.running_jobs) == (1, 1)
    assert usage_report(SYSTEM, "acme", datetime(2026, 10, 1, tzinfo=UTC), MONTH[0]).is_complete


def test_a_pod_on_a_silent_cluster_counts_up_to_its_last_sighting_and_stays_open(north, user, time_machine):
    running_job(user, north, state="unknown")
    time_machine.move_to(START + 5 * HOUR, tick=False)

    report = usage_report(SYSTEM, "acme", *MONTH)
    assert (report.total.gpu_milliseconds, report.total.running_jobs) == (2 * 3_600_000, 1)


def test_what_was_settled_while_it_was_looked_at_counts_once(north, user, time_machine, monkeypatch):
    job, attempt = running_job(user, north)
    time_machine.move_to(START + HOUR, tick=False)
    finish(job, attempt, START + HOUR)
    settled = []

    def look_then_settle(whose, at):
        runs = unsettled_runs(whose, at)
        settled.append(settle_attempts())
        return runs

    monkeypatch.setattr("billing.queries.progress.run_sources", [look_then_settle])
    assert usage_report(SYSTEM, "acme", *MONTH).total.gpu_milliseconds == 2 * 3_600_000
    assert settled == [1]


def test_a_run_that_is_not_yours_is_in_no_figure_of_yours(north, user, time_machine):
    running_job(user, north)
    time_machine.move_to(START + HOUR, tick=False)
    stranger = make_user()
    bind(stranger, "other", "admin")
    assert usage_report(actor_for(stranger), "", *MONTH).is_complete
    assert spend_this_month(actor_for(stranger)).gpu_hours == 0


def test_a_sibling_that_is_recorded_further_stands_beside_one_that_is_not(north, user, time_machine):
    job, attempt = running_job(user, north, pods=2)
    time_machine.move_to(START + HOUR, tick=False)
    first = attempt.pods.order_by("id")[0]
    record_runs([run for run in runs_of([attempt.id]) if run.source_uid == first.uid])
    view = costs_of([job.id])[job.id]
    assert (view.amount, view.is_provisional) == (Decimal(8), True)
    assert usage_report(SYSTEM, "acme", *MONTH).total.provisional_cost == Decimal(4)


def test_usage_counts_the_gpus_that_were_promised_whatever_the_flavor_became(north, user, time_machine):
    Flavor.objects.update(sharing="mig:1g.10gb")
    job, attempt = running_job(user, north)
    Flavor.objects.update(sharing="whole", gpu_model="B200")
    time_machine.move_to(START + HOUR, tick=False)
    running = usage_report(SYSTEM, "acme", *MONTH).total
    assert running.gpu_hours == running.provisional_gpu_hours == Decimal("0.285714")
    finish(job, attempt, START + HOUR)
    settle_attempts()

    Flavor.objects.all().delete()
    settled = usage_report(SYSTEM, "acme", *MONTH).total
    assert (settled.gpu_hours, settled.provisional_gpu_hours) == (Decimal("0.285714"), 0)
    meter = Meter.objects.get()
    assert (meter.gpu_model, meter.sharing, meter.gpu_share) == ("H100-80GB", "mig:1g.10gb", Fraction(1, 7))


@pytest.mark.parametrize(
    ("checkpoint_seconds", "reason", "lost"),
    [
        (None, "spot", "5.833333"),
        (1800, "spot", "0.500000"),
        (600, "node_lost", "0.166667"),
        (None, "program_failed", "0.000000"),
    ],
)
def test_a_report_shows_how_much_usage_was_of_work_that_is_done_again(
    north, user, time_machine, checkpoint_seconds, reason, lost
):
    job, attempt = running_job(user, north, pods=2)
    Job.objects.filter(id=job.id).update(spec=job.spec | {"checkpoint_seconds": checkpoint_seconds})
    time_machine.move_to(START + 10 * HOUR, tick=False)
    first, second = attempt.pods.order_by("id")
    for pod, minutes in ((first, 105), (second, 70)):
        ended_at = START + timedelta(minutes=minutes)
        PodRun.objects.filter(id=pod.id).update(finished_at=ended_at, phase="Failed", observed_at=ended_at)
    finish(job, attempt, START + timedelta(minutes=105), state="preempted", end_reason=reason)
    other, its_attempt = running_job(user, north, tenant="acme")
    finish(other, its_attempt, START + HOUR)
    settle_attempts()

    report = usage_report(SYSTEM, "acme", *MONTH, ["tenant"])
    by_tenant = {row.keys["tenant"]: row.lost_gpu_hours for row in report.rows}
    assert by_tenant == {"acme": 0, "acme/research": Decimal(lost)}
    assert report.total.lost_gpu_hours == Decimal(lost)
    assert report.total.gpu_hours == Decimal("7.833333")
