"""Datasets that are copied to storages before jobs get GPUs: jobs wait for them with their quota, never for ever."""

from datetime import timedelta
from decimal import Decimal

import pytest

from billing.operations.egress import NewEgressPrice, create_egress_price
from clusters.models import DatasetReplica
from clusters.operations.datasets import Location, create_dataset
from federation import operations
from federation.models import Attempt, DataWait, Job, JobEvent, StageIn
from federation.queries.proof import disagreements
from federation.queries.snapshot import load_snapshot
from federation.queries.staging import view_of
from foundation.clock import now
from foundation.problems import Conflict
from placement.cycle.cycle import decide
from tenancy.models import AuditEntry, Tenant
from tenancy.queries import SYSTEM
from tests.builders import make_limit, submit
from tests.live import gpu_job
from tests.staged import (
    SIZE,
    SUM,
    TENANT,
    again,
    copies,
    copying,
    cycle,
    held,
    later,
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


def test_a_job_waits_with_its_quota_and_without_gpus_and_starts_when_the_copy_is_there(
    plan, submitter, copying, cluster
):
    copying.runs_for_ever(f"switchyard-stage {SIZE // 4} {SIZE}\n")
    limit = make_limit("acme", "gpu", "16")
    job = staged_job(submitter)
    cycle()
    found = again(job)
    assert (found.state, found.reason_code) == ("queued", "waiting_for_data")
    assert not Attempt.objects.exists()
    wait = DataWait.objects.get()
    assert held() == {wait.id}
    limit.refresh_from_db()
    assert limit.held == 8000, "it holds its quota of GPUs"
    rounds()
    assert again(job).reason_message == "Imagenet is being copied to east: 25Gi of 100Gi."
    assert held() == {wait.id, StageIn.objects.get().object_id}, "the copy holds its own quota"
    operations.run_scheduling_cycle()
    assert not Attempt.objects.exists(), "no cycle places it meanwhile"
    assert disagreements() == ()
    copying.ends_well()
    StageIn.objects.update(
        phase="ending", outcome="cancelled", ended_at=now()
    )  # the endless pod goes; the next one ends
    until_idle()
    rounds(4)
    assert DatasetReplica.objects.get().path == "out/imagenet"
    cycle()
    attempt = Attempt.objects.get()
    assert attempt.cluster_id == cluster.id
    until_idle()
    assert held() == {attempt.id}
    assert copies(cluster) == []
    assert disagreements() == ()


def test_others_use_the_gpus_while_a_job_waits_for_data(plan, submitter, copying):
    copying.runs_for_ever()
    whole = staged_job(submitter, count=2)
    cycle()
    assert again(whole).reason_code == "waiting_for_data"
    other = submit(submitter, gpu_job("other", count=2))
    cycle()
    assert Attempt.objects.get().job_id == other.id


def test_placement_sees_no_transfer_to_a_cluster_with_a_replica(plan, submitter, copying):
    create_egress_price(SYSTEM, NewEgressPrice("eu-1", "us-east-1", Decimal("0.02"), organisation="acme"))
    job = staged_job(submitter)
    snapshot = load_snapshot(now(), 100)
    (placed,) = decide(snapshot).placements
    assert placed.egress.cost == 2
    cycle()
    rounds(4)
    assert again(job).reason_code == "waiting_for_data"
    (placed,) = decide(load_snapshot(now(), 100)).placements
    assert (placed.egress.cost, placed.egress.moves) == (0, ())
    replica = DatasetReplica.objects.get()
    assert (replica.size_bytes, replica.sha256) == (SIZE, SUM)
    assert (replica.egress_cost, replica.egress_currency) == (2, "USD")
    (entry,) = AuditEntry.objects.filter(action="dataset.staged")
    assert entry.tenant_id == Tenant.objects.get(path=TENANT).id
    assert entry.detail["egress"] == {"amount": "2.000000", "currency": "USD"}


def test_jobs_share_one_copy(plan, submitter, copying, cluster):
    jobs = [staged_job(submitter, name=f"j{number}") for number in range(2)]
    cycle()
    assert StageIn.objects.count() == 1
    assert DataWait.objects.filter(ended_at=None).count() == 2
    until_idle()
    rounds(5)
    assert len(copying.sent) == 1
    cycle()
    assert {again(job).state for job in jobs} == {"dispatching"}
    later_one = staged_job(submitter, name="late", pod_sets=[{**gpu_job()["pod_sets"][0], "gpu": None}])
    cycle()
    assert again(later_one).state == "dispatching", "it is there already"
    assert DatasetReplica.objects.count() == 1


def test_without_a_plan_a_job_is_placed_as_before(submitter, cluster):
    create_dataset(SYSTEM, TENANT, "imagenet", size_bytes=SIZE, locations=[Location("eu-1")])
    staged_job(submitter)
    cycle()
    assert Attempt.objects.count() == 1
    assert not DataWait.objects.exists()


def test_after_three_failures_with_pauses_the_job_is_placed_without_it_until_a_user_retries(plan, submitter, copying):
    copying.fails()
    job = staged_job(submitter)
    cycle()
    for expected in (1, 2, 3):
        rounds(5)
        row = StageIn.objects.get()
        assert (row.failures, row.message, row.phase) == (expected, "cp: cannot read", "idle")
        rounds(2)
        assert StageIn.objects.get().failures == expected, "it pauses"
        later()
    rounds()
    assert len(copying.sent) == 3
    assert DataWait.objects.get().outcome == "failed"
    view = view_of(plan)
    assert (view.state, view.message) == ("stopped", "cp: cannot read")
    cycle()
    assert again(job).state == "dispatching"
    assert held() == {Attempt.objects.get().id}
    second = staged_job(submitter, name="second")
    cycle()
    assert again(second).state == "dispatching", "no job waits for a copy that has stopped"
    copying.ends_well()
    operations.start_stage_in(SYSTEM, plan.dataset_id, plan.id)
    rounds(5)
    assert DatasetReplica.objects.count() == 1


def test_a_wait_ends_when_its_time_is_up(plan, submitter, copying):
    copying.runs_for_ever()
    job = staged_job(submitter, stage_within_seconds=60)
    cycle()
    rounds()
    found = again(job)
    assert found.retry_at is not None
    assert timedelta(0) < found.retry_at - found.created_at < timedelta(seconds=90)
    past = now() - timedelta(seconds=5)
    DataWait.objects.update(until_at=past, made_at=past - timedelta(seconds=60))
    Job.objects.update(retry_at=past)
    rounds()
    assert DataWait.objects.get().outcome == "late"
    cycle()
    assert again(job).state == "dispatching"
    assert DataWait.objects.count() == 1


def test_a_wait_ends_by_itself_in_the_cycle_if_no_routine_runs(plan, submitter, copying):
    job = staged_job(submitter, stage_within_seconds=60)
    cycle()
    past = now() - timedelta(seconds=5)
    DataWait.objects.update(until_at=past, made_at=past - timedelta(seconds=60))
    Job.objects.update(retry_at=past)
    cycle()
    assert again(job).state == "dispatching"


def test_a_user_lets_the_job_run_without_it(plan, submitter, copying):
    copying.runs_for_ever()
    job = staged_job(submitter)
    with pytest.raises(Conflict):
        operations.run_without_data(submitter, job.id)
    cycle()
    rounds()
    operations.run_without_data(submitter, job.id)
    operations.run_without_data(submitter, job.id)
    cycle()
    assert again(job).state == "dispatching"
    assert StageIn.objects.get().phase == "released", "the copy goes on"
    assert [*JobEvent.objects.filter(job=job, kind="data_wait_ended").values_list("message", flat=True)]


def test_a_user_stops_the_copy(plan, submitter, copying, cluster):
    copying.runs_for_ever()
    job = staged_job(submitter)
    cycle()
    rounds()
    assert len(copies(cluster)) == 1
    operations.cancel_stage_in(SYSTEM, plan.dataset_id, plan.id)
    operations.cancel_stage_in(SYSTEM, plan.dataset_id, plan.id)
    rounds(2)
    assert copies(cluster) == []
    assert DataWait.objects.get().outcome == "failed"
    cycle()
    assert again(job).state == "dispatching"
    rounds(3)
    assert len(copying.sent) == 1, "it does not begin again"


@pytest.mark.parametrize("end", ["request_cancellation", "request_suspension"])
def test_a_job_that_goes_gives_its_quota_back_and_the_copy_goes_on(plan, submitter, copying, end):
    copying.runs_for_ever()
    job = staged_job(submitter)
    cycle()
    rounds()
    getattr(operations, end)(submitter, job.id)
    rounds()
    assert DataWait.objects.get().outcome == "over"
    assert held() == {StageIn.objects.get().object_id}
    assert again(job).retry_at is None
    if end == "request_suspension":
        operations.request_resumption(submitter, job.id)
        cycle()
        assert again(job).reason_code == "waiting_for_data"


def test_without_a_copy_image_nothing_is_copied_and_the_job_waits_no_longer_than_it_said(plan, submitter, settings):
    settings.STAGE_IMAGE = ""
    with pytest.raises(Conflict) as refused:
        operations.start_stage_in(SYSTEM, plan.dataset_id, plan.id)
    assert refused.value.code == "staging_is_off"
    job = staged_job(submitter)
    cycle()
    assert again(job).state == "dispatching"
    assert not DataWait.objects.exists()


def test_without_copies_a_round_is_one_query(cluster, django_assert_num_queries):
    with django_assert_num_queries(1):
        assert operations.stage_data() == 0
