"""Tiered overflow over HTTP and in rounds, with the clock held."""

import json
from datetime import timedelta
from typing import Any

import pytest
import time_machine

from federation.models import Attempt, Job
from federation.operations import cycle, run_scheduling_cycle
from foundation import clock
from tests.builders import bearer, bind, make_cluster, make_flavor, make_limit, make_node, make_spec, make_tenant
from tests.builders import make_user as new_user

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("quotes_look_anew")]
TENANT = "acme/research"
TIERS: list[dict[str, Any]] = [
    {"after_seconds": 0, "clusters": ["home"]},
    {"after_seconds": 600, "regions": ["eu-*"]},
    {"after_seconds": 3600},
]


@pytest.fixture(autouse=True)
def fleet():
    for name, region in (("home", "on-site"), ("near", "eu-1"), ("far", "us-1")):
        cluster = make_cluster("acme", name, region=region)
        make_flavor(cluster)
        make_node(cluster, f"{name}-0")


@pytest.fixture
def call(client):
    user = new_user()
    bind(user, "acme", "submitter")
    make_tenant(TENANT)
    own = bearer(user)

    def send(verb, path, body=None):
        raw = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
        answer = getattr(client, verb)(f"/api/v1{path}", **raw, headers=own)
        return answer.status_code, answer.json()

    return send


def wanted(name="train", count=1, tiers=TIERS, **constraints):
    pod = {"count": count, "gpu": {"count": 8}, "cpu": "4", "memory": "16Gi"}
    return {"tenant": TENANT, **make_spec(name=name, pod=pod, constraints={"overflow": tiers, **constraints})}


def where():
    return dict(Attempt.objects.values_list("job__name", "cluster__name"))


def test_a_job_waits_at_home_for_its_time_and_then_goes_wider(call, monkeypatch):
    monkeypatch.setattr(cycle, "database_now", clock.now)
    start = clock.now()
    with time_machine.travel(start, tick=False) as held:
        for name in ("first", "second", "third"):
            status, job = call("post", "/jobs", wanted(name))
            assert status == 201, job
        run_scheduling_cycle()
        assert where() == {"first": "home"}
        run_scheduling_cycle()
        _, quote = call("post", "/quotes", wanted("asked"))
        _, why = call("get", f"/jobs/{job['id']}/explanation")
        told = {one["cluster"]: (one["code"], one["message"]) for one in why["clusters"]}
        assert told["home"][0] == "not_enough_free"
        assert told["near"] == ("tier_not_reached", "opens to the job once it has waited 10 min")
        assert told["far"] == ("tier_not_reached", "opens to the job once it has waited 1 h")
        assert why["reason"]["message"].endswith("; its next overflow tier opens once it has waited 10 min")
        assert (quote["offers"], quote["reason"]) == ([], why["reason"])

        held.move_to(start + timedelta(seconds=599))
        run_scheduling_cycle()
        assert where() == {"first": "home"}

        held.move_to(start + timedelta(seconds=600))
        run_scheduling_cycle()
        assert where() == {"first": "home", "second": "near"}
        _, why = call("get", f"/jobs/{job['id']}/explanation")
        assert {one["cluster"]: one["code"] for one in why["clusters"]} == {
            "home": "not_enough_free", "near": "not_enough_free", "far": "tier_not_reached",
        }  # fmt: skip
        assert call("post", "/jobs", wanted("late"))[0] == 201

        held.move_to(start + timedelta(seconds=3600))
        run_scheduling_cycle()
        assert where() == {"first": "home", "second": "near", "third": "far"}
        assert Job.objects.get(name="late").reason_code == "waiting_for_capacity"


def test_what_no_tier_could_ever_hold_is_refused_and_what_the_last_one_could_is_not(call):
    big = make_cluster("acme", "big", region="us-2")
    make_flavor(big)
    for number in range(2):
        make_node(big, f"big-{number}")
    for path in ("/jobs", "/quotes"):
        status, problem = call("post", path, wanted(count=2, tiers=TIERS[:2]))
        assert (status, problem["code"]) == (422, "never_fits")
        assert {one["field"]: one["code"] for one in problem["errors"]} == {
            "clusters.home": "not_enough_free", "clusters.near": "not_enough_free",
            "clusters.far": "cluster_excluded", "clusters.big": "cluster_excluded",
        }  # fmt: skip
    assert call("post", "/jobs", wanted(count=2))[0] == 201


def test_quota_for_good_is_judged_by_all_tiers(call):
    make_limit("acme", nominal="4", clusters=("home",))
    assert call("post", "/jobs", wanted(tiers=TIERS[:1]))[1]["code"] == "quota_exceeded_for_good"
    assert call("post", "/jobs", wanted())[0] == 201


def test_a_tier_names_only_clusters_that_the_tenant_has(call):
    make_cluster("globex", "secret")
    tiers = [TIERS[0], {"after_seconds": 60, "clusters": ["home", "secret", "unheard-of"]}]
    for path in ("/jobs", "/quotes"):
        status, problem = call("post", path, wanted(tiers=tiers))
        assert (status, [one["field"] for one in problem["errors"]]) == (
            404, ["constraints.overflow[1].clusters[1]", "constraints.overflow[1].clusters[2]"],
        )  # fmt: skip


def test_bad_tiers_are_refused_by_field_and_good_ones_shown(call):
    status, problem = call("post", "/jobs", wanted(tiers=[*TIERS, {"after_seconds": 3600, "zones": []}]))
    assert (status, {one["field"]: one["code"] for one in problem["errors"]}) == (
        422,
        {
            "constraints.overflow[3].after_seconds": "out_of_range",
            "constraints.overflow[3].zones": "unknown_field",
        },
    )
    _, job = call("post", "/jobs", wanted())
    shown = job["spec"]["constraints"]["overflow"]
    assert shown == [{"clusters": [], "regions": [], **tier} for tier in TIERS]


def test_a_jobs_page_tells_its_tiers(client, call):
    _, job = call("post", "/jobs", wanted())
    client.force_login(Job.objects.get().created_by)
    page = client.get(f"/jobs/{job['id']}/").content.decode()
    assert "home; eu-* after 10 min; anywhere after 1 h" in page
