"""Priority classes over HTTP, at every way into the queue, and the database as their last judge."""

import uuid
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from federation.models import Attempt, Diagnosis, Job, PlacementPolicy, PriorityClass, PriorityClassGrant
from federation.operations import put_class, put_policy, run_scheduling_cycle
from federation.operations.diagnoses import grow
from federation.queries.history import past_jobs
from federation.queries.priority_classes import rules_at
from federation.queries.queue import load_queue
from foundation import clock
from foundation.problems import Conflict
from tenancy.models import AuditEntry
from tenancy.operations import change_tenant
from tenancy.queries import SYSTEM, tenant_by_path
from tests.builders import actor_for, bearer, bind, make_cluster, make_flavor, make_node, make_spec, make_tenant
from tests.builders import make_user as new_user
from tests.engine.test_manifest import MANIFEST
from tests.rooms.federation.test_constraints import attack

pytestmark = pytest.mark.django_db
SEEDED = [("high", 100, True, False), ("low", -100, True, False), ("normal", 0, True, True)]
TEAM = "acme/team"


@pytest.fixture
def team():
    return make_tenant(TEAM)


@pytest.fixture
def operator():
    found = new_user("operator@example.org")
    found.is_staff = True
    found.save()
    return found


def person(role, path=TEAM):
    user = new_user()
    bind(user, path, role)
    return user


def grant(name="urgent", value=500, **fields):
    return put_class(SYSTEM, {"name": name, "value": value, **fields})[0]


def job(**changes):
    return {"tenant": TEAM, **make_spec(**changes)}


def refusal(answer):
    status, problem = answer
    return status, [(error["field"], error["code"]) for error in problem["errors"]]


def test_an_installation_begins_with_the_classes_and_values_that_jobs_could_name_before():
    rows = PriorityClass.objects.order_by("name").values_list("name", "value", "is_open", "is_default")
    assert list(rows) == SEEDED


@pytest.mark.usefixtures("team")
def test_operators_create_change_and_remove_classes_with_an_audit_entry_each(call, operator):
    body = {
        "name": "urgent",
        "value": 500,
        "description": "Deadlines.",
        "grants": [{"role": "manager", "tenant": TEAM}],
    }
    status, made = call(operator, "put", "/priority-classes", body)
    assert status == 201, made
    whole = {**body, "is_open": False, "is_default": False}
    assert {name: made[name] for name in whole} == whole
    path = f"/priority-classes/{made['id']}"
    assert call(operator, "get", path) == (200, made)
    status, changed = call(operator, "put", "/priority-classes", {"name": "urgent", "value": 700, "is_open": True})
    assert (status, changed["id"], changed["value"], changed["grants"]) == (200, made["id"], 700, [])
    assert call(operator, "delete", path) == (204, None)
    assert call(operator, "delete", path)[0] == 404
    trail = AuditEntry.objects.filter(object_kind="priority_class").order_by("id")
    assert [entry.action for entry in trail] == ["priority_class.put", "priority_class.put", "priority_class.remove"]
    assert [entry.object_id for entry in trail] == [made["id"]] * 3
    assert [entry.detail["before"] and entry.detail["before"]["value"] for entry in trail] == [None, 500, 700]
    assert trail[1].detail["before"]["grants"] == body["grants"]
    assert trail[2].detail["after"] is None


@pytest.mark.parametrize("role", ["viewer", "submitter", "manager", "finance", "admin"])
def test_no_role_in_an_organisation_may_change_classes(call, role):
    user, row = person(role, "acme"), PriorityClass.objects.get(name="high")
    for verb, path, body in (
        ("put", "/priority-classes", {"name": "high", "value": 900, "is_open": True}),
        ("put", "/priority-classes", {"name": "mine", "value": 900, "is_open": True}),
        ("delete", f"/priority-classes/{row.id}", None),
        ("put", "/priority-classes", {"name": "not valid"}),
    ):
        assert call(user, verb, path, body)[1]["code"] == "permission_denied"
    assert list(PriorityClass.objects.order_by("name").values_list("name", "value", "is_open", "is_default")) == SEEDED


@pytest.mark.parametrize("scope", ["read", "write"])
def test_a_token_without_the_scope_admin_changes_no_class(client, operator, scope):
    answer = client.put(
        "/api/v1/priority-classes", b"{}", content_type="application/json", headers=bearer(operator, scope)
    )
    assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied")


def test_the_list_is_paged_and_shows_users_only_what_concerns_them(call, operator):
    user, stranger = person("submitter"), person("admin", "globex")
    make_tenant("globex/lab")
    grant("ours", 5, grants=[{"tenant": "acme"}, {"role": "admin", "tenant": "globex"}])
    grant("theirs", 6, grants=[{"tenant": "globex/lab"}])
    grant("closed", 7)

    def seen(user, query=""):
        return {one["name"] for one in call(user, "get", f"/priority-classes{query}")[1]["items"]}

    usual = {"low", "normal", "high"}
    assert seen(operator) == usual | {"ours", "theirs", "closed"}
    assert seen(user) == usual | {"ours"}
    assert seen(stranger) == usual | {"ours", "theirs"}
    assert seen(user, f"?tenant={TEAM}") == usual | {"ours"}
    assert seen(stranger, "?tenant=globex") == usual | {"ours"}
    assert call(user, "get", "/priority-classes?tenant=globex")[0] == 404
    ours = PriorityClass.objects.get(name="ours")
    assert call(user, "get", f"/priority-classes/{ours.id}")[1]["grants"] == [{"role": None, "tenant": "acme"}]
    for name in ("theirs", "closed"):
        assert call(user, "get", f"/priority-classes/{PriorityClass.objects.get(name=name).id}")[0] == 404
    _, first = call(user, "get", "/priority-classes?limit=3")
    _, second = call(user, "get", f"/priority-classes?limit=3&cursor={first['next']}")
    assert {one["name"] for one in first["items"] + second["items"]} == usual | {"ours"}
    assert second["next"] is None
    assert call(user, "get", "/priority-classes?name=high")[0] == 422


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
    assert call(user, "post", f"/jobs/{made}/suspend")[1]["state"] == "suspended"
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


def test_the_default_is_moved_and_never_given_up(call, operator):
    path = "/priority-classes"
    body = {"name": "normal", "value": 0, "is_open": True}
    assert refusal(call(operator, "put", path, {**body, "is_default": False})) == (422, [("is_default", "not_allowed")])
    assert call(operator, "put", path, body)[1]["is_default"] is True
    normal = PriorityClass.objects.get(name="normal")
    assert call(operator, "delete", f"{path}/{normal.id}")[1]["code"] == "priority_class_in_use"
    assert call(operator, "put", path, {"name": "low", "value": -100, "is_open": True, "is_default": True})[0] == 200
    assert list(PriorityClass.objects.filter(is_default=True).values_list("name", flat=True)) == ["low"]
    assert call(operator, "delete", f"{path}/{normal.id}")[0] == 204


def test_a_class_with_jobs_or_a_policy_stays(call, operator, team):
    row, path = grant(is_open=True), "/priority-classes"
    put_policy(actor_for(person("manager")), team.id, {"default_priority_class": "urgent"})
    told = call(operator, "delete", f"{path}/{row.id}")[1]
    assert (told["code"], TEAM in told["detail"]) == ("priority_class_in_use", True)
    put_policy(actor_for(person("manager")), team.id, {})
    call(person("submitter"), "post", "/jobs", job(priority_class="urgent"))
    assert call(operator, "delete", f"{path}/{row.id}")[1]["code"] == "priority_class_in_use"
    Job.objects.update(priority_class=None)  # as submitted before classes had rows
    assert call(operator, "delete", f"{path}/{row.id}")[1]["code"] == "priority_class_in_use"


def test_a_tenant_with_a_grant_is_not_removed_before_it(call, team):
    grant(grants=[{"tenant": TEAM}])
    _, told = call(person("admin", "acme"), "delete", f"/tenants/{team.id}")
    assert (told["code"], "grants of priority classes" in told["detail"]) == ("tenant_not_empty", True)


def test_grants_name_tenants_that_exist(call, operator):
    body = {"name": "urgent", "value": 1, "grants": [{"tenant": "acme/nowhere"}]}
    assert refusal(call(operator, "put", "/priority-classes", body)) == (422, [("grants", "unknown_tenant")])


def test_there_is_a_bound_to_the_number_of_classes(monkeypatch):
    monkeypatch.setattr("federation.operations.priority_classes.MOST_CLASSES", 3)
    with pytest.raises(Conflict) as refused:
        grant()
    assert refused.value.code == "too_many_priority_classes"
    put_class(SYSTEM, {"name": "low", "value": -7, "is_open": True})


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


ID = uuid.uuid4()


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        (
            (
                f"INSERT INTO federation_priorityclass (id, name, value, description, is_open, is_default)"
                f" VALUES ('{ID}', 'low', 1, '', true, false)"
            ),
            "priority_class_name_is_unique",
        ),
        (
            (
                f"INSERT INTO federation_priorityclass (id, name, value, description, is_open, is_default)"
                f" VALUES ('{ID}', 'other', 1, '', true, true)"
            ),
            "one_priority_class_is_the_default",
        ),
        (
            (
                f"INSERT INTO federation_priorityclass (id, name, value, description, is_open, is_default)"
                f" VALUES ('{ID}', 'No Name', 1, '', true, false)"
            ),
            "priority_class_name_is_a_dns_label",
        ),
        (
            (
                f"INSERT INTO federation_priorityclass (id, name, value, description, is_open, is_default)"
                f" VALUES ('{ID}', 'line' || chr(10), 1, '', true, false)"
            ),
            "priority_class_name_is_a_dns_label",
        ),
        ("UPDATE federation_priorityclass SET value = 1000001", "priority_class_value_is_in_range"),
        ("UPDATE federation_priorityclass SET value = -1000001", "priority_class_value_is_in_range"),
        ("UPDATE federation_priorityclass SET is_default = true", "one_priority_class_is_the_default"),
        ("UPDATE federation_priorityclass SET is_default = false", "no priority class is the default"),
        ("DELETE FROM federation_priorityclass WHERE name = 'normal'", "no priority class is the default"),
        ("UPDATE federation_priorityclass SET name = 'usual' WHERE name = 'normal'", "keeps its name"),
        ("UPDATE federation_job SET priority_class_id = gen_random_uuid()", "foreign key"),
        ("DELETE FROM federation_priorityclass WHERE name = 'high'", "foreign key"),
        (
            "UPDATE federation_job SET priority_class_id = NULL; DELETE FROM federation_priorityclass WHERE name = 'high'",
            "jobs name the priority class high",
        ),
        (
            (
                "INSERT INTO federation_priorityclassgrant (priority_class_id, role)"
                " SELECT id, 'root' FROM federation_priorityclass"
            ),
            "granted_role_is_known",
        ),
        (
            (
                "INSERT INTO federation_priorityclassgrant (priority_class_id, role)"
                " SELECT id, '' FROM federation_priorityclass"
            ),
            "grant_names_a_role_or_a_tenant",
        ),
        (
            (
                "INSERT INTO federation_priorityclassgrant (priority_class_id, role)"
                " SELECT id, 'admin' FROM federation_priorityclass, generate_series(1, 2)"
            ),
            "a_priority_class_is_granted_once",
        ),
        ("DELETE FROM tenancy_tenant WHERE path = 'acme/granted'", "foreign key"),
    ],
)
def test_the_database_refuses_what_no_class_may_become(call, team, statement, constraint):
    call(person("submitter"), "post", "/jobs", job(priority_class="high"))
    row = PriorityClass.objects.get(name="low")
    PriorityClassGrant.objects.create(priority_class=row, role="", tenant=make_tenant("acme/granted"))
    assert constraint in attack(statement)
