"""The demo's organisation, fleet and three months of past jobs: seeded once for all tests here, which takes ten seconds of a core."""

import asyncio
import json
from datetime import datetime, timedelta
from io import StringIO
from typing import Any, NamedTuple

import pytest
import time_machine
from django.conf import settings
from django.core.management import call_command
from django.db import connection

from billing.models import Budget, Commitment, ExchangeRate, InvoiceRemark, LedgerPeriod, Meter, Price
from billing.queries import discrepancies as wrong_in_the_books
from billing.queries.node_hours import judge
from billing.queries.periods import checklist
from clusters.drivers import Unreachable
from clusters.drivers.simulated import SimulatedDriver, path_of
from clusters.models import Cluster, Dataset, Flavor
from clusters.queries.capacity import freshness_of
from clusters.queries.history import history_begins
from devtools.demo_history import begin_earlier
from federation.management.demo import CLAIMED, FAILING_DEVICE, FAILING_NODE, SICK, STALE
from federation.models import Attempt, Job, PrepullPolicy, Reservation
from federation.queries.history import past_jobs
from federation.queries.nodes import node_summary
from federation.queries.proof import disagreements
from foundation.clock import now
from quotas.models import QuotaLimit
from simulator.traces import read_trace
from tenancy.models import Tenant, User
from tests.builders import actor_for
from tests.kept_rows import written_once

pytestmark = pytest.mark.django_db
DAYS, JUDGED_DAYS, EXPORTED_DAYS = 90, 6, 8
FLEET = """
clusters:
  - name: all
    nodes:
      - {name: g, count: 40, model: any, gpus: 8, cpu: 512, memory_gib: 4096}
      - {name: c, count: 20, cpu: 512, memory_gib: 4096}
"""


@pytest.fixture(scope="module")
def demo(django_db_setup, django_db_blocker, tmp_path_factory):
    """What the command said of three months, and when it began: all tests begin with its rows and files."""
    home = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "HOME", home)
        with written_once(django_db_blocker, _seed_and_count) as found:
            yield found


def _seed_and_count():
    began = now()
    told = seed()
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")  # as autovacuum does in a gateway, which cannot see what this transaction wrote
    return Seeded(told, began)


class Seeded(NamedTuple):
    told: dict[str, Any]
    began: datetime


def seed():
    return json.loads(said_of("seed_demo", "--json", f"--days={DAYS}"))


def counts():
    return {
        model.__name__: model.objects.count()
        for model in (
            Tenant,
            User,
            Cluster,
            Price,
            QuotaLimit,
            Budget,
            Commitment,
            ExchangeRate,
            PrepullPolicy,
            Dataset,
            Reservation,
            Job,
            Attempt,
            Meter,
        )
    }


def test_the_demo_is_seeded_once_however_often_it_is_asked_for(demo):
    first = counts()
    assert demo.told["past_jobs"] > 2500
    assert demo.told["live_jobs"] == 26
    assert first["Cluster"] == 40
    assert first["ExchangeRate"] > 60, "of the weekdays of three months"
    assert first["PrepullPolicy"] == 2
    assert first["Commitment"] == 2
    assert set(Price.objects.values_list("currency", flat=True)) == {"USD", "EUR"}
    again = seed()
    assert (again["past_jobs"], again["live_jobs"]) == (0, 0)
    assert counts() == first


def test_the_demos_books_are_right_and_three_months_of_past_are_priced(demo):
    told = demo.told
    assert wrong_in_the_books() == ()
    assert disagreements() == ()
    assert Job.objects.filter(finished_at=None).count() == told["live_jobs"]
    assert not Meter.objects.filter(is_closed=False).exists()
    assert not Meter.objects.filter(segments__price=None).exists()
    months = Job.objects.filter(labels__demo="history").dates("finished_at", "month")
    assert len(months) >= 3
    assert len(Job.objects.filter(labels__demo="history").dates("finished_at", "day")) >= 90
    assert Meter.objects.values("cluster_id").distinct().count() >= 25
    assert all(job.attempts_made == 1 for job in Job.objects.exclude(finished_at=None))
    assert User.objects.get(email=told["email"]).check_password(told["password"])


def test_every_flavor_has_a_price_and_one_cluster_is_stale_and_one_falls_silent_when_work_has_begun_there(demo):
    at = demo.began
    priced = set(Price.objects.values_list("rate__cluster__name", "rate__flavor"))
    assert priced == set(Flavor.objects.values_list("cluster__name", "name"))
    fresh = {row.name: freshness_of(row, at) for row in Cluster.objects.all()}
    assert {name for name, found in fresh.items() if found.is_stale} == {STALE}
    silent = Cluster.objects.get(name=SICK)
    path = path_of(settings.HOME, silent.server)
    assert asyncio.run(SimulatedDriver(path, "mine", now=lambda: at).identity()) == silent.identity
    later = SimulatedDriver(path, "mine", now=lambda: now() + timedelta(minutes=5))
    with pytest.raises(Unreachable):
        asyncio.run(later.identity())


def test_the_demos_nodes_were_there_before_its_jobs_and_no_hour_of_them_was_sold_twice(demo):
    with connection.cursor() as cursor:
        assert begin_earlier(cursor) > 100
        assert begin_earlier(cursor) == 0
    first = Job.objects.filter(labels__demo="history").earliest("created_at").created_at
    known = history_begins(Cluster.objects.values_list("id", flat=True))
    assert len(known) == 40
    assert max(known.values()) <= first
    days = [demo.began.date() - timedelta(days=ago) for ago in range(JUDGED_DAYS)]
    judged = [judge(day) for day in days]
    assert [hour for day in judged for hour in day.hours if hour.balance.is_negative] == []
    assert [error for day in judged for error in day.errors] == []
    used = {hour.node for day in judged for hour in day.hours if hour.balance.charged}
    assert len(used) > 20


def test_a_gpu_of_the_demo_fails_and_jobs_avoid_its_node(demo):
    admin = actor_for(User.objects.get(email=demo.told["email"]))
    found = node_summary(admin, Cluster.objects.get(name=CLAIMED).id, FAILING_NODE)
    rates = {one.name: one.rate for one in found.devices}
    worst = max(rates, key=lambda name: rates[name].share or 0)
    assert (worst, rates[worst].is_above(found.others)) == (f"gpu-{FAILING_DEVICE}", True)
    assert found.avoided is not None
    assert found.avoided.reason.startswith(f"{found.whole.failures['device']} of its last ")


@pytest.mark.long  # to post three months takes thirty seconds of a core
@pytest.mark.usefixtures("demo")
def test_the_demos_first_months_close_once_and_a_dispute_keeps_the_next_one_open():
    with connection.cursor() as cursor:
        begin_earlier(cursor)
    first, again = (said_of("seed_demo_books") for _ in range(2))
    assert first == again
    *closed, left, current = LedgerPeriod.objects.order_by("month")
    assert closed
    assert {period.state for period in closed} == {"closed"}
    assert (left.state, current.state) == ("open", "open")
    assert InvoiceRemark.objects.get().state == "open"
    assert [item.detail for item in checklist(left) if item.keeps_open] == ["Disputes of documents not resolved: 1."]
    assert wrong_in_the_books() == ()


def said_of(*command):
    out = StringIO()
    call_command(*command, stdout=out)
    return out.getvalue()


@pytest.mark.usefixtures("demo")
def test_what_ran_comes_back_as_a_trace_that_can_be_replayed(tmp_path, capsys):
    path = tmp_path / "jobs.csv"
    with time_machine.travel(now(), tick=False):
        since = now() - timedelta(days=EXPORTED_DAYS)
        call_command("export_trace", "--days", str(EXPORTED_DAYS), "--out", str(path))
        _, untold = past_jobs(since, now())
    told = capsys.readouterr().err
    jobs = read_trace("jobs", path.read_text())
    ran = Job.objects.filter(created_at__gte=since, finished_at__isnull=False, attempts__started_at__isnull=False)
    assert len(jobs) + untold == ran.distinct().count() > 100
    assert told.startswith(f"{len(jobs)} jobs")
    one = jobs[0]
    attempt = Attempt.objects.filter(job_id=one.name, finished_at__isnull=False).latest("number")
    assert one.seconds == round((attempt.finished_at - attempt.started_at).total_seconds(), 3)
    assert one.tenant == attempt.job.tenant.path
    assert attempt.job.name not in path.read_text().replace(one.tenant, "")
    (tmp_path / "fleet.yaml").write_text(FLEET)
    plain = path.read_text()
    for model in {model for job in jobs for model in job.models}:
        plain = plain.replace(model, "any")
    path.write_text(plain)
    out = StringIO()
    call_command("replay", "--fleet", str(tmp_path / "fleet.yaml"), "--trace", str(path), "--quiet", stdout=out)
    assert f"{len(jobs)} ({len(jobs)})" in out.getvalue()
