import asyncio
import json
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.db import connection

from billing.models import Budget, Commitment, ExchangeRate, Meter, Price
from billing.queries import discrepancies as wrong_in_the_books
from billing.queries.node_hours import judge
from clusters.drivers import Unreachable
from clusters.drivers.simulated import SimulatedDriver, path_of
from clusters.models import Cluster, Flavor
from clusters.queries.capacity import freshness_of
from clusters.queries.history import history_begins
from devtools.demo_history import begin_earlier
from federation.management.demo import SICK, STALE
from federation.models import Attempt, Job, PrepullPolicy
from federation.queries.proof import disagreements
from foundation.clock import now
from quotas.models import QuotaLimit
from tenancy.models import Tenant, User

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _home_of_its_own(settings, tmp_path):
    settings.HOME = tmp_path


def seed(*, days=2):
    out = StringIO()
    call_command("seed_demo", "--json", f"--days={days}", stdout=out)
    return json.loads(out.getvalue())


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
            Job,
            Attempt,
            Meter,
        )
    }


def test_the_demo_is_seeded_once_however_often_it_is_asked_for():
    told = seed()
    first = counts()
    assert told["past_jobs"] >= 28, "two days of a weekend, on a Monday just after midnight"
    assert told["live_jobs"] == 26
    assert first["Cluster"] == 40
    assert first["ExchangeRate"] > 60, "of the weekdays of three months"
    assert first["PrepullPolicy"] == 2
    assert first["Commitment"] == 1
    again = seed()
    assert (again["past_jobs"], again["live_jobs"]) == (0, 0)
    assert counts() == first


def test_the_demos_books_are_right_and_three_months_of_past_are_priced():
    told = seed(days=90)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")  # as autovacuum does in a gateway, which cannot see what this transaction wrote
    assert told["past_jobs"] > 2500
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


def test_every_flavor_has_a_price_and_one_cluster_is_stale_and_one_falls_silent_when_work_has_begun_there(settings):
    seed()
    at = now()
    priced = set(Price.objects.values_list("rate__cluster__name", "rate__flavor"))
    assert priced == set(Flavor.objects.values_list("cluster__name", "name"))
    fresh = {row.name: freshness_of(row, at) for row in Cluster.objects.all()}
    assert {name for name, found in fresh.items() if found.is_stale} == {STALE}
    silent = Cluster.objects.get(name=SICK)
    path = path_of(settings.HOME, silent.server)
    assert asyncio.run(SimulatedDriver(path, "mine").identity()) == silent.identity
    later = SimulatedDriver(path, "mine", now=lambda: at + timedelta(minutes=5))
    with pytest.raises(Unreachable):
        asyncio.run(later.identity())


def test_the_demos_nodes_were_there_before_its_jobs_and_no_hour_of_them_was_sold_twice():
    seed(days=4)
    with connection.cursor() as cursor:
        assert begin_earlier(cursor) > 100
        assert begin_earlier(cursor) == 0
    first = Job.objects.filter(labels__demo="history").earliest("created_at").created_at
    known = history_begins(Cluster.objects.values_list("id", flat=True))
    assert len(known) == 40
    assert max(known.values()) <= first
    days = [first.date() + timedelta(days=ago) for ago in range((now().date() - first.date()).days + 1)]
    judged = [judge(day) for day in days]
    assert [hour for day in judged for hour in day.hours if hour.balance.is_negative] == []
    assert [error for day in judged for error in day.errors] == []
    used = {hour.node for day in judged for hour in day.hours if hour.balance.charged}
    assert len(used) > 20
