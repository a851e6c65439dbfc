"""What the pages about jobs read, and that the number of questions does not grow with the number of rows."""

from datetime import timedelta
from uuid import uuid4

import pytest

from clusters.models import Cluster
from clusters.queries.pages import fleet_view
from federation.models import Attempt, Job, PodRun, RemoteObject
from federation.queries.overview import workload
from federation.queries.pages import job_list, job_view
from federation.web.jobs import LIVE
from foundation.clock import now
from foundation.problems import Invalid, NotFound
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


def test_a_pod_that_was_deleted_before_its_end_was_seen_does_not_seem_to_run(user):
    [job] = jobs_of(user, 1)
    attempt = attempt_at(job, Cluster.objects.get(name="north"))
    held = RemoteObject.objects.create(
        attempt=attempt, cluster_id=attempt.cluster_id, position=0, name="swy-x", flavor="h100", pods=2, gpu_units=0, cpu_millicores=1,
        memory_mib=1,
    )  # fmt: skip
    began = now() - timedelta(seconds=100)
    for name, is_gone in (("gone", True), ("there", False)):
        PodRun.objects.create(
            attempt=attempt, cluster_id=attempt.cluster_id, remote_object=held, place=int(is_gone), uid=name, name=name, node="n1",
            phase="Running", started_at=began, observed_at=began + timedelta(seconds=40), is_gone=is_gone,
        )  # fmt: skip
    [line] = job_view(actor_for(user), job.id).attempts
    assert [(pod.name, pod.phase, pod.finished_at) for pod in line.pods] == [
        ("gone", "Gone", began + timedelta(seconds=40)),
        ("there", "Running", None),
    ]


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


def test_jobs_are_found_by_a_part_of_their_tenants_path(user):
    jobs_of(user, 1)
    submit(actor_for(user), {"tenant": "acme", **make_spec(name="of-acme")})
    actor = actor_for(user)
    assert [line.name for line in job_list(actor, {"tenant": "Resear"}).jobs] == ["j0"]
    assert [line.name for line in job_list(actor, {"tenant": "acme"}).jobs] == ["of-acme", "j0"]
    nothing = job_list(actor, {"tenant": "nobody"})
    assert (nothing.jobs, nothing.match.count, nothing.filters["tenant"]) == ((), 0, "nobody")


def test_jobs_are_filtered_in_the_words_of_the_api(user):
    first, _ = jobs_of(user, 2)
    Job.objects.filter(id=first.id).update(state="running", labels={"team": "vision"})
    actor = actor_for(user)
    for query in (
        {"state": "running"},
        {"state": LIVE, "label": "team:vision"},
        {"label": "team=vision"},
        {"label": "team"},
    ):
        assert [line.name for line in job_list(actor, query).jobs] == ["j0"], query
    assert len(job_list(actor, {"state": "running,queued"}).jobs) == 2
    with pytest.raises(Invalid, match="one or more of: cancelled"):
        job_list(actor, {"state": "live"})


PART_OF_TENANT = ("/jobs/", "/quotas/", "/usage/", "/capacity/")


@pytest.mark.parametrize("path", PART_OF_TENANT)
def test_a_page_lists_the_tenants_that_a_part_matches_and_keeps_what_was_typed(user, client, path):
    bind(user, "other/research")
    client.force_login(user)
    page = client.get(path, {"tenant": "Resear"}).content.decode()
    assert "“Resear” matches 2 tenants" in page
    assert 'href="?tenant=acme%2Fresearch">acme/<wbr>research</a>' in page
    if path != "/capacity/":
        assert 'value="Resear"' in page


@pytest.mark.parametrize("path", PART_OF_TENANT)
@pytest.mark.parametrize("typed", ["nobody", "acme/nobody", "<b>", "%", "a" * 2000])
def test_a_tenant_that_matches_nothing_is_no_page_that_is_missing(user, client, path, typed):
    client.force_login(user)
    answer = client.get(path, {"tenant": typed})
    assert answer.status_code == 200
    assert "No tenant that you can see has" in answer.content.decode()
    assert "<b>" not in answer.content.decode()


def test_usage_of_a_part_offers_the_file_where_the_api_can_name_the_tenants(user, client):
    client.force_login(user)
    assert b"tenant=acme%2Fresearch" in client.get("/usage/?tenant=resear").content
    bind(user, "other/research")
    assert b"CSV" not in client.get("/usage/?tenant=resear").content
    assert client.get("/usage/?group_by=tenant,flavor&group_by=day").context["page"].columns == (
        "tenant",
        "flavor",
        "day",
    )
    assert client.get("/usage/?group_by=colour").status_code == 422


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/jobs/new/", 'value="acme/research" selected'),
        ("/jobs/new/?by=json", "&quot;tenant&quot;: &quot;acme/research&quot;"),
        ("/reservations/new/", 'value="acme/research" selected'),
        ("/capacity/", 'value="acme/research" selected'),
    ],
)
def test_a_form_begins_with_the_tenant_that_was_used_last(user, client, path, named):
    client.force_login(user)
    bind(user, "acme/sales")
    assert named not in client.get(path).content.decode()
    jobs_of(user, 1)
    assert named in client.get(path).content.decode()


@pytest.mark.parametrize("path", ["/jobs/new/", "/reservations/new/", "/datasets/", "/quotas/set/"])
def test_no_form_begins_with_the_organisation_because_it_comes_first(user, client, path):
    client.force_login(user)
    assert 'value="acme/research" selected' in client.get(path).content.decode()
    bind(user, "acme/sales")
    page = client.get(path).content.decode()
    assert '<option value="" selected>Choose a tenant</option>' in page
    assert 'value="acme" selected' not in page
    assert 'value="acme" selected' in client.get(f"{path}?tenant=acme").content.decode() or path == "/reservations/new/"


@pytest.mark.parametrize("path", ["/jobs/new/", "/reservations/new/", "/datasets/", "/quotas/set/"])
def test_a_form_without_a_tenant_asks_for_one(user, client, path):
    client.force_login(user)
    answer = client.post(path, {"tenant": "", "name": "x", "resource": "gpu", "nominal": "1"})
    assert answer.status_code == 422
    assert "choose a tenant" in answer.content.decode()


def test_no_offers_are_made_before_a_tenant_is_chosen(user, client):
    client.force_login(user)
    answer = client.post("/jobs/new/", {"tenant": "", "show": "offers"}, headers={"HX-Request": "true"})
    assert "No offers yet: the form is not complete." in answer.content.decode()


def test_a_jobs_page_says_which_models_a_short_name_means(client, user):
    make_flavor(Cluster.objects.get(name="north"), "nvl", gpu_model="H100-NVL")
    spec = make_spec(pod={"gpu": {"count": 1, "models": ["A100-80GB", "H100"]}})
    job = submit(actor_for(user), {"tenant": "acme/research", **spec})
    client.force_login(user)
    page = client.get(f"/jobs/{job.id}/").content.decode()
    assert "<dt>H100 means</dt><dd>H100-80GB, H100-NVL</dd>" in page
    assert "A100-80GB means" not in page
