"""The database judges: each constraint of this room attacked in raw SQL."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from federation.models import Attempt, Job, JobEvent, RemoteObject
from foundation.clock import now
from foundation.ids import new_id
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


def attack(statement: str, *values: Any) -> str:
    """The refusal, in the database's words."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement, values[0] if values and isinstance(values[0], dict) else values)
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


DATES = [
    "timestamptz 'epoch'",
    "now() - interval '11 minutes'",
    "now() + interval '1 hour'",
    "timestamptz 'infinity'",
    "timestamptz '-infinity'",
]


@pytest.mark.parametrize("date", DATES)
def test_jobs_and_attempts_end_now(job: Job, attempt: Attempt, date: str):
    for table, end in (("job", "failed"), ("attempt", "lost")):
        told = attack(f"UPDATE federation_{table} SET state = '{end}', finished_at = {date}")
        assert f"{table} {(job if table == 'job' else attempt).id} ends now" in told


@pytest.mark.parametrize("date", [*DATES, "now()"])
def test_when_jobs_and_attempts_ended_stands(job: Job, attempt: Attempt, date: str):
    """An end dated back would pass for evidence: as if the cluster had had its time to report pods."""
    Job.objects.filter(id=job.id).update(state="failed", finished_at=now())
    Attempt.objects.filter(id=attempt.id).update(
        state="failed", starting_at=now(), released_at=now(), finished_at=now()
    )
    was = Job.objects.get().finished_at, Attempt.objects.get().finished_at
    for table in ("job", "attempt"):
        attack(f"UPDATE federation_{table} SET finished_at = {date} + interval '1 millisecond'")
    assert (Job.objects.get().finished_at, Attempt.objects.get().finished_at) == was
    told = attack("UPDATE federation_attempt SET finished_at = 'epoch', settled_at = now()")
    assert "has not told its pods" in told or "which stands" in told


def make_object(attempt: Attempt, position: int, uid: str, pods: int = 1) -> RemoteObject:
    return RemoteObject.objects.create(
        attempt=attempt, position=position, name="o", uid=uid, flavor="f", capacity_type="spot", pods=pods, gpu_units=0,
        cpu_millicores=1, memory_mib=1, cluster_id=attempt.cluster_id if uid else None,
    )  # fmt: skip


def test_an_objects_uid_is_written_once_and_serves_one_attempt(attempt: Attempt):
    first = make_object(attempt, 0, "u1")
    second = make_object(attempt, 1, "")
    assert "already has uid" in attack("UPDATE federation_remoteobject SET uid = 'u2' WHERE id = %s", first.id)
    told = attack(
        "UPDATE federation_remoteobject SET uid = 'u1', cluster_id = %s WHERE id = %s", attempt.cluster_id, second.id
    )
    assert "an_object_serves_one_attempt" in told


def test_a_uid_is_known_with_the_cluster_that_told_it(attempt: Attempt):
    remote = make_object(attempt, 0, "")
    update = "UPDATE federation_remoteobject SET uid = 'u1', cluster_id = %s WHERE id = %s"
    assert "a_uid_is_known_with_its_cluster" in attack(update, None, remote.id)
    assert "is not on cluster" in attack(update, make_cluster().id, remote.id)


INSERT_POD = """
INSERT INTO federation_podrun (attempt_id, cluster_id, remote_object_id, uid, name, position, index, place, node, phase, reason,
                               started_at, finished_at, is_gone, observed_at)
VALUES (%(attempt)s, %(cluster)s, %(object)s, %(uid)s, 'p', 0, 0, %(place)s, '', 'Running', '',
        now() - interval '1 hour', %(until)s, %(gone)s, now())
"""


def pod(remote: RemoteObject, **given: object) -> dict[str, Any]:
    said = {"uid": "p1", "place": 0, "until": None, "gone": False, "cluster": remote.attempt.cluster_id}
    return {"attempt": remote.attempt_id, "object": remote.id, **said, **given}


def test_two_pods_never_have_one_place_at_the_same_time(attempt: Attempt):
    remote = make_object(attempt, 0, "u1", pods=2)
    with connection.cursor() as cursor:
        cursor.execute(INSERT_POD, pod(remote))
        cursor.execute(INSERT_POD, pod(remote, uid="p2", place=1))
    for lie in ({}, {"gone": True}, {"until": now()}):
        assert "one_pod_at_a_time_has_a_place" in attack(INSERT_POD, pod(remote, uid="p3", **lie))
    # an end that the cluster dates back frees nothing of the time in which the pod was seen
    back = "UPDATE federation_podrun SET finished_at = started_at, observed_at = now() WHERE uid = 'p1'"
    with connection.cursor() as cursor:
        cursor.execute(back)
    assert "one_pod_at_a_time_has_a_place" in attack(INSERT_POD, pod(remote, uid="p3"))


@pytest.mark.parametrize(
    "lie", [{"place": 1}, {"place": -1}, {"place": None}, {"cluster": new_id()}, {"object": 0}, {"attempt": new_id()}]
)
def test_a_pod_has_a_place_of_its_object_on_its_cluster(attempt: Attempt, lie: dict[str, object]):
    told = attack(INSERT_POD, pod(make_object(attempt, 0, "u1"), **lie))
    assert "fits no object" in told or "place" in told


READ_FROM_END_TO_END = """
SELECT relname, seq_scan FROM pg_stat_xact_user_tables WHERE relname IN ('federation_attempt', 'federation_remoteobject')
"""


def test_the_rules_of_pods_and_objects_read_by_index_in_a_session_that_planned_for_empty_tables(job: Job):
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE federation_attempt, federation_remoteobject, clusters_cluster, clusters_flavor")
        # As a session has them that was made then: it keeps the plans of the first row.
        cursor.execute("DISCARD PLANS")
        attempt = Attempt.objects.create(
            job=job, number=1, cluster=make_cluster(), flavor="h100", namespace="n", spec_hash="h"
        )
        before = dict(cursor.execute(READ_FROM_END_TO_END).fetchall())
        remote = make_object(attempt, 0, "u1", pods=2)
        cursor.execute(INSERT_POD, pod(remote))
        cursor.execute(INSERT_POD, pod(remote, uid="p2", place=1))
        assert dict(cursor.execute(READ_FROM_END_TO_END).fetchall()) == before


def test_a_pod_is_known_once_on_a_cluster_and_stays_what_it_is(attempt: Attempt):
    first, second = make_object(attempt, 0, "u1", pods=2), make_object(attempt, 1, "u2")
    with connection.cursor() as cursor:
        cursor.execute(INSERT_POD, pod(first))
    assert "one_row_per_observed_pod" in attack(INSERT_POD, pod(first, place=1))
    for change in ("uid = 'p9'", "place = 1", "index = 7", "position = 1", f"remote_object_id = {second.id}"):
        assert "never changes" in attack(f"UPDATE federation_podrun SET {change} WHERE uid = %s", "p1")


def test_a_pod_never_ends_before_it_starts(attempt: Attempt):
    told = attack(INSERT_POD, pod(make_object(attempt, 0, "u1"), until=now() - timedelta(hours=2)))
    assert "pod_ends_after_it_starts" in told


def test_the_timeline_is_not_rewritten(job: Job):
    event = JobEvent.objects.create(job=job, at=now(), kind="submitted")
    assert "append-only" in attack("UPDATE federation_jobevent SET kind = 'other' WHERE id = %s", event.id)
