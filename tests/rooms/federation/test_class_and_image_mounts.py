"""Jobs with new volumes of a StorageClass and with images: where they may run, what they are promised, and what is sent."""

import json

import pytest

from clusters.models import Cluster, Storage
from clusters.operations.storages import StorageChanges, WantedStorage, create_storage, remove_storage, update_storage
from federation import operations
from federation.models import Attempt, Job, RemoteObject
from tenancy.queries import SYSTEM
from tests.builders import make_tenant, submit
from tests.live import simulated_cluster
from tests.rooms.federation.test_mounts import declare, placed, post, sent, vision, wanted

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["post", "sent", "vision"]
PINNED = f"registry.example/weights@sha256:{'a' * 64}"
FRESH = {"storage": "fast", "path": "/fast", "size": "200Gi"}
WEIGHTS = {"storage": "weights", "path": "/weights", "sub_path": "llama"}


def declare_class(cluster, size="500Gi", **changes):
    given = {"name": "fast", "kind": "storage_class", "storage_class": "nvme", "size": size, "tenant": "acme/research"}
    return create_storage(SYSTEM, cluster.id, WantedStorage(**given | changes))


def declare_image(cluster, **changes):
    given = {"name": "weights", "kind": "image", "image": PINNED, "tenant": "acme/research"}
    return create_storage(SYSTEM, cluster.id, WantedStorage(**given | changes))


def volumes(pod):
    return [volume for volume in pod["volumes"] if volume["name"].startswith("storage-")]


def nvme(size):
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "nvme",
        "resources": {"requests": {"storage": size}},
    }
    return {"name": "storage-0", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}


def test_a_pod_gets_a_new_volume_and_an_image(cluster, submitter, sent):
    declare_class(cluster)
    declare_image(cluster)
    job = placed(submitter, FRESH, WEIGHTS)
    assert job.spec["pod_sets"][0]["mounts"][0]["size"] == "200Gi"
    operations.dispatch_attempts()
    [pod] = sent
    image = {"name": "storage-1", "image": {"reference": PINNED, "pullPolicy": "Always"}}
    assert volumes(pod) == [nvme("200Gi"), image]
    mounts = {mount["mountPath"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts["/fast"] == {"name": "storage-0", "mountPath": "/fast"}
    assert mounts["/weights"] == {
        "name": "storage-1", "mountPath": "/weights", "subPath": "llama", "readOnly": True,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("mount", "detail"),
    [
        (FRESH | {"size": "501Gi"}, "a pod may have at most 500Gi of it"),
        ({"storage": "fast", "path": "/fast"}, "it is a storage class: its mount needs a `size`"),
        ({"storage": "fast", "path": "/fast", "read_only": False, "sub_path": "a"}, "it is a storage class: its mount needs a `size`"),
        (FRESH | {"storage": "weights"}, "it is no storage class: its mount takes no `size`"),
        (FRESH | {"storage": "data"}, "it is no storage class: its mount takes no `size`"),
    ],
)  # fmt: skip
def test_what_no_cluster_offers_is_refused_at_submission(cluster, post, mount, detail):
    declare_class(cluster)
    declare_image(cluster)
    declare(cluster, mode="read_write")
    for path in ("/jobs", "/quotes"):
        status, told = post(path, wanted(mount))
        assert (status, told["errors"]) == (
            422, [{"field": f"storages.{mount['storage']}", "code": "not_allowed", "detail": detail}],
        )  # fmt: skip
    assert not Job.objects.exists()
    assert post("/jobs", wanted(FRESH, {"storage": "data", "path": "/data"}))[0] == 201


def test_another_tenants_class_or_image_looks_like_one_that_is_not_there(cluster, post):
    make_tenant("acme/other")
    for mount, offer in ((FRESH, declare_class), (WEIGHTS, declare_image)):
        absent = post("/jobs", wanted(mount))[1]
        assert absent["code"] == "not_found"
        offer(cluster, tenant="acme/other")
        for asked in (mount, FRESH | {"storage": mount["storage"], "size": "64Ti"}):
            foreign = post("/jobs", wanted(asked))[1]
            assert {**foreign, "request_id": ""} == {**absent, "request_id": ""}
    assert not Job.objects.exists()


def test_an_image_is_not_written_to(cluster, post):
    declare_image(cluster)
    status, told = post("/jobs", wanted(WEIGHTS | {"read_only": False}))
    assert (status, told["code"]) == (422, "never_fits")
    assert told["errors"][0]["detail"] == "has no storage weights that the job's tenant may write to"


def test_a_job_goes_where_its_volume_may_be_as_large_and_not_where_the_name_is_another_kind(home, submitter, post):
    east, west, north = (simulated_cluster(name) for name in ("east", "west", "north"))
    declare_class(east, "100Gi")
    declare(west, name="fast", mode="read_write")
    declare_class(north, "300Gi")
    job = placed(submitter, FRESH)
    assert Attempt.objects.get(job=job).cluster_id == north.id
    status, quote = post("/quotes", wanted(FRESH))
    assert (status, [offer["cluster"] for offer in quote["offers"]]) == (200, ["north"])
    assert {why["cluster"]: why["code"] for why in quote["why_not"]} == dict.fromkeys(
        ("east", "west"), "storage_missing"
    )


def test_an_image_needs_a_cluster_that_mounts_images_but_a_claim_of_its_name_does_not(home, submitter, post):
    old = simulated_cluster("old")
    Cluster.objects.filter(id=old.id).update(kubernetes_version="v1.34.3")
    declare_image(old)
    status, told = post("/jobs", wanted(WEIGHTS))
    assert (status, told["code"]) == (422, "never_fits")
    assert [(one["field"], one["code"]) for one in told["errors"]] == [("clusters.old", "image_volumes_missing")]
    assert "too old to mount images" in told["errors"][0]["detail"]
    new = simulated_cluster("new")
    Cluster.objects.filter(id=new.id).update(kubernetes_version="v1.35.0")
    declare_image(new)
    job = placed(submitter, WEIGHTS)
    assert Attempt.objects.get(job=job).cluster_id == new.id
    Storage.objects.filter(cluster=new).delete()
    Storage.objects.filter(cluster=old).delete()
    declare(old, name="weights")
    assert Attempt.objects.get(job=placed(submitter, WEIGHTS)).cluster_id == old.id


def test_a_kind_that_changes_while_a_job_waits_keeps_it_waiting_until_it_is_back(cluster, submitter):
    job = _waits_after(cluster, submitter, lambda one: remove_storage(SYSTEM, cluster.id, one.id))
    declare(cluster, name="fast", mode="read_write")
    operations.run_scheduling_cycle()
    job.refresh_from_db()
    assert (job.state, job.reason_code) == ("queued", "storage_missing")
    assert "has no storage fast of which the job's tenant may have a volume of 200Gi" in job.reason_message
    Storage.objects.all().delete()
    declare_class(cluster)
    operations.run_scheduling_cycle()
    job.refresh_from_db()
    assert job.state == "dispatching"


def test_a_largest_size_that_is_lowered_while_a_job_waits_keeps_it_waiting(cluster, submitter):
    job = _waits_after(
        cluster, submitter, lambda one: update_storage(SYSTEM, cluster.id, one.id, StorageChanges(size="199Gi"))
    )
    assert "a volume of 200Gi" in job.reason_message


def _waits_after(cluster, submitter, change):
    storage = declare_class(cluster)
    job = submit(submitter, wanted(FRESH))
    change(storage)
    operations.run_scheduling_cycle()
    job.refresh_from_db()
    assert (job.state, job.reason_code) == ("queued", "storage_missing")
    return job


@pytest.mark.parametrize("late", [
    lambda: Storage.objects.all().delete(),
    lambda: Storage.objects.update(most_bytes=199 * 2**30),
    lambda: Storage.objects.update(kind="claim", claim="c", storage_class="", most_bytes=0),
], ids=["removed", "lowered", "another kind"])  # fmt: skip
def test_a_change_while_the_engine_decides_places_no_job_on_it(cluster, submitter, monkeypatch, late):
    declare_class(cluster)
    apply = operations.cycle._apply

    def first_change(*arguments):
        late()
        return apply(*arguments)

    monkeypatch.setattr(operations.cycle, "_apply", first_change)
    assert placed(submitter, FRESH).state == "queued"
    assert not Attempt.objects.exists()


def test_what_was_promised_is_what_is_sent_whatever_the_storage_becomes(cluster, submitter, sent):
    storage = declare_class(cluster)
    placed(submitter, FRESH)
    remove_storage(SYSTEM, cluster.id, storage.id)
    declare(cluster, name="fast", claim="other")
    operations.dispatch_attempts()
    [pod] = sent
    assert volumes(pod) == [nvme("200Gi")]
    assert RemoteObject.objects.get().mounts == [
        {"storage": "fast", "storage_class": "nvme", "size": "200Gi", "path": "/fast", "sub_path": "", "read_only": False, "is_writable": True}
    ]  # fmt: skip


def test_a_job_spec_is_shown_as_it_can_be_sent_again(cluster, post, client):
    declare_class(cluster)
    status, job = post("/jobs", wanted(FRESH))
    assert status == 201
    again = json.loads(json.dumps(job["spec"]))
    assert again["pod_sets"][0]["mounts"] == [{**FRESH, "sub_path": "", "read_only": False}]
    assert post("/jobs", wanted(*again["pod_sets"][0]["mounts"]))[0] == 201
