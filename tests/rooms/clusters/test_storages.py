"""Storages over HTTP and on the page of their cluster, and the database as their last judge."""

import pytest
from django.db import IntegrityError, connection, transaction

from clusters.models import Storage
from clusters.operations import remove_cluster
from clusters.queries import known_storages
from tenancy.models import AuditEntry, Tenant
from tenancy.queries import SYSTEM
from tests.builders import bind, make_cluster, make_tenant, make_user
from tests.refusals import constraint_of

pytestmark = pytest.mark.django_db
GOOD = {"name": "datasets", "claim": "shared-data", "tenant": "acme/team", "mode": "read_write", "prefix": "t/{tenant}"}


@pytest.fixture
def north():
    for path in ("acme/team/project", "acme/other"):
        make_tenant(path)
    return make_cluster("acme", "north")


def person(role="admin", path="acme"):
    user = make_user()
    bind(user, path, role)
    return user


def test_an_admin_declares_changes_and_removes_a_storage_with_an_audit_entry_each(call, north):
    admin, path = person(), f"/clusters/{north.id}/storages"
    status, made = call(admin, "post", path, GOOD)
    assert status == 201
    assert {name: made[name] for name in GOOD} == GOOD
    assert (made["kind"], made["cluster"]) == ("claim", "north")
    one = f"{path}/{made['id']}"
    assert call(admin, "get", one) == (200, made)
    changed = call(admin, "patch", one, {"mode": "read_only", "prefix": ""})[1]
    assert (changed["mode"], changed["prefix"], changed["claim"]) == ("read_only", "", "shared-data")
    assert call(admin, "patch", one, {"tenant": "acme"})[1]["tenant"] == "acme"
    assert [each["name"] for each in call(admin, "get", path)[1]["items"]] == ["datasets"]
    assert call(admin, "delete", one) == (204, None)
    assert call(admin, "delete", one)[0] == call(admin, "patch", one, {})[0] == call(admin, "get", one)[0] == 404
    trail = AuditEntry.objects.filter(object_kind="storage").order_by("id")
    assert [entry.action for entry in trail] == [
        "storage.create", "storage.update", "storage.update", "storage.remove",
    ]  # fmt: skip
    assert trail[1].detail["before"]["mode"] == "read_write"
    assert trail[1].detail["after"]["mode"] == "read_only"
    assert {entry.tenant_id for entry in trail} == {north.owner_id}


def test_what_is_not_said_is_narrow(call, north):
    made = call(person(), "post", f"/clusters/{north.id}/storages", {"name": "d", "claim": "c"})[1]
    assert (made["mode"], made["tenant"], made["prefix"]) == ("read_only", "acme", "")


def test_a_repeated_declaration_is_one_storage_and_a_name_is_taken_once_a_cluster(call, north):
    admin, path, key = person(), f"/clusters/{north.id}/storages", {"Idempotency-Key": "k"}
    first = call(admin, "post", path, GOOD, **key)
    assert call(admin, "post", path, GOOD, **key) == first
    assert call(admin, "post", path, GOOD | {"tenant": "acme"})[1]["code"] == "storage_exists"
    south = make_cluster("acme", "south")
    assert call(admin, "post", f"/clusters/{south.id}/storages", GOOD, **key)[0] == 201
    assert Storage.objects.count() == 2


ROLES = ["viewer", "submitter", "manager", "finance"]


@pytest.mark.parametrize(
    ("role", "path"), [*((role, "acme") for role in ROLES), ("admin", "acme/team"), ("admin", "acme/team/project")]
)
def test_who_may_see_a_storage_but_not_manage_its_cluster_changes_nothing(call, north, role, path):
    made = call(person(), "post", f"/clusters/{north.id}/storages", GOOD)[1]
    user, one = person(role, path), f"/clusters/{north.id}/storages/{made['id']}"
    assert call(user, "get", one)[1]["name"] == "datasets"
    for verb, where, body in (
        ("post", one.rpartition("/")[0], GOOD | {"name": "x"}),
        ("patch", one, {"mode": "read_only"}),
        ("delete", one, None),
    ):
        assert call(user, verb, where, body)[1]["code"] == "permission_denied", verb
    assert Storage.objects.get().mode == "read_write"


@pytest.mark.parametrize(
    ("role", "path"), [("admin", "globex"), ("viewer", "globex"), ("admin", "acme/other"), ("viewer", "acme/other")]
)
def test_a_foreign_storage_looks_like_one_that_is_not_there_on_every_verb(call, north, role, path):
    made = call(person(), "post", f"/clusters/{north.id}/storages", GOOD)[1]
    south = make_cluster("acme", "south")
    stranger, absent = person(role, path), make_user().id
    sees_cluster = path.startswith("acme")
    for verb, body in (("get", None), ("patch", {"mode": "read_only"}), ("delete", None)):
        answers = []
        for storage_id in (made["id"], absent):
            status, told = call(stranger, verb, f"/clusters/{north.id}/storages/{storage_id}", body)
            told.pop("request_id")
            answers.append((status, told))
        if verb == "get" or not sees_cluster:
            assert answers[0][0] == 404
        assert answers[0] == answers[1], verb
    assert call(person(), "get", f"/clusters/{south.id}/storages/{made['id']}")[0] == 404
    listed = call(stranger, "get", f"/clusters/{north.id}/storages")
    assert listed[1]["items"] == [] if sees_cluster else listed[0] == 404
    assert Storage.objects.get().mode == "read_write"


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"name": "Data"}, "name", "invalid"),
        ({"name": "a" * 64}, "name", "max_length"),
        ({"name": "a\n"}, "name", "out_of_range"),
        ({"claim": "A"}, "claim", "invalid"),
        ({"claim": "a/b"}, "claim", "invalid"),
        ({"claim": ""}, "claim", "blank"),
        ({"kind": "hostPath"}, "kind", "invalid_choice"),
        ({"mode": "root"}, "mode", "invalid_choice"),
        ({"prefix": ".."}, "prefix", "bad_format"),
        ({"prefix": "a/../b"}, "prefix", "bad_format"),
        ({"prefix": "/a"}, "prefix", "bad_format"),
        ({"prefix": "a//b"}, "prefix", "bad_format"),
        ({"prefix": "a/"}, "prefix", "bad_format"),
        ({"prefix": "{user}"}, "prefix", "bad_format"),
        ({"prefix": "{tenant}/{tenant}"}, "prefix", "bad_format"),
        ({"prefix": "a" * 121}, "prefix", "max_length"),
        ({"prefix": "\uff0e\uff0e"}, "prefix", "bad_format"),
        ({"tenant": "globex"}, "tenant", "not_found"),
        ({"tenant": "acme/nowhere"}, "tenant", "not_found"),
        ({"tenant": "acmex"}, "tenant", "not_found"),
        ({"path": "/"}, "path", "unknown_field"),
    ],
)
def test_bad_bodies_are_refused_by_their_field(call, north, changes, field, code):
    make_tenant("globex")
    make_tenant("acmex")
    path = f"/clusters/{north.id}/storages"
    for verb, where in (
        ("post", path),
        ("patch", f"{path}/{call(person(), 'post', path, GOOD | {'name': 'own'})[1]['id']}"),
    ):
        if verb == "patch" and field in {"name", "kind"}:
            code = "unknown_field"
        status, told = call(person(), verb, where, (GOOD if verb == "post" else {}) | changes)
        assert (status, (field, code) in {(one["field"], one["code"]) for one in told["errors"]}) == (422, True), told
    assert {(one.prefix, one.claim) for one in Storage.objects.all()} == {(GOOD["prefix"], GOOD["claim"])}


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("name = 'A'", "storage_name_is_a_dns_label"),
        ("name = E'a\\n'", "storage_name_is_a_dns_label"),
        ("kind = 'hostPath'", "storage_kind_is_known"),
        ("claim = ''", "storage_names_a_claim"),
        ("claim = '../x'", "storage_names_a_claim"),
        ("claim = E'a\\n'", "storage_names_a_claim"),
        ("mode = ''", "storage_mode_is_known"),
        ("mode = 'owner'", "storage_mode_is_known"),
        *(
            (f"prefix = {prefix}", "storage_prefix_leads_nowhere_else")
            for prefix in (
                "'..'", "'.'", "'a/..'", "'../a'", "'a/../b'", "'/a'", "'a/'", "'a//b'", "'/'", "'{tenant}/..'", "'{tenant}{tenant}'",
                "'{user}'", "E'a\\n'", "E'..\\n'", "E'a\\n/..'", "'a b'", "U&'\\FF0E\\FF0E'", "'$(HOME)'", "'a\\b'",
            )
        ),
        ("name = 'second'", "storage_name_is_unique_on_its_cluster"),
    ],
)  # fmt: skip
def test_the_database_refuses(call, north, change, constraint):
    for name in ("first", "second"):
        assert call(person(), "post", f"/clusters/{north.id}/storages", GOOD | {"name": name})[0] == 201
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE clusters_storage SET {change} WHERE name = 'first'")
    assert constraint_of(refused.value) == constraint


def test_a_tenant_that_a_storage_serves_is_not_removed(call, north):
    admin = person()
    assert call(admin, "post", f"/clusters/{north.id}/storages", GOOD | {"tenant": "acme/other"})[0] == 201
    other = Tenant.objects.get(path="acme/other")
    assert call(admin, "delete", f"/tenants/{other.id}")[1]["code"] == "tenant_not_empty"


def test_a_removed_cluster_has_no_storages(call, north):
    assert call(person(), "post", f"/clusters/{north.id}/storages", GOOD)[0] == 201
    assert list(known_storages(["datasets"])["datasets"]) == [north.id]
    assert known_storages(["else"]) == known_storages([]) == {}
    remove_cluster(SYSTEM, north.id)
    assert known_storages(["datasets"]) == {}
    assert not Storage.objects.exists()


def test_the_page_of_a_cluster_declares_and_removes(client, north):
    client.force_login(person())
    page = f"/clusters/{north.id}/"
    assert b"Jobs cannot mount volumes here" in client.get(page).content
    refused = client.post(f"{page}storages/", GOOD | {"name": "<b>", "claim": "", "prefix": "../..", "mode": "x"})
    assert refused.status_code == 422
    for told in (
        b"lower-case letters",
        b"the name of a PersistentVolumeClaim",
        b"without &#x27;.&#x27; and &#x27;..&#x27;",
        b"one of the listed modes",
    ):
        assert told in refused.content, told
    assert b"serves no tenant of that path" in client.post(f"{page}storages/", GOOD | {"tenant": "globex"}).content
    assert client.post(f"{page}storages/", GOOD).status_code == 302
    shown = client.get(page).content
    assert b"shared-data" in shown
    assert b"t/{tenant}" in shown
    made = Storage.objects.get()
    client.force_login(person("viewer", "acme/team"))
    assert b"shared-data" in client.get(page).content
    assert b"Declare storage" not in client.get(page).content
    assert client.post(f"{page}storages/", GOOD).status_code == 403
    assert client.post(f"{page}storages/{made.id}/remove/").status_code == 403
    client.force_login(person("viewer", "acme/other"))
    assert b"shared-data" not in client.get(page).content
    assert client.post(f"{page}storages/{made.id}/remove/").status_code == 404
    client.force_login(person())
    assert client.post(f"{page}storages/{made.id}/remove/").status_code == 302
    assert not Storage.objects.exists()
