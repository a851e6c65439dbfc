"""Limits of priority classes at tenants: set over HTTP, in files and on pages, met in rounds, quotes and at submission."""

import json
from urllib.parse import urlencode

import pytest
import yaml
from django.db import connection

from federation.models import Attempt
from federation.operations import put_class, remove_class, run_scheduling_cycle
from federation.operations.class_limits import put_tenant_class_limit
from federation.operations.tree import apply_tree, plan_tree
from federation.queries.tree import tree_file
from foundation.caches import reset_all
from quotas.models import ClassLimit
from quotas.operations import end_holds, take_holds
from quotas.queries import discrepancies
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import bind, hold_request, make_tenant, make_user
from tests.rooms.federation.test_class_limits import GPU, fleet, sent, shown
from tests.rooms.federation.test_priority_classes import TEAM, grant, job, operator, person, refusal, team

pytestmark = pytest.mark.django_db
assert all((operator, team, fleet))  # fixtures


@pytest.fixture
def user(team):
    return person("submitter")


@pytest.fixture
def admin(team):
    return person("admin", "acme")


def limit(most, path=TEAM, name="urgent", resource="jobs"):
    return put_tenant_class_limit(SYSTEM, path, name, resource, most=most)[0]


def put(call, user, **fields):
    body = {"tenant": TEAM, "priority_class": "high", "resource": "gpu", "most": "4", **fields}
    return call(user, "put", "/class-limits", body)


def test_the_api_sets_lists_reads_and_removes_limits(call, admin, user):
    status, made = put(call, admin)
    assert (status, made["held"], made["most"]) == (201, "0", "4")
    take_holds([hold_request(f"{TEAM}/x", {"gpu": 2500, "jobs": 1}, class_name="high")])
    status, changed = put(call, admin, most="0.5")
    assert (status, changed["id"], changed["held"], changed["most"]) == (200, made["id"], "2.5", "0.5")
    put(call, admin, tenant="acme", resource="jobs", most="7")
    path = f"/class-limits/{made['id']}"
    assert call(user, "get", path) == (200, changed)
    for query, found in ((f"tenant={TEAM}", 1), ("tenant=acme", 2), ("priority_class=low", 0), ("resource=jobs", 1)):
        assert len(call(admin, "get", f"/class-limits?{query}")[1]["items"]) == found, query
    stranger = make_user()
    assert call(stranger, "get", path)[0] == call(stranger, "delete", path)[0] == 404
    assert call(stranger, "get", "/class-limits")[1]["items"] == []
    assert put(call, user)[0] == call(user, "delete", path)[0] == 403
    assert call(admin, "delete", path)[0] == 204
    assert call(admin, "delete", path)[0] == 404
    actions = AuditEntry.objects.filter(object_kind="class_limit").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["class_limit.put"] * 3 + ["class_limit.delete"]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"most": "0.0001"}, ("most", "too_fine")),
        ({"most": "-1"}, ("most", "not_a_quantity")),
        ({"most": "9" * 20}, ("most", "out_of_range")),
        ({"most": None}, ("most", "null")),
        ({"resource": "jobs", "most": "1.5"}, ("most", "too_fine")),
        ({"resource": "luck"}, ("resource", "unknown_resource")),
        ({"priority_class": "none-such"}, ("priority_class", "unknown_value")),
        ({"priority_class": "hidden"}, ("priority_class", "unknown_value")),
        ({"priority_class": "<b>'; --"}, ("priority_class", "unknown_value")),
        ({"priority_class": "x" * 64}, ("priority_class", "max_length")),
        ({"most_running": 1}, ("most_running", "unknown_field")),
    ],
)
def test_what_is_no_limit_is_refused_at_its_field(call, admin, fields, fault):
    grant("hidden", 7, grants=[{"role": None, "tenant": make_tenant("other").path}])
    assert refusal(put(call, admin, **fields)) == (422, [fault])
    assert not ClassLimit.objects.exists()


@pytest.mark.usefixtures("fleet", "quotes_look_anew")
def test_a_round_and_a_quote_stop_the_class_below_the_tenant_alone_and_name_whose_limit_it_is(call, user):
    grant("urgent", 500, is_open=True)
    other = make_tenant("acme/other")
    bind(user, other.path, "submitter")
    limit(9, "acme")
    limit(1)
    names = {"first": TEAM, "second": TEAM, "elsewhere": other.path}
    ids = {name: sent(call, user, name, priority_class="urgent", tenant=path) for name, path in names.items()}
    ids["normal"] = sent(call, user, "normal")
    told = call(user, "post", "/quotes", job(pod=GPU, priority_class="urgent"))[1]
    assert (told["offers"], told["reason"]["code"]) == ([], "waiting_for_class_limit")
    run_scheduling_cycle()
    states = {name: shown(one) for name, one in ids.items()}
    assert states.pop("second") == ("queued", "waiting_for_class_limit")
    assert {state for state, _ in states.values()} == {"dispatching"}
    message = call(user, "get", f"/jobs/{ids['second']}/explanation")[1]["reason"]["message"]
    assert message == (
        "needs 1 job; all jobs of the priority class urgent in acme/team together may hold 1 job and hold 1 job, 0 jobs left"
    )
    end_holds({Attempt.objects.get(job=ids["first"]).id: "posted"})
    run_scheduling_cycle()
    assert shown(ids["second"])[0] == "dispatching"
    assert discrepancies() == ()


@pytest.mark.usefixtures("fleet", "quotes_look_anew")
def test_what_the_class_may_never_hold_there_is_refused_and_capacity_counts_what_is_left(call, user):
    grant("urgent", 500, is_open=True)
    limit(2000, resource="gpu")
    large = job(pod={"gpu": {"count": 3}}, priority_class="urgent")
    for path in ("/jobs", "/quotes"):
        status, refused = call(user, "post", path, large)
        assert (status, refused["code"]) == (422, "quota_exceeded_for_good")
        assert [(one["field"], one["detail"]) for one in refused["errors"]] == [
            (
                f"quota.{TEAM}.priority_class.urgent.gpu",
                "the class urgent has a limit of 2 gpu in acme/team, 3 requested",
            )
        ]
    found = []
    for name in ("urgent", "high"):
        shape = {"pod_sets": [{"cpu": "1", "memory": "1Gi", **GPU}], "priority_class": name}
        found.append(
            call(user, "get", f"/capacity?{urlencode({'shape': json.dumps(shape), 'tenant': TEAM})}")[1]["within_quota"]
        )
    assert found == [2, 8]
    reset_all()


def file_of(limits, most_running=None):
    head = {"apiVersion": "switchyard/v1", "kind": "TenantTree"}
    classes = [{"name": "urgent", "value": 500, "is_open": True, "most_running": most_running}]
    tenants = [{"path": TEAM, "kind": "department", "class_limits": limits}]
    return yaml.safe_dump({**head, "tenants": tenants, "priority_classes": classes})


def entry(most, resource="gpu", name="urgent"):
    return {"priority_class": name, "resource": resource, "most": most}


def test_a_file_makes_a_class_and_its_limits_changes_and_removes_them_and_names_those_below_use(team):
    apply_tree(SYSTEM, file_of([entry("0.5"), entry(3, "jobs")], 4))
    kept = {("gpu", TEAM): 500, ("jobs", TEAM): 3, ("jobs", None): 4}
    columns = "resource", "tenant__path", "most"
    assert {row[:2]: row[2] for row in ClassLimit.objects.values_list(*columns)} == kept
    assert apply_tree(SYSTEM, file_of([entry("500m"), entry("3", "jobs")], 4)).changes == ()
    [exported] = [one for one in yaml.safe_load(tree_file(SYSTEM))["tenants"] if one["path"] == TEAM]
    assert exported["class_limits"] == [entry("0.5"), entry("3", "jobs")]
    take_holds([hold_request(f"{TEAM}/x", {"gpu": 500, "jobs": 1}, class_name="urgent")])
    plan = plan_tree(SYSTEM, file_of([entry("0.25"), entry(2, "jobs")], 4))
    assert [
        (one.change.key.kind.value, one.change.action, one.consequence and one.consequence.detail)
        for one in plan.changes
    ] == [
        ("class_limit", "change", "its jobs hold 0.5 gpu: running jobs continue, new ones wait"),
        ("class_limit", "change", None),
    ]
    apply_tree(SYSTEM, file_of([entry(2, "jobs")], 4))
    assert {row[:2]: row[2] for row in ClassLimit.objects.values_list(*columns)} == {
        ("jobs", TEAM): 2,
        ("jobs", None): 4,
    }
    plan = plan_tree(SYSTEM, file_of([entry(1, name="none-such")], 4))
    assert [one.refusal.code for one in plan.refused] == ["unknown_value"]


def test_a_class_that_is_removed_takes_the_limits_of_tenants_along_and_its_own_limits_are_apart():
    row = grant("urgent", 500, is_open=True, most_running=4)
    make_tenant(TEAM)
    limit(2)
    put_class(SYSTEM, {"name": "urgent", "value": 500, "is_open": True})
    assert list(ClassLimit.objects.values_list("tenant__path", "most")) == [(TEAM, 2)]
    remove_class(SYSTEM, row.id)
    assert not ClassLimit.objects.exists()
    grant("urgent", 500, is_open=True)
    limit(2)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM federation_priorityclass WHERE name = 'urgent'")
    assert not ClassLimit.objects.exists()


def test_the_pages_set_show_and_remove_limits(client, admin):
    client.force_login(admin)
    typed = {"tenant": TEAM, "priority_class": "high", "resource": "gpu", "most": "2.5"}
    assert client.post("/quotas/classes/set/", typed).status_code == 302
    take_holds([hold_request(TEAM, {"gpu": 500}, class_name="high")])
    text = client.get("/quotas/").content.decode()
    assert "the limit on gpu of the class high in acme/team" in text
    assert (
        "in acme/team: at most 2.5 gpu at the same time, 0.5 now" in client.get("/priority-classes/").content.decode()
    )
    made = ClassLimit.objects.get()
    form = client.get(f"/quotas/classes/set/?limit={made.id}").content.decode()
    assert 'value="2.5"' in form
    for control, wrong in (
        ("tenant", ""),
        ("priority_class", "<b>"),
        ("resource", "luck"),
        ("most", "1/3"),
        ("most", ""),
    ):
        answer = client.post("/quotas/classes/set/", typed | {control: wrong})
        assert (answer.status_code, f'id="e-{control}"' in answer.content.decode()) == (422, True), control
    assert client.post(f"/quotas/classes/{made.id}/remove/").status_code == 302
    assert not ClassLimit.objects.exists()
    assert client.get(f"/quotas/classes/set/?limit={made.id}").status_code == 404
    assert client.get("/quotas/classes/set/?limit=x").status_code in (200, 404)
