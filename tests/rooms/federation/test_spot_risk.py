"""Spot capacity is compared with the work that its interruptions take, in quotes as in rounds."""

import json
from decimal import Decimal

import pytest

from billing.operations import create_price
from billing.operations.prices import NewPrice
from federation.engine.intake.normal_form import shape_of
from federation.models import Attempt, Job, JobEvent
from federation.operations import run_scheduling_cycle
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_cluster, make_flavor, make_node, make_spec, make_tenant, make_user

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("quotes_look_anew")]
TENANT = "acme/research"
HOURS = 3600


@pytest.fixture
def fleet():
    """North on demand at 2, south as spot at 1.60: nobody has told how often it is interrupted."""
    for name, capacity_type, price in (("north", "on_demand", "2"), ("south", "spot", "1.6")):
        cluster = make_cluster("acme", name)
        make_flavor(cluster, capacity_type=capacity_type)
        for number in range(2):
            make_node(cluster, f"{name}-{number}")
        create_price(SYSTEM, NewPrice(name, "h100", Decimal(price)))


@pytest.fixture
def user():
    found = make_user("ada@example.org")
    bind(found, "acme", "submitter")
    make_tenant(TENANT)
    return found


@pytest.fixture
def api(client, user):
    own = bearer(user)

    def post(path, body):
        response = client.post(f"/api/v1{path}", json.dumps(body), content_type="application/json", headers=own)
        return response.json()

    return post


def wanted(**more):
    given = {"gpu": {"count": 8}, "cpu": "4", "memory": "16Gi"}
    long = {"strategy": "cheapest", "estimated_seconds": 20 * HOURS, "deadline_seconds": 24 * HOURS}
    return {"tenant": TENANT, **make_spec(pod=given, **(long | more))}


def test_a_long_job_without_checkpoints_is_offered_spot_second_and_one_with_them_first(fleet, api):
    offers = api("/quotes", wanted())["offers"]
    assert [offer["cluster"] for offer in offers] == ["north", "south"]
    assert offers[0]["interruptions"] is None
    risk = offers[1]["interruptions"]
    assert (risk["per_hour"], risk["exposed_seconds"]) == ("0.050000", 20 * HOURS)
    assert offers[1]["price_per_hour"]["amount"] == "12.800000"
    assert Decimal(risk["price_per_hour_of_work"]["amount"]) > 16
    assert risk["message"] == "spot, about 42 % of the work expected to be lost"
    offers = api("/quotes", wanted(checkpoint_seconds=HOURS))["offers"]
    assert [offer["cluster"] for offer in offers] == ["south", "north"]


@pytest.mark.parametrize("checkpoint", [None, HOURS])
def test_the_round_takes_what_the_quote_offered_and_says_so(fleet, api, checkpoint):
    asked = wanted(checkpoint_seconds=checkpoint)
    first = api("/quotes", asked)["offers"][0]
    job = Job.objects.get(id=api("/jobs", asked)["id"])
    assert job.spec["checkpoint_seconds"] == checkpoint
    run_scheduling_cycle()
    attempt = Attempt.objects.get(job=job)
    assert attempt.cluster.name == first["cluster"]
    told = JobEvent.objects.get(job=job, kind="placed").message
    assert ("13.1" in told and "12.8000 USD an hour" in told and "of the work" in told) == bool(checkpoint)
    if checkpoint:
        assert attempt.unit_price == Decimal("1.6")


def test_what_the_price_tells_goes_before_what_the_settings_assume(fleet, api):
    create_price(SYSTEM, NewPrice("south", "h100", Decimal("1.6"), interruptions_per_hour=Decimal(0)))
    offers = api("/quotes", wanted())["offers"]
    assert [(offer["cluster"], offer["interruptions"]) for offer in offers] == [("south", None), ("north", None)]


def test_the_settings_may_assume_that_nothing_is_interrupted(fleet, api, settings):
    settings.SPOT_INTERRUPTIONS_PER_HOUR = Decimal(0)
    assert [offer["cluster"] for offer in api("/quotes", wanted())["offers"]] == ["south", "north"]


def test_the_form_tells_price_and_risk(fleet, client, user):
    client.force_login(user)
    typed = {
        "tenant": TENANT, "name": "j", "image": "r.example/t:1", "count": "1", "kind": "whole", "gpus": "8", "cpu": "4",
        "memory": "16Gi", "strategy": "cheapest", "estimated_minutes": "1200", "checkpoint_minutes": "60", "show": "offers",
    }  # fmt: skip
    page = client.post("/jobs/new/", typed).content.decode()
    assert "spot, about 3 % of the work expected to be lost" in page
    refused = client.post("/jobs/new/", typed | {"checkpoint_minutes": "soon", "show": ""})
    assert refused.status_code == 422


def test_specs_from_before_there_were_checkpoints_keep_their_shape(fleet, api):
    job = Job.objects.get(id=api("/jobs", wanted())["id"])
    older = {key: value for key, value in job.spec.items() if key != "checkpoint_seconds"}
    assert shape_of(older) == job.shape
    Job.objects.filter(id=job.id).update(spec=older)
    run_scheduling_cycle()
    assert Attempt.objects.get(job=job).cluster.name == "north"
    other = Job.objects.get(id=api("/jobs", wanted(checkpoint_seconds=60, name="other"))["id"])
    assert other.shape != job.shape
