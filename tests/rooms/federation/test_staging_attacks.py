"""Hostile logs, storages that change under copies, plans that collide, and strangers on the cluster."""

import pytest

from clusters.models import DatasetReplica, StagingPlan, Storage
from clusters.operations.datasets import create_dataset
from clusters.operations.staging import Spot, WantedPlan, make_staging_plan
from clusters.operations.storages import StorageChanges, WantedStorage, create_storage, update_storage
from federation import operations
from federation.engine.staging import Progress, progress_in
from federation.models import DataWait, StageIn
from federation.operations import stage_calls, staging
from federation.queries.staging import view_of
from foundation.problems import Invalid
from tenancy.models import Tenant
from tenancy.queries import SYSTEM
from tests.builders import make_tenant
from tests.concurrency.test_live_races import at_once
from tests.live import call
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
