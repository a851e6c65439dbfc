"""Maintenance windows over HTTP and on the page of their cluster, and the database as their last judge."""

from datetime import timedelta

import pytest
from django.db import Error, IntegrityError, connection, transaction

from clusters.models import ClusterEvent, MaintenanceWindow
from clusters.operations import remove_cluster, windows
from clusters.queries.windows import open_windows
from foundation import clock
from foundation.plain_json import instant
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import bind, make_cluster, make_flavor, make_node, make_tenant, make_user
from tests.refusals import constraint_of

pytestmark = pytest.mark.django_db


def soon(minutes=0):
    return instant(clock.now() + timedelta(minutes=minutes))


def asked(**changes):
    """From in an hour on, for two hours."""
    given = {"starts_at": soon(60), "ends_at": soon(180), "reason": "kernel update"}
    return {name: value for name, value in (given | changes).items() if value is not ...}


@pytest.fixture
def north():
    for path in ("acme/team/project", "globex"):
        make_tenant(path)
    cluster = make_cluster("acme", "north")
    make_flavor(cluster)
    make_flavor(cluster, "cpu", vendor="", gpu_model="")
    make_node(cluster, "n1")
    make_node(cluster, "n2")
    make_node(cluster, "c1", devices=[{"flavor": "cpu", "units": 0}])
    return cluster


@pytest.fixture
def path(north):
    return f"/clusters/{north.id}/windows"


def person(role="admin", path="acme"):
    user = make_user()
    bind(user, path, role)
    return user


def test_an_admin_plans_reads_and_cancels_a_window_with_an_audit_entry_and_an_event_each(call, north, path):
    admin, body = person(), asked(nodes=["n2", "n1", "n2"], drain=True)
    status, made = call(admin, "post", path, body)
    assert status == 201, made
    assert {name: made[name] for name in body} == body | {"nodes": ["n1", "n2"]}
    assert (made["cluster"], made["state"], made["flavor"], made["created_by"]) == (
        "north",
        "scheduled",
        "",
        admin.email,
    )
    one = f"{path}/{made['id']}"
    assert call(admin, "get", one) == (200, made)
    status, gone = call(admin, "post", f"{one}/cancel")
    assert (status, gone["state"], gone["cancelled_by"]) == (200, "cancelled", admin.email)
    assert call(admin, "post", f"{one}/cancel") == (200, gone), "a second request is harmless"
    trail = AuditEntry.objects.filter(object_kind="maintenance_window").order_by("id")
    assert [entry.action for entry in trail] == ["maintenance.create", "maintenance.cancel"]
    assert (trail[0].detail["nodes"], trail[0].detail["drain"], trail[0].tenant_id) == (
        ["n1", "n2"],
        True,
        north.owner_id,
    )
    kinds = ClusterEvent.objects.filter(cluster=north).order_by("id").values_list("kind", flat=True)
    assert list(kinds) == ["cluster.maintenance_planned", "cluster.maintenance_cancelled"]


def test_what_is_not_said_is_the_whole_cluster_from_now_on_without_drain(call, path):
    made = call(person(), "post", path, asked(starts_at=...))[1]
    assert (made["state"], made["nodes"], made["flavor"], made["drain"]) == ("active", [], "", False)


def test_the_list_is_narrowed_by_state_and_paged_newest_first(call, path):
    admin = person("admin")
    for changes in ({"starts_at": ...}, {"reason": "two"}, {"reason": "three", "flavor": "h100"}):
        assert call(admin, "post", path, asked(**changes))[0] == 201
    last = call(admin, "get", path)[1]["items"][0]
    call(admin, "post", f"{path}/{last['id']}/cancel")

    def listed(query):
        return [one["reason"] for one in call(admin, "get", f"{path}?{query}")[1]["items"]]

    assert listed("") == ["three", "two", "kernel update"]
    assert [listed(f"state={state}") for state in ("scheduled", "active", "ended", "cancelled")] == [
        ["two"], ["kernel update"], [], ["three"],
    ]  # fmt: skip
    first = call(admin, "get", f"{path}?limit=2")[1]
    assert listed(f"limit=2&cursor={first['next']}") == ["kernel update"]
    assert call(admin, "get", f"{path}?state=gone")[1]["errors"][0]["code"] == "unknown_value"
    assert call(admin, "get", f"{path}?name=x")[1]["errors"][0]["code"] == "unknown_filter"


def test_a_repeated_request_is_one_window(call, path):
    admin, body, key = person(), asked(), {"Idempotency-Key": "k"}
    first = call(admin, "post", path, body, **key)
    assert call(admin, "post", path, body, **key) == first
    south = make_cluster("acme", "south")
    assert call(admin, "post", f"/clusters/{south.id}/windows", body, **key)[0] == 201
    assert MaintenanceWindow.objects.count() == 2


@pytest.mark.parametrize(
    ("role", "where"),
    [
        *((role, "acme") for role in ("viewer", "submitter", "manager", "finance")),
        ("admin", "acme/team"),
        ("viewer", "acme/team/project"),
    ],
)
def test_who_may_see_a_cluster_but_not_manage_it_reads_its_windows_and_changes_none(call, path, role, where):
    made = call(person(), "post", path, asked())[1]
    user = person(role, where)
    assert call(user, "get", f"{path}/{made['id']}")[1]["reason"] == "kernel update"
    assert len(call(user, "get", path)[1]["items"]) == 1
    assert call(user, "post", path, asked())[1]["code"] == "permission_denied"
    assert call(user, "post", f"{path}/{made['id']}/cancel")[1]["code"] == "permission_denied"
    assert list(MaintenanceWindow.objects.values_list("cancelled_at", flat=True)) == [None]


@pytest.mark.parametrize("role", ["admin", "viewer"])
def test_to_another_organisation_a_window_looks_like_one_that_is_not_there(call, path, role):
    made, stranger = call(person(), "post", path, asked())[1], person(role, "globex")
    for verb, rest in (("get", ""), ("post", "/cancel")):
        answers = []
        for window_id in (made["id"], make_user().id):
            status, told = call(stranger, verb, f"{path}/{window_id}{rest}")
            told.pop("request_id")
            answers.append((status, told))
        assert answers[0] == answers[1]
        assert answers[0][0] == 404
    assert call(stranger, "get", path)[0] == call(stranger, "post", path, asked())[0] == 404
    assert MaintenanceWindow.objects.get().cancelled_at is None


def test_a_window_is_reached_only_through_its_own_cluster(call, path):
    made, south = call(person(), "post", path, asked())[1], make_cluster("acme", "south")
    elsewhere = f"/clusters/{south.id}/windows/{made['id']}"
    assert call(person(), "get", elsewhere)[0] == call(person(), "post", f"{elsewhere}/cancel")[0] == 404
    assert MaintenanceWindow.objects.get().cancelled_at is None


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"ends_at": ...}, "ends_at", "required"),
        ({"reason": ...}, "reason", "required"),
        ({"reason": ""}, "reason", "blank"),
        ({"reason": "a" * 301}, "reason", "max_length"),
        ({"reason": "a\tb"}, "reason", "out_of_range"),
        ({"reason": 7}, "reason", "invalid"),
        ({"starts_at": "2026-12-05T18:00:00"}, "starts_at", "invalid"),
        ({"starts_at": "tomorrow"}, "starts_at", "invalid"),
        ({"starts_at": 1764957600}, "starts_at", "invalid"),
        ({"starts_at": "2020-01-01T00:00:00Z"}, "starts_at", "in_the_past"),
        ({"starts_at": "9999-12-31T23:59:59Z", "ends_at": "9999-12-31T23:59:59Z"}, "starts_at", "out_of_range"),
        ({"ends_at": "9999-12-31T23:59:59Z"}, "ends_at", "out_of_range"),
        ({"ends_at": "9999-12-31T23:59:59-23:59"}, "ends_at", "invalid"),
        ({"ends_at": "0001-01-01T00:00:00+23:59"}, "ends_at", "invalid"),
        ({"ends_at": "0001-01-01T00:00:00Z"}, "ends_at", "out_of_range"),
        ({"ends_at": "NOON"}, "ends_at", "invalid"),
        ({"nodes": ["n1", "nowhere"]}, "nodes", "not_found"),
        ({"nodes": ["n1"] * 501}, "nodes", "max_length"),
        ({"nodes": [f"n{n}" for n in range(10_000)]}, "nodes", "max_length"),
        ({"nodes": "n1"}, "nodes", "not_a_list"),
        ({"nodes": [1]}, "nodes[0]", "invalid"),
        ({"nodes": [""]}, "nodes[0]", "blank"),
        ({"nodes": ["a\n"]}, "nodes[0]", "out_of_range"),
        ({"flavor": "tpu"}, "flavor", "unknown_flavor"),
        ({"nodes": ["n1"], "flavor": "h100"}, "flavor", "conflict"),
        ({"drain": "yes"}, "drain", "invalid"),
        ({"drain": 1}, "drain", "invalid"),
        ({"created_by": "root"}, "created_by", "unknown_field"),
        ({"cancelled_at": None}, "cancelled_at", "unknown_field"),
    ],
)
def test_bad_bodies_are_refused_by_their_field(call, path, changes, field, code):
    status, told = call(person(), "post", path, asked(**changes))
    assert status == 422, told
    assert (field, code) in {(one["field"], one["code"]) for one in told["errors"]}, told
    assert not MaintenanceWindow.objects.exists()


def test_an_end_before_the_start_and_a_window_that_is_too_long_are_refused(call, path):
    for start, end in ((60, 30), (60, 60), (60, 60 + 90 * 24 * 60 + 1)):
        told = call(person(), "post", path, asked(starts_at=soon(start), ends_at=soon(end)))[1]
        assert [one["field"] for one in told["errors"]] == ["ends_at"], told


def test_a_flavor_of_more_nodes_than_objects_can_name_needs_a_window_of_the_whole_cluster(call, path, monkeypatch):
    monkeypatch.setattr(windows, "MOST_NODES", 1)
    told = call(person(), "post", path, asked(flavor="h100"))[1]
    assert [one["code"] for one in told["errors"]] == ["too_many_nodes"]
    assert call(person(), "post", path, asked(flavor="cpu"))[0] == 201


def test_a_cluster_has_a_limited_number_of_windows_that_have_not_ended(call, path, monkeypatch):
    monkeypatch.setattr(windows, "MOST_OPEN", 2)
    first = call(person(), "post", path, asked())[1]
    assert call(person(), "post", path, asked())[0] == 201
    assert call(person(), "post", path, asked())[1]["code"] == "too_many_windows"
    call(person(), "post", f"{path}/{first['id']}/cancel")
    assert call(person(), "post", path, asked())[0] == 201


def ended(north):
    at = clock.now() - timedelta(hours=1)
    return MaintenanceWindow.objects.create(
        cluster=north, starts_at=at, ends_at=at + timedelta(minutes=1), reason="past", created_by="ada"
    )


def test_a_window_that_has_ended_cannot_be_cancelled(call, north, path):
    window = ended(north)
    assert call(person(), "get", f"{path}/{window.id}")[1]["state"] == "ended"
    assert call(person(), "post", f"{path}/{window.id}/cancel")[1]["code"] == "state_conflict"
    window.refresh_from_db()
    assert window.cancelled_at is None


def test_placement_gets_the_windows_that_have_not_ended_with_the_nodes_that_they_concern(call, north, path):
    ended(north)
    for changes in ({"reason": "whole"}, {"nodes": ["n2"]}, {"flavor": "h100"}, {"flavor": "cpu"}, {"reason": "off"}):
        made = call(person(), "post", path, asked(**changes))[1]
    call(person(), "post", f"{path}/{made['id']}/cancel")
    found = {(one.is_whole, one.nodes) for one in open_windows(clock.now())}
    assert found == {(True, ()), (False, ("n2",)), (False, ("n1", "n2")), (False, ("c1",))}
    make_node(north, "n0")
    assert (False, ("n0", "n1", "n2")) in {(one.is_whole, one.nodes) for one in open_windows(clock.now())}
    assert open_windows(clock.now() + timedelta(days=1)) == []
    remove_cluster(SYSTEM, north.id)
    assert open_windows(clock.now()) == []


def stored(north):
    at = clock.now() + timedelta(hours=1)
    return MaintenanceWindow.objects.create(
        cluster=north, starts_at=at, ends_at=at + timedelta(hours=1), nodes=["n1"], reason="why", created_by="ada"
    )


@pytest.mark.parametrize(
    ("columns", "constraint"),
    [
        ({"ends_at": "starts_at"}, "window_ends_after_it_starts"),
        ({"ends_at": "starts_at - interval '1 hour'"}, "window_ends_after_it_starts"),
        ({"ends_at": "starts_at + interval '91 days'"}, "window_lasts_at_most_90_days"),
        ({"ends_at": "'infinity'"}, "window_lasts_at_most_90_days"),
        ({"flavor": "'h100'"}, "window_has_one_scope"),
        ({"reason": "''"}, "window_has_a_reason"),
        ({"created_by": "''"}, "window_was_made_by_someone"),
        ({"nodes": "'{}'"}, "window_nodes_are_a_short_list_of_names"),
        ({"nodes": "'\"n1\"'"}, "window_nodes_are_a_short_list_of_names"),
        ({"nodes": "'[1]'"}, "window_nodes_are_a_short_list_of_names"),
        ({"nodes": "'[null]'"}, "window_nodes_are_a_short_list_of_names"),
        ({"nodes": "'[[\"n1\"]]'"}, "window_nodes_are_a_short_list_of_names"),
        ({"nodes": "'[\"\"]'"}, "window_nodes_are_a_short_list_of_names"),
        (
            {"nodes": "(SELECT jsonb_agg('n' || n) FROM generate_series(1, 501) AS n)"},
            "window_nodes_are_a_short_list_of_names",
        ),
        ({"nodes": "jsonb_build_array(repeat('n', 200000))"}, "window_nodes_are_a_short_list_of_names"),
        ({"cancelled_at": "now()"}, "window_is_cancelled_by_someone_before_its_end"),
        ({"cancelled_by": "'eve'"}, "window_is_cancelled_by_someone_before_its_end"),
        ({"cancelled_at": "ends_at", "cancelled_by": "'eve'"}, "window_is_cancelled_by_someone_before_its_end"),
    ],
)
def test_the_database_refuses_a_window_that_is_none(north, columns, constraint):
    window = stored(north)
    names = [
        "cluster_id", "starts_at", "ends_at", "nodes", "flavor", "reason", "drain", "created_by", "created_at", "cancelled_at",
        "cancelled_by",
    ]  # fmt: skip
    values = ", ".join(columns.get(name, name) for name in names)
    copied = f"INSERT INTO clusters_maintenancewindow (id, {', '.join(names)}) SELECT gen_random_uuid(), {values}"
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"{copied} FROM clusters_maintenancewindow WHERE id = %s", [window.id])
    assert constraint_of(refused.value) == constraint


@pytest.mark.parametrize(
    "change",
    [
        "ends_at = ends_at + interval '1 hour'", "starts_at = starts_at - interval '1 hour'", "nodes = '[]'",
        "nodes = '[]', flavor = 'h100'", "reason = 'other'", "drain = true", "created_by = 'eve'", "created_at = now() - interval '1 day'",
        "id = gen_random_uuid()",
    ],
)  # fmt: skip
def test_a_window_stays_as_it_was_planned(north, change):
    window = stored(north)
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE clusters_maintenancewindow SET {change} WHERE id = %s", [window.id])
    assert constraint_of(refused.value) == "windows_are_history"


def test_a_cancelled_window_stays_cancelled_and_none_is_deleted(north):
    stored(north)
    windows.cancel_window(SYSTEM, north.id, MaintenanceWindow.objects.get().id)
    for change in ("cancelled_at = NULL, cancelled_by = ''", "cancelled_by = 'eve'"):
        with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"UPDATE clusters_maintenancewindow SET {change}")
        assert constraint_of(refused.value) == "windows_are_history"
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
    for statement in ("DELETE FROM clusters_maintenancewindow", "TRUNCATE clusters_maintenancewindow"):
        with pytest.raises(Error, match="never deleted"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)


def test_the_page_of_a_cluster_shows_plans_and_cancels(client, north):
    client.force_login(person())
    page = f"/clusters/{north.id}/"
    assert b"No maintenance is planned" in client.get(page).content
    typed = {"starts_at": "2020-13-01T00:00", "ends_at": "", "reason": "<b>", "nodes": "nowhere", "drain": "1"}
    refused = client.post(f"{page}windows/", typed)
    assert refused.status_code == 422
    for told in (b"a date and a time in UTC", b"say when it ends", b"&lt;b&gt;", b"checked"):
        assert told in refused.content, told
    later = clock.now() + timedelta(hours=2)
    typed |= {"starts_at": "", "ends_at": f"{later:%Y-%m-%dT%H:%M}"}
    assert b"the cluster has no node nowhere" in client.post(f"{page}windows/", typed).content
    assert b"is in the past" in client.post(f"{page}windows/", typed | {"starts_at": "2020-01-01T00:00"}).content
    assert client.post(f"{page}windows/", typed | {"nodes": "n1, n2"}).status_code == 302
    made = MaintenanceWindow.objects.get()
    assert (made.nodes, made.drain, made.reason) == (["n1", "n2"], True, "<b>")
    shown = client.get(page).content
    for told in (b"n1, n2", b"active", b"&lt;b&gt;", b"running jobs are stopped when it begins"):
        assert told in shown, told
    assert b"<b>" not in shown
    cancel = f"{page}windows/{made.id}/cancel/"
    client.force_login(person("viewer", "acme/team"))
    seen = client.get(page).content
    assert b"n1, n2" in seen
    assert b"Plan maintenance" not in seen
    assert client.post(f"{page}windows/", typed | {"nodes": ""}).status_code == 403
    assert client.post(cancel).status_code == 403
    client.force_login(person("admin", "globex"))
    assert client.get(page).status_code == client.post(cancel).status_code == 404
    client.force_login(person())
    assert client.post(cancel).status_code == 302
    assert b"cancelled by" in client.get(page).content
    ended(north)
    over = MaintenanceWindow.objects.get(reason="past")
    assert client.post(f"{page}windows/{over.id}/cancel/", follow=True).content.count(b"has ended") == 1
