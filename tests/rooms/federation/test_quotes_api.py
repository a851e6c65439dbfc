"""/quotes and /capacity: the same answer as submitting and letting a round decide, and nothing changed by asking."""

import json
import random
from decimal import Decimal

import pytest

from billing.operations import create_price
from billing.operations.prices import NewPrice
from federation.models import Attempt, Job
from federation.operations import run_scheduling_cycle
from federation.queries import quotes
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_cluster, make_flavor, make_limit, make_node, make_spec, make_tenant
from tests.builders import make_user as new_user
from tests.laws import seeds

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("quotes_look_anew")]
TENANT = "acme/research"
A100 = {"gpu_model": "A100-80GB"}


@pytest.fixture
def fleet():
    for name, price, nodes, region in (("north", 3, 2, "eu-1"), ("south", 2, 1, "us-1"), ("west", None, 2, "eu-2")):
        cluster = make_cluster("acme", name, region=region)
        make_flavor(cluster)
        make_flavor(cluster, "a100", **A100)
        for number in range(nodes):
            make_node(cluster, f"{name}-{number}", domain=["z1", "b1", f"r{number}"])
        make_node(cluster, f"{name}-a", devices=[{"flavor": "a100", "units": 4}])
        if price:
            create_price(SYSTEM, NewPrice(name, "h100", Decimal(price)))
    foreign = make_cluster("globex", "secret")
    make_flavor(foreign)
    make_node(foreign)


@pytest.fixture
def api(client):
    user = new_user("ada@example.org")
    bind(user, "acme", "submitter")
    make_tenant(TENANT)
    own = bearer(user)

    def call(verb, path, body=None, headers=None):
        raw = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
        if verb == "get" and body is not None:
            raw = {"data": body}
        response = getattr(client, verb)(f"/api/v1{path}", **raw, headers=headers or own)
        return response.status_code, response.json()

    return call


def wanted(count=1, gpus=8, models=(), pod=None, **more):
    given = {"count": count, "gpu": {"count": gpus, "models": list(models)}, "cpu": "4", "memory": "16Gi"}
    return {"tenant": TENANT, **make_spec(pod=given | (pod or {}), **more)}


def room(api, shape, **more):
    return api("get", "/capacity", {"shape": json.dumps(shape), **more})


def test_offers_are_ranked_priced_and_the_rest_says_why_not(api, fleet):
    status, quote = api("post", "/quotes", wanted(models=["H100-80GB"], strategy="cheapest", estimated_seconds=5400))
    assert status == 200, quote
    assert set(quote) == {"tenant", "as_of", "jobs_ahead", "runtime", "reason", "offers", "later", "why_not"}
    assert (quote["tenant"], quote["jobs_ahead"], quote["reason"], quote["why_not"]) == (TENANT, 0, None, [])
    assert [(offer["cluster"], offer["region"], offer["flavor"]) for offer in quote["offers"]] == [
        ("south", "us-1", "h100"), ("north", "eu-1", "h100"), ("west", "eu-2", "h100"),
    ]  # fmt: skip
    first, _, unpriced = quote["offers"]
    assert first["price_per_hour"] == {"amount": "16.000000", "currency": "USD"}
    assert first["estimated_cost"] == {"amount": "24.000000", "currency": "USD"}
    assert first["expected_start_at"] == quote["as_of"]
    assert (quote["runtime"]["basis"], quote["runtime"]["p50_seconds"]) == ("estimate", 5400)
    assert first["domain"] == "z1/b1/r0/south-0"
    assert first["pod_sets"] == [
        {"name": "main", "count": 1, "flavor": "h100", "domain": "z1/b1/r0/south-0", "level": "node"}
    ]
    assert (unpriced["price_per_hour"], unpriced["estimated_cost"]) == (None, None)


def test_without_an_offer_it_says_what_the_job_would_wait_for(api, fleet):
    assert api("post", "/jobs", wanted(5, models=["H100-80GB"], name="first", constraints={"clusters": ["north"]}))
    _, quote = api("post", "/quotes", wanted(2, models=["H100-80GB"], priority_class="low"))
    assert [offer["cluster"] for offer in quote["offers"]] == ["north", "west"]
    assert [(why["cluster"], why["code"], why["for_good"]) for why in quote["why_not"]] == [
        ("south", "not_enough_free", False)
    ]


def test_asking_changes_nothing(api, fleet):
    counts = [model.objects.count() for model in (Job, Attempt, AuditEntry)]
    assert api("post", "/quotes", wanted())[0] == 200
    assert api("post", "/quotes", {"tenant": TENANT})[0] == 422
    assert room(api, wanted())[0] == 200
    assert [model.objects.count() for model in (Job, Attempt, AuditEntry)] == counts


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"tenant": TENANT},
        {"tenant": "globex", **make_spec()},
        {"tenant": "acme/nowhere", **make_spec()},
        wanted(count=0, strategy="best", name="No"),
        wanted(constraints={"clusters": ["secret"]}),
        wanted(constraints={"clusters": ["unheard-of"]}),
        wanted(gpus=64),
        wanted(100),
        wanted(models=["B300"]),
        {"tenant": TENANT, "manifest": {"kind": "Pod"}},
        {"tenant": TENANT, "nonsense": 1, **make_spec()},
        [],
    ],
)
def test_what_submitting_refuses_a_quote_refuses_in_the_same_words(api, fleet, body):
    make_limit("acme", nominal="64")
    refused, quoted = api("post", "/jobs", body), api("post", "/quotes", body)
    for answer in (refused, quoted):
        answer[1].pop("request_id")
    assert refused[0] >= 400
    assert quoted == refused


def test_a_job_beyond_quota_for_good_is_refused_and_one_beyond_it_now_would_wait(api, fleet):
    make_limit("acme", nominal="8")
    assert api("post", "/quotes", wanted(2))[1]["code"] == "quota_exceeded_for_good"
    api("post", "/jobs", wanted())
    run_scheduling_cycle()
    _, quote = api("post", "/quotes", wanted(gpus=1))
    assert (quote["offers"], quote["reason"]["code"]) == ([], "waiting_for_quota")
    assert {why["code"] for why in quote["why_not"]} == {"quota_reached"}


def test_a_viewer_sees_capacity_but_quotes_need_the_right_to_submit(api, fleet):
    viewer = new_user()
    bind(viewer, "acme", "viewer")
    assert api("post", "/quotes", wanted(), bearer(viewer))[1]["code"] == "permission_denied"
    assert room(lambda *args: api(*args, bearer(viewer)), wanted())[0] == 200
    stranger = new_user()
    assert api("post", "/quotes", wanted(), bearer(stranger))[0] == 404
    assert room(lambda *args: api(*args, bearer(stranger)), wanted())[0] == 404
    assert room(lambda *args: api(*args, bearer(new_user(), "read")), wanted())[0] == 404


def test_capacity_counts_where_and_within_quota(api, fleet):
    make_limit("acme", nominal="16")
    shape = {"pod_sets": [{"cpu": "4", "memory": "16Gi", "gpu": {"count": 8}}]}
    status, found = room(api, shape, tenant=TENANT)
    assert status == 200, found
    assert (found["count"], found["at_least"], found["within_quota"]) == (5, False, 2)
    assert [(one["cluster"], one["count"], one["within_quota"], one["why_none"]) for one in found["clusters"]] == [
        ("north", 2, 2, None), ("south", 1, 1, None), ("west", 2, 2, None),
    ]  # fmt: skip
    _, none = room(api, {**shape, "tenant": TENANT, "constraints": {"regions": ["mars"]}})
    assert (none["count"], {one["why_none"]["code"] for one in none["clusters"]}) == (0, {"region_excluded"})


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({}, "required"),
        ({"shape": "{"}, "malformed"),
        ({"shape": '{"pod_sets": NaN}'}, "malformed"),
        ({"shape": "[" * 40}, "malformed"),
        ({"shape": '{"tenant": "acme", "tenant": "acme"}'}, "malformed"),
        ({"shape": "[]"}, "wrong_type"),
        ({"shape": "{}", "tenant": "acme"}, "required"),
        ({"shape": '{"pod_sets": 7}', "tenant": "acme"}, "wrong_type"),
        ({"shape": '{"pod_sets": [7]}', "tenant": "acme"}, "wrong_type"),
        ({"shape": '{"pod_sets": [{"cpu": "-1", "memory": "1Gi"}]}', "tenant": "acme"}, "out_of_range"),
        ({"shape": '{"pod_sets": [{"cpu": "1", "memory": "1Gi", "count": -1}]}', "tenant": "acme"}, "out_of_range"),
        ({"shape": '{"pod_sets": [{"cpu": "1", "memory": "1Gi"}]}'}, "required"),
        ({"shape": "x" * 3000}, "out_of_range"),
        ({"shape": "ü\x00"}, "out_of_range"),
        ({"shape": "{}", "cluster": "north"}, "unknown_filter"),
    ],
)
def test_a_bad_shape_is_refused_by_field(api, query, code):
    status, problem = api("get", "/capacity", query)
    assert (status, problem["code"]) == (422, "validation_failed")
    assert problem["errors"][0]["code"] == code


def test_a_foreign_cluster_is_never_named(api, fleet):
    told = json.dumps([api("post", "/quotes", wanted()), room(api, wanted())])
    assert "secret" not in told


def test_quotes_are_answered_from_the_last_look_for_a_while(api, fleet, monkeypatch):
    monkeypatch.setattr(quotes, "KEEP_SECONDS", 60.0)
    monkeypatch.setattr(quotes, "MOST_KEPT_SECONDS", 60.0)
    first = api("post", "/quotes", wanted())
    make_limit("acme", nominal="1")
    assert room(api, wanted())[1]["within_quota"] == 5
    monkeypatch.setattr(quotes, "MOST_KEPT_SECONDS", 0.0)
    assert first[1]["offers"]
    assert room(api, wanted())[1]["within_quota"] == 0


def some_spec(chance, number):
    gpu = chance.choice([{"gpu": {"count": chance.choice([1, 2, 4, 8])}}, {"gpu": None}])
    if gpu["gpu"]:
        gpu["gpu"]["models"] = chance.choice([[], ["H100-80GB"], ["A100-80GB"]])
    return {
        "tenant": chance.choice([TENANT, "acme"]),
        **make_spec(
            name=f"job-{number}",
            pod={"count": chance.choice([1, 1, 2, 3]), "cpu": chance.choice(["1", "8"]), **gpu},
            strategy=chance.choice(["balanced", "cheapest", "soonest", "pack", "spread"]),
            priority_class=chance.choice(["low", "normal", "normal", "high"]),
            topology={"level": chance.choice(["cluster", "rack", "node"]), "mode": "required"},
            constraints={"regions": chance.choice([[], [], ["eu-*"]])},
        ),
    }


@pytest.mark.parametrize("seed", seeds(range(3)))
def test_a_quote_a_submission_and_a_round_agree(api, fleet, seed):
    chance = random.Random(seed)
    make_limit("acme", nominal="40")
    make_limit(TENANT, nominal="24")
    placed = 0
    for number in range(24):
        body = some_spec(chance, number)
        status, quote = api("post", "/quotes", body)
        if status != 200:
            assert api("post", "/jobs", body)[0] == status
            continue
        _, job = api("post", "/jobs", body)
        if chance.random() < 0.3:
            continue  # the round that decides it comes with the next job
        run_scheduling_cycle()
        attempt = Attempt.objects.filter(job_id=job["id"]).first()
        assert bool(quote["offers"]) == (attempt is not None), (quote, job)
        if attempt is not None:
            placed += 1
            first = quote["offers"][0]
            assert (first["cluster"], first["flavor"], first["domain"]) == (
                attempt.cluster.name, attempt.flavor, attempt.domain,
            )  # fmt: skip
            if (gpu := body["pod_sets"][0]["gpu"]) and attempt.unit_price is not None:
                price = attempt.unit_price * gpu["count"] * body["pod_sets"][0]["count"]
                assert Decimal(first["price_per_hour"]["amount"]) == price
        else:
            _, why = api("get", f"/jobs/{job['id']}/explanation")
            assert (quote["reason"], quote["why_not"]) == (why["reason"], why["clusters"])
    assert placed
