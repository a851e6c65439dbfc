"""The fleet as placement sees it carries what its flavors emit, and `greenest` decides and quotes by it."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from billing.operations import create_price
from billing.operations.carbon import Origin, apply_carbon
from billing.operations.prices import NewPrice
from federation.models import Attempt, Job, JobEvent
from federation.operations import put_policy, run_scheduling_cycle
from federation.queries.snapshot import load_fleet
from placement.values.emissions import Emissions
from tenancy.queries import SYSTEM
from tests.builders import (
    actor_for,
    bearer,
    bind,
    make_cluster,
    make_flavor,
    make_node,
    make_spec,
    make_tenant,
    make_user,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("quotes_look_anew")]
NOW = datetime(2026, 11, 10, 12, 40, tzinfo=UTC)
SITES = "cluster,from,region,pue\nclean,2026-11-01,FR,1.2\ndirty,2026-11-01,PL,1.5\ndark,2026-11-01,XX,1\n"
RATINGS = "part,gpu_model,from,watts,embodied_kg,life_hours\ngpu,H100-80GB,2026-11-01,700,,\ncore,,2026-11-01,3,,\n"
INTENSITIES = (
    "region,from,until,g_per_kwh\nFR,2026-01-01,2027-01-01,50\nFR,2026-11-10T12:00Z,,25\nFR,2026-11-10T13:00Z,,900\n"
    "PL,2026-01-01,2027-01-01,650\n"
)
ORIGIN = Origin("measured", "CC0")


@pytest.fixture
def fleet():
    """Four clusters: one is dear and clean, one cheap and dirty, one has no intensity, and one no site."""
    for name, price in (("clean", "9"), ("dirty", "1"), ("dark", "0.5"), ("none", "0.5")):
        cluster = make_cluster(name=name)
        make_flavor(cluster, "h100")
        make_node(cluster, f"{name}-1")
        create_price(SYSTEM, NewPrice(name, "h100", Decimal(price), effective_from=datetime(2026, 11, 1, tzinfo=UTC)))
        if name == "clean":
            make_flavor(cluster, "mig", sharing="mig:1g.10gb")
            make_flavor(cluster, "cpu", gpu_model="", vendor="")
    for text in (SITES, RATINGS, INTENSITIES):
        apply_carbon(SYSTEM, "acme", text, ORIGIN)


def emissions(at=NOW):
    return {one.name: {name: of.emissions for name, of in one.flavors.items()} for one in load_fleet(at)}


def test_flavors_have_what_they_emit_in_the_current_hour(fleet):
    found = emissions()
    # 700 W x 1.2 x 25 g, 3 W x 1.2 x 25 g.
    assert found["clean"]["h100"] == Emissions(Decimal("21.000000"), Decimal("0.090000"), None)
    assert found["clean"]["mig"] == Emissions(Decimal("3.000000"), Decimal("0.090000"), None)
    assert found["clean"]["cpu"] == Emissions(None, Decimal("0.090000"), None)
    assert found["dirty"]["h100"].unit == Decimal("682.500000")
    assert (found["dark"]["h100"], found["none"]["h100"]) == (None, None)
    assert emissions(NOW.replace(hour=13, minute=0))["clean"]["h100"].unit == Decimal("756.000000")


def test_the_round_takes_what_the_quote_offered_and_says_what_it_emits(fleet, client):
    user = make_user("ada@example.org")
    bind(user, "acme", "submitter")
    make_tenant("acme/research")
    asked = {
        "tenant": "acme/research",
        **make_spec(pod={"gpu": {"count": 8}, "cpu": "4", "memory": "16Gi"}, strategy="greenest"),
    }

    def post(path):
        return client.post(f"/api/v1{path}", json.dumps(asked), "application/json", headers=bearer(user)).json()

    offers = post("/quotes")["offers"]
    assert [one["cluster"] for one in offers[:2]] == ["clean", "dirty"]
    assert offers[0]["emissions"] == {"grams_per_hour": "336.720", "message": "about 336.7 g CO2e an hour"}
    unknown = {"grams_per_hour": None, "message": "what it emits there is not known"}
    assert [one["emissions"] for one in offers[2:]] == [unknown, unknown]
    job = Job.objects.get(id=post("/jobs")["id"])
    run_scheduling_cycle()
    assert Attempt.objects.get(job=job).cluster.name == "clean"
    assert "about 336.7 g CO2e an hour" in JobEvent.objects.get(job=job, kind="placed").message


def test_a_tenants_policy_can_make_it_the_default(fleet, client):
    admin = make_user("ada@example.org")
    bind(admin, "acme", "admin")
    put_policy(actor_for(admin), make_tenant("acme/research").id, {"default_strategy": "greenest"})
    asked = {"tenant": "acme/research", **make_spec(pod={"gpu": {"count": 8}})}
    asked.pop("strategy", None)
    answer = client.post("/api/v1/jobs", json.dumps(asked), "application/json", headers=bearer(admin))
    run_scheduling_cycle()
    assert Attempt.objects.get(job=answer.json()["id"]).cluster.name == "clean"


def test_other_strategies_say_nothing_of_emissions(fleet, client):
    user = make_user("ada@example.org")
    bind(user, "acme", "submitter")
    make_tenant("acme/research")
    asked = {"tenant": "acme/research", **make_spec(pod={"gpu": {"count": 1}}, strategy="cheapest")}
    shown = client.post("/api/v1/quotes", json.dumps(asked), "application/json", headers=bearer(user)).json()
    assert {one["emissions"] for one in shown["offers"]} == {None}
