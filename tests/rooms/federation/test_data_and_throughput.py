"""Data and throughput over HTTP, in rounds and on pages."""

import json
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connection

from billing.operations import create_price
from billing.operations.egress import NewEgressPrice, create_egress_price
from billing.operations.prices import NewPrice
from clusters.operations.datasets import Location, create_dataset, remove_dataset
from federation.engine.lifecycle import AttemptState
from federation.models import Attempt, Job, JobEvent, PodRun, RunGroup
from federation.operations import run_scheduling_cycle
from federation.operations.consequences import Ending
from federation.operations.endings import end_attempts
from federation.queries import releases
from federation.queries.snapshot import load_snapshot
from foundation import clock
from foundation.caches import reset_all
from placement.answers.recording import decisions_text, snapshot_of, snapshot_text
from placement.cycle.cycle import decide
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_cluster, make_flavor, make_node, make_spec, make_tenant, make_user
from tests.rooms.federation.test_constraints import attack

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("quotes_look_anew")]
TENANT = "acme/research"
HOUR = 3600
GIB = 2**30
FAST = {"H100-80GB": 2.5, "A100-80GB": 1}


@pytest.fixture(autouse=True)
def fleet():
    """North has A100s at 1 near the data, south H100s at 2 far from it."""
    make_tenant(TENANT)
    for name, region, model, price in (("north", "eu-1", "A100-80GB", "1"), ("south", "us-1", "H100-80GB", "2")):
        cluster = make_cluster("acme", name, region=region)
        make_flavor(cluster, gpu_model=model)
        make_node(cluster, f"{name}-0")
        create_price(SYSTEM, NewPrice(name, "h100", Decimal(price)))


@pytest.fixture
def user():
    found = make_user("ada@example.org")
    bind(found, "acme", "submitter")
    return found


@pytest.fixture
def call(client, user):
    own = bearer(user)

    def send(verb, path, body=None):
        raw = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
        answer = getattr(client, verb)(f"/api/v1{path}", **raw, headers=own)
        return answer.status_code, answer.json()

    return send


def recorded(tenant=TENANT, name="imagenet", size=100 * GIB, region="eu-1"):
    make_tenant(tenant)
    return create_dataset(SYSTEM, tenant, name, size_bytes=size, locations=[Location(region)])


def wanted(**more):
    pod = {"gpu": {"count": 8, "models": ["A100-80GB", "H100-80GB"]}, "cpu": "4", "memory": "16Gi"}
    given = {"strategy": "cheapest", "estimated_seconds": 10 * HOUR, "data": [{"name": "imagenet"}]}
    return {"tenant": TENANT, **make_spec(pod=pod, **(given | more))}


def usd(amount):
    return {"amount": amount, "currency": "USD"}


def test_offers_show_what_moving_the_data_costs_and_from_where(call):
    recorded()
    create_egress_price(SYSTEM, NewEgressPrice("eu-*", "*", Decimal("0.05")))
    near, far = call("post", "/quotes", wanted())[1]["offers"]
    assert (near["cluster"], near["egress"], near["cost_parts"]["egress_cost"]) == ("north", [], usd("0.000000"))
    assert far["egress"] == [{"dataset": "imagenet", "from_region": "eu-1", "size": "100Gi", "cost": usd("5.000000")}]
    assert far["cost_parts"] == {
        "run_cost": usd("160.000000"), "interruption_cost": usd("0.000000"), "egress_cost": usd("5.000000"),
    }  # fmt: skip
    assert (far["estimated_cost"], far["estimated_seconds"]) == (usd("165.000000"), 10 * HOUR)


def test_without_an_egress_price_an_offer_says_that_it_is_unknown_and_comes_last(call):
    recorded(region="us-1")
    near, far = call("post", "/quotes", wanted())[1]["offers"]
    assert (near["cluster"], near["estimated_cost"]) == ("south", usd("160.000000"))
    assert (far["estimated_cost"], far["cost_parts"]["egress_cost"]) == (None, None)
    assert far["cost_parts"]["run_cost"] == usd("80.000000")
    assert far["egress"][0]["cost"] is None


def test_a_ratio_makes_prices_comparable_and_runs_shorter(call):
    assert [one["cluster"] for one in call("post", "/quotes", wanted(data=[]))[1]["offers"]] == ["north", "south"]
    first, second = call("post", "/quotes", wanted(data=[], throughput=FAST))[1]["offers"]
    assert (first["cluster"], first["estimated_seconds"], first["estimated_cost"]) == (
        "south", 4 * HOUR, usd("64.000000"),
    )  # fmt: skip
    assert (second["estimated_seconds"], second["estimated_cost"]) == (10 * HOUR, usd("80.000000"))


@pytest.mark.parametrize("data", [[], [{"name": "imagenet", "read": "2Ti"}]])
def test_the_round_takes_what_the_quote_offered_and_keeps_what_it_expected(call, client, user, data):
    recorded()
    create_egress_price(SYSTEM, NewEgressPrice("*", "*", Decimal("0.05")))
    asked = wanted(data=data, throughput=FAST)
    offer = call("post", "/quotes", asked)[1]["offers"][0]
    status, made = call("post", "/jobs", asked)
    assert (status, made["spec"].get("data", []), made["spec"]["throughput"]) == (201, data, FAST)
    run_scheduling_cycle()
    attempt = Attempt.objects.get()
    assert attempt.cluster.name == offer["cluster"] == ("north" if data else "south")
    assert attempt.pace == (1 if data else 0.4)
    shown = call("get", f"/jobs/{made['id']}")[1]["attempt"]["estimate"]
    assert shown == {
        "seconds": offer["estimated_seconds"], "cost": offer["estimated_cost"],
        "cost_parts": offer["cost_parts"], "egress": offer["egress"],
    }  # fmt: skip
    client.force_login(user)
    page = client.get(f"/jobs/{made['id']}/").content.decode()
    assert "Expected cost" in page
    assert ("runs about 4 h" in page) == ("about 4 h, by the job&#x27;s estimate" in page) == (not data)
    assert ("2Ti of imagenet" in page) == bool(data)


def test_where_data_is_moved_the_jobs_timeline_and_page_say_so(call, client, user):
    recorded()
    create_egress_price(SYSTEM, NewEgressPrice("*", "us-*", Decimal("0.05")))
    made = call("post", "/jobs", wanted(constraints={"clusters": ["south"]}))[1]
    run_scheduling_cycle()
    told = JobEvent.objects.get(kind="placed").message
    assert told == "Attempt 1 on south, flavor h100 (100Gi of imagenet from eu-1 for 5.00 USD)."
    client.force_login(user)
    page = client.get(f"/jobs/{made['id']}/").content.decode()
    assert "100Gi of imagenet from eu-1 for 5.00 USD" in page
    assert "5.00 USD egress" in page


@pytest.mark.parametrize("path", ["/jobs", "/quotes"])
def test_a_dataset_that_the_tenant_does_not_have_is_refused_by_its_field_and_a_foreign_one_looks_the_same(call, path):
    recorded()
    recorded("acme/other", "beside")
    recorded("acme/research/below", "below")
    told = []
    for name in ("nothing", "beside", "below"):
        status, answer = call("post", path, wanted(data=[{"name": "imagenet"}, {"name": name}]))
        assert (status, answer["code"]) == (404, "not_found")
        told.append([(error["field"], error["code"], error["detail"]) for error in answer["errors"]])
    assert told[0] == told[1] == told[2]
    assert [error[:2] for error in told[0]] == [("data[1].name", "not_found")]
    assert not Job.objects.exists()


def test_in_bulk_each_job_is_judged_by_itself(call):
    recorded()
    bad = wanted(data=[{"name": "nothing"}])
    items = call("post", "/jobs/bulk", {"jobs": [wanted(), bad, wanted()]})[1]["items"]
    assert [item["status"] for item in items] == [201, 404, 201]


def test_a_job_means_the_nearest_dataset_of_that_name(call):
    make_tenant("acme/other")
    recorded("acme", region="us-1")
    recorded(TENANT, region="eu-1")
    for tenant, cluster in ((TENANT, "north"), ("acme/other", "south")):
        assert call("post", "/quotes", {**wanted(), "tenant": tenant})[1]["offers"][0]["cluster"] == cluster
        assert call("post", "/jobs", {**wanted(name=tenant.rpartition("/")[2]), "tenant": tenant})[0] == 201
    run_scheduling_cycle()
    assert dict(Attempt.objects.values_list("job__name", "cluster__name")) == {"research": "north", "other": "south"}


def test_a_queued_job_whose_dataset_is_forgotten_runs_all_the_same(call):
    dataset = recorded()
    made = call("post", "/jobs", wanted())[1]
    remove_dataset(SYSTEM, dataset.id)
    run_scheduling_cycle()
    estimate = call("get", f"/jobs/{made['id']}")[1]["attempt"]["estimate"]
    assert (estimate["cost"], estimate["egress"][0]["from_region"]) == (None, "")
    assert "the location of imagenet is unknown" in JobEvent.objects.get(kind="placed").message


def test_a_cycle_of_the_database_is_decided_again_from_its_file(call):
    recorded()
    create_egress_price(SYSTEM, NewEgressPrice("eu-*", "us-*", Decimal("0.05")))
    for asked in (wanted(), wanted(throughput=FAST), wanted(data=[])):
        assert call("post", "/jobs", asked)[0] == 201
    snapshot = load_snapshot(clock.now(), 100)
    assert snapshot.queue[0].data[0].sources[0].region == "eu-1"
    again = snapshot_of(json.loads(snapshot_text(snapshot)))
    assert again == snapshot
    assert decisions_text(decide(again)) == decisions_text(decide(snapshot))


def test_jobs_without_data_cost_no_query_for_it(call, django_assert_max_num_queries):
    assert call("post", "/jobs", wanted(data=[]))[0] == 201
    load_snapshot(clock.now(), 100)
    with django_assert_max_num_queries(100) as seen:
        load_snapshot(clock.now(), 100)
    assert not [one for one in seen.captured_queries if "dataset" in one["sql"] or "egress" in one["sql"]]


def test_run_times_are_learned_and_told_in_terms_of_the_slowest_model(call):
    def ended(body):
        made = call("post", "/jobs", body)[1]
        run_scheduling_cycle()
        attempt = Attempt.objects.get(job_id=made["id"])
        Job.objects.filter(id=made["id"]).update(state="running")
        over = clock.now()
        begun = over - timedelta(seconds=1000)
        Attempt.objects.filter(id=attempt.id).update(state="running", started_at=begun)
        PodRun.objects.create(
            attempt=attempt, cluster_id=attempt.cluster_id, remote_object=attempt.remote_objects.get(), place=0, name="p",
            uid="u", phase="Succeeded", started_at=begun, finished_at=over, observed_at=over,
        )  # fmt: skip
        assert end_attempts([Ending(attempt.id, AttemptState.SUCCEEDED, "done")]) == 1
        reset_all()

    fast = wanted(data=[], throughput=FAST, estimated_seconds=None)
    ended(fast)
    assert {tuple(one.recent_seconds) for one in RunGroup.objects.all()} == {(2500,)}
    first = call("post", "/quotes", fast)[1]["offers"][0]
    assert (first["cluster"], first["estimated_seconds"]) == ("south", 1000)
    doubled = {model: 2 * speed for model, speed in FAST.items()}
    assert call("post", "/quotes", {**fast, "throughput": doubled})[1]["offers"][0]["estimated_seconds"] == 1000
    assert call("post", "/quotes", {**fast, "throughput": {}})[1]["runtime"] is None


def test_what_runs_on_a_faster_model_is_expected_to_end_sooner(call):
    call("post", "/jobs", wanted(data=[], throughput=FAST))
    at = clock.now()
    run_scheduling_cycle()
    Attempt.objects.update(started_at=at)
    reset_all()
    [coming] = releases.load_releases(at)
    assert coming.at == at + timedelta(hours=4)


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"data": {}}, "data", "wrong_type"),
        ({"data": ["imagenet"]}, "data[0]", "wrong_type"),
        ({"data": [{}]}, "data[0].name", "required"),
        ({"data": [{"name": "Image Net"}]}, "data[0].name", "bad_format"),
        ({"data": [{"name": "a" * 121}]}, "data[0].name", "too_long"),
        ({"data": [{"name": "a\u0000"}]}, "", ""),
        ({"data": [{"name": "imagenet"}, {"name": "imagenet"}]}, "data[1].name", "duplicate"),
        ({"data": [{"name": f"d{n}"} for n in range(17)]}, "data", "too_many"),
        ({"data": [{"name": "imagenet", "read": True}]}, "data[0].read", "wrong_type"),
        ({"data": [{"name": "imagenet", "read": "0"}]}, "data[0].read", "out_of_range"),
        ({"data": [{"name": "imagenet", "read": "2Ei"}]}, "data[0].read", "out_of_range"),
        ({"data": [{"name": "imagenet", "read": "some"}]}, "data[0].read", "bad_quantity"),
        ({"data": [{"name": "imagenet", "size": "1Gi"}]}, "data[0].size", "unknown_field"),
        ({"throughput": []}, "throughput", "wrong_type"),
        ({"throughput": {"H100": "2.4"}}, "throughput.H100", "wrong_type"),
        ({"throughput": {"H100": True}}, "throughput.H100", "wrong_type"),
        ({"throughput": {"H100": None}}, "throughput.H100", "wrong_type"),
        ({"throughput": {"H100": 0}}, "throughput.H100", "out_of_range"),
        ({"throughput": {"H100": -1}}, "throughput.H100", "out_of_range"),
        ({"throughput": {"H100": 0.0001}}, "throughput.H100", "out_of_range"),
        ({"throughput": {"H100": 1000.5}}, "throughput.H100", "out_of_range"),
        ({"throughput": {"H100": 10**40}}, "throughput.H100", "out_of_range"),
        ({"throughput": {"H100": 1e300}}, "throughput.H100", "out_of_range"),
        ({"throughput": {"": 1}}, "throughput.''", "bad_format"),
        ({"throughput": {"H 100": 1}}, "throughput.'H 100'", "bad_format"),
        ({"throughput": {f"m{n}": 1 for n in range(33)}}, "throughput", "too_many"),
    ],
)
def test_bad_fields_are_refused_by_name(call, changes, field, code):
    recorded()
    status, told = call("post", "/jobs", wanted(**changes))
    if not field:
        assert status == 400
        return
    assert status == 422, told
    assert [(error["field"], error["code"]) for error in told["errors"]] == [(field, code)]


def test_both_may_stand_beside_a_manifest(call):
    recorded()
    limits = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "8"}
    container = {"name": "main", "image": "r.example/t:1", "resources": {"limits": limits}}
    manifest = {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }  # fmt: skip
    body = {"tenant": TENANT, "manifest": manifest, "data": [{"name": "imagenet"}], "throughput": FAST}
    status, made = call("post", "/jobs", body)
    assert status == 201, made
    assert (made["spec"]["data"], made["spec"]["throughput"]) == ([{"name": "imagenet", "read": None}], FAST)


@pytest.mark.parametrize(
    ("column", "value", "constraint"),
    [
        ("pace", "0", "work_takes_its_time_or_less"),
        ("pace", "-1", "work_takes_its_time_or_less"),
        ("pace", "1.001", "work_takes_its_time_or_less"),
        ("pace", "'NaN'", "work_takes_its_time_or_less"),
        ("estimate", "'[]'", "attempt_estimate_is_an_object"),
        ("estimate", "'null'", "attempt_estimate_is_an_object"),
        ("estimate", "'7'", "attempt_estimate_is_an_object"),
    ],
)
def test_the_database_refuses(call, column, value, constraint):
    call("post", "/jobs", wanted(data=[]))
    run_scheduling_cycle()
    assert constraint in attack(f"UPDATE federation_attempt SET {column} = {value}")


def test_attempts_from_before_there_were_estimates_are_shown_without(call, client, user):
    made = call("post", "/jobs", wanted(data=[]))[1]
    run_scheduling_cycle()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE federation_attempt SET estimate = DEFAULT, pace = DEFAULT")
    assert call("get", f"/jobs/{made['id']}")[1]["attempt"]["estimate"] is None
    client.force_login(user)
    assert b"Expected cost" not in client.get(f"/jobs/{made['id']}/").content


TYPED = {
    "tenant": TENANT, "name": "train", "image": "r.example/t:1", "count": "1", "kind": "whole", "gpus": "8", "cpu": "4",
    "memory": "16Gi", "models": "A100-80GB, H100-80GB", "strategy": "cheapest", "estimated_minutes": "600",
}  # fmt: skip


def test_the_forms_advanced_part_makes_the_same_spec(client, user):
    recorded()
    client.force_login(user)
    assert b'<details class="card advanced">' in client.get("/jobs/new/").content
    typed = {
        "data": " imagenet 20Gi \n\n", "throughput": "H100-80GB=2.5\nA100-80GB=1", "overflow_0_clusters": "north",
        "overflow_1_minutes": "10", "overflow_1_regions": "eu-*, us-*", "overflow_2_minutes": "60",
    }  # fmt: skip
    answer = client.post("/jobs/new/", TYPED | typed)
    assert answer.status_code == 302, answer.content
    spec = Job.objects.get().spec
    assert (spec["data"], spec["throughput"]) == ([{"name": "imagenet", "read": "20Gi"}], FAST)
    assert spec["constraints"]["overflow"] == [
        {"after_seconds": 0, "clusters": ["north"], "regions": []},
        {"after_seconds": 600, "clusters": [], "regions": ["eu-*", "us-*"]},
        {"after_seconds": 3600, "clusters": [], "regions": []},
    ]
    page = client.get(f"/jobs/{Job.objects.get().id}/").content.decode()
    assert "20Gi of imagenet" in page
    assert "H100-80GB 2.5" in page


def test_offers_on_the_form_show_what_makes_up_the_cost(client, user):
    recorded()
    create_egress_price(SYSTEM, NewEgressPrice("*", "us-*", Decimal("0.05")))
    client.force_login(user)
    shown = client.post("/jobs/new/", TYPED | {"data": "imagenet", "show": "offers"}).content.decode()
    for told in ("160.00 USD running", "5.00 USD egress", "165.00 USD", "100Gi of imagenet from eu-1 for 5.00 USD"):
        assert told in shown
    assert '<details class="card advanced" open>' in shown


@pytest.mark.parametrize(
    ("typed", "control"),
    [
        ({"data": "no-such-data"}, "data"),
        ({"data": "Imagenet"}, "data"),
        ({"data": "imagenet much"}, "data"),
        ({"throughput": "fast"}, "throughput"),
        ({"throughput": "H100-80GB=fast"}, "throughput"),
        ({"throughput": "H100-80GB=0"}, "throughput"),
        ({"overflow_1_minutes": "soon"}, "overflow_1_minutes"),
        ({"overflow_2_minutes": "10"}, "overflow_1_minutes"),
        ({"overflow_1_minutes": "20", "overflow_2_minutes": "10"}, "overflow_2_minutes"),
        ({"overflow_0_clusters": "nowhere"}, "overflow_0_clusters"),
        ({"overflow_0_regions": "<b>"}, "overflow_0_regions"),
    ],
)
def test_what_is_wrong_in_the_advanced_part_is_told_at_its_field(client, user, typed, control):
    recorded()
    client.force_login(user)
    answer = client.post("/jobs/new/", TYPED | typed)
    assert answer.status_code in {404, 422}
    assert f'id="e-{control}"' in answer.content.decode()
    assert '<details class="card advanced" open>' in answer.content.decode()
    assert not Job.objects.exists()
