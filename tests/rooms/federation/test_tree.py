"""Files of the tenant tree: what a plan shows, what apply does and refuses, and what export writes."""

import io
import json

import pytest
import yaml
from django.core.management import CommandError, call_command
from django.db import connection

from federation.engine.tree.items import Kind
from federation.engine.tree.reading import KNOWN
from federation.models import PriorityClass
from federation.operations import put_class
from federation.operations.tree import apply_tree, plan_tree
from federation.queries.tree import tree_file
from foundation.problems import Conflict, Invalid, NotFound, PermissionDenied
from quotas.api.shapes import ClassLimitPut, QuotaPut, SubmissionLimitPut, UserLimitPut
from quotas.models import QuotaLimit, SubmissionLimit, UserLimit
from quotas.operations import put_user_limit, take_holds
from quotas.queries import discrepancies
from tenancy.models import AuditEntry, RoleBinding, Tenant
from tenancy.queries import SYSTEM
from tests.builders import actor_for, bind, hold_request, join, make_cluster, make_limit, make_tenant, make_user

pytestmark = pytest.mark.django_db
HEAD = "apiVersion: switchyard/v1\nkind: TenantTree\n"
ACME = f"""{HEAD}tenants:
  - path: acme
    labels: {{cost-centre: "4711"}}
    limits:
      - {{resource: gpu, nominal: 16}}
    budgets:
      - {{gpu_hours: 500, period: month, stops_admission: true}}
      - {{amount: 1000.50, currency: EUR, period: dates, starts_on: 2099-01-01, ends_on: 2099-06-30}}
    invoice_terms: {{cost_centre: R-1, payment_days: 14}}
  - path: acme/a
    kind: team
    weight: 2.5
    limits:
      - {{resource: gpu, nominal: 8, borrowing_limit: null, lending_limit: 2, reclaims: true, reclaim_after: 60}}
      - {{resource: memory, nominal: 1024Gi, clusters: [north]}}
    user_limits:
      - {{resource: jobs, most: 4}}
    submission_limit: {{most_waiting: 100}}
    roles:
      - {{user: ann@example.org, role: manager, expires_at: "2099-01-01T00:00:00Z"}}
  - path: acme/a/deep
    kind: project
"""


def tenants(*entries):
    return HEAD + yaml.safe_dump({"tenants": list(entries)})


def limit(nominal, borrow="0", lend=None, resource="gpu"):
    return {"resource": resource, "nominal": nominal, "borrowing_limit": borrow, "lending_limit": lend}


def shown(plan):
    return [(one.change.action, one.change.key.kind.value, one.change.key.tenant) for one in plan.changes]


def refusals(plan):
    return {(one.change.key.kind.value, one.change.key.tenant): one.refusal.code for one in plan.refused}


@pytest.fixture
def ann():
    return join(make_user("ann@example.org"), "acme")


@pytest.fixture
def north():
    return make_cluster(name="north")


@pytest.mark.usefixtures("ann", "north")
def test_a_file_is_applied_once_and_what_is_exported_changes_nothing():
    plan = plan_tree(SYSTEM, ACME)
    assert not Tenant.objects.filter(path="acme/a").exists()
    applied = apply_tree(SYSTEM, ACME, expected=plan.digest)
    assert shown(applied) == shown(plan)
    assert len(plan.changes) == 13
    entries = AuditEntry.objects.count()
    assert apply_tree(SYSTEM, ACME).changes == ()
    assert AuditEntry.objects.count() == entries
    team = Tenant.objects.get(path="acme/a")
    row = QuotaLimit.objects.get(tenant=team, resource="gpu")
    assert (row.nominal, row.borrowing_limit, row.lending_limit, str(team.weight)) == (8000, None, 2000, "2.50")
    assert (row.reclaims, row.reclaim_after) == (True, 60)
    assert SubmissionLimit.objects.get(tenant=team).most_waiting == 100
    assert RoleBinding.objects.get(tenant=team).role == "manager"
    actions = set(AuditEntry.objects.values_list("action", flat=True))
    assert {"tree.apply", "tenant.create", "tenant.weight", "quota.put", "role.bind", "budget.put"} <= actions
    exported = tree_file(SYSTEM)
    again = plan_tree(SYSTEM, exported, prune=True)
    assert (again.changes, again.kept) == ((), ())
    assert tree_file(SYSTEM, ["acme/a"]).count("path:") == 2
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    assert discrepancies() == ()


@pytest.mark.usefixtures("ann", "north")
def test_a_section_of_the_file_is_complete_and_an_absent_one_stays():
    apply_tree(SYSTEM, ACME)
    apply_tree(
        SYSTEM, tenants({"path": "acme"}, {"path": "acme/a", "kind": "team", "limits": [limit("9")], "roles": []})
    )
    team = Tenant.objects.get(path="acme/a")
    assert list(QuotaLimit.objects.filter(tenant=team).values_list("resource", "nominal")) == [("gpu", 9000)]
    assert not RoleBinding.objects.filter(tenant=team).exists()
    assert UserLimit.objects.filter(tenant=team).exists()
    assert team.weight != 1
    plan = apply_tree(
        SYSTEM,
        tenants(
            {"path": "acme/a", "kind": "team", "weight": 1, "user_limits": [], "submission_limit": None, "labels": {}}
        ),
    )
    assert shown(plan) == [
        ("remove", "weight", "acme/a"),
        ("remove", "user_limit", "acme/a"),
        ("remove", "submission_limit", "acme/a"),
    ]


def test_tenants_that_the_file_lacks_remain_unless_it_prunes_them():
    make_limit("acme/a/old", "gpu", "4")
    bind(make_user(), "acme/a/old")
    make_tenant("acme/a/old/older")
    file = tenants({"path": "acme"}, {"path": "acme/a", "kind": "department"})
    plan = apply_tree(SYSTEM, file)
    assert (plan.changes, plan.kept) == ((), ("acme/a/old", "acme/a/old/older"))
    plan = apply_tree(SYSTEM, file, prune=True)
    assert shown(plan) == [
        ("remove", "limit", "acme/a/old"),
        ("remove", "tenant", "acme/a/old/older"),
        ("remove", "tenant", "acme/a/old"),
    ]
    assert sorted(Tenant.objects.values_list("path", flat=True)) == ["acme", "acme/a"]


def test_a_tenant_with_history_is_never_pruned_and_nothing_else_of_the_file_is_applied():
    make_limit("acme/old", "gpu", "4")
    take_holds([hold_request("acme/old")])
    file = tenants({"path": "acme", "weight": 3}, {"path": "acme/new", "kind": "team"})
    plan = plan_tree(SYSTEM, file, prune=True)
    assert refusals(plan) == {("tenant", "acme/old"): "tenant_not_empty"}
    with pytest.raises(Conflict) as refused:
        apply_tree(SYSTEM, file, prune=True)
    assert (refused.value.code, refused.value.errors[0].code) == ("plan_refused", "tenant_not_empty")
    assert not Tenant.objects.filter(path="acme/new").exists()
    assert QuotaLimit.objects.get().removed_at is None
    assert not AuditEntry.objects.exists()


def test_a_plan_names_limits_below_use():
    user = make_user()
    make_limit("acme/a", "gpu", "4")
    put_user_limit(SYSTEM, "acme/a", "gpu", most=4000)
    take_holds([hold_request("acme/a", {"gpu": 3000}, user_id=user.id)])
    entry = {"path": "acme/a", "kind": "department", "limits": [limit("2")]}
    plan = plan_tree(SYSTEM, tenants({**entry, "user_limits": [{"resource": "gpu", "most": 1}]}))
    assert [one.consequence.code for one in plan.changes] == ["below_use", "below_use"]
    assert [one.consequence.detail.split(":")[0] for one in plan.changes] == [
        "3 gpu held or guaranteed, 1 above it",
        "1 user holds more",
    ]
    assert QuotaLimit.objects.get().nominal == 4000
    assert plan_tree(SYSTEM, tenants({**entry, "limits": [limit("3")]})).changes[0].consequence is None


def test_guarantees_move_between_limits_in_whatever_order_the_file_has_them():
    def file(root, a, b, deep):
        names = {"acme": root, "acme/a": a, "acme/b": b, "acme/b/deep": deep}
        kinds = {"acme": "organisation", "acme/a": "team", "acme/b": "team", "acme/b/deep": "project"}
        return tenants(
            *({"path": path, "kind": kinds[path], "limits": [limit(n, None, 0)]} for path, n in names.items())
        )

    apply_tree(SYSTEM, file(8, 6, 2, 2))
    apply_tree(SYSTEM, file(8, 2, 6, 6))
    apply_tree(SYSTEM, file(20, 10, 10, 1))
    apply_tree(SYSTEM, file(3, 1, 2, 2))
    assert refusals(plan_tree(SYSTEM, file(3, 2, 2, 2))) == {("limit", "acme/a"): "guarantees_too_much"}


def test_a_plan_of_a_tree_that_changed_since_is_not_applied():
    make_limit("acme/a", "gpu", "4")
    file = tenants({"path": "acme/a", "kind": "department", "limits": [limit("2")]})
    plan = plan_tree(SYSTEM, file)
    QuotaLimit.objects.update(nominal=3000, cap=3000)
    with pytest.raises(Conflict) as refused:
        apply_tree(SYSTEM, file, expected=plan.digest)
    assert refused.value.code == "tree_changed"
    assert QuotaLimit.objects.get().nominal == 3000
    assert plan_tree(SYSTEM, file).digest != plan.digest


def test_a_managers_file_reaches_its_own_subtree_alone():
    make_tenant("other/team")
    make_limit("acme/a", "gpu", "4")
    manager = make_user()
    bind(manager, "acme/a", "manager")
    actor = actor_for(manager)
    own = {"path": "acme/a", "kind": "department", "limits": [limit("4")]}
    below = {
        "path": "acme/a/x",
        "kind": "team",
        "limits": [limit("2")],
        "roles": [{"user": manager.email, "role": "viewer"}],
    }
    assert len(apply_tree(actor, tenants(own, below)).changes) == 3
    assert refusals(plan_tree(actor, tenants({**own, "limits": [limit("400")]}))) == {
        ("limit", "acme/a"): "permission_denied"
    }
    for path, kind in [
        ("acme/b", "department"),
        ("other", "organisation"),
        ("other/team", "team"),
        ("acme", "organisation"),
    ]:
        with pytest.raises((PermissionDenied, NotFound)):
            plan_tree(actor, tenants(own, {"path": path, "kind": kind, "limits": [limit("1")]}))
    assert "acme/b" not in tree_file(actor)
    with pytest.raises(NotFound):
        tree_file(actor, ["other"])


def test_no_file_grants_more_than_its_actor_holds_or_removes_the_last_admin():
    manager, admin = make_user(), make_user("root@example.org")
    bind(manager, "acme", "manager")
    bind(admin, "acme", "admin")
    for user in (manager, admin):
        file = tenants({"path": "acme", "roles": [{"user": manager.email, "role": "admin"}]})
        plan = plan_tree(actor_for(user), file)
        expected = {manager: {("role", "acme"): "role_exceeds_own"}, admin: {}}[user]
        assert refusals(plan) == expected
    alone = tenants({"path": "acme", "roles": []})
    assert refusals(plan_tree(actor_for(admin), alone)) == {("role", "acme"): "last_admin"}
    stranger = tenants(
        {"path": "acme", "roles": [{"user": admin.email, "role": "admin"}, {"user": "x@y.z", "role": "viewer"}]}
    )
    assert refusals(plan_tree(actor_for(admin), stranger)) == {("role", "acme"): "unknown_user"}


def test_priority_classes_are_for_operators_and_keep_their_default():
    classes = {"priority_classes": [{"name": "urgent", "value": 500, "grants": [{"tenant": "acme/a"}]}]}
    file = HEAD + yaml.safe_dump({"tenants": [{"path": "acme/a", "kind": "team"}], **classes})
    admin = make_user()
    bind(admin, "acme", "admin")
    assert refusals(plan_tree(actor_for(admin), file)) == {("priority_class", ""): "permission_denied"}
    apply_tree(SYSTEM, file)
    assert apply_tree(SYSTEM, file).changes == ()
    put_class(SYSTEM, {"name": "urgent", "value": 500, "is_default": True, "grants": [{"tenant": "acme/a"}]})
    assert apply_tree(SYSTEM, file).changes == ()
    assert PriorityClass.objects.count() == 4
    assert plan_tree(SYSTEM, tree_file(SYSTEM)).changes == ()


@pytest.mark.parametrize(
    ("text", "code", "detail"),
    [
        ("a: &x 1", "yaml_alias", "line 1, column 4:"),
        ("a: 1\nb: *a", "yaml_alias", "line 2, column 4:"),
        ("a: !!python/object/apply:os.system [id]", "yaml_tag", "line 1, column 4:"),
        ("a: 1\na: 2", "given_twice", "line 2, column 1:"),
        ("<<: {a: 1}", "yaml_alias", "line 1, column 1:"),
        ("[" * 100_000, "too_deep_or_large", "line 1, column 14:"),
        ("- 1\n" * 100_001, "too_deep_or_large", "line 100000, column 3:"),
        ("a" * (1024 * 1024 + 1), "too_long", "a file has at most"),
        ("a: \x07", "bad_yaml", "line 1, column 4:"),
        ("a: [1", "bad_yaml", "line 1, column 6:"),
        ("--- 1\n--- 2", "too_many", "line 2, column 1:"),
        ("", "wrong_type", "line 1, column 1:"),
        (f"{HEAD}tenants:\n- path: acme\n  limit: []", "unknown_field", "line 5, column 3:"),
        (f"{HEAD}tenants:\n- path: acme/../b\n  kind: team", "bad_format", "line 4, column 3:"),
        (f"{HEAD}tenants:\n- path: acme\n- path: acme", "given_twice", "line 5, column 3:"),
        (
            f"{HEAD}tenants:\n- path: acme\n  limits: [{{resource: gpu, nominal: 0.00001}}]",
            "too_fine",
            "line 5, column 28:",
        ),
        (f"{HEAD}tenants:\n- path: acme\n  labels: {{a: 1}}", "invalid_label", "line 5, column 12:"),
        (f"{HEAD}tenants:\n- path: acme\n  weight: 1e3", "bad_format", "line 5, column 3:"),
        ("apiVersion: v1\nkind: TenantTree", "unknown_value", "line 1, column 1:"),
    ],
)
def test_a_hostile_or_wrong_file_is_refused_with_the_place(text, code, detail):
    with pytest.raises(Invalid) as refused:
        plan_tree(SYSTEM, text)
    assert refused.value.errors[0].code == code
    assert refused.value.errors[0].detail.startswith(detail)


def test_the_api_plans_applies_and_exports(call):
    admin = make_user()
    bind(admin, "acme", "admin")
    file = tenants({"path": "acme", "limits": [limit("4")]}, {"path": "acme/a", "kind": "team"})
    status, plan = call(admin, "post", "/tree/plan", {"file": file})
    assert (status, plan["can_apply"], [one["kind"] for one in plan["changes"]]) == (200, True, ["tenant", "limit"])
    assert plan["changes"][1]["line"] == 5
    status, problem = call(admin, "post", "/tree/apply", {"file": file, "expect": "0" * 64})
    assert (status, problem["code"]) == (409, "tree_changed")
    assert call(admin, "post", "/tree/apply", {"file": file, "expect": plan["hash"]})[0] == 200
    status, answer = call(admin, "get", "/tree?tenant=acme")
    assert call(admin, "post", "/tree/plan", {"file": answer["file"]})[1]["changes"] == []
    viewer = make_user()
    bind(viewer, "acme", "viewer")
    assert call(viewer, "post", "/tree/plan", {"file": file})[0] == 403
    assert call(viewer, "get", "/tree?tenant=other")[0] == 404
    status, problem = call(admin, "post", "/tree/apply", {"file": tenants({"path": "acme", "roles": []})})
    assert (status, problem["code"], problem["errors"][0]["code"]) == (409, "plan_refused", "last_admin")
    assert AuditEntry.objects.filter(action="request.refused", detail__code="plan_refused").exists()


def test_the_command_plans_applies_exports_and_imports(tmp_path):
    def run(*arguments):
        out, err = io.StringIO(), io.StringIO()
        call_command("tree", *arguments, stdout=out, stderr=err)
        return out.getvalue(), err.getvalue()

    make_limit("acme", "gpu", "8")
    path = tmp_path / "acme.yaml"
    path.write_text(run("export", "acme")[0])
    assert run("plan", str(path))[0].startswith("0 changes; plan ")
    path.write_text(tenants({"path": "acme", "limits": [limit("4")]}, {"path": "acme/a", "kind": "team", "weight": 2}))
    shown_plan = run("plan", str(path))[0]
    assert "+ tenant acme/a" in shown_plan
    assert '~ limit acme gpu: nominal "8" → "4"' in shown_plan
    digest = shown_plan.split()[-1]
    with pytest.raises(CommandError, match="Plan again"):
        run("apply", str(path), "--expect", "0" * 64)
    assert json.loads(run("apply", str(path), "--expect", digest, "--json")[0])["hash"] == digest
    path.write_text(tenants({"path": "acme/a", "kind": "project"}))
    with pytest.raises(CommandError, match="would be refused"):
        run("plan", str(path))
    path.write_text("a: *b")
    with pytest.raises(CommandError, match="line 1, column 4"):
        run("apply", str(path))
    path.write_bytes(b"\xff")
    with pytest.raises(CommandError, match="not UTF-8"):
        run("plan", str(path))
    path.write_text(
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: q}\nspec: {cohortName: c, x: 1}\n"
    )
    text, warnings = run("import-kueue", str(path), "--below", "acme")
    assert (warnings, text.count("path: acme/c")) == ("warning: ClusterQueue q: x has no equal\n", 2)
    assert len(plan_tree(SYSTEM, text).changes) == 2


def test_a_file_with_too_many_changes_is_refused_as_a_whole(monkeypatch):
    monkeypatch.setattr("federation.operations.tree.MOST_CHANGES", 1)
    file = tenants({"path": "acme"}, {"path": "acme/a", "kind": "team"})
    with pytest.raises(Conflict) as refused:
        apply_tree(SYSTEM, file)
    assert refused.value.code == "too_many_changes"
    assert not Tenant.objects.exists()


def test_a_limit_in_a_file_has_every_field_that_the_api_sets():
    assert KNOWN[Kind.LIMIT] == set(QuotaPut().fields) - {"tenant"}
    assert KNOWN[Kind.USER_LIMIT] == set(UserLimitPut().fields) - {"tenant"}
    assert KNOWN[Kind.CLASS_LIMIT] == set(ClassLimitPut().fields) - {"tenant"}
    assert KNOWN[Kind.SUBMISSION_LIMIT] == set(SubmissionLimitPut().fields) - {"tenant"}
