"""What ran is billed: nothing is settled before its pods are known, and what turns up after that is metered all the same."""

import asyncio
import threading
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, transaction
from django.db import connections as django_connections

from billing.models import Meter, UsageSegment
from clusters.drivers import JobSeen, Unreachable
from federation import operations
from federation.models import Attempt, JobEvent, PodRun, RemoteObject
from federation.operations import (
    Observations,
    accrue_running,
    observation,
    record_observations,
    reopening,
    settle_attempts,
)
from federation.queries.proof import disagreements
from foundation.clock import now
from quotas.models import Hold
from quotas.operations import take_holds
from tests.builders import hold_request, make_cluster, redate
from tests.live import call, observe_until, place
from tests.refusals import constraint_of
from tests.rooms.federation.test_evidence import replaced
from tests.rooms.federation.test_hostile_reports import end, make_attempt, metered, pod_of, report

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)
TO_THE_END = pytest.approx(2 * 119 / 60, abs=0.02)
"""GPU hours of two GPUs from a minute after the release two hours ago until now."""


def over(pod):
    """The pod, ended now."""
    return replace(pod, phase="Succeeded", finished_at=now().replace(microsecond=0), exit_code=0)


def failed(attempt):
    """The cluster says that the Job has failed; nothing of its pods is known."""
    remote = attempt.remote_objects.get()
    seen = JobSeen(attempt.namespace, remote.name, remote.uid, {}, False, "failed", "", "", None, False)
    record_observations(attempt.cluster_id, Observations(jobs=[seen]))


def settle_now():
    """As `settle_attempts` does when every pause is over."""
    Attempt.objects.update(settle_at=None)
    return settle_attempts()


def standing(attempt):
    """Whether it is settled, and how its hold stands."""
    attempt.refresh_from_db()
    return attempt.settled_at is not None, Hold.objects.get(holder_id=attempt.id).state


def held(attempt):
    """The attempt, with a hold."""
    request = replace(hold_request("acme/team"), holder_id=attempt.id)
    assert take_holds([request]) == {attempt.id: None}
    return attempt


class Member:
    """What settlement asks of a cluster: who it is and what pods a Job has."""

    def __init__(self, identity, *, hangs=False):
        self.name, self.hangs, self.pods = identity, hangs, []

    async def identity(self):
        if self.hangs:
            await asyncio.sleep(60)
        return self.name

    async def list_pods(self, _namespace, _job):
        return self.pods


@pytest.fixture
def members(monkeypatch):
    """Clusters by id, to be filled."""
    found = {}
    monkeypatch.setattr("clusters.queries.driver_of", lambda cluster_id: found[cluster_id])
    return found


def test_an_attempt_that_failed_before_its_pods_were_seen_is_settled_when_its_cluster_has_told_them(
    cluster, submitter, monkeypatch
):
    _, attempt = place(submitter, seconds=100_000)
    operations.dispatch_attempts()
    failed(attempt)

    async def unreachable(*_):
        raise Unreachable("cut off")

    with monkeypatch.context() as cut:
        replaced(cut, "list_pods", unreachable)
        settle_now()
    assert standing(attempt) == (False, "pending")
    settle_now()
    assert standing(attempt) == (False, "pending"), "its pod runs on"
    assert PodRun.objects.get().started_at is not None
    call(cluster, "delete_job", attempt.namespace, attempt.remote_objects.get().name, attempt.remote_objects.get().uid)
    settle_now()
    assert standing(attempt) == (True, "posted")
    pod, meter = PodRun.objects.get(), Meter.objects.get()
    assert meter.is_closed
    assert meter.metered_until - meter.metered_from >= pod.observed_at - pod.started_at - timedelta(milliseconds=2)


def test_an_attempt_that_was_cancelled_as_it_was_released_is_billed_for_what_ran(cluster, submitter):
    job, attempt = place(submitter, seconds=100_000)
    operations.dispatch_attempts()
    operations.request_cancellation(submitter, job.id)
    observe_until(lambda: Attempt.objects.filter(settled_at__isnull=False).exists())
    attempt.refresh_from_db()
    assert attempt.pods_told_at is not None
    assert set(PodRun.objects.filter(started_at__isnull=False).values_list("uid", flat=True)) == set(
        Meter.objects.values_list("source_uid", flat=True)
    )


def test_another_cluster_at_the_address_tells_nothing_of_the_pods(members):
    attempt = held(make_attempt())
    members[attempt.cluster_id] = Member("somebody else")
    failed(attempt)
    settle_now()
    assert standing(attempt) == (False, "pending")
    members[attempt.cluster_id].name = attempt.cluster.identity
    settle_now()
    assert standing(attempt) == (True, "voided")


def test_a_cluster_that_never_tells_is_waited_for_so_long_and_then_what_was_seen_counts_as_estimated(members):
    attempt = held(make_attempt())
    members[attempt.cluster_id] = Member("somebody else")
    report(attempt.cluster, pod_of(attempt))
    failed(attempt)
    settle_now()
    assert standing(attempt) == (False, "pending")
    redate(Attempt.objects.all(), finished_at=now() - timedelta(minutes=11))
    settle_now()
    assert standing(attempt) == (True, "posted")
    assert attempt.pods_told_at is None
    assert set(UsageSegment.objects.values_list("is_estimated", flat=True)) == {True}


def test_a_pod_that_outlives_its_job_is_billed_and_held_for_until_it_is_over(members):
    attempt = held(make_attempt())
    pod = pod_of(attempt)
    members[attempt.cluster_id] = member = Member(attempt.cluster.identity)
    member.pods = [pod]
    failed(attempt)
    redate(Attempt.objects.all(), finished_at=now() - HOUR)
    settle_now()
    settle_now()
    assert standing(attempt) == (False, "pending"), "for as long as its cluster says that it runs"
    member.pods = [over(pod)]
    settle_now()
    assert standing(attempt) == (True, "posted")
    assert metered(attempt) == TO_THE_END


def test_a_pod_that_turns_up_after_settlement_is_metered_all_the_same():
    attempt = held(make_attempt())
    end(attempt)
    assert standing(attempt) == (True, "voided")
    pod = pod_of(attempt)
    report(attempt.cluster, pod)
    assert standing(attempt) == (False, "voided")
    ended = over(pod)
    report(attempt.cluster, ended)
    settle_now()
    assert standing(attempt) == (True, "voided")
    assert metered(attempt) == TO_THE_END
    assert JobEvent.objects.filter(attempt=attempt, kind="reopened").count() == 1
    report(attempt.cluster, ended)
    attempt.refresh_from_db()
    assert attempt.settled_at is not None, "nothing new was told"


def test_a_pod_whose_start_is_reported_with_its_deletion_after_settlement_has_a_closed_meter():
    """As by an observer that stood still between the two events: another one had seen the pod wait, and disappear."""
    attempt = held(make_attempt())
    pod = pod_of(attempt)
    report(attempt.cluster, replace(pod, phase="Pending", started_at=None))
    record_observations(attempt.cluster_id, Observations(gone_pods=[pod.uid]))
    end(attempt)
    assert standing(attempt) == (True, "voided")
    late = Observations(pods=[pod], gone_pods=[pod.uid])
    record_observations(attempt.cluster_id, late)
    assert PodRun.objects.get().started_at is not None
    settle_now()
    assert standing(attempt) == (True, "voided")
    assert [meter.is_closed for meter in Meter.objects.all()] == [True]
    assert not disagreements()
    record_observations(attempt.cluster_id, late)
    attempt.refresh_from_db()
    assert attempt.settled_at is not None, "nothing new was reported"


def test_a_pod_that_was_taken_to_be_over_and_runs_on_gets_a_second_meter_for_the_rest():
    attempt = held(make_attempt())
    pod = pod_of(attempt)
    report(attempt.cluster, pod)
    PodRun.objects.update(observed_at=pod.started_at + HOUR / 2)
    end(attempt)
    assert metered(attempt) == 1
    report(attempt.cluster, replace(pod, phase="Succeeded", finished_at=pod.started_at + HOUR, exit_code=0))
    settle_now()
    assert metered(attempt) == 2
    first, second = Meter.objects.order_by("metered_from")
    assert (first.is_closed, second.is_closed, first.metered_until) == (True, True, second.metered_from)
    assert second.source_uid == f"{pod.uid}~1"


def test_a_pod_that_a_list_lacked_and_that_is_there_again_is_billed_without_a_gap():
    attempt = held(make_attempt())
    pod = pod_of(attempt)
    report(attempt.cluster, pod)
    record_observations(attempt.cluster_id, Observations(gone_pods=[pod.uid]))
    report(attempt.cluster, pod)
    assert PodRun.objects.get().is_gone is False
    report(attempt.cluster, over(pod))
    end(attempt)
    assert metered(attempt) == TO_THE_END


def test_a_pod_written_down_while_its_attempt_is_settled_is_seen_by_one_of_the_two(monkeypatch):
    attempt = held(make_attempt())
    failed(attempt)
    redate(Attempt.objects.all(), finished_at=now() - HOUR)
    pod = pod_of(attempt)
    written, may_go_on = threading.Event(), threading.Event()
    real = reopening.reopen_settled

    def slowly(*given):
        written.set()
        may_go_on.wait(2)
        real(*given)

    monkeypatch.setattr(observation, "reopen_settled", slowly)

    def watch():
        report(attempt.cluster, pod)
        django_connections.close_all()

    watching = threading.Thread(target=watch)
    watching.start()
    assert written.wait(10)
    settle_now()
    may_go_on.set()
    watching.join(20)
    monkeypatch.undo()
    assert standing(attempt) == (False, "voided")
    report(attempt.cluster, over(pod))
    settle_now()
    assert metered(attempt) == TO_THE_END


def test_an_instant_that_was_written_stays_when_a_silent_cluster_returns(cluster, submitter):
    _, attempt = place(submitter, seconds=100_000)
    operations.dispatch_attempts()
    attempt.refresh_from_db()
    before = (attempt.starting_at, attempt.created_at)
    Attempt.objects.update(
        state="unknown", released_at=None, state_before_unknown="starting", next_action_at=now(), claim_expires_at=None
    )
    operations.sweep()
    operations.dispatch_attempts()
    attempt.refresh_from_db()
    assert attempt.released_at is not None
    assert (attempt.starting_at, attempt.created_at) == before


@pytest.mark.parametrize("instant", ["now()", "now() - interval '1 day'", "NULL", "'infinity'"])
def test_when_the_gateway_committed_to_an_attempt_is_never_rewritten(instant):
    attempt = make_attempt()
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE federation_attempt SET released_at = NULL, starting_at = {instant}")
    was = attempt.starting_at
    attempt.refresh_from_db()
    assert attempt.starting_at == was


@pytest.mark.parametrize(
    "change",
    ["started_at = now()", "started_at = NULL", "finished_at = now()", "finished_at = NULL", "resumed_at = now()"],
)
def test_when_a_pod_began_and_ended_is_never_rewritten(change):
    attempt = make_attempt()
    report(attempt.cluster, pod_of(attempt, finished_at=now() - HOUR, phase="Failed"))
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE federation_podrun SET {change}")
    assert constraint_of(refused.value) == "a_pods_instants_stand"


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        ("UPDATE federation_attempt SET settled_at = now()", "what_may_have_run_settles_on_evidence"),
        (
            "UPDATE federation_attempt SET settled_at = now() + interval '1 day'",
            "what_may_have_run_settles_on_evidence",
        ),
    ],
)
def test_the_database_refuses_to_settle_without_evidence(statement, constraint):
    attempt = make_attempt()
    failed(attempt)
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert constraint_of(refused.value) == constraint


def test_the_database_opens_a_settled_attempt_for_a_pod_alone():
    end(make_attempt())
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE federation_attempt SET settled_at = NULL")
    assert constraint_of(refused.value) == "a_settled_attempt_opens_for_a_pod"


def spoil(attempt):
    """Its object is lost from the rows, so that nobody knows what its pod is charged as."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM federation_remoteobject WHERE attempt_id = %s", [attempt.id])


def in_trouble():
    return set(Attempt.objects.exclude(settle_error="").values_list("id", flat=True))


def test_one_bad_run_does_not_hold_up_the_settlement_of_the_others(caplog):
    attempts = [held(make_attempt()) for _ in range(5)]
    for attempt in attempts:
        report(attempt.cluster, pod_of(attempt, finished_at=now() - HOUR, phase="Failed", exit_code=1))
        failed(attempt)
    spoil(attempts[2])
    assert settle_now() == 4
    assert [standing(attempt) for attempt in attempts] == [
        (False, "pending") if attempt is attempts[2] else (True, "posted") for attempt in attempts
    ]
    assert in_trouble() == {attempts[2].id}
    assert JobEvent.objects.get(kind="unmetered").attempt_id == attempts[2].id
    assert "prove_ledger" in caplog.text
    assert settle_attempts() == 0
    assert JobEvent.objects.filter(kind="unmetered").count() == 1, "told once, however often it is tried"


def test_one_bad_run_does_not_keep_the_others_from_being_brought_up_to_date():
    attempts = [make_attempt() for _ in range(5)]
    for attempt in attempts:
        report(attempt.cluster, pod_of(attempt))
    spoil(attempts[2])
    assert accrue_running() == 4
    assert in_trouble() == {attempts[2].id}
    bad = attempts[2]
    RemoteObject.objects.create(
        attempt=bad, position=0, name="swy-o", flavor="h100", capacity_type="on_demand", pods=1, gpu_units=2,
        cpu_millicores=1000, memory_mib=1024,
    )  # fmt: skip
    assert accrue_running() == 5
    assert in_trouble() == set()


def test_a_cluster_that_hangs_holds_up_no_other(members, monkeypatch):
    monkeypatch.setattr("federation.operations.relook.LOOK_SECONDS", 0.5)
    hanging, others = make_attempt(), [make_attempt() for _ in range(3)]
    for attempt in (hanging, *others):
        members[attempt.cluster_id] = Member(attempt.cluster.identity, hangs=attempt is hanging)
        held(attempt)
        failed(attempt)
    began = now()
    assert settle_attempts() == 3
    assert now() - began < timedelta(seconds=5)
    assert standing(hanging) == (False, "pending")


def test_what_waits_for_silent_and_hanging_clusters_takes_no_others_turn(members, monkeypatch):
    monkeypatch.setattr("federation.operations.relook.LOOK_SECONDS", 0.2)
    monkeypatch.setattr("federation.operations.settlement.BATCH", 3)
    silent = make_cluster(health="unreachable", silent_since=now())
    hanging, answering = make_cluster(), make_cluster()
    for cluster in (hanging, answering):
        members[cluster.id] = Member(cluster.identity, hangs=cluster is hanging)
    attempts = [make_attempt(cluster) for cluster in (silent, hanging) for _ in range(4)] + [make_attempt(answering)]
    for attempt in attempts:
        held(attempt)
        failed(attempt)
    for _ in range(3):
        settle_attempts()
    assert [standing(attempt)[0] for attempt in attempts] == [False] * 8 + [True]
