"""A queue that is longer than a cycle looks at, and the most that one tenant may have waiting."""

import pytest

from federation.models import Job
from federation.operations import cycle, run_scheduling_cycle, submit_jobs
from federation.queries.queue import load_queue
from foundation import clock
from foundation.caches import reset_all
from foundation.problem_json import problem_body
from foundation.problems import RateLimited
from quotas.operations import put_user_limit
from tenancy.queries import SYSTEM
from tests.builders import (
    actor_for,
    bind,
    make_cluster,
    make_flavor,
    make_limit,
    make_node,
    make_spec,
    make_tenant,
    make_user,
    submit,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def actor():
    """Submits for acme/flood and acme/quiet, who share a cluster of one node with eight GPUs."""
    user = make_user()
    bind(user, "acme", "submitter")
    for path in ("acme/flood", "acme/quiet"):
        make_tenant(path)
    cluster = make_cluster("acme", "east")
    make_flavor(cluster)
    make_node(cluster)
    return actor_for(user)


def flood(actor, jobs, **changes):
    """So many jobs of acme/flood, each of a shape of its own."""
    items = [make_spec(name=f"f{n}", **{"deadline_seconds": 3600 + n, **changes}) for n in range(jobs)]
    answer = submit_jobs(
        actor, {"tenant": "acme/flood", "jobs": items}, show=lambda job: {"id": str(job.id)}, tell=problem_body
    )
    return answer.body["items"]


def test_jobs_that_wait_for_quota_do_not_hide_another_tenants_job(actor, monkeypatch):
    make_limit("acme/flood", nominal="1")
    flood(actor, 40)
    job = submit(actor, {**make_spec(name="mine"), "tenant": "acme/quiet"})
    monkeypatch.setattr(cycle, "QUEUE_DEPTH", 10)

    run_scheduling_cycle()

    assert Job.objects.get(id=job.id).state == "dispatching"


def test_the_first_of_each_tenant_and_shape_are_looked_at(actor):
    flood(actor, 30)
    urgent = flood(actor, 1, deadline_seconds=3600, priority_class="high")[0]["job"]["id"]
    mine = [submit(actor, {**make_spec(name=f"mine{n}"), "tenant": "acme/quiet"}).id for n in range(3)]

    seen = [request.id for request in load_queue(clock.now(), 10)]

    assert len(seen) == 10
    assert set(mine) <= set(seen)
    assert str(seen[0]) == urgent


def test_a_queue_within_the_depth_is_looked_at_whole(actor):
    flood(actor, 10)
    assert len(load_queue(clock.now(), 10)) == 10


def test_of_a_long_queue_all_that_was_asked_for_is_looked_at(actor):
    flood(actor, 30)
    assert len({request.id for request in load_queue(clock.now(), 25)}) == 25


def test_in_a_long_queue_a_user_at_the_limit_does_not_hide_the_jobs_of_others(actor):
    flood(actor, 30)
    other = make_user()
    bind(other, "acme", "submitter")
    job = submit(actor_for(other), {**make_spec(), "tenant": "acme/flood"})
    assert job.id not in {request.id for request in load_queue(clock.now(), 25)}
    put_user_limit(SYSTEM, "acme", "jobs", most=1)
    seen = {request.id: request.user for request in load_queue(clock.now(), 25)}
    assert len(seen) == 25
    assert seen[job.id] == other.id


def test_a_tenant_with_too_many_jobs_waiting_is_told_to_wait(actor, settings):
    settings.MOST_QUEUED = 5
    statuses = [item["status"] for item in flood(actor, 8)]
    reset_all()

    assert statuses == [201] * 5 + [429] * 3
    with pytest.raises(RateLimited) as refused:
        submit(actor, {**make_spec(), "tenant": "acme/flood"})
    assert (refused.value.code, refused.value.retry_after_seconds) == ("queue_full", 30)
    submit(actor, {**make_spec(), "tenant": "acme/quiet"})
