"""Advance reservations over HTTP, in rounds and quotes; who may make, see and use them."""

import json
from datetime import timedelta
from typing import Any

import pytest

from federation.models import Attempt, Job, RemoteObject, Reservation
from federation.operations import run_scheduling_cycle
from federation.queries.claimed_attempts import claimed_attempts
from foundation import clock
from foundation.plain_json import instant
from tenancy.models import AuditEntry
from tests.builders import bind, make_cluster, make_flavor, make_limit, make_node, make_spec, make_tenant
from tests.builders import make_user as new_user

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("quotes_look_anew")]
POD = {"cpu": "1", "memory": "1Gi", "gpu": {"count": 8}}


def soon(minutes=0, seconds=0):
    return instant(clock.now() + timedelta(minutes=minutes, seconds=seconds))


def asked(**changes):
    """A node of eight GPUs, from in an hour on, for two hours."""
    given = {"tenant": "acme/ml", "name": "eval", "starts_at": soon(60), "ends_at": soon(180), "pod_sets": [POD]}
    return {name: value for name, value in (given | changes).items() if value is not ...}


@pytest.fixture
def north():
    cluster = make_cluster("acme", "north")
    make_flavor(cluster)
    for name in ("n1", "n2"):
        make_node(cluster, name)
    make_tenant("acme/ml/vision")
    make_tenant("acme/ops")
    return cluster


def person(role, path="acme/ml"):
    user = new_user()
    bind(user, path, role)
    return user


def job(**changes):
    spec = make_spec(pod={"gpu": {"count": 8}}, deadline_seconds=1800)
    return {"tenant": "acme/ml/vision", **spec, **changes}


def inside(reservation="eval", **changes):
    return job(constraints={"reservation": reservation}, **changes)


def begin():
    """Lets an hour pass for every reservation, as far as placement can tell."""
    hour: Any = timedelta(hours=1, seconds=1)
    from django.db import connection  # noqa: PLC0415 - used here alone

    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        for table in ("federation_reservation", "federation_reservednode", "quotas_reservedquota"):
            cursor.execute(f"UPDATE {table} SET starts_at = starts_at - %s, until_at = until_at - %s", [hour, hour])
        cursor.execute("UPDATE federation_reservation SET ends_at = ends_at - %s", [hour])
        cursor.execute("SET LOCAL session_replication_role = DEFAULT")


@pytest.mark.usefixtures("north")
def test_a_manager_makes_reads_shortens_and_cancels_a_reservation_with_an_audit_entry_each(call):
    manager = person("manager")
    body = asked(count=2)
    status, made = call(manager, "post", "/reservations", body)
    assert status == 201, made
    assert (made["state"], made["cluster"], made["count"]) == ("scheduled", "north", 2)
    assert made["nodes"] == [{"name": "n1", "trouble": None}, {"name": "n2", "trouble": None}]
    assert (made["starts_at"], made["ends_at"], made["asked_ends_at"]) == (
        body["starts_at"], body["ends_at"], body["ends_at"],
    )  # fmt: skip
    assert made["use"]["unused"] == {"gpus": 16, "cpu": "128", "memory": "1Ti"}
    assert made["pod_sets"] == [
        {"name": "set-0", "count": 1, "cpu": "1", "memory": "1Gi", "gpu": {"count": 8, "models": []}}
    ]
    path = made["links"]["self"].removeprefix("/api/v1")
    assert call(manager, "get", path) == (200, made)
    assert [item["id"] for item in call(manager, "get", "/reservations")[1]["items"]] == [made["id"]]
    nearer = soon(120)
    status, shorter = call(manager, "patch", path, {"ends_at": nearer})
    assert (status, shorter["ends_at"], shorter["asked_ends_at"]) == (200, nearer, body["ends_at"])
    assert call(manager, "delete", path) == (204, None)
    status, gone = call(manager, "get", path)
    assert (gone["state"], gone["ends_at"]) == ("cancelled", body["starts_at"])
    assert call(manager, "delete", path)[1]["code"] == "state_conflict"
    trail = AuditEntry.objects.filter(object_kind="reservation").order_by("id")
    assert [entry.action for entry in trail if entry.action != "request.refused"] == [
        "reservation.create", "reservation.shorten", "reservation.cancel",
    ]  # fmt: skip
    assert trail[0].detail["nodes"] == ["n1", "n2"]
    assert trail[1].detail["before"] == body["ends_at"]


@pytest.mark.usefixtures("north")
def test_only_managers_and_admins_of_the_tenant_reserve_and_what_is_below_may_see_and_use_it(call):
    made = call(person("admin", "acme"), "post", "/reservations", asked())[1]
    path = f"/reservations/{made['id']}"
    below = person("submitter", "acme/ml/vision")
    assert call(below, "get", path)[0] == 200
    for role in ("viewer", "submitter", "finance"):
        status, refused = call(person(role), "post", "/reservations", asked(name="two"))
        assert (status, refused["code"]) == (403, "permission_denied")
        assert call(person(role), "delete", path)[1]["code"] == "permission_denied"
    lower = person("manager", "acme/ml/vision")
    assert call(lower, "patch", path, {"ends_at": soon(90)})[0] == 403
    assert call(lower, "post", "/reservations", asked(name="two"))[0] == 404
    for stranger in (person("admin", "globex"), person("admin", "acme/ops")):
        assert call(stranger, "get", path)[0] == 404
        assert call(stranger, "patch", path, {"ends_at": soon(90)})[0] == 404
        assert call(stranger, "delete", path)[0] == 404
        assert call(stranger, "get", "/reservations")[1]["items"] == []
    assert call(below, "post", "/jobs", inside())[0] == 201
    other = person("submitter", "acme/ops")
    status, refused = call(other, "post", "/jobs", inside(tenant="acme/ops"))
    assert (status, refused["errors"][0]["field"]) == (404, "constraints.reservation")
    token = call(person("admin"), "get", "/reservations")[1]["items"]
    assert len(token) == 1


@pytest.mark.usefixtures("north")
def test_the_list_is_narrowed_by_tenant_cluster_and_state(call):
    admin = person("admin", "acme")
    first = call(admin, "post", "/reservations", asked())[1]
    second = call(admin, "post", "/reservations", asked(name="ops", tenant="acme/ops", starts_at=...))[1]
    assert second["state"] == "active"

    def listed(query):
        return [item["name"] for item in call(admin, "get", f"/reservations?{query}")[1]["items"]]

    assert listed("") == ["ops", "eval"]
    assert listed("tenant=acme/ml/vision") == listed("state=scheduled") == ["eval"]
    assert listed("tenant=acme&cluster=north") == ["ops", "eval"]
    assert listed("cluster=south") == listed("state=ended,cancelled") == []
    call(admin, "delete", f"/reservations/{first['id']}")
    assert listed("state=cancelled") == ["eval"]
    for query in ("state=gone", "tenant=globex", "colour=red"):
        assert call(admin, "get", f"/reservations?{query}")[0] in (404, 422)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"starts_at": soon(-5)}, "starts_at"),
        ({"starts_at": "2026-11-22T10:00:00"}, "starts_at"),
        ({"starts_at": "tomorrow"}, "starts_at"),
        ({"starts_at": 5}, "starts_at"),
        ({"starts_at": "0001-01-01T00:00:00+14:00"}, "starts_at"),
        ({"starts_at": soon(60 * 24 * 400), "ends_at": soon(60 * 24 * 401)}, "starts_at"),
        ({"ends_at": ...}, "ends_at"),
        ({"ends_at": soon(59)}, "ends_at"),
        ({"ends_at": soon(60, 30)}, "ends_at"),
        ({"ends_at": soon(60 * 24 * 366)}, "ends_at"),
        ({"ends_at": "2026-13-45T99:00:00Z"}, "ends_at"),
        ({"ends_at": "9999-12-31T23:59:59-14:00"}, "ends_at"),
        ({"count": 0}, "count"),
        ({"count": 10**30}, "count"),
        ({"count": 1.5}, "count"),
        ({"name": "Überholung"}, "name"),
        ({"name": "a" * 64}, "name"),
        ({"name": ...}, "name"),
        ({"tenant": ...}, "tenant"),
        ({"pod_sets": []}, "pod_sets"),
        ({"pod_sets": [POD | {"count": 10**9}]}, "pod_sets[0].count"),
        ({"pod_sets": [POD | {"cpu": "many"}]}, "pod_sets[0].cpu"),
        ({"pod_sets": [POD | {"gpu": {"models": ["💥"]}}]}, "pod_sets[0].gpu.models[0]"),
        ({"topology": {"level": "galaxy"}}, "topology.level"),
        ({"constraints": {"overflow": [{"after_seconds": 0}]}}, "constraints.overflow"),
        ({"constraints": {"reservation": "eval"}}, "constraints.reservation"),
        ({"cluster": "north", "constraints": {"clusters": ["south"]}}, "cluster"),
        ({"cluster": "no such"}, "cluster"),
        ({"colour": "red"}, "colour"),
    ],
)
@pytest.mark.usefixtures("north")
def test_nonsense_is_refused_by_field(call, changes, field):
    status, refused = call(person("manager"), "post", "/reservations", asked(**changes))
    assert status == 422, refused
    assert field in {error["field"] for error in refused["errors"]}
    assert not Reservation.objects.exists()


@pytest.mark.parametrize("body", [[], "x", None, 5])
def test_a_body_that_is_no_object_is_refused(call, north, body):
    user = person("manager")
    assert call(user, "post", "/reservations", body)[0] in (400, 415, 422)
    made = call(user, "post", "/reservations", asked())[1]
    for end in (body, {}, {"ends_at": None}, {"ends_at": "x"}, {"ends_at": soon(90), "count": 2}):
        assert call(user, "patch", f"/reservations/{made['id']}", end)[0] in (400, 415, 422)


@pytest.mark.usefixtures("north")
def test_a_reservation_is_only_ever_shortened(call):
    user = person("manager")
    path = f"/reservations/{call(user, 'post', '/reservations', asked())[1]['id']}"
    for end in (soon(300), soon(59), soon(-1)):
        assert call(user, "patch", path, {"ends_at": end})[1]["errors"][0]["code"] == "out_of_range"


@pytest.mark.usefixtures("north")
def test_the_same_key_makes_one_reservation_and_a_name_is_used_once(call):
    user, body = person("manager"), asked()
    key = {"Idempotency-Key": "one"}
    first = call(user, "post", "/reservations", body, **key)
    assert call(user, "post", "/reservations", body, **key) == first
    assert call(user, "post", "/reservations", asked(count=2), **key)[1]["code"] == "idempotency_key_reused"
    assert call(user, "post", "/reservations", body)[1]["code"] == "reservation_name_taken"
    call(user, "delete", f"/reservations/{first[1]['id']}")
    assert call(user, "post", "/reservations", body)[0] == 201


@pytest.mark.usefixtures("north")
def test_what_is_reserved_already_is_refused_with_who_holds_it_as_far_as_one_may_know(call):
    admin = person("admin", "acme")
    call(admin, "post", "/reservations", asked())
    status, refused = call(admin, "post", "/reservations", asked(name="both", count=2))
    assert (status, refused["code"]) == (409, "nodes_not_free")
    assert "has room for 1 of 2" in refused["detail"]
    by_field = {error["field"]: error for error in refused["errors"]}
    assert by_field["clusters.north"]["code"] == "not_enough_free"
    assert by_field["clusters.north.reservations"]["detail"].startswith("reservation eval of acme/ml holds 1 node from")
    stranger = person("manager", "acme/ops")
    _, refused = call(stranger, "post", "/reservations", asked(name="both", tenant="acme/ops", count=2))
    told = [error["detail"] for error in refused["errors"] if error["field"] == "clusters.north.reservations"]
    assert told == ["1 node reserved for others"]
    assert "acme/ml" not in json.dumps(refused)
    assert (
        call(admin, "post", "/reservations", asked(name="after", starts_at=soon(180), ends_at=soon(200), count=2))[0]
        == 201
    )


@pytest.mark.usefixtures("north")
def test_running_jobs_that_may_not_end_in_time_are_named(call):
    admin = person("admin", "acme")
    call(admin, "post", "/jobs", job(name="long", deadline_seconds=86_400))
    call(admin, "post", "/jobs", job(name="short", deadline_seconds=600))
    run_scheduling_cycle()
    status, refused = call(admin, "post", "/reservations", asked(count=2))
    assert (status, refused["code"]) == (409, "nodes_not_free")
    (busy,) = [error["detail"] for error in refused["errors"] if error["code"] == "busy"]
    assert busy.startswith("job long (")
    assert call(admin, "post", "/reservations", asked())[0] == 201
    _, refused = call(person("manager", "acme/ops"), "post", "/reservations", asked(tenant="acme/ops", count=2))
    assert "1 node in use by others' jobs" in [error["detail"] for error in refused["errors"]]
    assert "long" not in json.dumps(refused)


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"count": 3}, 422, "never_fits"),
        ({"pod_sets": [POD | {"gpu": {"count": 9}}]}, 422, "never_fits"),
        ({"pod_sets": [POD | {"gpu": {"count": 8, "models": ["A100-80GB"]}}]}, 422, "never_fits"),
        ({"cluster": "south"}, 404, "not_found"),
        ({"cluster": "foreign"}, 404, "not_found"),
        ({"count": 2}, 422, "quota_exceeded_for_good"),
    ],
)
@pytest.mark.usefixtures("north")
def test_what_could_never_be_honoured_is_refused(call, changes, status, code):
    foreign = make_cluster("globex", "foreign")
    make_flavor(foreign)
    make_node(foreign)
    make_limit("acme", nominal="8")
    answered, refused = call(person("manager"), "post", "/reservations", asked(**changes))
    assert (answered, refused["code"]) == (status, code)


@pytest.mark.usefixtures("north")
def test_a_job_waits_for_its_reservation_and_then_runs_in_it_while_others_keep_off(call):
    admin = person("admin", "acme")
    call(admin, "post", "/reservations", asked(cluster="north"))
    waiting = call(admin, "post", "/jobs", inside())[1]["id"]
    long = call(admin, "post", "/jobs", job(tenant="acme/ops", deadline_seconds=7200))[1]["id"]
    run_scheduling_cycle()
    _, why = call(admin, "get", f"/jobs/{waiting}/explanation")
    assert why["reason"]["code"] == why["clusters"][0]["code"] == "waiting_for_reservation"
    assert Attempt.objects.get().job_id.hex == long.replace("-", "")
    (reserved,) = Reservation.objects.get().reserved_nodes.values_list("node", flat=True)
    assert reserved not in RemoteObject.objects.get().assumed_nodes
    _, quote = call(admin, "post", "/quotes", inside())
    assert (quote["offers"], quote["reason"]["code"]) == ([], "waiting_for_reservation")
    begin()
    second = call(admin, "post", "/jobs", job(name="other"))[1]["id"]
    run_scheduling_cycle()
    assert Job.objects.get(id=waiting).state == "dispatching"
    assert RemoteObject.objects.get(attempt__job_id=waiting).assumed_nodes == {reserved: 1}
    assert Job.objects.get(id=second).reason_code == "waiting_for_capacity"
    shown = call(admin, "get", "/reservations")[1]["items"][0]
    assert (shown["state"], shown["use"]["used"]["gpus"], shown["use"]["unused"]["gpus"]) == ("active", 8, 0)
    assert (shown["use"]["jobs"], shown["use"]["idle_nodes"]) == (1, 0)
    call(admin, "post", "/jobs", inside(name="third"))
    run_scheduling_cycle()
    assert Job.objects.get(name="third").reason_code == "reservation_full"


@pytest.mark.usefixtures("north")
def test_the_cluster_is_told_which_nodes_are_whose(call):
    admin = person("admin", "acme")
    call(admin, "post", "/reservations", asked())
    call(admin, "post", "/jobs", job(name="long", deadline_seconds=7200))
    run_scheduling_cycle()
    begin()
    call(admin, "post", "/jobs", inside(name="mine"))
    run_scheduling_cycle()
    (reserved,) = Reservation.objects.get().reserved_nodes.values_list("node", flat=True)
    terms = {}
    for claimed in claimed_attempts(Attempt.objects.values_list("id", flat=True)):
        patch = claimed.template_patch(claimed.objects[0])
        affinity = patch["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        terms[claimed.spec["name"]] = [term["matchFields"] for term in affinity["nodeSelectorTerms"]]
    assert terms == {
        "long": [[{"key": "metadata.name", "operator": "NotIn", "values": [reserved]}]],
        "mine": [[{"key": "metadata.name", "operator": "In", "values": [reserved]}]],
    }


@pytest.mark.usefixtures("north")
def test_a_job_names_a_reservation_by_name_or_id_the_nearest_first(call):
    admin = person("admin", "acme")
    upper = call(admin, "post", "/reservations", asked(tenant="acme"))[1]["id"]
    nearer = call(admin, "post", "/reservations", asked())[1]["id"]
    assert call(admin, "post", "/jobs", inside())[1]["spec"]["constraints"]["reservation"] == nearer
    assert call(admin, "post", "/jobs", inside(upper))[1]["spec"]["constraints"]["reservation"] == upper
    _, bulk = call(admin, "post", "/jobs/bulk", {"jobs": [inside(), inside("none")]})
    assert [item["status"] for item in bulk["items"]] == [201, 404]
    status, refused = call(admin, "post", "/jobs", inside(deadline_seconds=7200))
    assert (status, refused["errors"][0]["field"]) == (422, "deadline_seconds")
    for named in ("Ünknown", "", 5, "x" * 64, "none"):
        assert call(admin, "post", "/jobs", inside(named))[0] in (404, 422)
    call(admin, "delete", f"/reservations/{nearer}")
    assert call(admin, "post", "/jobs", inside(nearer))[0] == 404
    run_scheduling_cycle()
    assert set(Job.objects.values_list("reason_code", flat=True)) == {"reservation_over", "waiting_for_reservation"}


@pytest.mark.usefixtures("north")
def test_a_job_that_never_fits_on_the_cluster_of_its_reservation_is_refused(call):
    south = make_cluster("acme", "south")
    make_flavor(south, "a100", gpu_model="A100-80GB")
    make_node(south, devices=[{"flavor": "a100", "units": 8}])
    admin = person("admin", "acme")
    call(admin, "post", "/reservations", asked(cluster="north"))
    wants = make_spec(pod={"gpu": {"count": 8, "models": ["A100-80GB"]}}, deadline_seconds=60)
    status, refused = call(
        admin, "post", "/jobs", {"tenant": "acme/ml", **wants, "constraints": {"reservation": "eval"}}
    )
    assert (status, refused["code"]) == (422, "never_fits")
    assert {error["code"] for error in refused["errors"]} == {"no_such_model", "outside_reservation"}


def test_nodes_that_fail_are_told(call, north):
    admin = person("admin", "acme")
    made = call(admin, "post", "/reservations", asked(count=2))[1]
    north.nodes.filter(name="n1").update(is_ready=False)
    north.nodes.filter(name="n2").delete()
    type(north).objects.filter(id=north.id).update(inventory_version=99)
    shown = call(admin, "get", f"/reservations/{made['id']}")[1]
    assert shown["shortage"] == "2 of 2 nodes are down"
    assert shown["nodes"][1] == {"name": "n2", "trouble": "no longer on its cluster"}
    assert shown["nodes"][0]["trouble"]
    assert shown["use"]["room"]["gpus"] == 0


@pytest.mark.usefixtures("north")
def test_capacity_agrees(call):
    admin = person("admin", "acme")
    call(admin, "post", "/reservations", asked())
    shape = {"tenant": "acme/ml", "pod_sets": [POD], "deadline_seconds": 600}
    for changes, count in (({}, 2), ({"deadline_seconds": 7200}, 1), ({"constraints": {"reservation": "eval"}}, 0)):
        status, found = call(admin, "get", f"/capacity?shape={json.dumps(shape | changes)}")
        assert (status, found["count"]) == (200, count)
    assert found["clusters"][0]["why_none"]["code"] == "waiting_for_reservation"


@pytest.mark.usefixtures("north")
def test_a_tenant_with_reservations_is_not_removed(call):
    admin = person("admin", "acme")
    call(admin, "post", "/reservations", asked(tenant="acme/ops"))
    ops = make_tenant("acme/ops")
    assert call(admin, "delete", f"/tenants/{ops.id}")[1]["code"] == "tenant_not_empty"
