"""Hostile logs, storages that change under copies, plans that collide, and jobs that would wait for what cannot come."""

from dataclasses import replace
from datetime import timedelta

import pytest

import quotas.operations
from clusters.models import Cluster, DatasetReplica, StagingPlan, Storage
from clusters.operations.datasets import create_dataset
from clusters.operations.staging import Spot, WantedPlan, make_staging_plan, remove_staging_plan
from clusters.operations.storages import StorageChanges, WantedStorage, create_storage, update_storage
from federation import operations
from federation.engine.staging import Progress, progress_in
from federation.models import Attempt, DataWait, Preemption, PriorityClass, StageIn
from federation.operations import stage_calls, staging
from federation.queries.proof import disagreements
from federation.queries.snapshot import load_snapshot
from federation.queries.staging import needed_plans, view_of
from foundation.clock import now
from foundation.problems import Conflict, Invalid
from placement.values.preemption import RoomClaim
from quotas.engine.holds import Borrowing
from tenancy.models import Tenant
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM
from tests.builders import make_tenant, submit
from tests.concurrency.test_live_races import at_once
from tests.live import call, gpu_job, observe_until
from tests.staged import (
    SIZE,
    SUM,
    TENANT,
    again,
    copies,
    copying,
    cycle,
    held,
    make_plan,
    plan,
    rounds,
    staged_job,
    storages,
    until_idle,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("storages")]
assert copying  # fixtures
assert plan
assert storages


def change_storage(cluster, name="fast", **changes):
    update_storage(SYSTEM, cluster.id, Storage.objects.get(name=name).id, StorageChanges(**changes))


# What a copy writes.


@pytest.mark.parametrize("size", ["0", "999999999999999999"])
def test_an_impossible_size_in_the_log_stops_no_round(plan, submitter, copying, size):
    copying.says(f"switchyard-staged {size} {SUM}\n")
    staged_job(submitter)
    cycle()
    rounds(4)
    replica = DatasetReplica.objects.get()
    assert replica.size_bytes in (None, int(size) or None)
    assert replica.sha256 == SUM
    assert StageIn.objects.get().phase == "idle"


def test_a_copy_that_reports_another_digest_than_its_plan_wants_is_no_replica(cluster, submitter, copying):
    make_plan(cluster, sha256=SUM)
    copying.says(f"switchyard-staged {SIZE} {'cd' * 32}\n")
    staged_job(submitter)
    cycle()
    rounds(4)
    assert not DatasetReplica.objects.exists()
    assert StageIn.objects.get().message == "The copy has another sha256 than its plan says."


def test_a_log_of_8_kib_in_one_line_with_controls_becomes_a_short_plain_message(plan, submitter, copying):
    copying.fails(log="\x1b[31m<script>\u202e\x00" + "x" * 8192)
    staged_job(submitter)
    cycle()
    rounds(4)
    said = StageIn.objects.get().message
    assert said.startswith(" [31m<script>  x")
    assert len(said) == 300
    assert progress_in(f"switchyard-staged 0 {SUM}") == Progress(None, None, SUM, f"switchyard-staged 0 {SUM}")


def test_the_longest_paths_of_tenants_fit_into_what_a_copy_says(cluster, copying):
    deep = "/".join(["acme", *["x" * 60] * 7])
    make_tenant(deep)
    Storage.objects.update(tenant=make_tenant("acme"))
    dataset = create_dataset(SYSTEM, deep, "deep", size_bytes=SIZE, locations=[])
    wanted = WantedPlan(cluster.name, Spot("archive", "a"), Spot("fast", "b"))
    made = make_staging_plan(SYSTEM, dataset.id, wanted)
    operations.start_stage_in(SYSTEM, dataset.id, made.id)
    Storage.objects.update(tenant=Tenant.objects.get(path=TENANT))
    rounds(3)
    row = StageIn.objects.get()
    assert (row.phase, len(row.message)) == ("idle", 300)
    assert "does not serve" in row.message


# Where plans copy to.


@pytest.mark.parametrize("path", ["out/imagenet", "out/imagenet/deeper", "out"])
def test_two_datasets_are_not_copied_into_each_other(plan, cluster, path):
    with pytest.raises(Invalid) as refused:
        make_plan(cluster, name="other", target=Spot("fast", path))
    assert [error.field for error in refused.value.errors] == ["target.path"]
    make_plan(cluster, name="third", target=Spot("fast", "out/imagenet2"))


def test_two_storages_of_one_claim_are_one_place(plan, cluster):
    create_storage(SYSTEM, cluster.id, WantedStorage("deep", "fast", TENANT, "read_write", "out"))
    with pytest.raises(Invalid):
        make_plan(cluster, name="other", target=Spot("deep", "imagenet"))
    create_storage(SYSTEM, cluster.id, WantedStorage("own", "fast", TENANT, "read_write", "out/imagenet/{tenant}"))
    with pytest.raises(Invalid):
        make_plan(cluster, name="another", target=Spot("own", "x"))


def test_plans_made_at_the_same_time_do_not_share_a_place(cluster):
    make = lambda number: lambda: make_plan(cluster, name=f"d{number}", target=Spot("fast", "same"))  # noqa: E731
    raised = at_once(*[make(number) for number in range(4)])
    assert [type(error) for error in raised] == [Invalid] * 3
    assert StagingPlan.objects.count() == 1


# Storages that change.


@pytest.mark.parametrize(("name", "change"), [("fast", {"claim": "new"}), ("archive", {"prefix": "else"})])
def test_a_storage_that_moves_during_a_copy_makes_no_replica_and_it_begins_again(
    plan, submitter, copying, cluster, name, change
):
    copying.runs_for_ever()
    staged_job(submitter)
    cycle()
    rounds()
    change_storage(cluster, name, **change)
    copying.ends_well()
    rounds()
    assert not DatasetReplica.objects.exists()
    until_idle()
    rounds(4)
    assert DatasetReplica.objects.count() == 1
    first, second = (manifest["spec"]["template"]["spec"] for manifest in copying.sent)
    assert first != second
    assert copies(cluster) == []


def test_a_storage_that_moves_between_the_last_look_and_the_record_makes_no_replica(
    plan, submitter, copying, cluster, monkeypatch
):
    staged_job(submitter)
    cycle()
    record, changed = staging.record, []

    def moves_first(row, result):
        if row.phase == "released" and not changed:
            changed.append(change_storage(cluster, claim="new"))
        record(row, result)

    monkeypatch.setattr(staging, "record", moves_first)
    rounds()
    assert not DatasetReplica.objects.exists()
    rounds(5)
    assert DatasetReplica.objects.count() == 1
    assert len(copying.sent) == 2


def test_a_replica_does_not_move_with_its_storage_and_the_next_job_asks_for_it_again(plan, submitter, copying, cluster):
    staged_job(submitter)
    cycle()
    rounds(4)
    assert DatasetReplica.objects.exists()
    change_storage(cluster, prefix="elsewhere")
    assert not DatasetReplica.objects.exists()
    assert view_of(StagingPlan.objects.get()).state == "idle"
    cycle()
    second = staged_job(submitter, name="second")
    cycle()
    assert again(second).reason_code == "waiting_for_data"
    rounds(4)
    assert DatasetReplica.objects.count() == 1
    assert len(copying.sent) == 2
    cycle()
    assert again(second).state == "dispatching"
    change_storage(cluster, mode="read_only")
    assert DatasetReplica.objects.exists(), "it is where it was"


def test_a_plan_whose_storages_come_to_contain_each_other_copies_no_more(plan, submitter, copying, cluster):
    copying.runs_for_ever()
    job = staged_job(submitter)
    cycle()
    rounds()
    change_storage(cluster, claim="archive", prefix="in/imagenet")
    rounds(3)
    assert copies(cluster) == []
    assert view_of(StagingPlan.objects.get()).why_not == "Its source and its target contain each other."
    assert DataWait.objects.get().outcome == "failed"
    cycle()
    assert again(job).state == "dispatching"


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


def test_a_tenant_moves_as_soon_as_its_waiting_job_is_suspended_and_the_copy_stopped(plan, submitter, copying, cluster):
    copying.runs_for_ever()
    job = staged_job(submitter)
    cycle()
    rounds()
    tenant, place = Tenant.objects.get(path=TENANT), make_tenant("acme/elsewhere")
    move = lambda: change_tenant(SYSTEM, tenant.id, parent_id=place.id)  # noqa: E731
    with pytest.raises(Conflict):
        move()
    operations.request_suspension(submitter, job.id)
    operations.cancel_stage_in(SYSTEM, plan.dataset_id, plan.id)
    rounds(2)
    move()
    assert held() == set()


# Others on the cluster.


@pytest.mark.parametrize("phase", ["created", "released"])
def test_a_stranger_who_deletes_the_object_costs_one_failure(plan, submitter, copying, cluster, monkeypatch, phase):
    copying.runs_for_ever()
    staged_job(submitter)
    cycle()
    record = staging.record

    def deleted(row, result):
        record(row, result)
        if StageIn.objects.get().phase == phase and copies(cluster):
            monkeypatch.setattr(staging, "record", record)
            (one,) = copies(cluster)
            call(cluster, "delete_job", one.namespace, one.name, one.uid)

    monkeypatch.setattr(staging, "record", deleted)
    rounds(3)
    row = StageIn.objects.get()
    assert (row.failures, row.phase) == (1, "idle")
    assert not DatasetReplica.objects.exists()
    assert len(held()) == 1, "only the job's"
    assert stage_calls.LOG_BYTES == 8192


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
