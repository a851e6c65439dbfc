"""Which priority class a job may have, at every way into the queue, and what it keeps of it."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from federation.models import Attempt, Diagnosis, Job, PlacementPolicy
from federation.operations import put_policy, run_scheduling_cycle
from federation.operations.diagnoses import grow
from federation.queries.history import past_jobs
from federation.queries.priority_classes import rules_at
from federation.queries.queue import load_queue
from foundation import clock
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM, tenant_by_path
from tests.builders import actor_for, bind, make_cluster, make_flavor, make_node, make_tenant
from tests.engine.test_manifest import MANIFEST
from tests.rooms.federation.test_priority_classes import TEAM, grant, job, operator, person, refusal, team

pytestmark = pytest.mark.django_db
assert all((operator, team))  # fixtures


def sent_in_bulk(call, user, body):
    [item] = call(user, "post", "/jobs/bulk", {"jobs": [body]})[1]["items"]
    return item["status"], item["problem"]


WAYS = {
    "job": lambda call, user, body: call(user, "post", "/jobs", body),
    "quote": lambda call, user, body: call(user, "post", "/quotes", body),
    "bulk": sent_in_bulk,
    "manifest": lambda call, user, body: call(
        user, "post", "/jobs", {"tenant": TEAM, "manifest": MANIFEST, "priority_class": body["priority_class"]}
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_way_in_accepts_a_class_that_the_user_may_not_use(call, team, way):
    grant(grants=[{"role": "manager"}])
    make_tenant("globex")
    grant("foreign", 900, grants=[{"tenant": "globex"}])
    grant("closed", 900)
    user = person("submitter")
    refused = (422, [("priority_class", "not_allowed")])
    assert refusal(WAYS[way](call, user, job(priority_class="urgent"))) == refused
    for name in ("foreign", "closed", "system-node-critical"):
        assert refusal(WAYS[way](call, user, job(priority_class=name))) == (422, [("priority_class", "unknown_value")])
    assert not Job.objects.exists()


def test_the_refusal_names_the_classes_that_may_be_used(call, team):
    grant(grants=[{"role": "manager"}])
    _, problem = call(person("submitter"), "post", "/jobs", job(priority_class="urgent"))
    assert problem["code"] == "validation_failed"
    assert problem["errors"][0]["detail"] == (
        f"you may not use the priority class urgent; in {TEAM} you may use high, normal, low"
    )


@pytest.mark.parametrize(
    ("grants", "role", "path", "may"),
    [
        ([{"role": "manager"}], "manager", TEAM, True),
        ([{"role": "manager"}], "admin", "acme", True),
        ([{"role": "manager", "tenant": TEAM}], "manager", TEAM, True),
        ([{"role": "manager", "tenant": "acme/other"}], "manager", "acme", False),
        ([{"tenant": "acme"}], "submitter", TEAM, True),
        ([{"tenant": f"{TEAM}/below"}], "submitter", TEAM, False),
        ([{"tenant": "acme/tea"}], "submitter", TEAM, False),
        ([{"role": "admin"}, {"tenant": TEAM}], "submitter", TEAM, True),
        ([], "admin", "acme", False),
    ],
)
def test_a_class_is_used_where_and_by_whom_it_is_granted(call, grants, role, path, may):
    for each in (f"{TEAM}/below", "acme/other", "acme/tea"):
        make_tenant(each)
    row = grant(grants=grants)
    status, answer = call(person(role, path), "post", "/jobs", job(priority_class="urgent"))
    assert (status == 201) is may, answer
    if may:
        stored = Job.objects.get()
        assert (stored.priority, stored.priority_class_id, answer["spec"]["priority_class"]) == (500, row.id, "urgent")


def test_a_role_in_another_tenant_or_one_that_ended_does_not_count(call, team):
    grant(grants=[{"role": "manager"}])
    user = person("submitter")
    bind(user, "acme/other", "manager")
    assert call(user, "post", "/jobs", job(priority_class="urgent"))[0] == 422
    assert call(user, "post", "/jobs", {**job(priority_class="urgent"), "tenant": "acme/other"})[0] == 201


def test_a_grant_follows_its_tenant_when_it_moves(call, team):
    make_tenant("acme/lab")
    grant(grants=[{"tenant": "acme/lab"}])
    user = person("submitter")
    assert call(user, "post", "/jobs", job(priority_class="urgent"))[0] == 422
    change_tenant(SYSTEM, team.id, parent_id=make_tenant("acme/lab").id)
    body = {**job(priority_class="urgent"), "tenant": "acme/lab/team"}
    assert call(user, "post", "/jobs", body)[0] == 201


def test_a_withdrawn_class_is_refused_at_once_and_its_jobs_keep_their_priority(call, team):
    grant(is_open=True)
    user = person("submitter")
    first = call(user, "post", "/jobs", job(priority_class="urgent"))[1]["id"]
    grant(value=3)
    assert call(user, "post", "/jobs", job(priority_class="urgent"))[0] == 422
    assert Job.objects.get().priority == 500
    run_scheduling_cycle()
    _, shown = call(user, "get", f"/jobs/{first}")
    assert (shown["state"], shown["spec"]["priority_class"], Job.objects.get().priority) == ("queued", "urgent", 500)


def test_a_job_that_waits_again_after_its_class_was_withdrawn_has_the_priority_it_had(call, team):
    grant(is_open=True)
    user = person("submitter")
    made = call(user, "post", "/jobs", job(priority_class="urgent"))[1]["id"]
    assert call(user, "post", f"/jobs/{made}/suspend", {})[1]["state"] == "suspended"
    grant(value=3)
    assert call(user, "post", f"/jobs/{made}/resume")[1]["state"] == "queued"
    assert [request.priority for request in load_queue(clock.now(), 10)] == [500]


def test_a_job_that_gets_more_memory_has_the_shape_of_one_submitted_with_it(call, team):
    grant(is_open=True)
    user = person("submitter")
    more = {"memory": "2Gi"}
    grown, same, other = (
        Job.objects.get(id=call(user, "post", "/jobs", body)[1]["id"])
        for body in (job(priority_class="urgent"), job(priority_class="urgent", pod=more), job(pod=more))
    )
    grow(grown, Diagnosis(memory={"main": 2 * 2**30}))
    grown.refresh_from_db()
    assert grown.shape == same.shape != other.shape


def test_a_trace_of_the_past_has_the_priority_that_a_job_had(call, team):
    grant(is_open=True)
    user, cluster = person("submitter"), make_cluster("acme", "north")
    row = Job.objects.get(id=call(user, "post", "/jobs", job(priority_class="urgent"))[1]["id"])
    grant(value=3)
    at = clock.now()
    ended = {"state": "succeeded", "started_at": at, "finished_at": at}
    Attempt.objects.create(job=row, number=1, cluster=cluster, flavor="h100", **ended)
    Job.objects.filter(id=row.id).update(**ended)
    traced, _ = past_jobs(at - timedelta(days=1), at + timedelta(days=1))
    assert [one.priority for one in traced] == [500]


def test_the_queue_uses_the_value_that_a_job_was_submitted_with(call, team):
    user = person("submitter")
    cluster = make_cluster("acme", "north")
    make_flavor(cluster)
    make_node(cluster)
    grant(value=10, is_open=True)
    early = call(user, "post", "/jobs", job(name="early", priority_class="urgent", pod={"gpu": {"count": 8}}))[1]["id"]
    grant(value=20, is_open=True)
    late = call(user, "post", "/jobs", job(name="late", priority_class="urgent", pod={"gpu": {"count": 8}}))[1]["id"]
    shapes = set(Job.objects.values_list("shape", flat=True))
    assert len(shapes) == 2
    run_scheduling_cycle()
    assert str(Attempt.objects.get().job_id) == late != early


@pytest.mark.usefixtures("quotes_look_anew")
def test_a_quote_says_what_the_round_does_with_a_job_of_a_class(call, team):
    user = person("submitter")
    cluster = make_cluster("acme", "north")
    make_flavor(cluster)
    make_node(cluster)
    grant("above", 101, is_open=True)
    grant("below", 99, is_open=True)
    whole = {"gpu": {"count": 8}}
    call(user, "post", "/jobs", job(name="queued", priority_class="high", pod=whole))
    quotes = {
        name: call(user, "post", "/quotes", job(priority_class=name, pod=whole))[1]["offers"]
        for name in ("above", "below")
    }
    assert [one["cluster"] for one in quotes["above"]] == ["north"]
    assert quotes["below"] == []
    above = call(user, "post", "/jobs", job(name="above", priority_class="above", pod=whole))[1]["id"]
    run_scheduling_cycle()
    assert str(Attempt.objects.get().job_id) == above


def test_a_job_that_names_none_gets_the_nearest_default(call, team):
    user, manager = person("submitter"), actor_for(person("manager", "acme"))
    grant("batch", -5, is_open=True)

    def chosen(**more):
        return call(user, "post", "/jobs", job(**more))[1]["spec"]["priority_class"]

    assert chosen() == "normal"
    grant("batch", -5, is_open=True, is_default=True)
    assert chosen() == chosen(priority_class=None) == "batch"
    put_policy(manager, team.parent.id, {"default_priority_class": "low"})
    assert chosen() == "low"
    put_policy(manager, team.id, {"default_priority_class": "high"})
    assert chosen() == "high"
    assert chosen(priority_class="normal") == "normal"
    _, bulk = call(user, "post", "/jobs/bulk", {"jobs": [job(), job(priority_class="low")]})
    stored = [Job.objects.get(id=item["job"]["id"]) for item in bulk["items"]]
    assert [(one.spec["priority_class"], one.priority) for one in stored] == [("high", 100), ("low", -100)]
    _, shown = call(user, "get", f"/tenants/{team.id}/policy")
    assert (shown["policy"]["default_priority_class"], shown["effective"]["default_priority_class"]) == ("high", "high")


def test_a_default_that_the_user_may_not_use_is_refused_and_not_replaced(call, team):
    grant(grants=[{"role": "manager"}])
    put_policy(actor_for(person("manager", "acme")), team.id, {"default_priority_class": "urgent"})
    assert refusal(call(person("submitter"), "post", "/jobs", job())) == (422, [("priority_class", "not_allowed")])
    assert call(person("manager"), "post", "/jobs", job())[0] == 201


def test_a_policys_default_is_a_class_that_the_tenants_users_know(call, team):
    make_tenant("globex")
    grant("foreign", 900, grants=[{"tenant": "globex"}])
    manager, path = person("manager"), f"/tenants/{team.id}/policy"
    for name in ("foreign", "no-such"):
        answer = call(manager, "put", path, {"default_priority_class": name})
        assert refusal(answer) == (422, [("default_priority_class", "unknown_value")])
    assert refusal(call(manager, "put", path, {"default_priority_class": "A"})) == (
        422,
        [("default_priority_class", "bad_format")],
    )
    assert not PlacementPolicy.objects.exists()


def test_capacity_is_for_viewers_too_whatever_the_class(call, team):
    grant(grants=[{"role": "manager"}], is_default=True)
    viewer = person("viewer")
    shape = '{"pod_sets": [{"count": 1, "cpu": "1", "memory": "1Gi"}]%s}'
    for more, status in (("", 200), (', "priority_class": "urgent"', 200), (', "priority_class": "no-such"', 422)):
        answer = call(viewer, "get", f"/capacity?tenant={TEAM}&shape={shape % more}")
        assert answer[0] == status, answer


def test_a_submission_asks_the_database_once_for_policies_and_classes(team):
    actor = actor_for(person("submitter"))
    tenant = tenant_by_path(actor, TEAM)
    with CaptureQueriesContext(
        connection,
    ) as asked:
        rules_at(actor, tenant)
    assert len(asked) == 1


def test_a_tenant_that_no_query_found_for_the_user_grants_no_role(team):
    grant(grants=[{"role": "submitter"}])
    actor = actor_for(person("admin"))
    assert [one.name for one in rules_at(actor, team).classes.usable] == ["high", "normal", "low"]
