"""Object stores among the storages of a cluster, and the secrets with their access keys: over HTTP, on pages, and in raw SQL."""

import json

import pytest
from django.db import IntegrityError, connection, transaction

from clusters.models import Storage, TenantSecret
from clusters.queries import known_storages, opened_secrets
from tenancy.models import AuditEntry, Tenant
from tests.builders import make_cluster, make_tenant
from tests.refusals import constraint_of
from tests.rooms.clusters.test_storages import person

pytestmark = pytest.mark.django_db
GOOD = {
    "name": "s3", "kind": "object_store", "endpoint": "https://S3.example:443", "bucket": "data", "secret": "s3-key",
    "tenant": "acme/team", "prefix": "t/{tenant}",
}  # fmt: skip
SHOWN = {
    "endpoint": "https://s3.example",
    "region": "us-east-1",
    "bucket": "data",
    "secret": "s3-key",
    "claim": "",
    "mode": "read_only",
}
TYPED = {f"store_{name}": text for name, text in GOOD.items() if name != "kind"}
KEY = {"access_key": {"id": "AKIAcanary", "secret": "canary/secret+key"}}


@pytest.fixture
def north():
    for path in ("acme/team/project", "acme/other"):
        make_tenant(path)
    return make_cluster("acme", "north")


def test_an_admin_declares_changes_and_removes_one_with_an_audit_entry_each(call, north):
    admin, path = person(), f"/clusters/{north.id}/storages"
    status, made = call(admin, "post", path, GOOD)
    assert status == 201
    assert {name: made[name] for name in SHOWN} == SHOWN
    one = f"{path}/{made['id']}"
    changed = call(admin, "patch", one, {"bucket": "other", "region": "eu-1"})[1]
    assert {name: changed[name] for name in SHOWN} == SHOWN | {"bucket": "other", "region": "eu-1"}
    assert call(admin, "delete", one) == (204, None)
    trail = AuditEntry.objects.filter(object_kind="storage").order_by("id")
    assert [entry.action for entry in trail] == ["storage.create", "storage.update", "storage.remove"]
    assert trail[1].detail["before"] == {
        "tenant": "acme/team", "kind": "object_store", "endpoint": "https://s3.example", "region": "us-east-1", "bucket": "data",
        "secret": "s3-key", "mode": "read_only", "prefix": "t/{tenant}",
    }  # fmt: skip


def test_no_job_mounts_one(call, north):
    assert call(person(), "post", f"/clusters/{north.id}/storages", GOOD)[0] == 201
    assert known_storages(["s3"]) == {}


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"endpoint": ""}, "endpoint", "blank"),
        ({"endpoint": "http://s3.example"}, "endpoint", "not_https"),
        ({"endpoint": "https://ada:pw@s3.example"}, "endpoint", "bad_url"),
        ({"endpoint": "https://s3.example/?x"}, "endpoint", "bad_url"),
        ({"endpoint": "https://s3.example/%2e%2e"}, "endpoint", "bad_url"),
        ({"endpoint": "https://s3.example\n"}, "endpoint", "out_of_range"),
        ({"endpoint": "https://169.254.169.254"}, "endpoint", "not_allowed"),
        ({"endpoint": "https://0x7f.1"}, "endpoint", "bad_host"),
        ({"endpoint": "https://" + "a" * 300}, "endpoint", "max_length"),
        ({"bucket": "../x"}, "bucket", "bad_format"),
        ({"bucket": "a..b"}, "bucket", "bad_format"),
        ({"bucket": "%2e%2e"}, "bucket", "bad_format"),
        ({"bucket": "d\u00e4ta"}, "bucket", "bad_format"),
        ({"region": "eu 1"}, "region", "bad_format"),
        ({"secret": "S3"}, "secret", "bad_format"),
        ({"secret": "../s3"}, "secret", "bad_format"),
        ({"prefix": "a/../b"}, "prefix", "bad_format"),
        ({"prefix": "\uff0e\uff0e"}, "prefix", "bad_format"),
        ({"mode": "read_write"}, "mode", "not_allowed"),
        ({"claim": "data"}, "claim", "not_allowed"),
    ],
)
def test_bad_bodies_are_refused_by_their_field(call, north, changes, field, code):
    path = f"/clusters/{north.id}/storages"
    made = call(person(), "post", path, GOOD | {"name": "own"})[1]
    for verb, where in (("post", path), ("patch", f"{path}/{made['id']}")):
        status, told = call(person(), verb, where, (GOOD if verb == "post" else {}) | changes)
        assert (status, [(one["field"], one["code"]) for one in told["errors"]]) == (422, [(field, code)]), (verb, told)
    assert call(person(), "get", f"{path}/{made['id']}")[1] == made


def test_what_belongs_to_the_other_kind_is_refused(call, north):
    path = f"/clusters/{north.id}/storages"
    nothing = call(person(), "post", path, {"name": "s", "kind": "object_store"})[1]["errors"]
    assert {one["field"] for one in nothing} == {"endpoint", "bucket", "secret"}
    mixed = call(person(), "post", path, {"name": "s", "claim": "c", "bucket": "data", "secret": "k"})[1]["errors"]
    assert {(one["field"], one["code"]) for one in mixed} == {("bucket", "not_allowed"), ("secret", "not_allowed")}
    assert [one["field"] for one in call(person(), "post", path, {"name": "s"})[1]["errors"]] == ["claim"]
    made = call(person(), "post", path, {"name": "s", "claim": "c"})[1]
    told = call(person(), "patch", f"{path}/{made['id']}", {"endpoint": "https://s3.example"})[1]
    assert [(one["field"], one["code"]) for one in told["errors"]] == [("endpoint", "not_allowed")]
    assert (
        call(person(), "patch", f"{path}/{made['id']}", {"kind": "object_store"})[1]["errors"][0]["code"]
        == "unknown_field"
    )


def test_the_installation_names_the_hosts(call, north, settings):
    settings.OBJECT_STORES = ["*.example.com"]
    path = f"/clusters/{north.id}/storages"
    assert call(person(), "post", path, GOOD)[1]["errors"][0]["code"] == "not_allowed"
    assert call(person(), "post", path, GOOD | {"endpoint": "https://s3.example.com"})[0] == 201


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        *(
            (change, "storage_has_a_bucket_exactly_if_it_is_an_object_store")
            for change in (
                "endpoint = ''", "endpoint = 'http://s3.example'", "endpoint = 'https://a@b'", "endpoint = E'https://a\\n'",
                "endpoint = 'https://a/b'", "region = ''", "region = 'EU'", "bucket = ''", "bucket = 'a..b'", "bucket = '../a'",
                "bucket = E'data\\n'", "bucket = 'a/b'", "secret = ''", "secret = 'A'", "mode = 'read_write'",
                "kind = 'claim', claim = 'c'",
            )
        ),
        ("claim = 'c'", "storage_names_a_claim"),
        ("kind = 's3', endpoint = '', region = '', bucket = '', secret = '', claim = 'c'", "storage_kind_is_known"),
    ],
)  # fmt: skip
def test_the_database_refuses(call, north, change, constraint):
    assert call(person(), "post", f"/clusters/{north.id}/storages", GOOD)[0] == 201
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE clusters_storage SET {change}")
    assert constraint_of(refused.value) == constraint


def test_a_claim_has_no_bucket_in_the_database(call, north):
    assert call(person(), "post", f"/clusters/{north.id}/storages", {"name": "d", "claim": "c"})[0] == 201
    for change in (
        "endpoint = 'https://s3.example'",
        "bucket = 'data'",
        "secret = 'k'",
        "kind = 'object_store', claim = ''",
    ):
        with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"UPDATE clusters_storage SET {change}")
        assert constraint_of(refused.value) == "storage_has_a_bucket_exactly_if_it_is_an_object_store"


def test_the_page_of_a_cluster_declares_and_removes(client, north):
    client.force_login(person())
    page = f"/clusters/{north.id}/"
    wrong = TYPED | {"store_name": "<b>", "store_prefix": "../..", "store_endpoint": "javascript:x"}
    refused = client.post(f"{page}object-stores/", wrong)
    assert refused.status_code == 422
    assert b"lower-case letters" in refused.content
    assert b"<b>" not in refused.content
    refused = client.post(f"{page}object-stores/", TYPED | {"store_endpoint": "http://x", "store_bucket": "../x"})
    assert b"the server must be given as https" in refused.content
    assert b"3 to 63 lower-case letters" in refused.content
    assert not Storage.objects.exists()
    assert client.post(f"{page}object-stores/", TYPED).status_code == 302
    shown = client.get(page).content
    for text in (b"https://s3.example", b"copies only", b"s3-key", b"us-east-1"):
        assert text in shown
    client.force_login(person("viewer", "acme/team"))
    assert client.post(f"{page}object-stores/", TYPED).status_code == 403
    assert b"Declare object store" not in client.get(page).content
    client.force_login(person("viewer", "acme/other"))
    assert b"s3.example" not in client.get(page).content


# Access keys.


def folder():
    return f"/tenants/{Tenant.objects.get(path='acme/team').id}/secrets"


def test_an_access_key_is_a_secret_of_its_own_kind(call, north):
    manager = person("manager", "acme/team")
    made = call(manager, "put", f"{folder()}/s3-key", KEY)
    assert (made[0], made[1]["kind"], made[1]["registry"]) == (201, "access_key", None)
    assert call(manager, "put", f"{folder()}/s3-key", {"value": "x"})[1]["code"] == "secret_has_other_kind"
    row = TenantSecret.objects.get()
    [value] = opened_secrets([(row.id, 1)])[0].values()
    assert json.loads(value) == KEY["access_key"]
    assert b"canary" not in bytes(row.sealed)
    assert "canary" not in json.dumps([entry.detail for entry in AuditEntry.objects.all()])
    assert "canary" not in json.dumps(call(manager, "get", folder())[1])


@pytest.mark.parametrize(
    "body",
    [
        {"access_key": {}},
        {"access_key": {"id": "canary"}},
        {"access_key": {"id": "canary", "secret": ""}},
        {"access_key": {"id": "canary", "secret": "canary with blanks"}},
        {"access_key": {"id": "canary\n", "secret": "canary"}},
        {"access_key": {"id": "canary", "secret": "canary\u00e4"}},
        {"access_key": {"id": "canary", "secret": "canary" * 50}},
        {"access_key": {"id": ["canary"], "secret": "canary"}},
        {"access_key": {"id": "canary", "secret": "canary", "token": "canary"}},
        {"access_key": "canary"},
        {"value": "canary", **KEY},
    ],
)
def test_what_is_no_access_key_is_refused_without_repeating_it(call, north, body):
    status, told = call(person("manager", "acme/team"), "put", f"{folder()}/s3-key", body)
    assert status == 422
    assert "canary" not in json.dumps(told)
    assert not TenantSecret.objects.exists()


def test_a_page_stores_an_access_key_and_never_shows_it(client, north):
    client.force_login(person("manager", "acme/team"))
    page = f"/tenants/{Tenant.objects.get(path='acme/team').id}/secrets/"
    typed = {"name": "s3-key", "kind": "access_key", "key_id": "AKIAcanary", "key_secret": "canary key"}
    refused = client.post(page, typed)
    assert refused.status_code == 422
    assert b"canary" not in refused.content
    assert client.post(page, typed | {"key_secret": "canary-key"}).status_code == 302
    shown = client.get(page).content
    assert b"copies from object stores" in shown
    assert b"canary" not in shown
    row = TenantSecret.objects.get()
    [value] = opened_secrets([(row.id, 1)])[0].values()
    assert json.loads(value) == {"id": "AKIAcanary", "secret": "canary-key"}
