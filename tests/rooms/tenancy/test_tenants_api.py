import uuid

import pytest

from tenancy.models import AuditEntry, RoleBinding, Tenant
from tests.builders import bearer, bind, make_tenant, make_user

pytestmark = pytest.mark.django_db
TENANTS = "/api/v1/tenants"


class Caller:
    """A user with a role at acme, calling the API."""

    def __init__(self, client, role="admin", path="acme", *scopes, **user):
        self.client, self.user = client, make_user()
        for name, value in user.items():
            setattr(self.user, name, value)
        self.user.save()
        bind(self.user, path, role)
        self.headers = bearer(self.user, *scopes)

    def __call__(self, method, path, body=None, **headers):
        call = getattr(self.client, method)
        options = {"data": body, "content_type": "application/json"} if method != "get" else {"data": body}
        return call(path, headers={**self.headers, **headers}, **options)


@pytest.fixture
def admin(client):
    return Caller(client)


def one(tenant):
    return f"{TENANTS}/{tenant.id}"


def problem(response, status, code, *fields):
    assert response.status_code == status, response.content
    assert response.json()["code"] == code
    assert {error["field"] for error in response.json()["errors"]} == set(fields)
    return response.json()


def test_a_tenant_is_made_below_another_and_read_back(admin):
    response = admin(
        "post", TENANTS, {"name": "research", "kind": "department", "parent": "acme", "labels": {"cost-centre": "42"}}
    )
    assert response.status_code == 201
    made = response.json()
    assert made["path"] == "acme/research"
    assert made["parent"] == "acme"
    assert made["depth"] == 1
    assert made["labels"] == {"cost-centre": "42"}
    assert made["created_at"].endswith("Z")
    assert admin("get", f"{TENANTS}/{made['id']}").json() == made
    assert admin("get", TENANTS, {"path": "acme/research"}).json()["items"] == [made]
    below = admin("get", TENANTS, {"parent": "acme"}).json()["items"]
    assert below == [made]
    entry = AuditEntry.objects.get(action="tenant.create")
    assert entry.tenant_id == uuid.UUID(made["id"])
    assert entry.actor_id == admin.user.id


def test_a_parent_may_be_named_by_its_id(admin):
    acme = Tenant.objects.get(path="acme")
    assert admin("post", TENANTS, {"name": "a", "kind": "team", "parent": str(acme.id)}).json()["path"] == "acme/a"
    assert len(admin("get", TENANTS, {"parent": str(acme.id)}).json()["items"]) == 1


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({"name": "UPPER"}, ["name"]),
        ({"name": "a/b"}, ["name"]),
        ({"name": ""}, ["name"]),
        ({"name": "x" * 64}, ["name"]),
        ({"name": "-x"}, ["name"]),
        ({"name": "a\nb"}, ["name"]),
        ({"name": "abc\n"}, ["name"]),
        ({"name": None}, ["name"]),
        ({"name": ["a"]}, ["name"]),
        ({"kind": "galaxy"}, ["kind"]),
        ({"kind": "organisation"}, ["kind"]),
        ({"parent": "nowhere"}, ["parent"]),
        ({"parent": 7}, ["parent"]),
        ({"parent": "acme/\u0000"}, ["parent"]),
        ({"labels": []}, ["labels"]),
        ({"labels": {"a": 1}}, ["labels"]),
        ({"labels": {"bad key": "x"}}, ["labels"]),
        ({"labels": {f"k{n}": "x" for n in range(65)}}, ["labels"]),
        ({"path": "acme/other"}, ["path"]),
        ({"id": "01234567-89ab-7def-8123-456789abcdef", "depth": 0, "is_staff": True}, ["id", "depth", "is_staff"]),
        ({"name": "UPPER", "kind": "galaxy", "surprise": 1}, ["name", "kind", "surprise"]),
    ],
)
def test_every_field_at_fault_is_named(admin, change, fields):
    body = {"name": "research", "kind": "team", "parent": "acme", **change}
    if any("\x00" in str(value) for value in body.values()):
        problem(admin("post", TENANTS, body), 400, "malformed_body")
    else:
        problem(admin("post", TENANTS, body), 422, "validation_failed", *fields)
    assert Tenant.objects.count() == 1


def test_a_name_is_taken_once_below_a_parent(admin):
    make_tenant("acme/research")
    problem(admin("post", TENANTS, {"name": "research", "kind": "team", "parent": "acme"}), 409, "tenant_exists")
    make_tenant("acme/sales")
    problem(admin("patch", one(make_tenant("acme/sales")), {"name": "research"}), 409, "tenant_exists")


def test_the_tree_is_at_most_sixteen_deep(admin):
    deep = make_tenant("/".join(["acme", *["x"] * 15]))
    problem(
        admin("post", TENANTS, {"name": "y", "kind": "team", "parent": deep.path}), 422, "validation_failed", "parent"
    )
    top = Tenant.objects.get(path="acme/x")
    other = make_tenant("acme/other")
    problem(admin("patch", one(top), {"parent": other.path}), 422, "validation_failed", "parent")


def test_only_operators_found_organisations(admin, client):
    body = {"name": "newcorp", "kind": "organisation"}
    problem(admin("post", TENANTS, body), 403, "permission_denied")
    problem(Caller(client, "admin", "acme", "write", is_staff=True)("post", TENANTS, body), 403, "permission_denied")
    operator = Caller(client, is_staff=True)
    made = operator("post", TENANTS, body)
    assert made.status_code == 201
    assert made.json()["parent"] is None
    assert operator("get", f"{TENANTS}/{made.json()['id']}").status_code == 200
    assert RoleBinding.objects.get(tenant__path="newcorp").user_id == operator.user.id
    problem(operator("post", TENANTS, body), 409, "tenant_exists")


def test_moving_a_tenant_carries_everything_below_it(admin):
    for path in ("acme/a/b/c", "acme/z"):
        make_tenant(path)
    moved = admin(
        "patch", one(Tenant.objects.get(path="acme/a")), {"parent": "acme/z", "name": "aa", "labels": {"x": "y"}}
    )
    assert moved.json()["path"] == "acme/z/aa"
    assert Tenant.objects.filter(path="acme/z/aa/b/c").exists()
    detail = AuditEntry.objects.get(action="tenant.change").detail
    assert detail["before"]["path"] == "acme/a"
    assert detail["after"]["path"] == "acme/z/aa"


@pytest.mark.parametrize("target", ["acme/a", "acme/a/b"])
def test_a_tenant_cannot_lie_below_itself(admin, target):
    make_tenant("acme/a/b")
    answer = problem(
        admin("patch", one(Tenant.objects.get(path="acme/a")), {"parent": target}), 422, "validation_failed", "parent"
    )
    assert answer["errors"][0]["code"] == "tenant_below_itself"


def test_an_organisation_cannot_move(admin):
    make_tenant("acme/a")
    problem(
        admin("patch", one(Tenant.objects.get(path="acme")), {"parent": "acme/a"}), 422, "validation_failed", "parent"
    )


def test_a_move_needs_the_right_to_both_ends(client):
    for path in ("acme/a/b", "acme/c"):
        make_tenant(path)
    manager = Caller(client, "manager", "acme/a/b")
    bind(manager.user, "acme/c", "manager")
    problem(manager("patch", one(Tenant.objects.get(path="acme/a/b")), {"parent": "acme/c"}), 404, "not_found")
    bind(manager.user, "acme/a", "viewer")
    problem(manager("patch", one(Tenant.objects.get(path="acme/a/b")), {"parent": "acme/c"}), 403, "permission_denied")
    bind(manager.user, "acme/a", "manager")
    assert manager("patch", one(Tenant.objects.get(path="acme/a/b")), {"parent": "acme/c"}).status_code == 200


def test_a_tenant_goes_only_when_nothing_hangs_on_it(admin):
    make_tenant("acme/a/b")
    top, leaf = Tenant.objects.get(path="acme/a"), Tenant.objects.get(path="acme/a/b")
    assert "tenants" in problem(admin("delete", one(top)), 409, "tenant_not_empty")["detail"]
    bind(make_user(), "acme/a/b", "viewer")
    assert admin("delete", one(leaf)).status_code == 204
    assert admin("delete", one(top)).status_code == 204
    problem(admin("delete", one(top)), 404, "not_found")
    assert AuditEntry.objects.filter(action="tenant.remove").count() == 2


def test_an_organisation_is_removed_by_operators_alone(admin, client):
    acme = Tenant.objects.get(path="acme")
    problem(admin("delete", one(acme)), 403, "permission_denied")
    assert Caller(client, is_staff=True)("delete", one(acme)).status_code == 204


@pytest.mark.parametrize("role", ["viewer", "submitter", "finance"])
def test_a_role_that_only_looks_changes_nothing(client, role):
    caller, tenant = Caller(client, role), make_tenant("acme/a")
    assert caller("get", one(tenant)).status_code == 200
    for response in (
        caller("post", TENANTS, {"name": "b", "kind": "team", "parent": "acme"}),
        caller("patch", one(tenant), {"name": "b"}),
        caller("delete", one(tenant)),
        caller("post", f"{one(tenant)}/role-bindings", {"user": caller.user.email, "role": "viewer"}),
    ):
        problem(response, 403, "permission_denied")
    assert AuditEntry.objects.filter(outcome="refused").count() == 4
    assert Tenant.objects.filter(path="acme/a").exists()


@pytest.mark.parametrize("scope", ["read", "write"])
def test_a_narrow_token_changes_no_tenants(client, scope):
    caller = Caller(client, "admin", "acme", scope)
    problem(caller("patch", one(Tenant.objects.get(path="acme")), {"labels": {}}), 403, "permission_denied")


def test_a_foreign_tenant_answers_as_an_absent_one_on_every_verb(admin):
    foreign, binding = make_tenant("other/secret"), bind(make_user(), "other/secret")
    absent = uuid.uuid4()

    def answers(tenant_id, binding_id):
        calls = [
            ("get", "", None), ("patch", "", {"name": "x"}), ("patch", "", {"parent": "acme"}), ("delete", "", None),
            ("get", "/role-bindings", None), ("post", "/role-bindings", {"user": admin.user.email, "role": "viewer"}),
            ("get", f"/role-bindings/{binding_id}", None), ("delete", f"/role-bindings/{binding_id}", None),
        ]  # fmt: skip
        responses = [admin(method, f"{TENANTS}/{tenant_id}{rest}", body) for method, rest, body in calls]
        return [(r.status_code, {**r.json(), "request_id": ""}) for r in responses]

    assert answers(foreign.id, binding.id) == answers(absent, uuid.uuid4())
    assert {status for status, _ in answers(foreign.id, binding.id)} == {404}
    for name in (foreign.path, str(foreign.id)):
        response = admin("post", TENANTS, {"name": "x", "kind": "team", "parent": name})
        assert problem(response, 422, "validation_failed", "parent")["errors"][0]["code"] == "unknown_tenant"
        assert admin("get", TENANTS, {"parent": name}).json()["items"] == []
    assert admin("get", TENANTS, {"path": foreign.path}).json()["items"] == []
    assert Tenant.objects.filter(path="other/secret").exists()


def test_a_list_holds_only_what_one_may_see_page_by_page(client):
    for number in range(7):
        make_tenant(f"acme/t{number}")
    make_tenant("other/x")
    caller, seen, cursor = Caller(client, "viewer"), [], None
    while True:
        page = caller("get", TENANTS, {"limit": 3, "order": "-path", **({"cursor": cursor} if cursor else {})}).json()
        seen += [tenant["path"] for tenant in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == [*(f"acme/t{number}" for number in reversed(range(7))), "acme"]


def test_a_cursor_is_good_for_its_own_list_and_viewer_alone(client):
    for number in range(3):
        make_tenant(f"acme/t{number}")
    ann, ben = Caller(client, "viewer"), Caller(client, "viewer")
    cursor = ann("get", TENANTS, {"limit": 1}).json()["next"]
    assert ann("get", TENANTS, {"limit": 2, "cursor": cursor}).status_code == 200
    for who, query in (
        (ben, {"cursor": cursor}),
        (ann, {"cursor": cursor, "parent": "acme"}),
        (ann, {"cursor": cursor, "order": "-path"}),
        (ann, {"cursor": cursor[:-1] + ("a" if cursor[-1] != "a" else "b")}),
        (ann, {"cursor": "ImFjbWUi"}),
        (ann, {"cursor": "."}),
    ):
        problem(who("get", TENANTS, {"limit": 1, **query}), 422, "validation_failed", "cursor")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=1000000000", "limit"), ("limit=0", "limit"), ("limit=-1", "limit"), ("limit=ten", "limit"), ("limit=", "limit"), ("limit=%D9%A3", "limit"),
        ("order=labels", "order"), ("order=parent__name", "order"), ("name=acme", "name"), ("_connector=OR", "_connector"),
        ("role_bindings__user__password__startswith=a", "role_bindings__user__password__startswith"), ("format=xml", "format"),
        ("path=a&path=b", "path"), ("path=a%00b", "path"), ("path=a%0Ab", "path"),
    ],
)  # fmt: skip
def test_a_query_says_only_what_was_declared(admin, query, field):
    problem(admin("get", f"{TENANTS}?{query}"), 422, "validation_failed", field)


def test_unsafe_requests_take_no_query(admin):
    problem(
        admin("post", f"{TENANTS}?path=x", {"name": "b", "kind": "team", "parent": "acme"}),
        422,
        "validation_failed",
        "path",
    )
