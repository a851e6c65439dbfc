"""A job that waits is told when it may start, from what runs now and how long such runs take."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from federation.models import Attempt, Job, RemoteObject
from federation.operations import expect_starts, run_scheduling_cycle
from federation.queries import releases
from foundation.caches import reset_all
from foundation.clock import now
from tests.builders import actor_for, bearer, bind, make_cluster, make_flavor, make_node, make_user, submit

pytestmark = pytest.mark.django_db


@pytest.fixture
def user():
    found = make_user()
    bind(found, "acme/team")
    cluster = make_cluster(name="north")
    make_flavor(cluster)
    make_node(cluster, "n0")
    return found


def spec(name="train", gpus=8, **more):
    pod = {"name": "main", "image": "r.example/t:1", "cpu": "1", "memory": "1Gi", "gpu": {"count": gpus}}
    return {"tenant": "acme/team", "name": name, "pod_sets": [pod], **more}


def cycle():
    reset_all()
    run_scheduling_cycle()
    expect_starts()


def told(job: Job, user):
    return Client().get(f"/api/v1/jobs/{job.id}/explanation", headers=bearer(user)).json()["expected_start"]


def test_a_waiting_job_is_told_when_the_running_one_should_end(user):
    first = submit(actor_for(user), spec(estimated_seconds=3600))
    cycle()
    waiting = submit(actor_for(user), spec())
    cycle()
    start = told(waiting, user)
    assert start["cluster"] == "north"
    assert "the node it would take is held by jobs that should end by then" in start["message"]
    assert told(first, user) is None
    page = Client()
    page.force_login(user)
    assert "Expected start" in page.get(f"/jobs/{waiting.id}/").content.decode()
    quote = Client().post("/api/v1/quotes", spec(), content_type="application/json", headers=bearer(user)).json()
    assert quote["offers"] == []


def test_of_runs_without_history_or_estimate_nothing_is_told(user):
    submit(actor_for(user), spec())
    cycle()
    waiting = submit(actor_for(user), spec())
    cycle()
    assert told(waiting, user) is None


def test_releases_are_where_pods_were_seen_and_when_runs_should_end(user):
    job = submit(actor_for(user), spec(gpus=2, estimated_seconds=3600))
    cycle()
    attempt = Attempt.objects.get(job=job)
    (assumed,) = releases.load_releases(now())
    assert (assumed.nodes, assumed.units, assumed.cpu_millicores) == ({"n0": 1}, 2, 1000)
    attempt.pods.create(
        uid="u", name="p", position=0, node="elsewhere", phase="Running", observed_at=now(),
        cluster_id=attempt.cluster_id, remote_object=attempt.remote_objects.get(), index=0, place=0,
    )  # fmt: skip
    Attempt.objects.filter(id=attempt.id).update(state="running", started_at=now() - timedelta(seconds=3000))
    reset_all()
    (seen,) = releases.load_releases(now())
    assert seen.nodes == {"elsewhere": 1}
    assert 590 < (seen.at - now()).total_seconds() <= 600
    Attempt.objects.filter(id=attempt.id).update(state="unknown")
    reset_all()
    assert releases.load_releases(now()) == ()
    assert RemoteObject.objects.count() == 1


def test_a_round_without_anybody_out_of_patience_asks_nothing_about_what_runs(user):
    """It costs as many statements while something runs as when nobody could tell how long; only patience that ran out costs."""
    submit(actor_for(user), spec(estimated_seconds=3600))
    cycle()
    waiting = submit(actor_for(user), spec())
    run_scheduling_cycle()
    reset_all()
    with CaptureQueriesContext(connection) as patient:
        run_scheduling_cycle()
    assert not any("assumed_nodes" in sql and "estimated_seconds" in sql for sql in statements(patient))
    Job.objects.filter(id=waiting.id).update(created_at=now() - timedelta(hours=1))
    with CaptureQueriesContext(connection) as impatient:
        run_scheduling_cycle()
    assert any("assumed_nodes" in sql and "estimated_seconds" in sql for sql in statements(impatient))


def statements(captured):
    return [query["sql"] for query in captured.captured_queries]


def test_looking_ahead_rests_in_between(user):
    submit(actor_for(user), spec(estimated_seconds=3600))
    waiting = submit(actor_for(user), spec())
    run_scheduling_cycle()
    assert expect_starts() == 1
    Job.objects.filter(id=waiting.id).update(explanation={})
    assert expect_starts() == 0
    assert "start" not in Job.objects.get(id=waiting.id).explanation
