"""A user moves a running job to another cluster: nothing is stopped unless it then fits there."""

import re
from datetime import timedelta
from decimal import Decimal

import psycopg
import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models.functions import Now
from django.utils.dateparse import parse_datetime

from billing.operations import create_price
from billing.operations.prices import NewPrice
from clusters.models import Cluster
from federation import operations
from federation.engine.lifecycle import AttemptState
from federation.models import Attempt, Checkpoint, Job, JobEvent, Move
from federation.operations import endings, transitions
from federation.operations.consequences import Ending
from federation.queries.moves import preview
from federation.queries.quotes import _desk
from foundation.clock import database_now
from foundation.problems import Conflict, Invalid, NotFound
from tenancy.models import AuditEntry, User
from tenancy.queries import SYSTEM, Actor
from tests.builders import make_user, redate, submit
from tests.live import gpu_job, observe_until, simulated_cluster

pytestmark = pytest.mark.django_db(transaction=True)


def started(submitter, **fields):
    """A job that runs since an hour, without a turn of the observer."""
    job = submit(submitter, gpu_job() | fields)
    operations.run_scheduling_cycle()
    since = Now() - timedelta(hours=1)
    Attempt.objects.filter(job=job).update(
        state="running", starting_at=since, released_at=since, started_at=since, next_action_at=None
    )
    Job.objects.filter(id=job.id).update(state="running", started_at=since)
    _desk.forget()
    return job, Attempt.objects.select_related("cluster").get(job=job)


def checkpoint(attempt, flavors=()):
    Checkpoint.objects.create(
        attempt=attempt,
        sequence=1,
        reference="s3://x/1",
        flavors=list(flavors),
        written_at=Now() - timedelta(minutes=5),
    )


def moved(attempt):
    attempt.refresh_from_db()
    return attempt.stop_reason == "migrated"


def ended(attempt):
    attempt.refresh_from_db()
    with transaction.atomic():
        end = Ending(attempt.id, AttemptState.PREEMPTED, attempt.stop_reason, attempt.stop_message)
        assert endings.end_attempts([end]) == 1


def test_a_running_job_continues_on_another_cluster_with_one_run_at_a_time(cluster, submitter):
    other = simulated_cluster("west")
    job = submit(submitter, gpu_job(seconds=100_000))
    observe_until(lambda: Job.objects.filter(id=job.id, state="running").exists())
    first = Attempt.objects.get(job=job)
    _desk.forget()
    operations.request_migration(submitter, job.id, {"lose_work": True})
    observe_until(lambda: Job.objects.filter(id=job.id, state="running", attempts__number=2).exists())
    first.refresh_from_db()
    second = Attempt.objects.get(job=job, number=2)
    assert (first.state, first.end_reason) == ("preempted", "migrated")
    assert {first.cluster_id, second.cluster_id} == {cluster.id, other.id}
    assert second.reserved_at >= first.finished_at


def test_the_job_avoids_its_old_cluster_for_ten_minutes_and_says_why(cluster, submitter):
    other = simulated_cluster("west")
    job, attempt = started(submitter, checkpoint_seconds=600)
    operations.request_migration(submitter, job.id, {"reason": "slow today"})
    operations.request_migration(submitter, job.id, {"reason": "slow today"})
    event = JobEvent.objects.get(job=job, kind="interrupted").message
    assert "(slow today)" in event
    assert re.search(r"has room for it now\. (No work|About \d+ s of work) is repeated\.", event), event
    assert AuditEntry.objects.filter(action="job.migrate", object_id=str(job.id)).count() == 1
    free = other if attempt.cluster_id == cluster.id else cluster
    ended(attempt)
    job.refresh_from_db()
    assert (job.state, job.reason_code) == ("queued", "attempt_returned")
    operations.run_scheduling_cycle()
    assert Attempt.objects.get(job=job, number=2).cluster_id == free.id


@pytest.mark.parametrize("minutes", [9, 11])
def test_it_may_return_after_ten_minutes(cluster, submitter, minutes):
    job, attempt = started(submitter)
    with transaction.atomic():
        transitions.interrupt([attempt], "migrated", "Moved", "Moved.")
    ended(attempt)
    redate(Attempt.objects.filter(id=attempt.id), finished_at=Now() - timedelta(minutes=minutes))
    operations.run_scheduling_cycle()
    job.refresh_from_db()
    if minutes > 10:
        assert job.state == "dispatching"
    else:
        assert (job.state, job.explanation["clusters"][0]["code"]) == ("queued", "moved_away")


def test_nothing_is_stopped_where_no_other_cluster_has_room(cluster, submitter):
    job, attempt = started(submitter, checkpoint_seconds=600)
    with pytest.raises(Conflict, match="no other cluster would take it now") as refused:
        operations.request_migration(submitter, job.id, {})
    assert (refused.value.code, moved(attempt)) == ("no_place_to_move", False)


def test_nothing_is_stopped_that_could_not_be_resumed_there(cluster, submitter):
    simulated_cluster("west")
    job, attempt = started(submitter)
    with pytest.raises(Conflict, match="it has reported no checkpoint") as refused:
        operations.request_migration(submitter, job.id, None)
    assert (refused.value.code, moved(attempt)) == ("cannot_resume", False)
    checkpoint(attempt, ["another"])
    with pytest.raises(Conflict, match="none that can be resumed on"):
        operations.request_migration(submitter, job.id, {})
    Checkpoint.objects.all().delete()
    checkpoint(attempt, [attempt.flavor])
    operations.request_migration(submitter, job.id, {})
    assert moved(attempt)


def test_only_a_running_job_can_be_moved_and_only_by_those_who_may_cancel_it(cluster, submitter):
    simulated_cluster("west")
    waiting = submit(submitter, gpu_job())
    with pytest.raises(Conflict, match="Only a job that runs"):
        operations.request_migration(submitter, waiting.id, {})
    with pytest.raises(NotFound):
        operations.request_migration(Actor(make_user("x@y.example").id, "x"), waiting.id, {})
    for body in ({"lose_work": "yes"}, {"where": 1}, [], {"reason": "x" * 301}):
        with pytest.raises(Invalid):
            operations.request_migration(submitter, waiting.id, body)


def test_a_job_that_is_suspended_while_it_is_moved_is_suspended(cluster, submitter):
    simulated_cluster("west")
    job, attempt = started(submitter)
    operations.request_migration(submitter, job.id, {"lose_work": True})
    operations.request_suspension(submitter, job.id)
    ended(attempt)
    job.refresh_from_db()
    assert job.state == "suspended"


def test_a_repeated_request_with_its_key_moves_the_job_once_also_after_the_move(cluster, submitter, call):
    simulated_cluster("west")
    job, attempt = started(submitter)
    ada = User.objects.get(id=submitter.user_id)
    answers = [call(ada, "post", f"/jobs/{job.id}/migrate", {"lose_work": True}, **{"Idempotency-Key": "k-1"})]
    ended(attempt)
    operations.run_scheduling_cycle()
    answers.append(call(ada, "post", f"/jobs/{job.id}/migrate", {"lose_work": True}, **{"Idempotency-Key": "k-1"}))
    assert [status for status, _ in answers] == [202, 202]
    assert answers[0][1] == answers[1][1]
    assert AuditEntry.objects.filter(action="job.migrate").count() == 1
    assert not moved(Attempt.objects.get(job=job, number=2))


def test_a_job_moves_only_to_a_cluster_that_its_user_named_and_for_ten_minutes_runs_on_no_other(cluster, submitter):
    west, north = simulated_cluster("west"), simulated_cluster("north")
    job, attempt = started(submitter)
    named = west if attempt.cluster_id != west.id else north
    operations.request_migration(submitter, job.id, {"lose_work": True, "clusters": [named.name]})
    assert Move.objects.get().clusters == [named.id]
    ended(attempt)
    Cluster.objects.filter(id=named.id).update(wish="cordoned")
    operations.run_scheduling_cycle()
    job.refresh_from_db()
    codes = {one["cluster"]: one["code"] for one in job.explanation["clusters"]}
    third = ({cluster.name, "west", "north"} - {named.name, attempt.cluster.name}).pop()
    assert codes == {attempt.cluster.name: "moved_away", third: "moved_elsewhere", named.name: "cordoned"}
    Cluster.objects.filter(id=named.id).update(wish="open")
    operations.run_scheduling_cycle()
    assert Attempt.objects.get(job=job, number=2).cluster_id == named.id


def test_naming_the_cluster_that_a_job_has_just_left_moves_it_back(cluster, submitter):
    simulated_cluster("west")
    job, first = started(submitter)
    operations.request_migration(submitter, job.id, {"lose_work": True})
    ended(first)
    operations.run_scheduling_cycle()
    second = Attempt.objects.get(job=job, number=2)
    Attempt.objects.filter(id=second.id).update(
        state="running", starting_at=Now(), released_at=Now(), started_at=Now(), next_action_at=None
    )
    Job.objects.filter(id=job.id).update(state="running")
    _desk.forget()
    with pytest.raises(Conflict, match="no other cluster would take it now"):
        operations.request_migration(submitter, job.id, {"lose_work": True})
    operations.request_migration(submitter, job.id, {"lose_work": True, "clusters": [str(first.cluster_id)]})
    ended(second)
    operations.run_scheduling_cycle()
    assert Attempt.objects.get(job=job, number=3).cluster_id == first.cluster_id


def test_clusters_that_cannot_be_meant_are_named_in_the_refusal(cluster, submitter):
    simulated_cluster("west")
    simulated_cluster("beyond", owner="other")
    job, attempt = started(submitter)
    for asked, code in (
        (["nowhere"], "unknown_value"),
        (["beyond"], "unknown_value"),
        ([attempt.cluster.name], "conflict"),
        (["West!"], "bad_format"),
        (["x"] * 101, "too_many"),
        ("west", "wrong_type"),
    ):
        with pytest.raises(Invalid) as refused:
            operations.request_migration(submitter, job.id, {"clusters": asked, "lose_work": True})
        assert [error.code for error in refused.value.errors] == [code]
    assert not moved(attempt)


def test_a_preview_says_where_when_and_at_which_loss_and_changes_nothing(cluster, submitter, call):
    other = simulated_cluster("west")
    job, attempt = started(submitter)
    there = other if attempt.cluster_id == cluster.id else cluster
    ada = User.objects.get(id=submitter.user_id)
    path = f"/jobs/{job.id}/migrate/preview"
    status, found = call(ada, "post", path, {})
    assert (status, found["possible"], found["refusal"]["code"]) == (200, False, "cannot_resume")
    assert (found["origin"]["cluster"], found["destination"]["cluster"]) == (attempt.cluster.name, there.name)
    gpus = Decimal(3600 * sum(one.gpu_units * one.pods for one in attempt.remote_objects.all())) / 3600
    assert found["repeated_work"]["seconds"] == pytest.approx(3600, abs=60)
    assert Decimal(found["repeated_work"]["gpu_hours"]) == pytest.approx(gpus, rel=Decimal("0.02"))
    checkpoint(attempt)
    _, found = call(ada, "post", path, {"clusters": [there.name]})
    assert (found["possible"], found["refusal"], found["why_not"]) == (True, None, [])
    assert found["repeated_work"]["seconds"] == pytest.approx(300, abs=60)
    assert parse_datetime(found["expected_start_at"]) > database_now()
    Cluster.objects.filter(id=there.id).update(wish="cordoned")
    _desk.forget()
    _, found = call(ada, "post", path, {"clusters": [there.name]})
    assert (found["possible"], found["destination"], found["refusal"]["code"]) == (False, None, "no_place_to_move")
    assert [one["code"] for one in found["why_not"]] == ["cordoned"]
    assert call(ada, "post", path, {"clusters": ["nowhere"]})[0] == 422
    assert call(make_user("eve@evil.example"), "post", path, {})[0] == 404
    assert not moved(attempt)
    assert not AuditEntry.objects.filter(action="job.migrate").exists()


def test_a_preview_prices_the_work_that_is_repeated(cluster, submitter):
    other = simulated_cluster("west")
    job, attempt = started(submitter)
    for one, price in ((attempt.cluster, 2), (other if attempt.cluster_id == cluster.id else cluster, 3)):
        at = database_now() - timedelta(days=1)
        create_price(SYSTEM, NewPrice(one.name, attempt.flavor, Decimal(price), effective_from=at))
    checkpoint(attempt)
    _desk.forget()
    plan = preview(submitter, job.id, {})
    units = plan.run.amounts["gpu"] // 1000
    assert (plan.quote.hourly_cost, plan.place.hourly_cost) == (2 * units, 3 * units)
    assert plan.lost.cost == pytest.approx(Decimal(2 * units * plan.lost.seconds) / 3600, abs=Decimal("0.00001"))


def test_a_job_that_does_not_run_has_a_preview_that_says_so(cluster, submitter):
    plan = preview(submitter, submit(submitter, gpu_job()).id, {})
    assert (plan.refusal.code, plan.place, plan.lost) == ("state_conflict", None, None)


def test_the_page_shows_the_preview_and_then_moves_the_job(cluster, submitter, client):
    simulated_cluster("west")
    job, attempt = started(submitter)
    client.force_login(User.objects.get(id=submitter.user_id))
    assert f"/jobs/{job.id}/move/" in client.get(f"/jobs/{job.id}/").content.decode()
    shown = client.get(f"/jobs/{job.id}/move/", headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in shown
    assert "starts again from its beginning" in shown
    assert "Move it and lose this work" in shown
    answer = client.post(f"/jobs/{job.id}/move/", {"cluster": "nowhere", "lose_work": "yes"}, follow=True)
    assert "no such cluster" in answer.content.decode()
    assert not moved(attempt)
    answer = client.post(f"/jobs/{job.id}/move/", {"cluster": "", "reason": "<b>slow", "lose_work": "yes"}, follow=True)
    assert "is being stopped" in answer.content.decode()
    assert "<b>slow" not in answer.content.decode()
    assert moved(attempt)
    assert "cannot be moved" not in client.get(f"/jobs/{job.id}/move/?cluster=").content.decode()


ATTACKS = {
    "a_move_leads_away": ("user", "{}", "attempt.cluster_id", 0, 60, None),
    "the_gateway_moves_only_what_gains": ("drain", "{}", "gen_random_uuid()", 0, 60, 60),
    "a_moves_cause_is_known": ("whim", "{}", "gen_random_uuid()", 0, 60, 61),
    "a_move_costs_what_it_repeats_or_more": ("user", "{}", "gen_random_uuid()", 61, 60, None),
}
ATTACK = """
INSERT INTO federation_move (attempt_id, job_id, cause, clusters, expected_id, lost_seconds, cost_seconds, stay_seconds)
SELECT attempt.id, attempt.job_id, %s, %s, {expected}, %s, %s, %s FROM federation_attempt AS attempt
"""


def refused_as(statement, *values):
    """The constraint that refuses the statement."""
    with connection.cursor() as cursor, pytest.raises(IntegrityError) as refused:
        cursor.execute(statement, values)
    cause = refused.value.__cause__
    assert isinstance(cause, psycopg.IntegrityError)
    return cause.diag.constraint_name


@pytest.mark.parametrize("broken", ATTACKS)
def test_the_database_refuses_a_move(cluster, submitter, broken):
    started(submitter)
    Attempt.objects.update(stop_requested_at=Now(), stop_reason="migrated")
    cause, clusters, expected, lost, cost, stay = ATTACKS[broken]
    assert refused_as(ATTACK.format(expected=expected), cause, clusters, lost, cost, stay) == broken


def test_the_database_refuses_a_move_of_an_attempt_that_is_not_stopped_for_it(cluster, submitter):
    started(submitter)
    assert refused_as(ATTACK.format(expected="gen_random_uuid()"), "user", "{}", 0, 60, None) == "a_move_leads_away"
