"""The database judges: each constraint of this room attacked in raw SQL."""

import pytest
from django.db import DatabaseError, connection, transaction

from federation.models import Attempt, Job, JobEvent, RemoteObject
from foundation.clock import now
from tests.builders import make_cluster, make_spec, make_tenant, make_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def job() -> Job:
    spec = make_spec()
    return Job.objects.create(tenant=make_tenant("acme/team"), created_by=make_user(), name="job", spec=spec, shape="s")


@pytest.fixture
def attempt(job: Job) -> Attempt:
    return Attempt.objects.create(
        job=job, number=1, cluster=make_cluster(), flavor="h100", namespace="n", spec_hash="h"
    )


def attack(statement: str, *values: object) -> str:
    """The refusal, in the database's words."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement, values)
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    except DatabaseError as refusal:
        return str(refusal)
    return "it was allowed"


@pytest.mark.parametrize("state", ["reserved", "created", "starting", "running", "unknown"])
def test_a_job_never_has_two_live_attempts(attempt: Attempt, state: str):
    Attempt.objects.filter(id=attempt.id).update(state="unknown")
    told = attack(
        "INSERT INTO federation_attempt (id, job_id, number, cluster_id, state, state_before_unknown, flavor, domain, currency,"
        " namespace, spec_hash, claim_token, tries, end_reason, end_message, stop_reason, stop_message)"
        " VALUES (gen_random_uuid(), %s, 2, %s, %s, '', 'f', '', 'USD', 'n', 'h', 0, 0, '', '', '', '')",
        attempt.job_id,
        attempt.cluster_id,
        state,
    )
    assert "one_live_attempt_per_job" in told


@pytest.mark.parametrize("end", ["succeeded", "failed", "cancelled"])
def test_an_ended_job_stays_as_it_ended(job: Job, end: str):
    Job.objects.filter(id=job.id).update(state=end, finished_at=now())
    assert "has ended" in attack("UPDATE federation_job SET state = 'queued', finished_at = NULL WHERE id = %s", job.id)


@pytest.mark.parametrize("end", ["succeeded", "failed", "cancelled", "preempted", "abandoned", "lost"])
def test_an_ended_attempt_stays_as_it_ended(attempt: Attempt, end: str):
    Attempt.objects.filter(id=attempt.id).update(state=end, finished_at=now())
    told = attack("UPDATE federation_attempt SET state = 'running', finished_at = NULL WHERE id = %s", attempt.id)
    assert "has ended" in told


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("state = 'dancing', finished_at = now()", "attempt_state_is_known"),
        ("state = 'succeeded'", "attempt_is_finished_exactly_when_terminal"),
        ("finished_at = now()", "attempt_is_finished_exactly_when_terminal"),
        ("released_at = now()", "nothing_is_released_before_the_gateway_commits_to_it"),
        ("settled_at = now()", "only_finished_attempts_settle"),
    ],
)
def test_an_attempt_is_never_in_a_state_that_cannot_be(attempt: Attempt, change: str, constraint: str):
    assert constraint in attack(f"UPDATE federation_attempt SET {change} WHERE id = %s", attempt.id)


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("state = 'dancing'", "job_"),
        ("state = 'failed'", "job_is_finished_exactly_when_terminal"),
        ("finished_at = now()", "job_is_finished_exactly_when_terminal"),
    ],
)
def test_a_job_is_never_in_a_state_that_cannot_be(job: Job, change: str, constraint: str):
    assert constraint in attack(f"UPDATE federation_job SET {change} WHERE id = %s", job.id)


def make_object(attempt: Attempt, position: int, uid: str) -> RemoteObject:
    return RemoteObject.objects.create(
        attempt=attempt, position=position, name="o", uid=uid, flavor="f", capacity_type="spot", pods=1, gpu_units=0,
        cpu_millicores=1, memory_mib=1,
    )  # fmt: skip


def test_an_objects_uid_is_written_once_and_serves_one_attempt(attempt: Attempt):
    first = make_object(attempt, 0, "u1")
    second = make_object(attempt, 1, "")
    assert "already has uid" in attack("UPDATE federation_remoteobject SET uid = 'u2' WHERE id = %s", first.id)
    told = attack("UPDATE federation_remoteobject SET uid = 'u1' WHERE id = %s", second.id)
    assert "an_object_serves_one_attempt" in told


def test_a_pod_never_ends_before_it_starts(attempt: Attempt):
    told = attack(
        "INSERT INTO federation_podrun (attempt_id, uid, name, position, node, phase, reason, started_at, finished_at, is_gone,"
        " observed_at) VALUES (%s, 'p', 'p', 0, '', 'Failed', '', now(), now() - interval '1 second', false, now())",
        attempt.id,
    )
    assert "pod_ends_after_it_starts" in told


def test_the_timeline_is_not_rewritten(job: Job):
    event = JobEvent.objects.create(job=job, at=now(), kind="submitted")
    assert "append-only" in attack("UPDATE federation_jobevent SET kind = 'other' WHERE id = %s", event.id)
