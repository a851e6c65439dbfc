"""Jobs that mount storages: where they may run, what they are promised, and what is sent to their cluster."""

import json

import pytest
from django.db import DatabaseError, connection, transaction

from clusters.drivers.simulated import SimulatedDriver
from clusters.models import Storage
from clusters.operations.storages import StorageChanges, WantedStorage, create_storage, remove_storage, update_storage
from federation import operations
from federation.models import Attempt, Job, RemoteObject
from tenancy.models import Tenant
from tenancy.queries import SYSTEM
from tests.builders import bearer, bind, make_tenant, make_user, submit
from tests.live import gpu_job, simulated_cluster

pytestmark = pytest.mark.django_db(transaction=True)
TENANT = "acme/research/vision"
READS = {"storage": "data", "path": "/data", "sub_path": "imagenet"}
WRITES = {"storage": "data", "path": "/out", "sub_path": "runs", "read_only": False}


@pytest.fixture
def vision():
    return make_tenant(TENANT)


@pytest.fixture
def sent(monkeypatch):
    """The pod spec of every Job, as it is sent to the cluster."""
    pods = []
    create = SimulatedDriver.create_job

    async def look(self, manifest):
        pods.append(manifest["spec"]["template"]["spec"])
        return await create(self, manifest)

    monkeypatch.setattr(SimulatedDriver, "create_job", look)
    return pods


@pytest.fixture
def post(client):
    user = make_user()
    bind(user, TENANT, "submitter")

    def send(path, body):
        answer = client.post(f"/api/v1{path}", json.dumps(body), content_type="application/json", headers=bearer(user))
        return answer.status_code, answer.json()

    return send


def declare(cluster, **fields):
    given = {"name": "data", "claim": "shared", "tenant": "acme/research", "prefix": "t/{tenant}"} | fields
    return create_storage(SYSTEM, cluster.id, WantedStorage(**given))


def claims(pod):
    """The volumes of storages, beside those that every pod with GPUs has."""
    return [volume for volume in pod.get("volumes", ()) if "persistentVolumeClaim" in volume]


def mounts(pod):
    names = {volume["name"] for volume in claims(pod)}
    return [mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] in names]


def wanted(*mounts):
    body = gpu_job()
    body["pod_sets"][0]["mounts"] = list(mounts)
    return body


def placed(submitter, *mounts):
    job = submit(submitter, wanted(*mounts))
    operations.run_scheduling_cycle()
    return Job.objects.get(id=job.id)


def test_a_job_gets_its_tenants_part_of_the_volume(cluster, submitter, vision, sent):
    declare(cluster, mode="read_write")
    job = placed(submitter, READS, WRITES)
    assert job.state == "dispatching"
    operations.dispatch_attempts()
    [pod] = sent
    assert claims(pod) == [{"name": "storage-0", "persistentVolumeClaim": {"claimName": "shared"}}]
    assert mounts(pod) == [
        {"name": "storage-0", "mountPath": "/data", "subPath": f"t/{vision.id}/imagenet", "readOnly": True},
        {"name": "storage-0", "mountPath": "/out", "subPath": f"t/{vision.id}/runs"},
    ]


def test_each_pod_set_mounts_its_own(cluster, submitter, sent):
    declare(cluster)
    body = wanted(READS)
    body["pod_sets"].append({**body["pod_sets"][0], "name": "other", "mounts": []})
    submit(submitter, body)
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    assert [bool(claims(pod)) for pod in sent] == [True, False]


def test_a_job_runs_only_where_all_its_storages_are(home, submitter):
    east, west = simulated_cluster("east"), simulated_cluster("west")
    for cluster, names in ((east, ["data"]), (west, ["data", "models"])):
        for name in names:
            declare(cluster, name=name)
    job = placed(submitter, READS, {"storage": "models", "path": "/models"})
    assert Attempt.objects.get(job=job).cluster_id == west.id


@pytest.mark.parametrize(
    "fields", [{"tenant": "acme/other"}, {"tenant": "acme/research/vision/deeper"}, {"name": "else"}]
)
def test_a_storage_that_the_tenant_may_not_mount_looks_like_one_that_is_not_there(cluster, post, fields):
    for path in ("acme/other", "acme/research/vision/deeper"):
        make_tenant(path)
    status, absent = post("/jobs", wanted(READS))
    assert (status, absent["code"]) == (404, "not_found")
    assert [(one["field"], one["code"]) for one in absent["errors"]] == [("storages.data", "not_found")]
    declare(cluster, **fields)
    foreign = post("/jobs", wanted(READS))[1]
    assert {**foreign, "request_id": ""} == {**absent, "request_id": ""}
    assert {**post("/quotes", wanted(READS))[1], "request_id": ""} == {**absent, "request_id": ""}
    assert not Job.objects.exists()


def test_a_storage_of_another_organisations_cluster_serves_no_one_here(home, post):
    simulated_cluster("east")
    theirs = simulated_cluster("theirs", owner="globex")
    declare(theirs, tenant="globex")
    Storage.objects.update(tenant=Tenant.objects.get(path=TENANT))
    assert post("/jobs", wanted(READS))[0] == 404


def test_a_job_that_wants_to_write_where_it_may_only_read_never_fits(cluster, post):
    declare(cluster)
    status, refused = post("/jobs", wanted(WRITES))
    assert (status, refused["code"]) == (422, "never_fits")
    assert refused["errors"] == [
        {"field": "clusters.east", "code": "storage_missing", "detail": "has no storage data that the job's tenant may write to"}
    ]  # fmt: skip
    assert post("/jobs", wanted(READS))[0] == 201


def test_a_quote_offers_only_the_clusters_with_the_storage_and_says_so_of_the_others(home, post):
    declare(simulated_cluster("east"))
    simulated_cluster("west")
    status, quote = post("/quotes", wanted(READS))
    assert status == 200
    assert [offer["cluster"] for offer in quote["offers"]] == ["east"]
    [why] = quote["why_not"]
    assert (why["cluster"], why["code"]) == ("west", "storage_missing")


def test_a_storage_that_goes_while_a_job_waits_keeps_it_waiting_with_the_reason_until_it_is_back(cluster, submitter):
    storage = declare(cluster)
    job = submit(submitter, wanted(READS))
    remove_storage(SYSTEM, cluster.id, storage.id)
    operations.run_scheduling_cycle()
    job.refresh_from_db()
    assert (job.state, job.reason_code) == ("queued", "storage_missing")
    assert "east has no storage data" in job.reason_message
    assert [one["code"] for one in job.explanation["clusters"]] == ["storage_missing"]
    declare(cluster)
    operations.run_scheduling_cycle()
    job.refresh_from_db()
    assert job.state == "dispatching"


def test_a_storage_that_goes_while_the_engine_decides_places_no_job_on_it(cluster, submitter, monkeypatch):
    storage = declare(cluster)
    apply = operations.cycle._apply

    def late(*arguments):
        Storage.objects.filter(id=storage.id).delete()
        return apply(*arguments)

    monkeypatch.setattr(operations.cycle, "_apply", late)
    assert placed(submitter, READS).state == "queued"
    assert not Attempt.objects.exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda cluster, one: update_storage(SYSTEM, cluster.id, one.id, StorageChanges(claim="other", prefix="", mode="read_write")),
        lambda cluster, one: remove_storage(SYSTEM, cluster.id, one.id),
        lambda cluster, one: Tenant.objects.filter(path=TENANT).update(name="renamed", path="acme/research/renamed"),
    ],
    ids=["changed", "removed", "renamed"],
)  # fmt: skip
def test_what_was_promised_when_the_job_was_placed_is_what_is_sent(cluster, submitter, vision, sent, change):
    storage = declare(cluster)
    placed(submitter, READS)
    change(cluster, storage)
    operations.dispatch_attempts()
    [pod] = sent
    assert claims(pod)[0]["persistentVolumeClaim"] == {"claimName": "shared", "readOnly": True}
    assert mounts(pod)[0]["subPath"] == f"t/{vision.id}/imagenet"


def test_nobody_rewrites_what_an_object_mounts(cluster, submitter):
    declare(cluster)
    placed(submitter, READS)
    promised = RemoteObject.objects.get().mounts
    with (
        pytest.raises(DatabaseError, match="mounts never changes"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute("UPDATE federation_remoteobject SET mounts = '[]'")
    assert RemoteObject.objects.get().mounts == promised != []


def test_two_tenants_of_one_storage_get_different_parts(cluster, submitter, sent):
    declare(cluster, tenant="acme")
    other = make_tenant("acme/research/speech")
    placed(submitter, READS)
    submit(submitter, wanted(READS) | {"tenant": other.path})
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    parts = {mounts(pod)[0]["subPath"] for pod in sent}
    assert len(parts) == 2
    assert f"t/{other.id}/imagenet" in parts


def test_a_job_without_mounts_asks_nothing_of_storages(cluster, submitter, sent):
    declare(cluster)
    submit(submitter, gpu_job())
    operations.run_scheduling_cycle()
    operations.dispatch_attempts()
    assert not claims(sent[0])
    assert RemoteObject.objects.get().mounts == []
