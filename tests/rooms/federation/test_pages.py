"""What the pages about jobs read, and that the number of questions does not grow with the number of rows."""

from uuid import uuid4

import pytest

from clusters.models import Cluster
from clusters.queries.pages import fleet_view
from federation.models import Attempt, Job
from federation.queries.overview import workload
from federation.queries.pages import job_list, job_view
from foundation.clock import now
from foundation.problems import NotFound
from tests.builders import actor_for, bind, make_cluster, make_flavor, make_node, make_spec, make_user, submit

pytestmark = pytest.mark.django_db


@pytest.fixture
def user():
    user = make_user()
    bind(user, "acme")
    bind(user, "acme/research")
    make_flavor(cluster := make_cluster("acme", "north"))
    make_node(cluster, used_devices={"nvidia.com/gpu": 3})
    return user


def jobs_of(user, count):
    return [submit(actor_for(user), {"tenant": "acme/research", **make_spec(name=f"j{n}")}) for n in range(count)]


def attempt_at(job, cluster, number=1):
    return Attempt.objects.create(
        job=job, number=number, cluster=cluster, state="lost", flavor="h100", namespace="swy-x", spec_hash="0" * 32,
        finished_at=now(), next_action_at=None,
    )  # fmt: skip


def test_a_list_asks_the_same_number_of_questions_for_one_job_and_for_many(user, django_assert_num_queries):
    jobs_of(user, 1)
    actor = actor_for(user)
    with django_assert_num_queries(2):
        job_list(actor, {})
    for job in jobs_of(user, 5):
        attempt_at(job, Cluster.objects.get(name="north"))
    with django_assert_num_queries(2):
        assert len(job_list(actor, {}).jobs) == 6


def test_the_fleet_asks_the_same_number_of_questions_for_one_cluster_and_for_many(user, django_assert_num_queries):
    actor = actor_for(user)
    with django_assert_num_queries(7):
        fleet_view(actor)
    for number in range(4):
        make_node(cluster := make_cluster("acme", f"more-{number}"))
        make_flavor(cluster)
    with django_assert_num_queries(7):
        assert len(fleet_view(actor).clusters) == 5


def test_devices_are_used_free_or_out_of_service_and_nothing_else(user):
    cluster = Cluster.objects.get(name="north")
    make_node(cluster, is_schedulable=False)
    (card,) = fleet_view(actor_for(user)).clusters
    (line,) = card.flavors
    assert (line.count.used, line.count.free, line.count.out_of_service, line.count.total) == (3, 5, 8, 16)


def test_a_line_names_the_cluster_of_the_newest_attempt(user):
    (job,) = jobs_of(user, 1)
    attempt_at(job, Cluster.objects.get(name="north"))
    attempt_at(job, make_cluster("acme", "south"), number=2)
    assert job_view(actor_for(user), job.id).line.cluster == "south"


def test_pages_follow_each_other_without_gap_or_repeat(user):
    jobs_of(user, 30)
    actor = actor_for(user)
    first = job_list(actor, {})
    second = job_list(actor, {"cursor": first.next})
    names = [line.name for line in (*first.jobs, *second.jobs)]
    assert names == [f"j{n}" for n in reversed(range(30))]
    assert second.next is None


def test_a_foreign_job_looks_absent(user):
    (job,) = jobs_of(user, 1)
    stranger = make_user()
    bind(stranger, "other")
    for job_id in (job.id, uuid4()):
        with pytest.raises(NotFound):
            job_view(actor_for(stranger), job_id)
    assert job_list(actor_for(stranger), {}).jobs == ()


def test_the_overview_counts_what_waits_by_reason_and_what_ended_by_the_hour(user):
    jobs = jobs_of(user, 4)
    Job.objects.filter(id=jobs[0].id).update(reason_code="waiting_for_quota")
    Job.objects.filter(id=jobs[1].id).update(state="succeeded", finished_at=now())
    Job.objects.filter(id=jobs[2].id).update(state="failed", finished_at=now())
    found = workload(actor_for(user))
    assert (found.queued, found.running, found.ended_today, found.failed_today) == (2, 0, 2, 1)
    assert dict(found.reasons) == {"new": 1, "waiting_for_quota": 1}
    assert len(found.hours) == 24
    assert (found.hours[-1].succeeded, found.hours[-1].failed, found.hours[-1].submitted) == (1, 1, 4)
    assert found.hours[-1].failed_top == 0
    assert {line.name for line in found.live} == {"j0", "j3"}
