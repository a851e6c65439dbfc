"""Secrets over HTTP: names and versions can be read, values never; and the database as their last judge."""

import json

import pytest
from django.db import IntegrityError, connection, transaction

from clusters.engine.secrets import MOST_BYTES
from clusters.models import TenantSecret
from clusters.operations import rekey_credentials
from clusters.operations import secrets as operations
from clusters.queries import known_secrets, opened_secrets
from tenancy.models import AuditEntry, Tenant
from tests.builders import bind, make_tenant, make_user
from tests.refusals import constraint_of
from tests.rooms.clusters.test_rekeying import NEW, OLD

pytestmark = pytest.mark.django_db
ACCESS = {"registry": {"server": "ghcr.io", "username": "ada", "password": "canary"}}


@pytest.fixture
def team():
    make_tenant("acme/other")
    return make_tenant("acme/team")


def person(role="manager", path="acme/team"):
    user = make_user()
    bind(user, path, role)
    return user


def folder(path="acme/team"):
    return f"/tenants/{Tenant.objects.get(path=path).id}/secrets"


def test_a_manager_puts_rotates_and_deletes_a_secret_with_an_audit_entry_each(call, team):
    manager, one = person(), f"{folder()}/token"
    status, made = call(manager, "put", one, {"value": "canary-1"})
    assert status == 201
    assert {name: made[name] for name in ("name", "tenant", "kind", "registry", "version")} == {
        "name": "token", "tenant": "acme/team", "kind": "value", "registry": None, "version": 1,
    }  # fmt: skip
    status, rotated = call(manager, "put", one, {"value": "canary-2\nline"})
    assert (status, rotated["version"], rotated["created_at"]) == (200, 2, made["created_at"])
    row = TenantSecret.objects.get()
    assert opened_secrets([(row.id, 2)])[0] == {(row.id, 2): b"canary-2\nline"}
    assert opened_secrets([(row.id, 1)]) == ({}, set())
    assert call(manager, "delete", one) == (204, None)
    assert call(manager, "delete", one)[0] == 404
    trail = AuditEntry.objects.filter(object_kind="secret").order_by("id")
    assert [(entry.action, entry.detail["version"]) for entry in trail] == [
        ("secret.create", 1), ("secret.rotate", 2), ("secret.delete", 2),
    ]  # fmt: skip
    assert "canary" not in json.dumps([entry.detail for entry in AuditEntry.objects.all()])


def test_access_to_a_registry_is_a_secret_of_its_own_kind(call, team):
    manager = person()
    made = call(manager, "put", f"{folder()}/ghcr", ACCESS)[1]
    assert (made["kind"], made["registry"]) == ("registry", "ghcr.io")
    assert call(manager, "put", f"{folder()}/ghcr", {"value": "x"})[1]["code"] == "secret_has_other_kind"
    row = TenantSecret.objects.get()
    [value] = opened_secrets([(row.id, 1)])[0].values()
    assert json.loads(value)["auths"]["ghcr.io"]["password"] == "canary"


def test_the_list_of_a_tenant_has_the_names_that_its_jobs_may_use_and_no_value(call, team):
    admin = person("admin", "acme")
    for path in ("acme", "acme/team", "acme/other"):
        assert call(admin, "put", f"{folder(path)}/token", {"value": f"canary of {path}"})[0] == 201
    status, seen = call(person("viewer"), "get", folder())
    assert status == 200
    assert sorted((one["name"], one["tenant"]) for one in seen["items"]) == [("token", "acme"), ("token", "acme/team")]
    assert "canary" not in json.dumps(seen)
    assert known_secrets([]) == {}
    assert set(known_secrets(["token"])["token"]) == {"acme", "acme/team", "acme/other"}


def test_no_verb_reads_a_secret(call, team):
    manager = person()
    call(manager, "put", f"{folder()}/token", {"value": "canary"})
    assert call(manager, "get", f"{folder()}/token")[0] == 405
    assert call(manager, "post", folder(), {"value": "x"})[0] == 405


@pytest.mark.parametrize("role", ["viewer", "submitter", "finance"])
def test_who_may_see_a_tenant_but_not_manage_it_writes_no_secret(call, team, role):
    call(person(), "put", f"{folder()}/token", {"value": "canary"})
    user = person(role)
    assert call(user, "put", f"{folder()}/token", {"value": "theirs"})[1]["code"] == "permission_denied"
    assert call(user, "put", f"{folder()}/more", {"value": "theirs"})[1]["code"] == "permission_denied"
    assert call(user, "delete", f"{folder()}/token")[1]["code"] == "permission_denied"
    assert TenantSecret.objects.get().version == 1


@pytest.mark.parametrize(("role", "path"), [("admin", "globex"), ("admin", "acme/other"), ("viewer", "acme/other")])
def test_a_foreign_tenants_secrets_look_like_none_on_every_verb(call, team, role, path):
    call(person(), "put", f"{folder()}/token", {"value": "canary"})
    stranger = person(role, path)
    absent = f"/tenants/{make_user().id}/secrets"
    for verb, tail, body in (("get", "", None), ("put", "/token", {"value": "x"}), ("delete", "/token", None)):
        answers = []
        for where in (folder(), absent):
            status, told = call(stranger, verb, f"{where}{tail}", body)
            told.pop("request_id")
            answers.append((status, told))
        assert answers[0] == answers[1], verb
        assert answers[0][0] == 404
    assert TenantSecret.objects.get().version == 1


def test_a_manager_below_neither_sees_nor_takes_the_secret_above_as_its_own(call, team):
    call(person("admin", "acme"), "put", f"{folder('acme')}/token", {"value": "canary"})
    manager = person()
    assert call(manager, "delete", f"{folder()}/token")[0] == 404
    assert call(manager, "put", f"{folder('acme')}/token", {"value": "x"})[0] == 404
    assert call(manager, "put", f"{folder()}/token", {"value": "own"})[0] == 201


@pytest.mark.parametrize(
    ("body", "field", "code"),
    [
        ({}, "", "conflict"),
        ({"value": "x", **ACCESS}, "", "conflict"),
        ({"value": ""}, "value", "blank"),
        ({"value": None}, "value", "null"),
        ({"value": 7}, "value", "invalid"),
        ({"value": "x" * (MOST_BYTES + 1)}, "value", "too_long"),
        ({"value": "\u00e9" * (MOST_BYTES // 2 + 1)}, "value", "too_long"),
        ({"registry": {"server": "https://x", "username": "a", "password": "canary"}}, "registry.server", "invalid"),
        ({"registry": {"server": "x", "username": "a"}}, "registry.password", "required"),
        ({"value": "x", "kind": "value"}, "kind", "unknown_field"),
    ],
)
def test_bad_bodies_are_refused_without_repeating_them(call, team, body, field, code):
    status, told = call(person(), "put", f"{folder()}/token", body)
    assert status == 422
    assert (field, code) in {(one["field"], one["code"]) for one in told["errors"]}, told
    assert "canary" not in json.dumps(told)
    assert not TenantSecret.objects.exists()


@pytest.mark.parametrize("name", ["Token", "-a", "a_b", "a" * 64])
def test_a_name_that_is_none_is_refused(call, team, name):
    assert call(person(), "put", f"{folder()}/{name}", {"value": "x"})[0] == 422
    assert call(person(), "delete", f"{folder()}/{name}")[0] == 404


def test_a_tenant_has_a_bounded_number(call, team, monkeypatch):
    monkeypatch.setattr(operations, "MOST_SECRETS", 1)
    manager = person()
    assert call(manager, "put", f"{folder()}/a", {"value": "x"})[0] == 201
    assert call(manager, "put", f"{folder()}/b", {"value": "x"})[1]["code"] == "too_many_secrets"
    assert call(manager, "put", f"{folder()}/a", {"value": "y"})[0] == 200


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("name = 'A'", "secret_name_is_a_dns_label"),
        ("name = E'a\\n'", "secret_name_is_a_dns_label"),
        ("kind = ''", "secret_names_a_registry_exactly_if_it_is_for_one"),
        ("kind = 'registry'", "secret_names_a_registry_exactly_if_it_is_for_one"),
        ("registry = 'ghcr.io'", "secret_names_a_registry_exactly_if_it_is_for_one"),
        ("kind = 'registry', registry = 'a/b'", "secret_names_a_registry_exactly_if_it_is_for_one"),
        ("version = 0", "secret_versions_begin_at_one"),
        ("key_id = ''", "secret_names_its_key"),
        ("name = 'second'", "secret_name_is_unique_in_its_tenant"),
    ],
)
def test_the_database_refuses(call, team, change, constraint):
    for name in ("first", "second"):
        call(person(), "put", f"{folder()}/{name}", {"value": "x"})
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE clusters_tenantsecret SET {change} WHERE name = 'first'")
    assert constraint_of(refused.value) == constraint


@pytest.mark.parametrize("change", ["version = version + 1", "name = 'other'", "tenant_id = (SELECT id FROM tenancy_tenant WHERE path = 'acme/other')"])  # fmt: skip
def test_a_seal_moved_to_another_row_does_not_open(call, team, change):
    call(person(), "put", f"{folder()}/token", {"value": "canary"})
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE clusters_tenantsecret SET {change}")
    row = TenantSecret.objects.get()
    assert opened_secrets([(row.id, row.version)]) == ({}, {(row.id, row.version)})


def test_a_tenant_with_secrets_is_not_removed(call, team):
    call(person(), "put", f"{folder()}/token", {"value": "x"})
    assert call(person("admin", "acme"), "delete", f"/tenants/{team.id}")[1]["code"] == "tenant_not_empty"


def test_rekeying_moves_secrets_too_and_names_one_that_cannot_be_opened(call, team, settings):
    settings.KEY_RING = OLD
    for name in ("a", "b"):
        call(person(), "put", f"{folder()}/{name}", {"value": "canary"})
    settings.KEY_RING = f"{NEW},{OLD}"
    TenantSecret.objects.filter(name="b").update(sealed=b"spoilt" * 10)
    done = rekey_credentials()
    assert (done.moved, done.failed) == (1, ("secret b of acme/team: it cannot be decrypted with key old",))
    settings.KEY_RING = NEW
    row = TenantSecret.objects.get(name="a")
    assert opened_secrets([(row.id, 1)])[0] == {(row.id, 1): b"canary"}
    assert rekey_credentials().already_current == 1


# -- pages --------------------------------------------------------------------------------------------------------------


def page_of(path="acme/team"):
    return f"/tenants/{Tenant.objects.get(path=path).id}/secrets/"


def test_a_page_stores_replaces_and_deletes_secrets_and_never_shows_a_value(client, team):
    client.force_login(person())
    typed = {"name": "ssh-key", "kind": "value", "value": "canary-1\r\nline\r\n"}
    assert "is stored" in client.post(page_of(), typed, follow=True).content.decode()
    row = TenantSecret.objects.get()
    assert opened_secrets([(row.id, 1)])[0] == {(row.id, 1): b"canary-1\nline\n"}, "browsers send CR LF"
    assert "replaced by version 2" in client.post(page_of(), typed, follow=True).content.decode()
    text = client.get(page_of()).content.decode()
    assert "ssh-key" in text
    assert "canary" not in text
    assert "is deleted" in client.post(f"{page_of()}ssh-key/delete/", follow=True).content.decode()
    assert client.post(f"{page_of()}ssh-key/delete/").status_code == 404
    assert not TenantSecret.objects.exists()


def test_a_page_stores_the_access_to_a_registry(client, team):
    client.force_login(person())
    typed = {"name": "ghcr", "kind": "registry", "server": "ghcr.io", "username": "ada", "password": " canary "}
    assert client.post(page_of(), typed).status_code == 302
    row = TenantSecret.objects.get()
    [value] = opened_secrets([(row.id, 1)])[0].values()
    assert json.loads(value)["auths"]["ghcr.io"]["password"] == " canary "
    assert client.post(page_of(), typed | {"kind": "value", "value": "x"}).status_code == 409


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({"name": "No", "kind": "value", "value": "canary"}, "name"),
        ({"name": "a", "kind": "value", "value": "canary\x00"}, "value"),
        ({"name": "a", "kind": "value", "value": ""}, "value"),
        ({"name": "a", "kind": "value", "value": "canary" * MOST_BYTES}, "value"),
        ({"name": "a", "kind": "registry", "server": "http://x", "username": "u", "password": "canary"}, "server"),
        ({"name": "a", "kind": "registry", "server": "x", "username": "", "password": "canary"}, "username"),
        ({"name": "a", "kind": "registry", "server": "x", "username": "u", "password": ""}, "password"),
    ],
)
def test_a_page_refuses_what_is_no_secret_and_repeats_no_value(client, team, typed, field):
    client.force_login(person())
    answer = client.post(page_of(), typed)
    assert answer.status_code == 422
    assert f'id="e-{field}"' in answer.content.decode()
    assert "canary" not in answer.content.decode()
    assert not TenantSecret.objects.exists()


def test_a_page_shows_inherited_secrets_and_which_is_used(client, call, team):
    admin = person("admin", "acme")
    for path in ("acme", "acme/team"):
        call(admin, "put", f"{folder(path)}/token", {"value": "x"})
    client.force_login(person("viewer"))
    text = client.get(page_of()).content.decode()
    assert text.count("a nearer one is used") == 1
    assert "Store a secret" not in text
    assert "Delete secret" not in text


def test_those_who_do_not_manage_the_tenant_store_and_delete_nothing_on_its_page(client, call, team):
    call(person(), "put", f"{folder()}/token", {"value": "x"})
    typed = {"name": "token", "kind": "value", "value": "y"}
    for who, expected in ((person("submitter"), 403), (person("admin", "acme/other"), 404)):
        client.force_login(who)
        assert client.post(page_of(), typed).status_code == expected
        assert client.post(f"{page_of()}token/delete/").status_code == expected
    assert TenantSecret.objects.get().version == 1
