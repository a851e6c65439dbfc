"""Limits of priority classes: set by operators, met at submission, in quotes and in rounds, and shown with what is held."""

import json
from importlib import import_module
from urllib.parse import urlencode

import pytest
import yaml
from django.db import connection

from federation.models import Attempt, Job, PriorityClass
from federation.operations import put_class, remove_class, run_scheduling_cycle
from federation.operations.tree import apply_tree, plan_tree
from federation.queries.queue import load_queue
from federation.queries.tree import tree_file
from foundation import clock
from foundation.caches import reset_all
from quotas.models import ClassLimit, Hold
from quotas.operations import end_holds, take_holds
from quotas.queries import discrepancies
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import hold_request, make_cluster, make_flavor, make_node, submit
from tests.live import gpu_job
from tests.rooms.federation.test_preemption import started
from tests.rooms.federation.test_priority_classes import TEAM, grant, job, operator, person, refusal, team

pytestmark = pytest.mark.django_db
assert all((operator, team))  # fixtures
GPU = {"gpu": {"count": 1}}


@pytest.fixture
def user(team):
    return person("submitter")


@pytest.fixture
def fleet(team):
    """A node of eight GPUs."""
    cluster = make_cluster("acme", "north")
    make_flavor(cluster)
    make_node(cluster)


def sent(call, user, name, **changes):
    status, body = call(user, "post", "/jobs", job(name=name, pod=GPU, **changes))
    assert status == 201, body
    return body["id"]


def shown(job_id):
    row = Job.objects.get(id=job_id)
    return row.state, row.reason_code


def urgent(**fields):
    return grant("urgent", 500, is_open=True, **fields)


def class_of(call, user, row):
    return call(user, "get", f"/priority-classes/{row.id}")[1]


def test_operators_set_change_and_remove_limits_and_all_who_see_the_class_see_what_is_held(call, operator, user):
    body = {"name": "urgent", "value": 500, "is_open": True, "most_running": 4, "most_gpus": "16"}
    status, made = call(operator, "put", "/priority-classes", body)
    assert status == 201, made
    limits = {name: made[name] for name in ("most_running", "running", "most_gpus", "gpus")}
    assert limits == {"most_running": 4, "running": 0, "most_gpus": "16", "gpus": "0"}
    take_holds([hold_request(TEAM, {"gpu": 2500, "jobs": 1}, class_name="urgent")])
    path = f"/priority-classes/{made['id']}"
    seen = call(user, "get", path)[1]
    assert (seen["running"], seen["gpus"]) == (1, "2.5")
    [listed] = [one for one in call(user, "get", "/priority-classes")[1]["items"] if one["name"] == "urgent"]
    assert listed == seen
    changed = call(operator, "put", "/priority-classes", {**body, "most_running": None, "most_gpus": 1})[1]
    limits = {name: changed[name] for name in ("most_running", "running", "most_gpus", "gpus")}
    assert limits == {"most_running": None, "running": None, "most_gpus": "1", "gpus": "2.5"}
    whole = {"name": "urgent", "value": 500, "is_open": True}
    assert call(operator, "put", "/priority-classes", whole)[1]["most_gpus"] is None
    assert not ClassLimit.objects.exists()
    trail = AuditEntry.objects.filter(action="priority_class.put").order_by("id")
    found = [entry.detail[side] for entry in trail for side in ("before", "after")]
    assert [one and (one["most_running"], one["most_gpus"]) for one in found] == [
        None,
        (4, "16"),
        (4, "16"),
        (None, "1"),
        (None, "1"),
        (None, None),
    ]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"most_running": -1}, ("most_running", "out_of_range")),
        ({"most_running": 10_000_001}, ("most_running", "out_of_range")),
        ({"most_running": "4"}, ("most_running", "wrong_type")),
        ({"most_running": True}, ("most_running", "wrong_type")),
        ({"most_running": 1.5}, ("most_running", "wrong_type")),
        ({"most_gpus": "-1"}, ("most_gpus", "not_a_quantity")),
        ({"most_gpus": "0.0001"}, ("most_gpus", "too_fine")),
        ({"most_gpus": "9" * 20}, ("most_gpus", "out_of_range")),
        ({"most_gpus": "16Gi"}, ("most_gpus", "not_a_quantity")),
        ({"most_gpus": "<b>"}, ("most_gpus", "not_a_quantity")),
        ({"most_gpus": ""}, ("most_gpus", "not_a_quantity")),
        ({"most_gpus": []}, ("most_gpus", "wrong_type")),
        ({"most_jobs": 1}, ("most_jobs", "unknown_field")),
    ],
)
def test_what_is_no_limit_is_refused_at_its_field(call, operator, fields, fault):
    answer = call(operator, "put", "/priority-classes", {"name": "urgent", "value": 1, **fields})
    assert refusal(answer) == (422, [fault])
    assert not ClassLimit.objects.exists()


@pytest.mark.usefixtures("fleet", "quotes_look_anew")
def test_a_round_starts_what_the_limit_leaves_and_the_job_that_waits_for_it_says_so_with_numbers(call, user):
    urgent(most_running=1)
    first, second, other = (
        sent(call, user, name, priority_class=of)
        for name, of in (("first", "urgent"), ("second", "urgent"), ("other", "normal"))
    )
    told = call(user, "post", "/quotes", job(pod=GPU, priority_class="urgent"))[1]
    assert (told["offers"], told["reason"]["code"]) == ([], "waiting_for_class_limit")
    assert call(user, "post", "/quotes", job(pod=GPU, priority_class="high"))[1]["offers"]
    run_scheduling_cycle()
    assert [shown(one)[0] for one in (first, second, other)] == ["dispatching", "queued", "dispatching"]
    assert shown(second) == ("queued", "waiting_for_class_limit")
    assert Job.objects.get(id=second).reason_message == (
        "needs 1 job; all jobs of the priority class urgent together may hold 1 job, 0 jobs left"
    )
    assert sorted(Hold.objects.values_list("class_name", flat=True)) == ["normal", "urgent"]
    run_scheduling_cycle()
    assert shown(second) == ("queued", "waiting_for_class_limit")
    end_holds({Attempt.objects.get(job=first).id: "posted"})
    run_scheduling_cycle()
    assert shown(second)[0] == "dispatching"
    assert discrepancies() == ()


@pytest.mark.usefixtures("fleet")
def test_a_limit_below_use_stops_nothing_and_new_work_waits_until_enough_has_ended(call, user):
    row = urgent()
    before = [sent(call, user, f"before-{number}", priority_class="urgent") for number in range(2)]
    run_scheduling_cycle()
    urgent(most_gpus="1")
    late = sent(call, user, "late", priority_class="urgent")
    run_scheduling_cycle()
    assert [shown(one)[0] for one in before] == ["dispatching"] * 2
    assert shown(late) == ("queued", "waiting_for_class_limit")
    seen = class_of(call, user, row)
    assert (seen["most_gpus"], seen["gpus"]) == ("1", "2")
    end_holds({Attempt.objects.get(job=before[0]).id: "posted"})
    run_scheduling_cycle()
    assert shown(late) == ("queued", "waiting_for_class_limit")
    end_holds({Attempt.objects.get(job=before[1]).id: "posted"})
    run_scheduling_cycle()
    assert shown(late)[0] == "dispatching"


@pytest.mark.usefixtures("fleet", "quotes_look_anew")
def test_a_job_that_its_class_could_never_hold_is_refused_at_submission_and_in_quotes(call, user):
    urgent(most_gpus="2")
    large = {"gpu": {"count": 3}}
    for path in ("/jobs", "/quotes"):
        status, refused = call(user, "post", path, job(pod=large, priority_class="urgent"))
        assert (status, refused["code"]) == (422, "quota_exceeded_for_good")
        assert [(one["field"], one["code"], one["detail"]) for one in refused["errors"]] == [
            ("quota.priority_class.urgent.gpu", "quota_exceeded", "the class urgent has a limit of 2 gpu, 3 requested")
        ]
    reset_all()
    assert call(user, "post", "/jobs", job(pod=large, priority_class="high"))[0] == 201
    assert call(user, "post", "/jobs", job(pod={"gpu": {"count": 2}}, priority_class="urgent"))[0] == 201


@pytest.mark.usefixtures("fleet", "quotes_look_anew")
def test_capacity_counts_what_the_class_has_left_also_the_default_one(call, user):
    grant("normal", 0, is_open=True, most_running=2)
    found = []
    for more in ({}, {"priority_class": "high"}):
        shape = {"pod_sets": [{"cpu": "1", "memory": "1Gi", **GPU}], **more}
        asked = urlencode({"shape": json.dumps(shape), "tenant": TEAM})
        found.append(call(user, "get", f"/capacity?{asked}")[1]["within_quota"])
    assert found == [2, 8]


@pytest.mark.usefixtures("fleet")
def test_in_a_long_queue_a_class_at_its_limit_does_not_hide_jobs_of_a_class_of_equal_value(call, user):
    urgent()
    grant("pressing", 500, is_open=True)
    for number in range(12):
        sent(call, user, f"u{number}", priority_class="urgent")
    mine = sent(call, user, "mine", priority_class="pressing")
    assert mine not in {str(request.id) for request in load_queue(clock.now(), 6)}
    urgent(most_running=1)
    seen = {str(request.id): request.class_name for request in load_queue(clock.now(), 6)}
    assert (len(seen), seen[mine]) == (6, "pressing")


def test_a_file_of_the_tree_sets_limits_and_its_plan_names_those_below_use(team):
    entry = {"name": "urgent", "value": 500, "is_open": True, "most_running": 3, "most_gpus": 8}

    def file(**changes):
        head = {"apiVersion": "switchyard/v1", "kind": "TenantTree", "tenants": []}
        return yaml.safe_dump(head | {"priority_classes": [entry | changes]})

    apply_tree(SYSTEM, file())
    limits = {"jobs": 3, "gpu": 8000}
    assert dict(ClassLimit.objects.values_list("resource", "most")) == limits
    assert apply_tree(SYSTEM, file()).changes == ()
    exported = yaml.safe_load(tree_file(SYSTEM))["priority_classes"]
    [own] = [one for one in exported if one["name"] == "urgent"]
    assert (own["most_running"], own["most_gpus"]) == (3, "8")
    assert not [one for one in exported if one["name"] != "urgent" and "most_running" in one]
    take_holds([hold_request(TEAM, {"gpu": 4000, "jobs": 1}, class_name="urgent") for _ in range(2)])
    told = {
        name: plan_tree(SYSTEM, file(**changes)).changes[0].consequence
        for name, changes in {
            "gpus": {"most_gpus": 2},
            "jobs": {"most_running": 1},
            "room": {"most_running": 2},
        }.items()
    }
    assert (told["gpus"].code, told["jobs"].code, told["room"]) == ("below_use", "below_use", None)
    assert told["gpus"].detail == "its jobs hold 8 GPUs, its limit is 2: running jobs continue, new ones wait"
    assert told["jobs"].detail == "2 of its jobs hold anything, its limit is 1: running jobs continue, new ones wait"
    assert dict(ClassLimit.objects.values_list("resource", "most")) == limits


def test_a_class_that_is_removed_takes_its_limits_along_whoever_removes_it():
    row = urgent(most_running=1)
    remove_class(SYSTEM, row.id)
    assert not ClassLimit.objects.exists()
    urgent(most_running=1)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM federation_priorityclass WHERE name = 'urgent'")
    assert not ClassLimit.objects.exists()


def test_the_page_sets_shows_and_removes_limits(client, operator, team):
    client.force_login(operator)
    typed = {"name": "urgent", "value": "9", "open_to": "all", "most_running": "4", "most_gpus": "0.5"}
    assert client.post("/priority-classes/new/", typed).status_code == 302
    take_holds([hold_request(TEAM, {"gpu": 500, "jobs": 1}, class_name="urgent")])
    page = client.get("/priority-classes/").content.decode()
    assert "at most 4 jobs at the same time, 1 now" in page
    assert "at most 0.5 GPUs at the same time, 0.5 now" in page
    row = PriorityClass.objects.get(name="urgent")
    form = client.get(f"/priority-classes/{row.id}/").content.decode()
    assert 'value="0.5"' in form
    for control, text in (("most_running", "x"), ("most_running", "-1"), ("most_gpus", "<b>"), ("most_gpus", "1/3")):
        answer = client.post(f"/priority-classes/{row.id}/", typed | {control: text})
        assert (answer.status_code, f'id="e-{control}"' in answer.content.decode()) == (422, True)
    assert (
        client.post(f"/priority-classes/{row.id}/", typed | {"most_running": "", "most_gpus": " "}).status_code == 302
    )
    assert not ClassLimit.objects.exists()
    assert "at most" not in client.get("/priority-classes/").content.decode()


def test_no_job_is_stopped_for_one_that_waits_for_its_class(cluster, submitter):
    put_class(SYSTEM, {"name": "high", "value": 100, "is_open": True, "preempts": "lower", "most_running": 1})
    take_holds([hold_request("other", {"jobs": 1}, class_name="high")])
    PriorityClass.objects.update(shield_seconds=0)
    for name in ("young", "old"):
        started(submitter, name)
    waiting = submit(submitter, gpu_job("waiting") | {"priority_class": "high"})
    run_scheduling_cycle()
    assert shown(waiting.id) == ("queued", "waiting_for_capacity")
    assert not Attempt.objects.filter(stop_requested_at__isnull=False).exists()


@pytest.mark.usefixtures("fleet")
def test_pending_holds_of_before_get_the_class_of_their_job(call, user):
    urgent()
    sent(call, user, "first", priority_class="urgent")
    run_scheduling_cycle()
    statement = import_module("federation.migrations.0040_class_limits").CLASSES_OF_HOLDS
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE quotas_hold DISABLE TRIGGER USER")
        cursor.execute("UPDATE quotas_hold SET class_name = ''")
        cursor.execute(statement)
    assert Hold.objects.get().class_name == "urgent"
    urgent(most_running=1)
    assert ClassLimit.objects.get().held == 1
