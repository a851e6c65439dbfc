"""Priority classes over HTTP: who may change them, and the database as their last judge."""

import uuid

import pytest

from federation.models import Job, PriorityClass, PriorityClassGrant
from federation.operations import put_class, put_policy
from foundation.problems import Conflict
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import actor_for, bearer, bind, make_spec, make_tenant
from tests.builders import make_user as new_user
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
