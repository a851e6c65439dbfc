"""How long runs took is remembered as they end, once, and told before the next run."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from federation.engine.lifecycle import AttemptState
from federation.models import Attempt, EstimateRecord, Job, RunGroup
from federation.operations.consequences import Ending
from federation.operations.endings import end_attempts
from federation.queries.queue import load_queue
from federation.queries.runtimes import runtime_of_job
from foundation.clock import now
from placement.ranking.kept_estimates import left_after
from placement.ranking.runtimes import MOST_KEPT, groups_of
from tests.builders import actor_for, bearer, bind, make_cluster, make_flavor, make_node, make_user, submit
from tests.rooms.federation.test_constraints import attack

pytestmark = pytest.mark.django_db


@pytest.fixture
def user():
    found = make_user()
    bind(found, "acme/team")
    cluster = make_cluster()
    make_flavor(cluster)
    make_node(cluster)
    return found


def spec(name="train-1", **more):
    pod = {"name": "main", "count": 1, "image": "r.example/t:1", "cpu": "1", "memory": "1Gi", "gpu": {"count": 1}}
    return {"tenant": "acme/team", "name": name, "pod_sets": [pod], **more}


def ran(job: Job, seconds: float, state=AttemptState.SUCCEEDED, *, started=True) -> Attempt:
    """An attempt of the job that ends now, so long after it started."""
    Job.objects.filter(id=job.id).update(state="running")
    attempt = Attempt.objects.create(
        job=job,
        number=1,
        cluster=make_cluster(),
        flavor="h100",
        namespace="n",
        spec_hash="h",
        state="running",
        started_at=now() - timedelta(seconds=seconds) if started else None,
    )
    assert end_attempts([Ending(attempt.id, state, "done")]) == 1
    return attempt


def told(job: Job, user) -> dict[str, Any] | None:
    return Client().get(f"/api/v1/jobs/{job.id}/explanation", headers=bearer(user)).json()["runtime"]


def test_a_run_that_succeeded_predicts_the_next_of_its_name(user):
    first = submit(actor_for(user), spec())
    assert told(first, user) is None
    ran(first, 2400)
    again = submit(actor_for(user), spec("train-2"))
    found = told(again, user)
    assert (found["p50_seconds"], found["runs"], found["basis"]) == (2400, 1, "job")
    assert found["p10_seconds"] < 2400 < found["p90_seconds"]
    assert found["message"].endswith("from 1 run")
    page = Client()
    page.force_login(user)
    assert found["message"] in page.get(f"/jobs/{again.id}/").content.decode()


def test_without_history_the_estimate_stands_and_the_deadline_caps_it(user):
    job = submit(actor_for(user), spec(estimated_seconds=600, deadline_seconds=900))
    found = told(job, user)
    assert (found["basis"], found["p50_seconds"], found["p90_seconds"]) == ("estimate", 600, 900)


def test_failed_and_never_started_runs_teach_nothing(user):
    ran(submit(actor_for(user), spec()), 2400, AttemptState.FAILED)
    ran(submit(actor_for(user), spec()), 2400, started=False)
    assert not RunGroup.objects.exists()


def test_an_ending_that_comes_twice_counts_once(user):
    attempt = ran(submit(actor_for(user), spec()), 60)
    assert end_attempts([Ending(attempt.id, AttemptState.SUCCEEDED, "done")]) == 0
    assert set(RunGroup.objects.values_list("runs", flat=True)) == {1}


def test_a_clock_that_ran_backwards_is_a_run_of_no_length(user):
    ran(submit(actor_for(user), spec()), -5000)
    assert RunGroup.objects.filter(recent_seconds=[0]).count() == 3


def test_only_the_last_runs_are_kept_and_all_are_counted(user):
    job = submit(actor_for(user), spec())
    key = groups_of(job.tenant_id, job.spec).job
    RunGroup.objects.create(key=key, tenant=job.tenant, level="job", recent_seconds=[9] * MOST_KEPT, runs=120)
    ran(job, 100)
    group = RunGroup.objects.get(key=key)
    assert (len(group.recent_seconds), group.recent_seconds[0], group.runs) == (MOST_KEPT, 100, 121)
    assert runtime_of_job(job).runs == 121


def test_a_tenants_history_is_its_own(user):
    bind(user, "acme/other")
    ran(submit(actor_for(user), spec()), 60)
    assert told(submit(actor_for(user), spec() | {"tenant": "acme/other"}), user) is None


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("level = 'all'", "run_group_level_is_known"),
        ("recent_seconds = '{}'", "run_group_remembers_a_bounded_number_of_runs"),
        ("recent_seconds = array_fill(1, ARRAY[51]), runs = 51", "run_group_remembers_a_bounded_number_of_runs"),
        ("recent_seconds = '{5,-1}', runs = 2", "run_group_seconds_are_not_negative"),
        ("recent_seconds = '{5,NULL}', runs = 2", "run_group_seconds_are_not_negative"),
        ("recent_seconds = '{5,6}'", "run_group_counts_what_it_remembers"),
    ],
)
def test_the_database_keeps_history_sane(user, change, constraint):
    ran(submit(actor_for(user), spec()), 60)
    assert constraint in attack(f"UPDATE federation_rungroup SET {change}")


def test_history_is_read_by_key_alone(user, django_assert_num_queries):
    job = submit(actor_for(user), spec())
    ran(job, 60)
    with django_assert_num_queries(1):
        runtime_of_job(job)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM federation_rungroup")
        assert cursor.fetchone() == (3,)


def records():
    """The seconds of runs, and those times what each took of what was stated; they end a moment after their start was computed."""
    return [
        (pytest.approx(one.stated_seconds, rel=0.01), pytest.approx(one.taken_seconds, rel=0.01), one.user.email)
        for one in EstimateRecord.objects.select_related("user").order_by("id")
    ]


def test_estimates_are_compared_with_what_runs_took_for_each_user(user):
    other = make_user()
    bind(other, "acme/team")
    ran(submit(actor_for(user), spec(estimated_seconds=100)), 3000)
    ran(submit(actor_for(other), spec("x", estimated_seconds=5000)), 2500)
    ran(submit(actor_for(user), spec("y")), 9000)  # nothing was stated
    assert records() == [(3000, 90_000, user.email), (2500, 2500, other.email)]
    ran(submit(actor_for(user), spec("z", estimated_seconds=100_000)), 100_000)
    left = left_after(100_000)
    assert records()[0][:2] == (3000 * left + 100_000, 90_000 * left + 100_000)


def test_a_failed_run_counts_only_if_it_took_longer_than_stated(user):
    ran(submit(actor_for(user), spec(estimated_seconds=600)), 10, AttemptState.FAILED)
    ran(submit(actor_for(user), spec(estimated_seconds=600)), 10_000, AttemptState.FAILED, started=False)
    assert records() == []
    ran(submit(actor_for(user), spec(estimated_seconds=600)), 6000, AttemptState.FAILED)
    job = submit(actor_for(user), spec(estimated_seconds=600))
    Job.objects.filter(id=job.id).update(state="cancelling")
    assert records() == [(6000, 60_000, user.email)]


def test_a_user_who_states_a_minute_for_everything_is_not_first(user):
    honest = make_user()
    bind(honest, "acme/team")
    for number in range(3):
        ran(submit(actor_for(user), spec(f"lie{number}", estimated_seconds=60)), 7200)
    pods = {"cpu": "2"}  # unlike all that ran
    waiting = [
        submit(actor_for(one), {**spec(name, estimated_seconds=stated), "pod_sets": [spec()["pod_sets"][0] | pods]})
        for one, name, stated in ((user, "new-lie", 60), (honest, "truth", 1200))
    ]
    Job.objects.filter(state="queued").update(created_at=now() - timedelta(hours=1))
    found = [request.id for request in load_queue(now(), 10)]
    assert found == [waiting[1].id, waiting[0].id]
    EstimateRecord.objects.all().delete()
    assert [request.id for request in load_queue(now(), 10)] == [waiting[0].id, waiting[1].id]
