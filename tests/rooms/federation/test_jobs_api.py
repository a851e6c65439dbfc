import json
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from federation.models import Attempt, Job, JobEvent, PodRun, RemoteObject
from foundation.clock import now
from foundation.ids import new_id
from tests.builders import bearer, bind, make_cluster, make_spec, make_tenant, make_user, redate

pytestmark = pytest.mark.django_db
TENANT = "acme/research"
JOB_MEMBERS = {
    "id", "tenant", "name", "state", "reason", "labels", "spec", "created_by", "created_at", "started_at", "finished_at",
    "suspend_requested_at", "pending_stop", "exit_code", "progress", "artifacts", "failure", "attempt", "cost", "links",
}  # fmt: skip
ATTEMPT_MEMBERS = {
    "id", "number", "job", "cluster", "state", "object", "objects", "placement", "unit_price", "estimate", "reserved_at",
    "created_at", "started_at", "finished_at", "end_reason", "end_message", "lost_seconds", "failure",
}  # fmt: skip


@pytest.fixture
def user():
    user = make_user("ada@example.org")
    bind(user, "acme", "submitter")
    for path in (TENANT, "acme/research/vision", "acme/sales", "other/team"):
        make_tenant(path)
    return user


@pytest.fixture
def api(client, user):
    """Calls the API as the user: `api("get", "/jobs?…")`; the answer's status and JSON."""
    headers = bearer(user)

    def call(verb, path, body=None, *, as_user=None, **more):
        raw = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
        sent = {**(headers if as_user is None else bearer(as_user)), **more}
        response = getattr(client, verb)(f"/api/v1{path}", **raw, headers=sent)
        return response.status_code, response.json()

    return call


def make_job(api, tenant=TENANT, **changes):
    status, job = api("post", "/jobs", {"tenant": tenant, **make_spec(**changes)})
    assert status == 201, job
    return Job.objects.get(id=job["id"])


def make_attempt(job, number=1, **fields):
    cluster = fields.pop("cluster", None) or make_cluster("acme")
    given = {"flavor": "h100", "namespace": "swy-research-00000000", "spec_hash": "0" * 32, "domain": "z/b/r"}
    attempt = Attempt.objects.create(job=job, number=number, cluster=cluster, **(given | fields))
    RemoteObject.objects.create(
        attempt=attempt, position=0, name=f"swy-{attempt.id.hex[-8:]}", flavor="h100", capacity_type="on_demand",
        pods=1, gpu_units=1, cpu_millicores=1000, memory_mib=1024, uid="uid-" + attempt.id.hex, cluster_id=cluster.id,
    )  # fmt: skip
    return attempt


NO_COST = {"amount": "0.000000", "currency": "USD", "unpriced": False, "not_charged": "0.000000", "beside": []}


def test_a_submitted_job_is_shown_in_full(api, user):
    status, job = api("post", "/jobs", {"tenant": TENANT, **make_spec(labels={"experiment": "42"})})
    assert status == 201
    assert set(job) == JOB_MEMBERS
    assert (job["tenant"], job["name"], job["state"], job["created_by"]) == (
        TENANT,
        "train",
        "queued",
        "ada@example.org",
    )
    assert job["reason"]["code"] == "new"
    assert job["attempt"] is None
    assert job["cost"] == NO_COST | {"provisional": True}
    assert job["created_at"].endswith("Z")
    assert job["spec"]["tenant"] == TENANT
    assert job["spec"]["pod_sets"][0] == {
        "name": "main", "count": 1, "image": "registry.example/train:1", "command": [], "args": [], "env": {}, "cpu": "1",
        "memory": "1Gi", "gpu": None,
    }  # fmt: skip
    assert api("get", f"/jobs/{job['id']}") == (200, job)
    assert api("get", job["links"]["self"].removeprefix("/api/v1")) == (200, job)


def test_a_shown_spec_can_be_submitted_as_it_is(api):
    job = api("post", "/jobs", {"tenant": TENANT, **make_spec(pod={"gpu": {"fraction": "0.25"}})})[1]
    status, again = api("post", "/jobs", job["spec"])
    assert (status, again["spec"]) == (201, job["spec"])


def test_a_repeated_key_is_answered_with_the_first_answer_and_says_so(client, api, user):
    body = json.dumps({"tenant": TENANT, **make_spec()})
    headers = {**bearer(user), "Idempotency-Key": "k"}
    first, again = (client.post("/api/v1/jobs", body, content_type="application/json", headers=headers) for _ in "12")
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize(
    "extra",
    [
        {"id": str(uuid4())},
        {"state": "succeeded"},
        {"tenant_id": str(uuid4())},
        {"created_by": "root@example.org"},
        {"created_by_id": str(uuid4())},
        {"priority": 10**6},
        {"attempts_made": 5},
        {"cost": {}},
        {"reason_code": "x"},
        {"shape": "x"},
    ],
)
def test_nothing_but_the_spec_can_be_assigned(api, extra):
    status, problem = api("post", "/jobs", {"tenant": TENANT, **make_spec(), **extra})
    assert status == 422
    assert [(e["field"], e["code"]) for e in problem["errors"]] == [(next(iter(extra)), "unknown_field")]
    assert Job.objects.count() == 0


def test_faults_of_tenant_and_spec_are_told_together(api):
    status, problem = api("post", "/jobs", {"name": "X", "pod_sets": [], "oops": 1})
    assert (status, problem["code"]) == (422, "validation_failed")
    assert {e["field"]: e["code"] for e in problem["errors"]} == {
        "tenant": "required", "name": "bad_format", "pod_sets": "required", "oops": "unknown_field"
    }  # fmt: skip


def test_a_foreign_job_is_absent_on_every_path(api, user):
    foreign = make_user()
    bind(foreign, "other", "admin")
    theirs = api("post", "/jobs", {"tenant": "other/team", **make_spec()}, as_user=foreign)[1]["id"]
    for verb, tail in [
        ("get", ""),
        ("get", "/attempts"),
        ("get", "/events"),
        ("get", "/explanation"),
        ("get", "/logs"),
        ("post", "/cancel"),
    ]:
        answers = []
        for job_id in (theirs, new_id()):
            status, problem = api(verb, f"/jobs/{job_id}{tail}")
            answers.append((status, {**problem, "request_id": ""}))
        assert answers[0] == answers[1]
        assert answers[0][0] == 404
    assert Job.objects.get(id=theirs).state == "queued"
    assert api("get", "/jobs")[1]["items"] == []


def test_a_malformed_id_is_absent(api):
    status, problem = api("get", "/jobs/not-an-id")
    assert (status, problem["code"]) == (404, "not_found")


def test_strangers_are_told_to_authenticate(client):
    for path in ("/api/v1/jobs", f"/api/v1/jobs/{new_id()}"):
        response = client.get(path)
        assert (response.status_code, response.json()["code"]) == (401, "not_authenticated")


def test_lists_are_filtered(api):
    east, west = make_cluster("acme", "east"), make_cluster("acme", "west")
    one = make_job(api, labels={"experiment": "42"}, name="one")
    two = make_job(api, tenant="acme/research/vision", name="two", labels={"experiment": "43"})
    make_job(api, tenant="acme/sales", name="three")
    make_attempt(one, cluster=east, state="failed", finished_at=now())
    make_attempt(one, number=2, cluster=west)
    Job.objects.filter(id=one.id).update(state="dispatching")
    Job.objects.filter(id=two.id).update(created_at=datetime(2026, 1, 1, tzinfo=UTC))

    def names(query):
        status, page = api("get", f"/jobs?{query}")
        assert status == 200, page
        return [job["name"] for job in page["items"]]

    assert names("") == ["three", "two", "one"]
    assert names("order=created") == ["one", "two", "three"]
    assert names("tenant=acme/research") == ["two", "one"]
    assert names("tenant=acme/research/vision") == ["two"]
    assert names("state=dispatching") == ["one"]
    assert names("state=dispatching,queued") == ["three", "two", "one"]
    assert names("cluster=east") == ["one"]
    assert names("cluster=west&state=dispatching") == ["one"]
    assert names("cluster=north") == []
    assert names("user=ADA@example.org") == ["three", "two", "one"]
    assert names("user=bob@example.org") == []
    assert names("label=experiment:42") == ["one"]
    assert names("created_before=2026-02-01T00:00:00Z") == ["two"]
    assert names("created_after=2026-02-01T00:00:00Z") == ["three", "one"]


@pytest.mark.parametrize(
    ("query", "field", "code"),
    [
        ("state=asleep", "state", "unknown_value"),
        ("created_after=yesterday", "created_after", "bad_format"),
        ("created_after=2026-01-01T00:00:00", "created_after", "bad_format"),
        ("created_before=2026-13-01T00:00:00Z", "created_before", "bad_format"),
        ("limit=1000000000", "limit", "out_of_range"),
        ("limit=0", "limit", "out_of_range"),
        ("cursor=forged", "cursor", "bad_cursor"),
        ("order=secret", "order", "unknown_order"),
        ("_connector=OR", "_connector", "unknown_filter"),
        ("created_by__password__startswith=a", "created_by__password__startswith", "unknown_filter"),
        ("state=queued&state=failed", "state", "given_twice"),
    ],
)
def test_bad_filters_are_refused_by_name(api, query, field, code):
    status, problem = api("get", f"/jobs?{query}")
    assert status == 422
    assert [(e["field"], e["code"]) for e in problem["errors"]] == [(field, code)]


def test_a_list_below_a_foreign_tenant_is_absent(api):
    assert api("get", "/jobs?tenant=other/team")[0] == 404
    assert api("get", "/jobs?tenant=no/such")[0] == 404


def test_pages_follow_each_other_and_a_cursor_belongs_to_its_list(api):
    made = [make_job(api, name=f"job-{n}") for n in range(5)]
    seen, cursor = [], None
    while True:
        page = api("get", f"/jobs?limit=2{f'&cursor={cursor}' if cursor else ''}")[1]
        seen += [job["name"] for job in page["items"]]
        first_cursor, cursor = cursor or page["next"], page["next"]
        if cursor is None:
            break
    assert seen == [job.name for job in reversed(made)]
    assert api("get", f"/jobs?limit=2&state=queued&cursor={first_cursor}")[0] == 422
    other = make_user()
    bind(other, "acme", "viewer")
    assert api("get", f"/jobs?limit=2&cursor={first_cursor}", as_user=other)[0] == 422


def test_a_page_costs_the_same_however_many_jobs_are_on_it(api, django_assert_max_num_queries):
    for n in range(8):
        make_attempt(make_job(api, name=f"job-{n}"))
    with django_assert_max_num_queries(12):
        assert len(api("get", "/jobs")[1]["items"]) == 8


def test_the_cost_of_a_job_that_ran_for_less_than_a_second_is_final_once_it_is_settled(api):
    """Kubernetes tells whole seconds: what started and ended in the same one leaves nothing to meter."""
    job, at = make_job(api), datetime(2026, 1, 2, tzinfo=UTC)
    attempt = make_attempt(job, state="failed", started_at=at, finished_at=at)
    redate(Job.objects.filter(id=job.id), state="failed", started_at=at, finished_at=at)
    assert api("get", f"/jobs/{job.id}")[1]["cost"]["provisional"] is True
    Attempt.objects.filter(id=attempt.id).update(settled_at=at)
    assert api("get", f"/jobs/{job.id}")[1]["cost"]["provisional"] is False


def test_attempts_are_listed_newest_first_with_their_objects(api):
    job = make_job(api)
    at = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    first = make_attempt(job, state="preempted", finished_at=at, end_reason="spot", unit_price="2.5")
    second = make_attempt(job, number=2, cluster=first.cluster)
    status, page = api("get", f"/jobs/{job.id}/attempts")
    assert status == 200
    newer, older = page["items"]
    assert set(newer) == ATTEMPT_MEMBERS
    assert (newer["number"], newer["id"], newer["unit_price"], newer["end_reason"]) == (2, str(second.id), None, None)
    assert older["unit_price"] == {"amount": "2.500000", "currency": "USD"}
    assert (older["finished_at"], older["end_reason"]) == ("2026-01-02T03:04:05.678Z", "spot")
    assert older["placement"] == {"flavor": "h100", "domain": "z/b/r"}
    assert older["object"] == {
        "api_version": "batch/v1", "kind": "Job", "namespace": "swy-research-00000000",
        "name": first.remote_objects.get().name, "uid": first.remote_objects.get().uid, "pods": first.remote_objects.get().pods,
    }  # fmt: skip
    assert api("get", f"/jobs/{job.id}")[1]["attempt"] == newer


def test_the_timeline_is_told_in_order(api):
    job = make_job(api)
    JobEvent.objects.create(job=job, at=now(), kind="placed", message="Attempt 1 on east.")
    items = api("get", f"/jobs/{job.id}/events")[1]["items"]
    assert [item["kind"] for item in items] == ["submitted", "placed"]
    assert items[0]["message"] == "Submitted by ada@example.org."


def test_an_explanation_has_the_reason_on_each_cluster(api):
    job = make_job(api)
    reason = {"cluster": "east", "code": "no_capacity", "message": "needs 8, 3 free", "is_for_good": False}
    Job.objects.filter(id=job.id).update(
        reason_code="waiting_for_capacity", reason_message="no cluster has room", explanation={"clusters": [reason]}
    )
    status, told = api("get", f"/jobs/{job.id}/explanation")
    assert status == 200
    assert told["reason"] == {"code": "waiting_for_capacity", "message": "no cluster has room"}
    assert told["clusters"] == [
        {"cluster": "east", "code": "no_capacity", "message": "needs 8, 3 free", "for_good": False}
    ]


def test_a_queued_job_is_cancelled_at_once_and_asking_twice_is_harmless(api):
    job = make_job(api)
    for _ in "12":
        status, shown = api("post", f"/jobs/{job.id}/cancel")
        assert (status, shown["state"]) == (202, "cancelled")
    Job.objects.filter(id=make_job(api, name="done").id).update(state="succeeded", finished_at=now())
    done = Job.objects.get(name="done")
    status, problem = api("post", f"/jobs/{done.id}/cancel")
    assert (status, problem["code"]) == (409, "state_conflict")


def test_a_viewer_reads_but_neither_submits_nor_cancels(api):
    job = make_job(api)
    viewer = make_user()
    bind(viewer, "acme", "viewer")
    assert api("get", f"/jobs/{job.id}", as_user=viewer)[0] == 200
    assert api("post", "/jobs", {"tenant": TENANT, **make_spec()}, as_user=viewer)[0] == 403
    assert api("post", f"/jobs/{job.id}/cancel", as_user=viewer)[0] == 403


def test_logs_of_a_job_without_attempt_are_empty(api):
    job = make_job(api)
    nothing = {"attempt": None, "attempt_number": None, "cluster": None, "pods": 0, "containers": [], "items": []}
    assert api("get", f"/jobs/{job.id}/logs") == (200, nothing)
    assert api("get", f"/jobs/{job.id}/logs?pod=x")[0] == 404
    assert api("get", f"/jobs/{job.id}/logs?tail_lines=0")[0] == 422


def test_logs_that_cannot_be_had_say_why(api):
    job = make_job(api)
    attempt = make_attempt(job, cluster=make_cluster("acme", "east", server="https://127.0.0.1:1"))
    PodRun.objects.create(
        attempt=attempt, cluster_id=attempt.cluster_id, remote_object=attempt.remote_objects.get(), place=0, uid="u",
        name="pod-0", node="n1", phase="Running", observed_at=now(),
    )  # fmt: skip
    status, logs = api("get", f"/jobs/{job.id}/logs")
    assert (status, logs["cluster"], logs["pods"]) == (200, "east", 1)
    [log] = logs["items"]
    assert (log["pod"], log["node"], log["phase"], log["text"], log["truncated"]) == (
        "pod-0",
        "n1",
        "Running",
        "",
        False,
    )
    assert log["unavailable"]


def test_a_finished_job_that_never_ran_has_cost_nothing_for_good(api):
    job = make_job(api)
    api("post", f"/jobs/{job.id}/cancel")
    assert api("get", f"/jobs/{job.id}")[1]["cost"] == NO_COST | {"provisional": False}


def test_a_bulk_is_answered_item_by_item(api):
    status, answer = api("post", "/jobs/bulk", {"tenant": TENANT, "jobs": [make_spec(), make_spec(name="X")]})
    assert status == 200
    good, bad = answer["items"]
    assert (good["index"], good["status"], set(good["job"])) == (
        0, 201, {"id", "tenant", "name", "state", "created_at", "links"}
    )  # fmt: skip
    assert (bad["index"], bad["status"], bad["problem"]["code"]) == (1, 422, "validation_failed")
    assert bad["problem"]["errors"][0]["field"] == "name"
    assert api("get", f"/jobs/{good['job']['id']}")[0] == 200


def test_a_bulk_body_may_be_larger_than_others(api):
    padding = {"env": {"A": "x" * 60_000}}
    status, answer = api("post", "/jobs/bulk", {"tenant": TENANT, "jobs": [make_spec(pod=padding)] * 50})
    assert status == 200
    assert {item["status"] for item in answer["items"]} == {201}


def test_a_single_submit_may_carry_a_manifest(api):
    manifest = {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "hello"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [
            {"name": "main", "image": "hello", "resources": {"requests": {"cpu": 1, "memory": "1Gi"}}}]}}},
    }  # fmt: skip
    status, job = api("post", "/jobs", {"tenant": TENANT, "manifest": manifest, "strategy": "cheapest"})
    assert (status, job["name"], job["spec"]["strategy"]) == (201, "hello", "cheapest")


def test_instants_are_bounds_of_a_half_open_period(api):
    job = make_job(api)
    Job.objects.filter(id=job.id).update(created_at=datetime(2026, 3, 1, tzinfo=UTC))
    later = (datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=1)).isoformat().replace("+00:00", "Z")
    page = api("get", f"/jobs?created_after=2026-03-01T00:00:00Z&created_before={later}")[1]
    assert len(page["items"]) == 1
    assert api("get", "/jobs?created_before=2026-03-01T00:00:00Z")[1]["items"] == []
