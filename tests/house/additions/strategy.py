"""What the gateway does with the added strategy `fullest`. `test_where_to_add` runs this in a copy that has it."""

import json

import pytest
from django.core.management import call_command

from federation.models.policies import PlacementPolicy, PolicyWeight
from tests.builders import bearer, bind, make_spec, make_tenant, make_user
from tests.engine.fleets import flavor, pods, uniform
from tests.engine.test_strategies import chosen


@pytest.fixture
def user():
    found = make_user()
    bind(found, "acme")
    return found


@pytest.fixture
def call(client, user):
    def send(verb, path, body):
        raw = {"data": json.dumps(body), "content_type": "application/json", "headers": bearer(user)}
        return getattr(client, verb)(f"/api/v1{path}", **raw)

    return send


def test_jobs_are_ranked_by_its_weights():
    """The price counts a tenth of what it counts in `balanced`: dearer and full is better than cheap and empty."""
    fleet = [uniform(1, of=flavor(price="1.00")), uniform(2, free=1, of=flavor(price="1.25"))]
    assert [chosen(name, fleet, pods(1, 1)) for name in ("fullest", "balanced")] == ["c2", "c1"]


@pytest.mark.django_db
def test_a_job_may_name_it(call):
    answer = call("post", "/jobs", {"tenant": "acme", **make_spec(strategy="fullest")})
    assert (answer.status_code, answer.json()["spec"]["strategy"]) == (201, "fullest")


@pytest.mark.django_db
def test_a_policy_may_name_it_and_weigh_it(call, user):
    wanted = {"default_strategy": "fullest", "strategies": ["fullest"], "weights": {"fullest": {"price": "0.25"}}}
    answer = call("put", f"/tenants/{make_tenant('acme').id}/policy", wanted)
    assert answer.status_code == 200, answer.content
    assert PlacementPolicy.objects.get().strategies == ["fullest"]
    assert PolicyWeight.objects.get().strategy == "fullest"


@pytest.mark.django_db
def test_the_forms_offer_it(client, user):
    client.force_login(user)
    assert '<option value="fullest">fullest</option>' in client.get("/jobs/new/").content.decode()


def test_the_openapi_description_has_it(shapes):
    assert shapes["StrategyEnum"]["enum"] == [
        "balanced",
        "cheapest",
        "soonest",
        "pack",
        "spread",
        "greenest",
        "fullest",
    ]


@pytest.mark.django_db
def test_its_migration_is_complete():
    call_command("makemigrations", "--check", "--dry-run")
