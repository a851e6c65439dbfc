"""Datasets that are copied from an object store: what the copy gets, whose key it is, what stops it, and that the key is nowhere else."""

import base64
import json

import pytest
from django.conf import settings as configured

from clusters.drivers.simulated import SimulatedDriver, path_of, secrets
from clusters.engine.secrets import Kind, access_key
from clusters.models import DatasetReplica
from clusters.operations.secrets import NewValue, put_secret
from clusters.operations.staging import Spot
from clusters.operations.storages import WantedStorage, create_storage
from federation import operations
from federation.engine.objects.copy_programs import FROM_BUCKET
from federation.models import DataWait, Job, StageIn
from federation.queries.staging import view_of
from foundation.problems import Conflict, Invalid
from tenancy.models import Tenant
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_tenant, make_user
from tests.live import gpu_job
from tests.rooms.federation.test_job_secrets import everything_stored, written
from tests.staged import (
    SUM,
    TENANT,
    again,
    copies,
    copying,
    cycle,
    later,
    make_plan,
    rounds,
    staged_job,
    storages,
    until_idle,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("stores")]
assert copying  # fixtures
assert storages
assert written
IMAGE = f"registry.example/rclone@sha256:{'0' * 64}"
KEY_ID, SECRET = "AKIAcanary77c1", "canary-91d2/secret+key"
FROM = Spot("s3", "in/imagenet")


def put(key_id, secret, path=TENANT, name="s3-key"):
    return put_secret(SYSTEM, make_tenant(path).id, name, NewValue(Kind.ACCESS_KEY, access_key(key_id, secret)))


@pytest.fixture
def stores(storages, cluster, settings):
    settings.OBJECT_STAGE_IMAGE = IMAGE
    make_tenant(f"{TENANT}/vision")  # of the jobs
    where = {"endpoint": "https://s3.example", "region": "eu-1", "bucket": "data", "secret": "s3-key"}
    wanted = WantedStorage("s3", tenant=TENANT, prefix="t/{tenant}", kind="object_store", **where)
    create_storage(SYSTEM, cluster.id, wanted)


@pytest.fixture
def sent(monkeypatch):
    """The Secrets as they are sent to the cluster."""
    found, create = [], SimulatedDriver.create_secret

    async def look(self, manifest):
        found.append(manifest)
        return await create(self, manifest)

    monkeypatch.setattr(SimulatedDriver, "create_secret", look)
    return found


def keys(sent):
    return [{name: base64.b64decode(text).decode() for name, text in one["data"].items()} for one in sent]


def test_a_job_waits_until_a_copy_with_the_tenants_key_is_there(cluster, submitter, copying, sent):
    put(KEY_ID, SECRET)
    make_plan(cluster, source=FROM)
    job = staged_job(submitter)
    cycle()
    assert again(job).reason_code == "waiting_for_data"
    rounds(2)
    [manifest] = copying.sent
    pod = manifest["spec"]["template"]["spec"]
    [container] = pod["containers"]
    tenant = Tenant.objects.get(path=TENANT)
    assert container["image"] == IMAGE
    assert container["command"][2] == FROM_BUCKET
    assert container["args"][:2] == ["--from", f"source:data/t/{tenant.id}/in/imagenet"]
    assert [one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"]] == ["fast"]
    assert keys(sent) == [{"id": KEY_ID, "secret": SECRET}]
    [reference] = sent[0]["metadata"]["ownerReferences"]
    assert reference["name"] == manifest["metadata"]["name"]
    until_idle()
    row = StageIn.objects.get()
    assert (row.outcome, row.store, row.secrets) == ("staged", {}, {})
    assert DatasetReplica.objects.get().sha256 == SUM
    assert copies(cluster) == []
    assert not secrets(path_of(configured.HOME, cluster.server), sent[0]["metadata"]["namespace"])
    cycle()
    assert again(job).state == "dispatching"


def test_the_nearest_key_is_used_and_that_of_another_tenant_is_unreachable(cluster, submitter, copying, sent):
    put("theirs", "theirs", "globex")
    put("theirs", "theirs", "acme/other")
    put("below", "below", f"{TENANT}/vision")
    plan = make_plan(cluster, source=FROM)
    assert view_of(plan).why_not == f"{TENANT} has no secret s3-key of the kind access_key."
    with pytest.raises(Conflict) as refused:
        operations.start_stage_in(SYSTEM, plan.dataset_id, plan.id)
    assert refused.value.code == "state_conflict"
    job = staged_job(submitter)
    cycle()
    rounds(2)
    assert again(job).state == "dispatching", "it does not wait for what cannot come"
    assert (sent, copying.sent, DataWait.objects.count()) == ([], [], 0)
    put("above", "above", "acme")
    operations.start_stage_in(SYSTEM, plan.dataset_id, plan.id)
    rounds()
    until_idle()
    assert keys(sent) == [{"id": "above", "secret": "above"}]
    put(KEY_ID, SECRET)
    operations.start_stage_in(SYSTEM, plan.dataset_id, plan.id)
    rounds()
    until_idle()
    assert keys(sent)[1:] == [{"id": KEY_ID, "secret": SECRET}]


@pytest.mark.parametrize("kind", [Kind.VALUE, Kind.REGISTRY])
def test_a_secret_of_another_kind_is_no_key(cluster, copying, kind):
    registry = "ghcr.io" if kind == Kind.REGISTRY else ""
    put_secret(SYSTEM, make_tenant(TENANT).id, "s3-key", NewValue(kind, b"{}", registry))
    assert "has no secret s3-key" in view_of(make_plan(cluster, source=FROM)).why_not


def test_no_job_gets_an_access_key_or_mounts_an_object_store(cluster, client):
    put(KEY_ID, SECRET)
    user = make_user()
    bind(user, TENANT, "submitter")
    for given, field in (
        ({"secrets": [{"secret": "s3-key", "env": "KEY"}]}, "secrets.s3-key"),
        ({"pull_secret": "s3-key"}, "secrets.s3-key"),
        ({"mounts": [{"storage": "s3", "path": "/data"}]}, "storages.s3"),
    ):
        body = gpu_job()
        body["pod_sets"][0] |= given
        answer = client.post("/api/v1/jobs", json.dumps(body), content_type="application/json", headers=bearer(user))
        assert (answer.status_code, [one["field"] for one in answer.json()["errors"]]) == (404, [field])
    assert not Job.objects.exists()


def test_nothing_is_copied_to_an_object_store(cluster):
    with pytest.raises(Invalid) as refused:
        make_plan(cluster, target=Spot("s3", "out"))
    assert [(one.field, one.code) for one in refused.value.errors] == [("target.storage", "not_allowed")]


def test_a_hostile_path_makes_no_plan(cluster):
    for number, path in enumerate(("..", "a/../b", "/a", "a//b", "%2e%2e/x", "a\n", "\uff0e\uff0e/x", "$(id)", "a:b")):
        with pytest.raises(Invalid) as refused:
            make_plan(cluster, name=f"d{number}", source=Spot("s3", path))
        assert [one.field for one in refused.value.errors] == ["source.path"]


def test_each_kind_of_copy_has_its_image(cluster, submitter, copying, settings):
    put(KEY_ID, SECRET)
    plan = make_plan(cluster, source=FROM)
    settings.OBJECT_STAGE_IMAGE = ""
    assert "SWITCHYARD_OBJECT_STAGE_IMAGE" in view_of(plan).why_not
    with pytest.raises(Conflict) as refused:
        operations.start_stage_in(SYSTEM, plan.dataset_id, plan.id)
    assert refused.value.code == "staging_is_off"
    job = staged_job(submitter)
    cycle()
    assert again(job).state == "dispatching"
    settings.OBJECT_STAGE_IMAGE, settings.STAGE_IMAGE = IMAGE, ""
    waits = staged_job(submitter)
    cycle()
    assert again(waits).reason_code == "waiting_for_data"
    other = make_plan(cluster, name="other")
    assert "SWITCHYARD_STAGE_IMAGE" in view_of(other).why_not


def test_the_key_is_nowhere_in_plain(cluster, client, copying, written):
    user = make_user("root@acme.example")
    bind(user, "acme", "admin")
    tenant = make_tenant(TENANT)
    told = []

    def ask(verb, path, body=None):
        raw = {} if body is None else {"data": json.dumps(body), "content_type": "application/json"}
        answer = getattr(client, verb)(f"/api/v1{path}", **raw, headers=bearer(user) | {"Idempotency-Key": "k" + path})
        told.append(answer.content.decode())
        return answer

    folder = f"/tenants/{tenant.id}/secrets"
    key = {"id": KEY_ID, "secret": SECRET}
    assert ask("put", f"{folder}/s3-key", {"access_key": key}).status_code == 201
    assert ask("put", f"{folder}/s3-key", {"access_key": key, "value": SECRET}).status_code == 422
    assert ask("put", f"{folder}/s3-key", {"access_key": key | {"secret": f"{SECRET} "}}).status_code == 422
    plan = make_plan(cluster, source=FROM)
    body = gpu_job() | {"data": [{"name": "imagenet", "stage": True}]}
    made = ask("post", "/jobs", body).json()
    cycle()
    copying.fails(log="the object store: AccessDenied\n")
    rounds(2)
    told.append(repr(StageIn.objects.get().__dict__))
    rounds(2)
    copying.ends_well()
    later()
    rounds(4)
    assert DatasetReplica.objects.exists()
    for path in ("", "/events", "/explanation"):
        ask("get", f"/jobs/{made['id']}{path}")
    for path in (
        folder, "/audit", f"/clusters/{cluster.id}/storages", f"/clusters/{cluster.id}/staging-plans", f"/clusters/{cluster.id}/events",
        f"/datasets/{plan.dataset_id}/staging-plans",
    ):  # fmt: skip
        assert ask("get", path).status_code == 200, path
    client.force_login(user)
    pages = f"/datasets/{plan.dataset_id}/staging/", f"/clusters/{cluster.id}/", f"/tenants/{tenant.id}/secrets/"
    told += [client.get(path).content.decode() for path in pages]
    told += [json.dumps(copying.sent), everything_stored(), *written()]
    for value in (KEY_ID, SECRET):
        hidden = [value, base64.b64encode(value.encode()).decode()[:-4], value.encode().hex(), json.dumps(value)[1:-1]]
        for text in told:
            assert not any(form in text for form in hidden)
