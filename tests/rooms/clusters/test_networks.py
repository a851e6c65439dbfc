"""Network attachments over HTTP and on the page of their cluster, and the database as their last judge."""

import pytest
from django.db import IntegrityError, connection, transaction

from clusters.models import Network
from clusters.operations import remove_cluster
from clusters.queries import known_networks
from tenancy.models import AuditEntry, Tenant
from tenancy.queries import SYSTEM
from tests.builders import make_cluster, make_tenant, make_user
from tests.refusals import constraint_of
from tests.rooms.clusters.test_storages import ROLES, person

pytestmark = pytest.mark.django_db
GOOD = {"name": "rdma", "definition": "rdma-net", "namespace": "fabric", "tenant": "acme/team"}
TYPED = {f"network_{name}": text for name, text in GOOD.items()}


@pytest.fixture
def north():
    for path in ("acme/team/project", "acme/other"):
        make_tenant(path)
    return make_cluster("acme", "north")


def test_an_admin_declares_changes_and_removes_a_network_with_an_audit_entry_each(call, north):
    admin, path = person(), f"/clusters/{north.id}/networks"
    status, made = call(admin, "post", path, GOOD)
    assert status == 201
    assert {name: made[name] for name in GOOD} == GOOD
    assert (made["kind"], made["cluster"]) == ("multus", "north")
    one = f"{path}/{made['id']}"
    assert call(admin, "get", one) == (200, made)
    changed = call(admin, "patch", one, {"namespace": "", "definition": "other"})[1]
    assert (changed["namespace"], changed["definition"], changed["tenant"]) == ("", "other", "acme/team")
    assert call(admin, "patch", one, {"tenant": "acme"})[1]["tenant"] == "acme"
    assert [each["name"] for each in call(admin, "get", path)[1]["items"]] == ["rdma"]
    assert call(admin, "delete", one) == (204, None)
    assert call(admin, "delete", one)[0] == call(admin, "patch", one, {})[0] == call(admin, "get", one)[0] == 404
    trail = AuditEntry.objects.filter(object_kind="network").order_by("id")
    assert [entry.action for entry in trail] == [
        "network.create", "network.update", "network.update", "network.remove",
    ]  # fmt: skip
    assert (trail[1].detail["before"]["definition"], trail[1].detail["after"]["definition"]) == ("rdma-net", "other")
    assert {entry.tenant_id for entry in trail} == {north.owner_id}


def test_a_repeated_declaration_is_one_network_and_a_name_is_taken_once_a_cluster(call, north):
    admin, path, key = person(), f"/clusters/{north.id}/networks", {"Idempotency-Key": "k"}
    first = call(admin, "post", path, GOOD, **key)
    assert call(admin, "post", path, GOOD, **key) == first
    assert call(admin, "post", path, GOOD | {"tenant": "acme"})[1]["code"] == "network_exists"
    south = make_cluster("acme", "south")
    assert call(admin, "post", f"/clusters/{south.id}/networks", GOOD, **key)[0] == 201
    narrow = call(admin, "post", path, {"name": "own", "definition": "own"})[1]
    assert (narrow["namespace"], narrow["tenant"]) == ("", "acme")
    assert Network.objects.count() == 3


@pytest.mark.parametrize(
    ("role", "path"), [*((role, "acme") for role in ROLES), ("admin", "acme/team"), ("admin", "acme/team/project")]
)
def test_who_may_see_a_network_but_not_manage_its_cluster_changes_nothing(call, north, role, path):
    made = call(person(), "post", f"/clusters/{north.id}/networks", GOOD)[1]
    user, one = person(role, path), f"/clusters/{north.id}/networks/{made['id']}"
    assert call(user, "get", one)[1]["name"] == "rdma"
    for verb, where, body in (
        ("post", one.rpartition("/")[0], GOOD | {"name": "x"}),
        ("patch", one, {"namespace": "kube-system"}),
        ("delete", one, None),
    ):
        assert call(user, verb, where, body)[1]["code"] == "permission_denied", verb
    assert Network.objects.get().namespace == "fabric"


@pytest.mark.parametrize(
    ("role", "path"), [("admin", "globex"), ("viewer", "globex"), ("admin", "acme/other"), ("viewer", "acme/other")]
)
def test_a_foreign_network_looks_like_one_that_is_not_there_on_every_verb(call, north, role, path):
    made = call(person(), "post", f"/clusters/{north.id}/networks", GOOD)[1]
    south = make_cluster("acme", "south")
    stranger, absent = person(role, path), make_user().id
    sees_cluster = path.startswith("acme")
    for verb, body in (("get", None), ("patch", {"namespace": "x"}), ("delete", None)):
        answers = []
        for network_id in (made["id"], absent):
            status, told = call(stranger, verb, f"/clusters/{north.id}/networks/{network_id}", body)
            told.pop("request_id")
            answers.append((status, told))
        if verb == "get" or not sees_cluster:
            assert answers[0][0] == 404
        assert answers[0] == answers[1], verb
    assert call(person(), "get", f"/clusters/{south.id}/networks/{made['id']}")[0] == 404
    assert call(person(), "delete", f"/clusters/{south.id}/networks/{made['id']}")[0] == 404
    listed = call(stranger, "get", f"/clusters/{north.id}/networks")
    assert listed[1]["items"] == [] if sees_cluster else listed[0] == 404
    assert Network.objects.get().namespace == "fabric"


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"name": "Rdma"}, "name", "invalid"),
        ({"name": "a" * 64}, "name", "max_length"),
        ({"name": "a\n"}, "name", "out_of_range"),
        ({"definition": "A"}, "definition", "invalid"),
        ({"definition": "a/b"}, "definition", "invalid"),
        ({"definition": "a,b"}, "definition", "invalid"),
        ({"definition": "a@eth0"}, "definition", "invalid"),
        ({"definition": '[{"name":"a"}]'}, "definition", "invalid"),
        ({"definition": "a.b"}, "definition", "invalid"),
        ({"definition": ""}, "definition", "blank"),
        ({"namespace": "a/b"}, "namespace", "invalid"),
        ({"namespace": "../x"}, "namespace", "invalid"),
        ({"namespace": "A"}, "namespace", "invalid"),
        ({"namespace": "a" * 64}, "namespace", "max_length"),
        ({"kind": "sriov"}, "kind", "invalid_choice"),
        ({"tenant": "globex"}, "tenant", "not_found"),
        ({"tenant": "acme/nowhere"}, "tenant", "not_found"),
        ({"annotations": {}}, "annotations", "unknown_field"),
    ],
)
def test_bad_bodies_are_refused_by_their_field(call, north, changes, field, code):
    make_tenant("globex")
    path = f"/clusters/{north.id}/networks"
    for verb, where in (
        ("post", path),
        ("patch", f"{path}/{call(person(), 'post', path, GOOD | {'name': 'own'})[1]['id']}"),
    ):
        if verb == "patch" and field in {"name", "kind"}:
            code = "unknown_field"
        status, told = call(person(), verb, where, (GOOD if verb == "post" else {}) | changes)
        assert (status, (field, code) in {(one["field"], one["code"]) for one in told["errors"]}) == (422, True), told
    assert {(one.definition, one.namespace) for one in Network.objects.all()} == {("rdma-net", "fabric")}


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ("name = 'A'", "network_name_is_a_dns_label"),
        ("name = E'a\\n'", "network_name_is_a_dns_label"),
        ("kind = 'bridge'", "network_kind_is_known"),
        *(
            (f"definition = {text}", "network_definition_is_a_dns_label")
            for text in ("''", "'a,b'", "'a/b'", "'a@b'", "'[]'", "E'a\\n'", "'a b'")
        ),
        *(
            (f"namespace = {text}", "network_namespace_is_a_dns_label")
            for text in ("'a,b'", "'a/b'", "' '", "E'\\n'", "'..'")
        ),
        ("name = 'second'", "network_name_is_unique_on_its_cluster"),
    ],
)
def test_the_database_refuses(call, north, change, constraint):
    for name in ("first", "second"):
        assert call(person(), "post", f"/clusters/{north.id}/networks", GOOD | {"name": name})[0] == 201
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE clusters_network SET {change} WHERE name = 'first'")
    assert constraint_of(refused.value) == constraint


def test_a_tenant_that_a_network_serves_is_not_removed(call, north):
    admin = person()
    assert call(admin, "post", f"/clusters/{north.id}/networks", GOOD | {"tenant": "acme/other"})[0] == 201
    other = Tenant.objects.get(path="acme/other")
    assert call(admin, "delete", f"/tenants/{other.id}")[1]["code"] == "tenant_not_empty"


def test_a_removed_cluster_has_no_networks(call, north):
    assert call(person(), "post", f"/clusters/{north.id}/networks", GOOD)[0] == 201
    assert list(known_networks(["rdma"])["rdma"]) == [north.id]
    assert known_networks(["else"]) == known_networks([]) == {}
    remove_cluster(SYSTEM, north.id)
    assert known_networks(["rdma"]) == {}
    assert not Network.objects.exists()


def test_the_page_of_a_cluster_declares_and_removes(client, north):
    client.force_login(person())
    page = f"/clusters/{north.id}/"
    assert b"have only the cluster&#x27;s own network" in client.get(page).content or (
        b"have only the cluster's own network" in client.get(page).content
    )
    refused = client.post(
        f"{page}networks/", TYPED | {"network_name": "<b>", "network_definition": "", "network_namespace": "a,b"}
    )
    assert refused.status_code == 422
    assert refused.content.count(b"lower-case letters, digits and &#x27;-&#x27;, at most 63") >= 3
    assert b"<b>" not in refused.content
    assert (
        b"serves no tenant of that path"
        in client.post(f"{page}networks/", TYPED | {"network_tenant": "globex"}).content
    )
    assert client.post(f"{page}networks/", TYPED).status_code == 302
    assert client.post(f"{page}networks/", TYPED).status_code == 409
    shown = client.get(page).content
    assert b"rdma-net" in shown
    assert b"fabric" in shown
    made = Network.objects.get()
    client.force_login(person("viewer", "acme/team"))
    assert b"rdma-net" in client.get(page).content
    assert b"Declare network" not in client.get(page).content
    assert client.post(f"{page}networks/", TYPED).status_code == 403
    assert client.post(f"{page}networks/{made.id}/remove/").status_code == 403
    client.force_login(person("viewer", "acme/other"))
    assert b"rdma-net" not in client.get(page).content
    assert client.post(f"{page}networks/{made.id}/remove/").status_code == 404
    client.force_login(person())
    assert client.post(f"{page}networks/{made.id}/remove/").status_code == 302
    assert not Network.objects.exists()
