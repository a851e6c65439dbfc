"""Jobs that would wait for data that cannot come, and quota that waits and copies hold."""

from dataclasses import replace
from datetime import timedelta

import pytest

import quotas.operations
from clusters.models import Cluster, StagingPlan, Storage
from clusters.operations.staging import remove_staging_plan
from clusters.operations.storages import StorageChanges, update_storage
from federation import operations
from federation.models import Attempt, DataWait, Preemption, PriorityClass, StageIn
from federation.operations import staging
from federation.queries.proof import disagreements
from federation.queries.snapshot import load_snapshot
from federation.queries.staging import needed_plans
from foundation.clock import now
from placement.values.preemption import RoomClaim
from quotas.engine.holds import Borrowing
from tenancy.models import Tenant
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM
from tests.builders import make_tenant, submit
from tests.live import gpu_job, observe_until
from tests.staged import (
    TENANT,
    again,
    copies,
    copying,
    cycle,
    held,
    plan,
    rounds,
    staged_job,
    storages,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("storages")]
assert copying  # fixtures
assert plan
assert storages


def change_storage(cluster, name="fast", **changes):
    update_storage(SYSTEM, cluster.id, Storage.objects.get(name=name).id, StorageChanges(**changes))


# Waits for what cannot come.


def test_without_a_copy_image_no_job_waits_longer(plan, submitter, copying, settings):
    job = staged_job(submitter, stage_within_seconds=86_400)
    cycle()
    settings.STAGE_IMAGE = ""
    rounds()
    cycle()
    assert again(job).state == "dispatching"
    assert held() == {Attempt.objects.get().id}


def test_a_job_waits_for_no_copy_that_its_storages_do_not_allow(plan, submitter, copying, cluster):
    change_storage(cluster, mode="read_only")
    job = staged_job(submitter)
    cycle()
    assert again(job).state == "dispatching"
    assert not DataWait.objects.exists()


def test_a_silent_cluster_lets_its_waiting_jobs_go_elsewhere(plan, submitter, copying, cluster):
    copying.runs_for_ever()
    job = staged_job(submitter, stage_within_seconds=86_400)
    cycle()
    rounds()
    Cluster.objects.filter(id=cluster.id).update(health="unreachable", silent_since=now())
    rounds()
    assert DataWait.objects.get().outcome == "closed"
    assert held() == {StageIn.objects.get().object_id}
    Cluster.objects.filter(id=cluster.id).update(health="ready", silent_since=None)
    cycle()
    assert again(job).reason_code == "waiting_for_data"


def test_a_plan_that_is_removed_while_a_cycle_decides_disturbs_no_cycle(plan, submitter, copying, monkeypatch):
    job = staged_job(submitter)
    other = submit(submitter, gpu_job("other"))

    def removed_then(*arguments):
        found = needed_plans(*arguments)
        remove_staging_plan(SYSTEM, plan.dataset_id, plan.id)
        return found

    monkeypatch.setattr("federation.operations.data_waits.needed_plans", removed_then)
    cycle()
    assert {again(job).state, again(other).state} == {"dispatching"}
    assert not DataWait.objects.exists()


def test_a_job_for_which_others_were_stopped_does_not_wait_while_their_gpus_are_idle(plan, submitter, copying, cluster):
    PriorityClass.objects.filter(name="high").update(preempts="lower")
    PriorityClass.objects.update(shield_seconds=0)
    batch = [submit(submitter, gpu_job(f"batch-{number}", seconds=100_000)) for number in range(2)]
    observe_until(lambda: all(again(one).state == "running" for one in batch))
    job = staged_job(submitter, name="urgent", priority_class="high")
    cycle()
    assert again(job).reason_code == "waiting_for_preemption"
    observe_until(lambda: again(job).state != "queued" or again(job).reason_code == "waiting_for_data")
    assert again(job).state != "queued"
    assert not DataWait.objects.exists()
    assert Preemption.objects.get().beneficiary_id == job.id


@pytest.mark.parametrize("kind", ["consolidation", "moved"])
def test_a_job_whose_place_is_kept_after_a_move_does_not_wait(plan, submitter, copying, cluster, monkeypatch, kind):
    job = staged_job(submitter)
    node = cluster.nodes.order_by("name").first().name

    def with_claim(now, *arguments):
        claim = RoomClaim(job.id, job.id, cluster.id, "east", (node,), now + timedelta(hours=1), 1, kind=kind)
        snapshot = load_snapshot(now, *arguments)
        return replace(snapshot, claims=(claim,))

    monkeypatch.setattr("federation.operations.cycle.load_snapshot", with_claim)
    cycle()
    assert again(job).state == "dispatching"
    assert not DataWait.objects.exists()


# Quota.


@pytest.mark.parametrize("gone", ["row", "plan", "dataset", "storage"])
def test_a_copy_that_begins_while_its_row_is_being_deleted_leaves_no_hold(
    plan, submitter, copying, cluster, gone, monkeypatch
):
    copying.runs_for_ever()
    staged_job(submitter)
    cycle()
    stale = {
        "row": StageIn.objects.get(),
        "plan": StagingPlan.objects.get(),
        "dataset": plan.dataset,
        "storage": Storage.objects.get(name="fast"),
    }[gone]
    free = staging.free_its_quota

    def begun_first(sender, *, instance, **given):
        monkeypatch.setattr(staging, "free_its_quota", free)
        assert instance.object_id is None
        rounds()
        assert StageIn.objects.get().object_id in held()
        free(sender, instance=instance, **given)

    monkeypatch.setattr(staging, "free_its_quota", begun_first)
    stale.delete()
    operations.reconcile_clusters()
    rounds(2)
    cycle()
    assert held() <= set(Attempt.objects.values_list("id", flat=True)) | set(
        DataWait.objects.filter(ended_at=None).values_list("id", flat=True)
    )
    assert disagreements() == ()
    assert copies(cluster) == []


def test_the_proof_finds_a_wait_and_a_copy_whose_quota_is_free(plan, submitter, copying):
    copying.runs_for_ever()
    staged_job(submitter)
    cycle()
    rounds()
    assert disagreements() == ()
    quotas.operations.end_holds(dict.fromkeys(held(), "voided"))
    found = " ".join(disagreements())
    assert "waits for data and has no pending hold" in found
    assert "is under way and has no pending hold" in found


def test_a_tenant_moves_with_the_quota_that_its_waiting_job_and_its_copy_hold(plan, submitter, copying, cluster):
    copying.runs_for_ever()
    job = staged_job(submitter)
    cycle()
    rounds()
    before = held()
    change_tenant(SYSTEM, Tenant.objects.get(path=TENANT).id, parent_id=make_tenant("acme/elsewhere").id)
    rounds()
    cycle()
    assert held() == before != set()
    assert DataWait.objects.filter(job=job, ended_at=None).exists()
    operations.request_suspension(submitter, job.id)
    operations.cancel_stage_in(SYSTEM, plan.dataset_id, plan.id)
    rounds(2)
    assert held() == set()
    assert disagreements() == ()


def test_a_place_that_is_no_longer_lawful_becomes_no_wait(plan, submitter, copying, monkeypatch):
    """For example, it was reserved while the engine decided."""
    staged_job(submitter)
    monkeypatch.setattr(operations.cycle._Lookup, "still_lawful", lambda *_: ())
    cycle()
    assert held() == set()
    assert not DataWait.objects.exists()


def put_gpus(path, nominal, **fields):
    quotas.operations.put_limit(SYSTEM, path, "gpu", nominal=nominal * 1000, **fields)


def test_quota_that_a_waiting_job_borrowed_goes_back_to_a_tenant_that_reclaims_it(plan, submitter, copying):
    copying.runs_for_ever()
    make_tenant("acme/b")
    put_gpus("acme", 16)
    for path in (TENANT, "acme/b"):
        put_gpus(path, 8, borrowing=Borrowing(None, None, reclaims=True))
    job = staged_job(submitter, count=2, stage_within_seconds=30 * 86_400)
    cycle()
    assert again(job).reason_code == "waiting_for_data"
    rounds(2)
    assert not DataWait.objects.filter(outcome="late").exists(), "no one needs it"
    other = submit(submitter, {**gpu_job("other"), "tenant": "acme/b"})
    cycle()
    assert again(other).reason_code == "waiting_for_quota"
    cycle()
    assert DataWait.objects.get().outcome == "late"
    assert again(job).reason_code != "waiting_for_data"
    assert disagreements() == ()


def test_quota_beyond_a_lowered_limit_is_not_kept_by_a_job_that_waits_for_data(plan, submitter, copying):
    copying.runs_for_ever()
    put_gpus("acme", 16)
    job = staged_job(submitter, count=2, stage_within_seconds=30 * 86_400)
    cycle()
    put_gpus("acme", 8, reclaim_after=0)
    rounds()
    assert DataWait.objects.get().outcome == "late"
    assert held() == {StageIn.objects.get().object_id}
    cycle()
    assert again(job).reason_code == "waiting_for_quota"
