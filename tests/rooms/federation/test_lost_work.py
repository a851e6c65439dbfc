"""What infrastructure lost of an attempt: why, since when, and what later news makes of it."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import IntegrityError, connection, transaction

from billing.models import LostWork, TenantDay
from billing.operations import create_price, posting
from billing.operations.credits import NewCreditPolicy, set_credit_policy
from billing.operations.prices import NewPrice
from billing.queries.charges import losses_of
from federation.models import Attempt, Checkpoint, Diagnosis, Move, PodRun
from federation.operations import Observations, record_observations, settle_attempts, weigh_failures
from federation.operations.failures import note_lost_work
from federation.operations.lost_work import LOST_WORK, record_lost_work
from federation.operations.reports import record_report
from federation.queries.proof import disagreements
from foundation.clock import now
from foundation.ids import new_id
from foundation.problems import NotAuthenticated
from tenancy.queries import SYSTEM
from tests.builders import bind, make_flavor, make_user, redate
from tests.refusals import constraint_of

from .test_hostile_reports import make_attempt as released_attempt
from .test_hostile_reports import pod_of
from .test_lemon_nodes import fleet_of_ten as fleet_of_ten
from .test_lemon_nodes import spoil, usual
from .test_retries import make_attempt

pytestmark = pytest.mark.django_db
LENGTH = timedelta(seconds=300)


def ended(reason, state="preempted", own_class="", *, spec=None, **pod):
    """An attempt that ran for five minutes and ended so."""
    attempt = make_attempt(**(spec or {}))
    began = (now() - timedelta(seconds=1000)).replace(microsecond=0)
    given = {"exit_code": None, "disruption": "DeletionByTaintManager", "finished_at": began + LENGTH} | pod
    attempt.pods.create(
        cluster_id=attempt.cluster_id, remote_object=attempt.remote_objects.get(), place=0, uid="u", name="p", phase="Failed",
        node="n1", started_at=began, observed_at=now(), **given,
    )  # fmt: skip
    Attempt.objects.filter(id=attempt.id).update(state=state, started_at=began, finished_at=now(), end_reason=reason)
    if own_class:
        Diagnosis.objects.create(
            attempt=attempt, failure_class=own_class, own_class=own_class, step="stop", judged_at=now(), node="n1"
        )
    attempt.refresh_from_db()
    return attempt


def lost(attempt):
    """The cause, and the seconds before the end from which on its work is lost."""
    with connection.cursor() as cursor:
        cursor.execute(LOST_WORK, [[attempt.id]])
        _, cause, since = cursor.fetchone()
    return cause, since and (attempt.started_at + LENGTH - since).total_seconds()


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ({"reason": "node_lost"}, "node_lost"),
        ({"reason": "spot"}, "spot"),
        ({"reason": "preempted"}, "preempted"),
        ({"reason": "infrastructure"}, "infrastructure"),
        ({"reason": "infrastructure", "own_class": "node"}, "evicted"),
        ({"reason": "node_lost", "state": "failed"}, "node_lost"),
        ({"reason": "program_failed", "state": "failed", "own_class": "device"}, "device"),
        ({"reason": "job_failed", "state": "failed", "own_class": "infrastructure"}, "infrastructure"),
        ({"reason": "maintenance_began"}, "maintenance"),
        ({"reason": "pods_gone"}, "infrastructure"),
        ({"reason": "started_in_part", "exit_code": 143, "disruption": ""}, "infrastructure"),
        ({"reason": "blocked_in_part", "exit_code": 143, "disruption": ""}, ""),
        ({"reason": "pods_gone", "exit_code": 0, "disruption": ""}, ""),
        ({"reason": "run_dead", "state": "lost"}, "cluster_lost"),
        ({"reason": "cluster_destroyed", "state": "lost"}, "cluster_lost"),
        ({"reason": "cluster_destroyed", "state": "lost", "exit_code": 1, "disruption": ""}, ""),
        ({"reason": "program_failed", "state": "failed", "own_class": "program"}, ""),
        ({"reason": "program_failed", "state": "failed", "own_class": "out_of_memory"}, ""),
        *(({"reason": reason}, "") for reason in ("suspended", "preempted_for_job", "limit_lowered", "migrated", "object_deleted")),
        ({"reason": "completed", "state": "succeeded", "disruption": ""}, ""),
        ({"reason": "cancelled", "state": "cancelled"}, ""),
    ],
)  # fmt: skip
def test_the_cause_follows_from_the_end_and_our_own_diagnosis(end, cause):
    assert lost(ended(**end)) == (cause, 300 if cause else None)


@pytest.mark.parametrize(
    ("why", "cause"), [("user", ""), ("spot", "spot"), ("drain", "maintenance"), ("maintenance", "maintenance")]
)
def test_a_move_counts_by_what_it_was_for(why, cause):
    attempt = ended("migrated")
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # it has ended already
        Move.objects.create(
            attempt=attempt, job=attempt.job, cause=why, expected_id=attempt.cluster_id, lost_seconds=0, cost_seconds=60,
            stay_seconds=None if why == "user" else 200,
        )  # fmt: skip
        cursor.execute("SET LOCAL session_replication_role = origin")
    assert lost(attempt)[0] == cause


@pytest.mark.parametrize(
    ("spec", "written", "seconds"),
    [
        ({}, 240, 60),
        ({"checkpoint_seconds": 7}, 240, 60),
        ({}, 900, 0),
        ({}, -900, 300),
        ({"checkpoint_seconds": 70}, None, 20),
    ],
)
def test_it_is_lost_since_the_last_checkpoint_as_everywhere(spec, written, seconds):
    attempt = ended("node_lost", spec=spec)
    if written is not None:
        at = attempt.started_at + timedelta(seconds=written)
        Checkpoint.objects.create(attempt=attempt, sequence=2, reference="new", written_at=min(at, now()))
        Checkpoint.objects.create(attempt=attempt, sequence=1, reference="old", written_at=attempt.started_at)
    assert lost(attempt) == ("node_lost", seconds)
    since = note_lost_work([attempt.id])[attempt.id]
    assert (attempt.started_at + LENGTH - since).total_seconds() == seconds


def test_only_what_the_attempt_says_is_recorded():
    attempt = ended("node_lost")
    forged = (
        ("spot", attempt.started_at), ("node_lost", attempt.started_at - LENGTH), ("node_lost", attempt.started_at + LENGTH), ("", None),
    )  # fmt: skip
    for cause, since in forged:
        with pytest.raises(IntegrityError) as refused, transaction.atomic():
            LostWork.objects.create(run_id=attempt.id, cause=cause, lost_from=since)
        assert constraint_of(refused.value) == "lost_work_is_what_its_attempt_lost"
    assert record_lost_work([attempt.id]) == 1
    assert record_lost_work([attempt.id]) == 0


def test_a_run_that_has_not_ended_or_never_ran_lost_nothing():
    attempt = make_attempt()
    assert record_lost_work([attempt.id, new_id()]) == 0
    Attempt.objects.update(state="preempted", finished_at=now(), end_reason="node_lost")
    assert record_lost_work([attempt.id]) == 0


def test_pods_that_turn_out_to_have_ended_on_their_own_take_it_back():
    attempt = ended("run_dead", "lost")
    assert record_lost_work([attempt.id]) == 1
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        PodRun.objects.update(exit_code=0, disruption="")
    assert record_lost_work([attempt.id]) == 1
    assert losses_of([attempt.id]) == {}
    assert [row.cause for row in LostWork.objects.order_by("id")] == ["cluster_lost", ""]


def test_a_checkpoint_that_is_reported_after_the_end_changes_nothing():
    attempt = ended("node_lost")
    with pytest.raises(NotAuthenticated):
        record_report(attempt.id, {"sequence": 1, "checkpoint": {"reference": "s3://b/late"}})
    assert lost(attempt) == ("node_lost", 300)


def test_the_proof_finds_what_is_not_recorded():
    attempt = ended("spot")
    Attempt.objects.update(pods_told_at=now())
    Attempt.objects.update(settled_at=now())
    [found] = [one for one in disagreements() if "lost its work" in one]
    assert f"attempt {attempt.id} lost its work since" in found
    assert "to spot, but billing records since nothing to " in found
    # so does the next round, because a worker of an earlier version may have settled it
    weigh_failures()
    assert LostWork.objects.get().cause == "spot"
    weigh_failures()
    assert LostWork.objects.count() == 1
    assert not [one for one in disagreements() if "lost its work" in one]


def test_settlement_records_it_and_the_page_shows_what_is_not_charged(client):
    attempt = released_attempt(hours=50)
    make_flavor(attempt.cluster)
    create_price(SYSTEM, NewPrice(attempt.cluster.name, "h100", Decimal(3), effective_from=now() - timedelta(days=40)))
    organisation = attempt.job.tenant.path.partition("/")[0]
    set_credit_policy(
        SYSTEM, NewCreditPolicy(organisation, (now() - timedelta(days=3)).date().replace(day=1), ["node_lost"])
    )
    began = (now() - timedelta(hours=49)).replace(microsecond=0)
    pod = pod_of(attempt, started_at=began, phase="Failed", finished_at=began + timedelta(hours=2), exit_code=137)
    record_observations(attempt.cluster_id, Observations(pods=[pod]))
    Checkpoint.objects.create(attempt=attempt, sequence=1, reference="s3://b/1", written_at=began + timedelta(hours=1))
    Attempt.objects.update(state="preempted", end_reason="node_lost", finished_at=now(), pods_told_at=now())
    redate(Attempt.objects.filter(id=attempt.id), finished_at=now() - timedelta(hours=1))
    settle_attempts()
    found = LostWork.objects.get(run_id=attempt.id)
    assert (found.cause, found.lost_from) == ("node_lost", began + timedelta(hours=1))
    assert TenantDay.objects.filter(is_due=True).exists()
    posting.post_days()
    user = make_user()
    bind(user, organisation, "viewer")
    client.force_login(user)
    text = client.get(f"/jobs/{attempt.job_id}/").content.decode()
    assert "6.00 USD not charged" in text
    assert "6.00 USD more is not charged" in text


def test_early_failures_on_a_node_that_is_then_avoided_count_as_lost(fleet_of_ten):
    usual(fleet_of_ten)
    spoil(fleet_of_ten, failure_class="program")
    failed = set(Attempt.objects.filter(state="failed").values_list("id", flat=True))
    assert record_lost_work(failed) == 0
    assert weigh_failures() == 1
    assert {(row.cause, row.run_id) for row in LostWork.objects.all()} == {("bad_node", one) for one in failed}
