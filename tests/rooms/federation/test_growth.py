"""A running elastic job that asks for it is stopped once to continue with more pods, where that pays and no job waits."""

from datetime import timedelta

import pytest
from django.db import transaction
from django.db.models.functions import Now

from clusters.models import Cluster
from federation import operations
from federation.engine.lifecycle import AttemptState
from federation.models import Attempt, Checkpoint, Job, JobEvent, Move
from federation.operations import endings
from federation.operations.consequences import Ending
from federation.queries import growth
from federation.queries.preemption import load_claims
from foundation.clock import database_now
from quotas.models import Hold
from tenancy.models import AuditEntry
from tests.builders import make_limit, make_tenant, redate, submit
from tests.live import gpu_job
from tests.rooms.federation.test_constraints import attack
from tests.rooms.federation.test_elastic import elastic, sizes
from tests.rooms.federation.test_preemption import end_of, post, started, told

pytestmark = pytest.mark.django_db(transaction=True)


def growing(**more):
    asked = elastic(1, 2, "grows") | {"checkpoint_seconds": 600, "estimated_seconds": 100_000} | more
    return asked | {"elastic": {"min_count": 1, "grow": True} | more.get("elastic", {})}


def gone(submitter, job):
    """Ends a running job, which its user cancels."""
    operations.request_cancellation(submitter, job.id)
    attempt = Attempt.objects.get(job=job)
    with transaction.atomic():
        endings.end_attempts([Ending(attempt.id, AttemptState.CANCELLED, "cancelled", "")])
    post(attempt)


def beside(submitter, other, **asked):
    """A job that runs with one pod, since an hour unless told otherwise, beside another one, which has just ended."""
    first, _ = started(submitter, **other)
    job, _ = started(submitter, **asked)
    assert sizes(job) == [1]
    gone(submitter, first)
    return job


@pytest.fixture
def grown(cluster, submitter):
    return beside(submitter, gpu_job("first"), **growing())


def test_it_is_stopped_once_and_continues_with_more_pods_in_room_that_is_kept_for_it(grown, submitter):
    assert operations.relocate_jobs() == 1
    assert operations.relocate_jobs() == 0
    move, attempt = Move.objects.get(), Attempt.objects.get(job=grown)
    assert (move.cause, move.attempt_id, move.expected_id) == ("growth", attempt.id, attempt.cluster_id)
    assert (len(move.nodes), move.amounts["gpu"], move.stay_seconds > move.cost_seconds) == (2, 16_000, True)
    event = JobEvent.objects.get(job=grown, kind="interrupted").message
    assert event.startswith("Moved to run with 2 pods instead of 1; that saves it about ")
    assert AuditEntry.objects.get(action="job.migrate").detail["cause"] == "growth"
    thief = submit(submitter, gpu_job("thief") | {"priority_class": "high"})
    operations.run_scheduling_cycle()
    assert told(thief) == ("queued", "kept_for_urgent")
    assert "goes on with more pods" in thief.reason_message
    end_of(grown)
    operations.run_scheduling_cycle()
    assert (told(grown)[0], sizes(grown), told(thief)[0]) == ("dispatching", [1, 2], "queued")
    assert [hold.amounts["gpu"] for hold in Hold.objects.filter(state="pending")] == [16_000]
    assert not load_claims(database_now())


def test_it_stays_while_a_job_waits_that_could_use_the_room(grown, submitter):
    waiting = submit(submitter, gpu_job("waiting", count=2))
    assert operations.relocate_jobs() == 0
    Job.objects.filter(id=waiting.id).update(reason_code="waiting_for_quota")
    assert operations.relocate_jobs() == 0, "of its own organisation"
    operations.request_cancellation(submitter, waiting.id)
    assert operations.relocate_jobs() == 1


def test_it_stays_while_a_job_of_another_organisation_waits_for_room_but_not_if_it_waits_for_quota(grown, submitter):
    waiting = submit(submitter, gpu_job("theirs"))
    Job.objects.filter(id=waiting.id).update(tenant=make_tenant("globex/team"))
    assert operations.relocate_jobs() == 0
    Job.objects.filter(id=waiting.id).update(reason_code="waiting_for_quota")
    assert operations.relocate_jobs() == 1


def test_a_job_that_no_cluster_could_run_keeps_none_from_growing(grown, submitter):
    waiting = submit(submitter, gpu_job("waiting"))
    large = [
        {**one, "gpu": {**one["gpu"], "count": 64}} for one in waiting.spec["pod_sets"]
    ]  # the node that it fitted is gone
    Job.objects.filter(id=waiting.id).update(spec={**waiting.spec, "pod_sets": large})
    never = {"cluster": "east", "code": "never_fits", "message": "no node is large enough", "is_for_good": True}
    full = {**never, "code": "not_enough_free", "is_for_good": False}
    for code, reasons in (
        ("new", {}), ("waiting_for_capacity", {}), ("waiting_for_capacity", {"clusters": []}),
        ("waiting_for_capacity", {"clusters": [never, full]}), ("behind_in_queue", {"clusters": [never]}),
    ):  # fmt: skip
        Job.objects.filter(id=waiting.id).update(reason_code=code, explanation=reasons)
        assert operations.relocate_jobs() == 0
    Job.objects.filter(id=waiting.id).update(
        reason_code="waiting_for_capacity", explanation={"went_first": "x", "clusters": [never, never]}
    )
    assert operations.relocate_jobs() == 1


@pytest.mark.parametrize(
    ("wrong", "change"),
    [
        ("it did not ask", lambda job: Job.objects.filter(id=job.id).update(spec=job.spec | {"elastic": {"pod_set": "worker", "min_count": 1}})),
        ("it has no checkpoint", lambda job: Job.objects.filter(id=job.id).update(spec=job.spec | {"checkpoint_seconds": None})),
        ("its time is not known", lambda job: Job.objects.filter(id=job.id).update(spec=job.spec | {"estimated_seconds": None})),
        ("it soon ends", lambda job: Job.objects.filter(id=job.id).update(spec=job.spec | {"estimated_seconds": 3800})),
        ("it is suspended", lambda job: Job.objects.filter(id=job.id).update(suspend_requested_at=Now())),
        ("it waits for a checkpoint", lambda job: Job.objects.filter(id=job.id).update(
            spec=job.spec | {"reports": True}, stop_wish={"then": "suspend", "by": "ada"}, stop_wished_at=Now(),
            stop_latest_at=Now() + timedelta(minutes=10))),
        ("its cluster is drained", lambda _: Cluster.objects.update(wish="draining")),
    ],
)  # fmt: skip
def test_it_stays(grown, wrong, change):
    change(grown)
    assert operations.relocate_jobs() == 0, wrong
    assert not Move.objects.exists()


def test_it_stays_while_another_job_has_just_been_placed_there(cluster, submitter, monkeypatch):
    beside(submitter, gpu_job("first", count=3, gpus=4), **growing(pod_sets=elastic(1, 2, gpus=4)["pod_sets"]))
    submit(submitter, gpu_job("other", gpus=4))
    operations.run_scheduling_cycle()
    assert operations.relocate_jobs() == 0
    monkeypatch.setattr(growth, "UNSURE", timedelta(0))
    assert operations.relocate_jobs() == 1, "there is room"


def test_it_stays_if_it_has_just_begun(cluster, submitter):
    beside(submitter, gpu_job("first"), minutes=29, **growing())
    assert operations.relocate_jobs() == 0


def test_it_stays_if_quota_does_not_leave_more(cluster, submitter):
    make_limit("acme", nominal="15")
    beside(submitter, gpu_job("first", gpus=7), **growing())
    assert operations.relocate_jobs() == 0


def test_a_checkpoint_that_cannot_be_resumed_there_keeps_it(grown):
    attempt = Attempt.objects.get(job=grown)
    Checkpoint.objects.create(attempt=attempt, sequence=1, reference="s3://b/1", written_at=Now(), flavors=["another"])
    assert operations.relocate_jobs() == 0


def test_it_rests_for_half_an_hour_after_a_move(cluster, submitter, settings, monkeypatch):
    monkeypatch.setattr(growth, "UNSURE", timedelta(0))
    first, _ = started(submitter, "first")
    job = beside(submitter, gpu_job("second", gpus=4), **growing(pod_sets=elastic(1, 4, gpus=4)["pod_sets"]))
    settings.RELOCATION_SHARE = 0
    assert operations.relocate_jobs() == 0
    settings.RELOCATION_SHARE = 0.1
    assert operations.relocate_jobs() == 1
    end_of(job)
    operations.run_scheduling_cycle()
    since = Now() - timedelta(hours=2)
    Attempt.objects.filter(job=job, finished_at=None).update(
        state="running", starting_at=since, released_at=since, started_at=since
    )
    Job.objects.filter(id=job.id).update(state="running")
    gone(submitter, first)
    assert sizes(job) == [1, 2]
    assert operations.relocate_jobs() == 0
    redate(Move.objects.all(), created_at=Now() - timedelta(minutes=31))
    assert operations.relocate_jobs() == 1


def test_the_database_refuses_the_growth_of_a_job_that_does_not_ask_for_it_or_leads_away(grown):
    attempt = Attempt.objects.get(job=grown)
    Attempt.objects.filter(id=attempt.id).update(stop_requested_at=Now(), stop_reason="migrated")
    row = (
        "INSERT INTO federation_move (attempt_id, job_id, cause, clusters, expected_id, lost_seconds, cost_seconds, stay_seconds,"
        " nodes, amounts, created_at) VALUES (%s, %s, 'growth', '{}', %s, 0, 60, 600, %s, '{}', now())"
    )
    elsewhere = "00000000-0000-0000-0000-000000000001"
    assert "is not being moved away from there" in attack(row, attempt.id, grown.id, elsewhere, '["n"]')
    assert "a_move_of_a_plan_has_its_place" in attack(row, attempt.id, grown.id, attempt.cluster_id, "[]")
    Job.objects.filter(id=grown.id).update(spec=grown.spec | {"elastic": {"pod_set": "worker", "min_count": 1}})
    assert "does not ask to grow" in attack(row, attempt.id, grown.id, attempt.cluster_id, '["n"]')
    Job.objects.filter(id=grown.id).update(spec=grown.spec)
    assert attack(row, attempt.id, grown.id, attempt.cluster_id, '["n"]') == "it was allowed"
