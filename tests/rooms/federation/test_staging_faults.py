"""Copies of datasets while something fails, goes or changes: a worker, a reply, a cluster, a storage, quota."""

import pytest

from clusters.drivers import Ambiguous, NotThere, Refused
from clusters.drivers.simulated import SimulatedDriver
from clusters.models import Cluster, DatasetReplica, Storage
from clusters.operations.datasets import remove_dataset
from clusters.operations.staging import remove_staging_plan
from clusters.operations.storages import StorageChanges, remove_storage, update_storage
from federation import operations
from federation.models import DataWait, StageIn
from federation.operations import staging
from federation.queries.proof import disagreements
from foundation.clock import now
from tenancy.queries import SYSTEM
from tests.builders import make_limit
from tests.staged import (
    SUM,
    again,
    copies,
    copying,
    cycle,
    held,
    later,
    make_plan,
    plan,
    rounds,
    staged_job,
    storages,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("storages")]
assert copying  # fixtures
assert plan
assert storages


def test_a_drained_cluster_stops_the_copy_and_frees_the_job(plan, submitter, copying, cluster):
    copying.runs_for_ever()
    job = staged_job(submitter)
    cycle()
    rounds()
    Cluster.objects.filter(id=cluster.id).update(wish="draining")
    rounds(2)
    assert copies(cluster) == []
    assert DataWait.objects.get().outcome == "closed"
    assert held() == set()
    row = StageIn.objects.get()
    assert (row.failures, row.is_wanted, row.phase) == (0, True, "idle")
    cycle()
    assert again(job).reason_code == "draining" or again(job).state == "queued"
    Cluster.objects.filter(id=cluster.id).update(wish="open")
    cycle()
    assert again(job).reason_code == "waiting_for_data"


def test_a_removed_cluster_leaves_no_hold_and_no_waiting_job(plan, submitter, copying, cluster):
    copying.runs_for_ever()
    job = staged_job(submitter)
    cycle()
    rounds()
    Cluster.everything.filter(id=cluster.id).update(removed_at=now())
    rounds()
    assert not StageIn.objects.exists()
    assert held() == set()
    assert DataWait.objects.get().outcome == "closed"
    assert again(job).retry_at is None


@pytest.mark.parametrize("gone", ["plan", "dataset", "storage"])
def test_what_is_removed_in_the_middle_leaves_nothing_behind(plan, submitter, copying, cluster, gone):
    copying.runs_for_ever()
    job = staged_job(submitter)
    cycle()
    rounds()
    if gone == "plan":
        remove_staging_plan(SYSTEM, plan.dataset_id, plan.id)
    elif gone == "dataset":
        remove_dataset(SYSTEM, plan.dataset_id)
    else:
        remove_storage(SYSTEM, cluster.id, Storage.objects.get(name="fast").id)
    rounds()
    operations.reconcile_clusters()
    assert copies(cluster) == []
    assert held() == set()
    cycle()
    assert again(job).state == "dispatching"
    assert disagreements() == ()


def test_a_storage_that_becomes_read_only_stops_the_copy(plan, submitter, copying, cluster):
    copying.runs_for_ever()
    staged_job(submitter)
    cycle()
    rounds()
    update_storage(SYSTEM, cluster.id, Storage.objects.get(name="fast").id, StorageChanges(mode="read_only"))
    rounds(3)
    assert copies(cluster) == []
    assert StageIn.objects.get().message == "The storage fast is read-only."


def test_quota_that_is_used_up_makes_the_copy_wait(plan, submitter, copying):
    job = staged_job(submitter)
    make_limit("acme", "memory", "32Gi")
    cycle()
    rounds(2)
    row = StageIn.objects.get()
    assert row.phase == "idle"
    assert "memory" in row.message
    assert again(job).reason_code == "waiting_for_data"


@pytest.mark.parametrize("step", ["planned", "created", "released", "ending"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.usefixtures("plan")
def test_a_worker_killed_at_any_step_is_followed_by_the_next(submitter, copying, cluster, monkeypatch, step, when):
    class Killed(BaseException):
        """The process dies."""

    staged_job(submitter)
    cycle()
    record = staging.record

    def dies(row, result):
        if row.phase == step:
            if when == "after":
                record(row, result)
            raise Killed
        record(row, result)

    monkeypatch.setattr(staging, "record", dies)
    with pytest.raises(Killed):
        rounds(3)
    monkeypatch.setattr(staging, "record", record)
    rounds(4)
    assert len({manifest["metadata"]["name"] for manifest in copying.sent}) == 1
    assert DatasetReplica.objects.count() == 1
    assert copies(cluster) == []
    assert not StageIn.objects.exclude(slot=None).exists()
    assert held() == set()


@pytest.mark.parametrize("call", ["create_job", "release_job", "list_pods", "get_job", "delete_job"])
@pytest.mark.parametrize("error", [Ambiguous("cut"), NotThere("gone", status=404), Refused("no", status=422)])
@pytest.mark.usefixtures("plan", "copying")
def test_one_bad_answer_at_any_step_ends_in_one_replica_or_a_counted_failure(
    submitter, cluster, monkeypatch, call, error
):
    staged_job(submitter)
    cycle()
    original, calls = getattr(SimulatedDriver, call), []

    async def once(self, *arguments, **named):
        calls.append(call)
        if len(calls) == 1:
            raise error
        return await original(self, *arguments, **named)

    monkeypatch.setattr(SimulatedDriver, call, once)
    for _ in range(3):
        rounds(5)
        later()
    assert DatasetReplica.objects.count() == 1
    assert copies(cluster) == []
    assert held() == set()


def test_a_lost_reply_to_the_creation_is_adopted(plan, submitter, copying, cluster, monkeypatch):
    create, made = SimulatedDriver.create_job, []

    async def reply_is_lost(self, manifest):
        made.append(await create(self, manifest))
        if len(made) == 1:
            raise Ambiguous("cut")
        return made[-1]

    monkeypatch.setattr(SimulatedDriver, "create_job", reply_is_lost)
    staged_job(submitter)
    cycle()
    rounds()
    assert len(copies(cluster)) == 1
    rounds(4)
    assert DatasetReplica.objects.count() == 1
    assert copies(cluster) == []


def test_an_object_deleted_on_the_cluster_is_no_success(plan, submitter, copying, cluster, monkeypatch):
    copying.runs_for_ever()
    staged_job(submitter)
    cycle()
    rounds()

    async def gone(self, *_):
        raise NotThere("gone", status=404)

    monkeypatch.setattr(SimulatedDriver, "get_job", gone)
    rounds()
    assert not DatasetReplica.objects.exists()
    assert StageIn.objects.get().message == "Its object was deleted on the cluster."


def test_a_late_reply_of_a_stopped_copy_makes_no_replica(plan, submitter, copying, monkeypatch):
    staged_job(submitter)
    cycle()
    record = staging.record

    def stopped_first(row, result):
        if row.phase == "released":
            operations.cancel_stage_in(SYSTEM, plan.dataset_id, plan.id)
        record(row, result)

    monkeypatch.setattr(staging, "record", stopped_first)
    rounds(3)
    assert not DatasetReplica.objects.exists()
    assert StageIn.objects.get().outcome == "cancelled"


def test_a_log_that_cannot_be_read_delays_nothing(submitter, copying, cluster, monkeypatch):
    make_plan(cluster, sha256=SUM)

    async def unread(self, *_, **__):
        raise Ambiguous("the node does not answer")

    monkeypatch.setattr(SimulatedDriver, "read_log", unread)
    staged_job(submitter)
    cycle()
    rounds(5)
    replica = DatasetReplica.objects.get()
    assert (replica.size_bytes, replica.sha256) == (None, SUM), "its program has compared the digest"
