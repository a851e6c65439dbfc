import json
from io import StringIO

import pytest
from django.core.management import call_command

from billing.models import Meter, Price
from billing.queries import discrepancies as wrong_in_the_books
from clusters.models import Cluster, Flavor
from federation.models import Attempt, Job
from federation.queries.proof import disagreements
from quotas.models import QuotaLimit
from tenancy.models import Tenant, User

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _home_of_its_own(settings, tmp_path):
    settings.HOME = tmp_path


def seed():
    out = StringIO()
    call_command("seed_demo", "--json", stdout=out)
    return json.loads(out.getvalue())


def counts():
    return {
        model.__name__: model.objects.count()
        for model in (Tenant, User, Cluster, Price, QuotaLimit, Job, Attempt, Meter)
    }


def test_the_demo_is_seeded_once_however_often_it_is_asked_for():
    told = seed()
    first = counts()
    assert told["past_jobs"] == 170
    assert told["live_jobs"] == 20
    assert first["Cluster"] == 5
    again = seed()
    assert (again["past_jobs"], again["live_jobs"]) == (0, 0)
    assert counts() == first


def test_the_demos_books_are_right_and_all_of_its_past_is_priced():
    told = seed()
    assert wrong_in_the_books() == ()
    assert disagreements() == ()
    assert Job.objects.filter(finished_at=None).count() == told["live_jobs"]
    assert not Meter.objects.filter(is_closed=False).exists()
    assert not Meter.objects.filter(segments__price=None).exists()
    assert all(job.attempts_made == 1 for job in Job.objects.exclude(finished_at=None))
    assert User.objects.get(email=told["email"]).check_password(told["password"])


def test_every_flavor_of_the_demos_fleet_has_a_price():
    seed()
    priced = set(Price.objects.values_list("rate__cluster__name", "rate__flavor"))
    assert priced == set(Flavor.objects.values_list("cluster__name", "name"))
