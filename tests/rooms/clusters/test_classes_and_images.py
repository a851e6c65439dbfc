"""StorageClasses and images among the storages of a cluster: over HTTP, on its page, in its access file, and in raw SQL."""

import pytest
import yaml
from django.db import IntegrityError, connection, transaction

from clusters.models import Storage
from clusters.queries import known_storages
from tenancy.models import AuditEntry
from tests.builders import make_cluster, make_tenant
from tests.refusals import constraint_of
from tests.rooms.clusters.test_storages import person

pytestmark = pytest.mark.django_db
PINNED = f"registry.example/models/weights@sha256:{'a' * 64}"
CLASS = {
    "name": "fast",
    "kind": "storage_class",
    "storage_class": "local-nvme",
    "size": "1024Gi",
    "tenant": "acme/team",
}
IMAGE = {"name": "weights", "kind": "image", "image": PINNED, "tenant": "acme/team"}
EMPTY = dict.fromkeys(
    ("claim", "endpoint", "region", "bucket", "secret", "storage_class", "size", "image", "prefix"), ""
)
SHOWN = {
    "fast": EMPTY | {"storage_class": "local-nvme", "size": "1Ti", "mode": "read_write"},
    "weights": EMPTY | {"image": PINNED, "mode": "read_only"},
}
CHANGES = {"fast": {"size": "2Ti", "storage_class": "other"}, "weights": {"image": PINNED.replace("a" * 64, "b" * 64)}}


@pytest.fixture
def north():
    for path in ("acme/team/project", "acme/other"):
        make_tenant(path)
    return make_cluster("acme", "north")


@pytest.mark.parametrize("body", [CLASS, IMAGE], ids=["class", "image"])
def test_an_admin_declares_changes_and_removes_one_with_an_audit_entry_each(call, north, body):
    admin, path, shown, changes = person(), f"/clusters/{north.id}/storages", SHOWN[body["name"]], CHANGES[body["name"]]
    status, made = call(admin, "post", path, body)
    assert (status, {name: made[name] for name in shown}) == (201, shown)
    one = f"{path}/{made['id']}"
    assert call(admin, "get", one) == (200, made)
    changed = call(admin, "patch", one, changes)[1]
    assert {name: changed[name] for name in shown} == shown | changes
    assert call(admin, "patch", one, {"tenant": "acme"})[1]["tenant"] == "acme", "what it has is kept"
    assert known_storages([body["name"]])[body["name"]][north.id].image == (changes.get("image") or "")
    assert call(admin, "patch", one, {"kind": "claim"})[1]["errors"][0]["code"] == "unknown_field"
    assert call(admin, "delete", one) == (204, None)
    trail = AuditEntry.objects.filter(object_kind="storage").order_by("id")
    assert [entry.action.partition(".")[2] for entry in trail] == ["create", "update", "update", "remove"]
    own = {name: shown[name] for name in ("storage_class", "size", "image") if shown[name]}
    assert (
        trail[1].detail["before"]
        == {"tenant": "acme/team", "kind": body["kind"], "mode": shown["mode"], "prefix": ""} | own
    )
    assert trail[1].detail["after"] == trail[1].detail["before"] | changes


@pytest.mark.parametrize(
    ("body", "changes", "field", "code"),
    [
        *((CLASS, {"storage_class": text}, "storage_class", "bad_format") for text in ("A", "../x", "a b", '{"a": 1}', "a'", "a\u0430")),
        (CLASS, {"storage_class": ""}, "storage_class", "blank"),
        (CLASS, {"storage_class": "a\n"}, "storage_class", "out_of_range"),
        (CLASS, {"storage_class": "a" * 254}, "storage_class", "max_length"),
        *((CLASS, {"size": text}, "size", "bad_format") for text in ("big", "0", "-1Gi", "1023Ki", "65Ti", "1e30", "0.5", "1Gi, x", "\u0661Gi")),
        (CLASS, {"size": ""}, "size", "blank"),
        (CLASS, {"size": "1" * 33}, "size", "max_length"),
        (CLASS, {"mode": "read_only"}, "mode", "not_allowed"),
        *((IMAGE, {"image": text}, "image", "bad_format") for text in (
            "weights", "registry.example/weights:1", PINNED.replace("registry.example", "10.0.0.1"), f"{PINNED},x", f"https://{PINNED}", f"ada:pw@{PINNED}",
        )),
        (IMAGE, {"image": f"{PINNED}\n"}, "image", "out_of_range"),
        (IMAGE, {"image": "a" * 513}, "image", "max_length"),
        (IMAGE, {"mode": "read_write"}, "mode", "not_allowed"),
        *((body, {name: text}, name, "not_allowed") for body, foreign in (
            (CLASS, {"claim": "c", "image": PINNED, "bucket": "data", "prefix": "t/{tenant}"}),
            (IMAGE, {"claim": "c", "storage_class": "a", "size": "1Gi", "prefix": "t"}),
        ) for name, text in foreign.items()),
        (CLASS, {"hostPath": "/"}, "hostPath", "unknown_field"),
        (CLASS, {"most_bytes": 1}, "most_bytes", "unknown_field"),
    ],
    ids=repr,
)  # fmt: skip
def test_bad_bodies_are_refused_by_their_field(call, north, body, changes, field, code):
    path = f"/clusters/{north.id}/storages"
    made = call(person(), "post", path, body | {"name": "own"})[1]
    for verb, where in (("post", path), ("patch", f"{path}/{made['id']}")):
        status, told = call(person(), verb, where, (body if verb == "post" else {}) | changes)
        assert (status, [(one["field"], one["code"]) for one in told["errors"]]) == (422, [(field, code)]), (verb, told)
    assert call(person(), "get", f"{path}/{made['id']}")[1] == made


def test_each_kind_needs_its_own_and_other_kinds_have_none_of_it(call, north):
    path = f"/clusters/{north.id}/storages"
    for kind, needs in (("storage_class", {"storage_class", "size"}), ("image", {"image"})):
        told = call(person(), "post", path, {"name": "s", "kind": kind})[1]
        assert {one["field"] for one in told["errors"]} == needs
    told = call(
        person(), "post", path, {"name": "s", "claim": "c", "size": "1Gi", "image": PINNED, "storage_class": "a"}
    )[1]
    assert {(one["field"], one["code"]) for one in told["errors"]} == {
        (name, "not_allowed") for name in ("size", "image", "storage_class")
    }


@pytest.mark.parametrize(
    ("body", "change", "constraint"),
    [
        *((CLASS, change, "storage_has_a_class_and_a_size_exactly_if_it_is_one") for change in (
            "storage_class = ''", "storage_class = 'A'", "storage_class = E'a\\n'", "most_bytes = 0", "most_bytes = -1", "most_bytes = 1048575",
            "most_bytes = 70368744177665", "mode = 'read_only'", "prefix = 't'", "kind = 'claim', claim = 'c'",
        )),
        *((IMAGE, change, "storage_has_an_image_exactly_if_it_is_one") for change in (
            "image = ''", "image = 'weights'", "image = image || E'\\n'", "image = replace(image, 'registry.example', '10.0.0.1')",
            "image = replace(image, '@sha256', ':sha256')", "image = upper(image)", "mode = 'read_write'", "prefix = 't'",
            "kind = 'claim', claim = 'c'",
        )),
        (CLASS, "claim = 'c'", "storage_names_a_claim"),
        (IMAGE, "claim = 'c'", "storage_names_a_claim"),
        (IMAGE, "most_bytes = 1048576", "storage_has_a_class_and_a_size_exactly_if_it_is_one"),
        (CLASS, "image = 'x.y/z@sha256:' || repeat('a', 64)", "storage_has_an_image_exactly_if_it_is_one"),
        (CLASS, "bucket = 'data'", "storage_has_a_bucket_exactly_if_it_is_an_object_store"),
    ],
)  # fmt: skip
def test_the_database_refuses(call, north, body, change, constraint):
    assert call(person(), "post", f"/clusters/{north.id}/storages", body)[0] == 201
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"UPDATE clusters_storage SET {change}")
    assert constraint_of(refused.value) == constraint


def test_datasets_are_copied_neither_from_nor_to_one(call, north):
    admin, path = person(), f"/clusters/{north.id}/storages"
    for body in (CLASS, IMAGE, {"name": "data", "claim": "c", "tenant": "acme/team", "mode": "read_write"}):
        assert call(admin, "post", path, body)[0] == 201
    dataset = call(admin, "post", "/datasets", {
        "tenant": "acme/team", "name": "d", "size": "1Gi", "locations": [{"region": "eu"}],
    })[1]  # fmt: skip
    for other in ("fast", "weights"):
        for source, target, field in ((other, "data", "source"), ("data", other, "target")):
            status, told = call(admin, "post", f"/datasets/{dataset['id']}/staging-plans", {
                "cluster": "north", "source": {"storage": source, "path": "a"}, "target": {"storage": target, "path": "b"},
            })  # fmt: skip
            assert (status, [(one["field"], one["code"]) for one in told["errors"]]) == (
                422, [(f"{field}.storage", "not_found")],
            )  # fmt: skip


def test_the_access_file_of_a_cluster_lists_its_classes_with_their_largest_sizes(client, call, north):
    admin, path = person(), f"/clusters/{north.id}/storages"
    other = {"name": "slow", "storage_class": "disks", "size": "10Gi"}
    for changes in ({}, {"name": "small", "size": "1Gi"}, other):
        assert call(admin, "post", path, CLASS | changes)[0] == 201
    make_cluster("acme", "south")
    client.force_login(admin)

    def lists(where):
        policies = list(yaml.safe_load_all(client.get(f"/clusters/access.yaml{where}").content))
        named = [each.get("spec", {}).get("variables", ()) for each in policies]
        return [one["expression"] for each in named for one in each if one["name"] == "classes"]

    assert lists("") == ["{}"] * 2
    assert lists(f"?cluster={north.id}") == ['{"disks": "10Gi", "local-nvme": "1Ti"}'] * 2
    client.force_login(person("viewer", "acme/other"))
    assert lists(f"?cluster={north.id}") == ["{}"] * 2


def test_the_page_of_a_cluster_declares_and_removes(client, north):
    client.force_login(person())
    page = f"/clusters/{north.id}/"
    fast = {
        "class_name": "fast",
        "class_storage_class": "local-nvme",
        "class_size": "500Gi",
        "class_tenant": "acme/team",
    }
    weights = {"image_name": "weights", "image_image": PINNED, "image_tenant": "acme/team"}
    wrong = fast | {"class_storage_class": "<b>", "class_size": "javascript:x"}
    for where, typed, told in (
        ("storage-classes", wrong, (b"the name of a StorageClass", b"from 1Mi to 64Ti")),
        ("storage-classes", fast | {"class_name": "<b>"}, (b"lower-case letters, digits",)),
        ("image-storages", weights | {"image_image": "<b>"}, (b"with its registry and its digest",)),
        ("image-storages", weights | {"image_tenant": "globex"}, (b"serves no tenant of that path",)),
    ):
        refused = client.post(f"{page}{where}/", typed)
        assert refused.status_code == 422
        assert all(text in refused.content for text in told), (where, typed)
        assert b"<b>" not in refused.content
    assert not Storage.objects.exists()
    assert client.post(f"{page}storage-classes/", fast).status_code == 302
    assert client.post(f"{page}image-storages/", weights).status_code == 302
    shown = client.get(page).content
    for text in (b"local-nvme", b"at most 500Gi", PINNED.encode()):
        assert text in shown
    client.force_login(person("viewer", "acme/team"))
    for where, typed in (("storage-classes", fast), ("image-storages", weights)):
        assert client.post(f"{page}{where}/", typed).status_code == 403
    assert b"Declare storage class" not in client.get(page).content
    client.force_login(person("viewer", "acme/other"))
    assert b"local-nvme" not in client.get(page).content
    client.force_login(person())
    for one in Storage.objects.all():
        assert client.post(f"{page}storages/{one.id}/remove/").status_code == 302
    assert not Storage.objects.exists()
