"""Staging plans, their copies and jobs that wait for them over HTTP: who sees and does what, and what is refused."""

import json

import pytest

from clusters.models import StagingPlan
from federation.models import DataWait, Job, StageIn
from tenancy.models import AuditEntry
from tests.builders import bearer, bind, make_tenant, make_user
from tests.live import gpu_job
from tests.staged import TENANT, copying, cycle, plan, rounds, staged_job, storages, until_idle

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("storages", "copying")]
assert copying  # fixtures
assert plan
assert storages
BODY = {
    "cluster": "east",
    "source": {"storage": "archive", "path": "in/x"},
    "target": {"storage": "fast", "path": "out/x"},
}


@pytest.fixture
def by(client):
    """Calls as a user with a role at a tenant."""
    users = {}

    def call(role, verb, path, body=None, *, at=TENANT):
        if (role, at) not in users:
            users[role, at] = make_user()
            make_tenant(at)
            bind(users[role, at], at, role)
        raw = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
        answer = getattr(client, verb)(f"/api/v1{path}", **raw, headers=bearer(users[role, at]))
        return answer.status_code, answer.json() if answer.content else None

    return call


def test_a_plan_is_made_copied_seen_and_removed(by, plan):
    where = f"/datasets/{plan.dataset_id}/staging-plans"
    assert by("manager", "delete", f"{where}/{plan.id}") == (204, None)
    status, made = by("manager", "post", where, BODY | {"sha256": "ab" * 32})
    assert (status, made["state"], made["source"], made["sha256"]) == (201, "idle", BODY["source"], "ab" * 32)
    assert by("manager", "post", where, BODY)[1]["code"] == "staging_plan_exists"
    one = f"{where}/{made['id']}"
    assert by("manager", "post", f"{one}/start")[1]["state"] == "waiting"
    rounds(4)
    until_idle()
    status, shown = by("viewer", "get", one)
    assert (status, shown["state"], shown["replica"]["storage"]) == (200, "staged", "fast")
    assert shown["replica"]["sha256"] == "ab" * 32
    assert by("viewer", "get", where)[1]["items"] == [shown]
    cluster_id = StagingPlan.objects.get().cluster_id
    assert by("viewer", "get", f"/clusters/{cluster_id}/staging-plans")[1]["items"] == [shown]
    status, again = by("manager", "post", f"{one}/start")
    assert (again["state"], again["replica"]) == ("waiting", None)
    assert by("manager", "post", f"{one}/cancel")[1]["state"] == "stopped"
    assert by("manager", "delete", one) == (204, None)
    assert by("manager", "get", one)[0] == 404
    kinds = set(AuditEntry.objects.filter(object_kind="dataset").values_list("action", flat=True))
    assert kinds >= {
        "staging_plan.create",
        "staging_plan.remove",
        "stage_in.start",
        "stage_in.cancel",
        "dataset.staged",
    }


def test_who_may_only_see_changes_nothing_and_strangers_see_nothing(by, plan):
    one = f"/datasets/{plan.dataset_id}/staging-plans/{plan.id}"
    for role in ("viewer", "submitter"):
        assert by(role, "get", one)[0] == 200
        assert by(role, "post", f"{one}/start")[0] == 403
        assert by(role, "post", f"{one}/cancel")[0] == 403
        assert by(role, "delete", one)[0] == 403
        assert by(role, "post", one.rpartition("/")[0], BODY)[0] == 403
    for verb, path in (("get", one), ("post", f"{one}/start"), ("post", f"{one}/cancel"), ("delete", one)):
        assert by("admin", verb, path, at="stranger")[0] == 404
    assert by("admin", "get", f"/clusters/{plan.cluster_id}/staging-plans", at="stranger")[0] == 404
    assert not StageIn.objects.exists()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"source": {"storage": "archive", "path": "../x"}}, "source.path"),
        ({"target": {"storage": "fast", "path": "a b"}}, "target.path"),
        ({"target": {"storage": "archive", "path": "x"}}, "target.storage"),
        ({"source": {"storage": "'; DROP TABLE x; --", "path": "x"}}, "source.storage"),
        ({"cluster": "west"}, "cluster"),
        ({"sha256": "zz"}, "sha256"),
        ({"command": ["id"]}, "command"),
        ({"image": "evil"}, "image"),
        ({"source": {"storage": "archive"}}, "source.path"),
    ],
)
def test_what_is_wrong_is_refused_by_its_field(by, plan, change, field):
    StagingPlan.objects.all().delete()
    status, told = by("manager", "post", f"/datasets/{plan.dataset_id}/staging-plans", BODY | change)
    assert status in (400, 422)
    assert field in {error["field"] for error in told["errors"]}
    assert not StagingPlan.objects.exists()


def test_a_null_character_is_refused(by, plan):
    StagingPlan.objects.all().delete()
    body = BODY | {"source": {"storage": "archive", "path": "x\u0000"}}
    assert by("manager", "post", f"/datasets/{plan.dataset_id}/staging-plans", body)[0] in (400, 422)
    assert not StagingPlan.objects.exists()


def test_parameters_that_do_not_exist_are_refused(by, plan):
    for path in (
        f"/datasets/{plan.dataset_id}/staging-plans?x=%00",
        f"/clusters/{plan.cluster_id}/staging-plans?state=a",
    ):
        assert by("viewer", "get", path)[0] in (400, 422)


def test_a_job_says_that_it_stages_and_is_let_go_by_its_owner(by, plan, submitter):
    body = gpu_job() | {"tenant": TENANT, "data": [{"name": "imagenet", "stage": True}], "stage_within_seconds": 90}
    status, job = by("submitter", "post", "/jobs", body)
    assert status == 201, job
    assert job["spec"]["data"] == [{"name": "imagenet", "read": None, "stage": True}]
    assert job["spec"]["stage_within_seconds"] == 90
    cycle()
    status, shown = by("submitter", "get", f"/jobs/{job['id']}")
    assert shown["reason"]["code"] == "waiting_for_data"
    assert Job.objects.get().reason_code == "waiting_for_data"
    path = f"/jobs/{job['id']}/run-without-data"
    assert by("viewer", "post", path)[0] == 403
    assert by("admin", "post", path, at="stranger")[0] == 404
    assert by("submitter", "post", path)[0] == 200
    assert by("submitter", "post", path)[0] == 200
    assert DataWait.objects.get().outcome == "skipped"
    other = staged_job(submitter, name="other", data=[])
    assert by("manager", "post", f"/jobs/{other.id}/run-without-data")[1]["code"] == "state_conflict"


def test_a_wrong_wish_to_stage_is_refused(by, plan):
    for data, more in (
        ([{"name": "imagenet", "stage": "yes"}], {}),
        ([{"name": "imagenet"}], {"stage_within_seconds": 0}),
    ):
        status, _ = by("submitter", "post", "/jobs", gpu_job() | {"tenant": TENANT, "data": data} | more)
        assert status in (400, 422)
