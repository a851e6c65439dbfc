"""Datasets over HTTP and on their pages, and the database as their last judge."""

import contextlib

import pytest
from django.db import IntegrityError, connection, transaction
from hypothesis import given
from hypothesis import strategies as st

from clusters.engine.datasets import MOST_BYTES, BadSize, KnownData, Place, catalogue_of, meant, size_of
from clusters.engine.quantities import bytes_text
from clusters.models import Dataset
from clusters.queries.datasets import known_data
from foundation.clock import now
from tenancy.models import AuditEntry
from tests.builders import bind, make_cluster, make_tenant, make_user
from tests.refusals import constraint_of

pytestmark = pytest.mark.django_db
LIES = [{"region": "eu-west-1"}, {"cluster": "north"}]


@pytest.fixture
def north():
    make_tenant("acme/team")
    return make_cluster("acme", "north", region="eu-north")


def person(role, path="acme/team"):
    user = make_user()
    bind(user, path, role)
    return user


def wanted(**changes):
    return {"tenant": "acme/team", "name": "imagenet", "size": "150Gi", "locations": LIES} | changes


def faults(answer):
    assert answer[0] == 422, answer
    return {(error["field"], error["code"]) for error in answer[1]["errors"]}


def test_a_manager_records_changes_and_forgets_a_dataset_with_an_audit_entry_each(call, north):
    manager = person("manager")
    status, made = call(manager, "post", "/datasets", wanted(size="1536Mi"))
    assert (status, made["size"], made["size_bytes"]) == (201, "1536Mi", 1536 * 2**20)
    places = [{"region": None, "cluster": "north"}, {"region": "eu-west-1", "cluster": None}]
    assert made["locations"] == places
    path = f"/datasets/{made['id']}"
    assert call(manager, "patch", path, {"size": "2Gi"})[1]["locations"] == places
    moved = call(manager, "patch", path, {"locations": [{"region": "us-east"}]})[1]
    assert (moved["size"], [one["region"] for one in moved["locations"]]) == ("2Gi", ["us-east"])
    assert call(manager, "delete", path) == (204, None)
    assert call(manager, "delete", path)[0] == 404
    trail = AuditEntry.objects.filter(object_kind="dataset").order_by("id")
    assert [entry.action for entry in trail] == ["dataset.create", "dataset.update", "dataset.update", "dataset.remove"]
    assert trail[2].detail["after"] == {"size": "2Gi", "locations": [{"region": "us-east"}]}
    assert trail[3].detail["before"] == trail[2].detail["after"]


def test_a_repeated_creation_is_one_dataset_and_a_name_is_taken_once_a_tenant(call, north):
    manager, key = person("manager", "acme"), {"Idempotency-Key": "k"}
    first = call(manager, "post", "/datasets", wanted(), **key)
    assert call(manager, "post", "/datasets", wanted(), **key) == first
    assert call(manager, "post", "/datasets", wanted())[1]["code"] == "dataset_exists"
    assert call(manager, "post", "/datasets", wanted(tenant="acme"))[0] == 201
    assert Dataset.objects.count() == 2


def test_who_may_do_what_and_a_foreign_dataset_looks_absent(call, north):
    manager = person("manager")
    path = f"/datasets/{call(manager, 'post', '/datasets', wanted())[1]['id']}"
    make_tenant("acme/team/project")
    below, beside = person("viewer", "acme/team/project"), person("admin", "acme/other")
    assert call(below, "get", path)[1]["name"] == "imagenet"
    assert call(below, "patch", path, {"size": "1Gi"})[1]["code"] == "permission_denied"
    assert call(below, "delete", path)[1]["code"] == "permission_denied"
    assert call(person("submitter"), "post", "/datasets", wanted(name="x"))[1]["code"] == "permission_denied"
    for stranger in (beside, person("admin", "globex")):
        assert call(stranger, "get", path)[0] == call(stranger, "patch", path, {})[0] == 404
        assert call(stranger, "delete", path)[0] == call(stranger, "post", "/datasets", wanted(name="x"))[0] == 404
        assert call(stranger, "get", "/datasets")[1]["items"] == []
        assert call(stranger, "get", "/datasets?tenant=acme/team")[0] == 404
    assert Dataset.objects.get().size_bytes == 150 * 2**30


def test_the_list_of_a_tenant_holds_what_its_jobs_may_name(call, north):
    admin = person("admin", "acme")
    for tenant in ("acme", "acme/team", "acme/other"):
        make_tenant(tenant)
        assert call(admin, "post", "/datasets", wanted(tenant=tenant))[0] == 201
    seen = call(admin, "get", "/datasets?tenant=acme/team&order=created")[1]["items"]
    assert [one["tenant"] for one in seen] == ["acme", "acme/team"]
    assert len(call(admin, "get", "/datasets?name=imagenet")[1]["items"]) == 3
    assert call(admin, "get", "/datasets?name=other")[1]["items"] == []


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"name": "Image Net"}, "name", "invalid"),
        ({"name": "a" * 121}, "name", "max_length"),
        ({"name": ""}, "name", "blank"),
        ({"name": 7}, "name", "invalid"),
        ({"name": "\u0661"}, "name", "invalid"),
        ({"size": "lots"}, "size", "bad_quantity"),
        ({"size": "0"}, "size", "out_of_range"),
        ({"size": "0.5"}, "size", "out_of_range"),
        ({"size": "-1Gi"}, "size", "out_of_range"),
        ({"size": "2Ei"}, "size", "out_of_range"),
        ({"size": 7}, "size", "invalid"),
        ({"locations": []}, "locations", "min_length"),
        ({"locations": [{"region": f"r{n}"} for n in range(21)]}, "locations", "max_length"),
        ({"locations": [{}]}, "locations[0]", "conflict"),
        ({"locations": [{"region": "a", "cluster": "north"}]}, "locations[0]", "conflict"),
        ({"locations": [{"region": ""}]}, "locations[0].region", "blank"),
        ({"locations": [{"region": "eu-*"}]}, "locations[0].region", "invalid"),
        ({"locations": [{"cluster": "nowhere"}]}, "locations[0].cluster", "not_found"),
        ({"locations": [{"cluster": "theirs"}]}, "locations[0].cluster", "not_found"),
        ({"locations": [{"region": "a"}, {"region": "a"}]}, "locations[1]", "duplicate"),
        ({"owner": "me"}, "owner", "unknown_field"),
    ],
)
def test_bad_bodies_are_refused_by_their_field(call, north, changes, field, code):
    make_cluster("globex", "theirs")
    assert (field, code) in faults(call(person("manager"), "post", "/datasets", wanted(**changes)))
    assert not Dataset.objects.exists()


def test_every_field_is_needed_to_record_one(call, north):
    told = faults(call(person("manager"), "post", "/datasets", {}))
    assert told == {(name, "required") for name in ("tenant", "name", "size", "locations")}


TWICE = """
    INSERT INTO clusters_dataset (id, tenant_id, name, size_bytes)
    SELECT gen_random_uuid(), tenant_id, name, 1 FROM clusters_dataset
"""
SAME_PLACE = """
    INSERT INTO clusters_datasetlocation (dataset_id, region, cluster_id)
    SELECT dataset_id, region, cluster_id FROM clusters_datasetlocation WHERE cluster_id IS NULL
"""


@pytest.mark.parametrize(
    ("statement", "constraint"),
    [
        ("UPDATE clusters_dataset SET size_bytes = 0", "dataset_size_is_within_bounds"),
        (f"UPDATE clusters_dataset SET size_bytes = {MOST_BYTES + 1}", "dataset_size_is_within_bounds"),
        ("UPDATE clusters_dataset SET name = 'A'", "dataset_name_is_plain"),
        ("UPDATE clusters_dataset SET name = E'a\\n'", "dataset_name_is_plain"),
        (
            TWICE,
            "dataset_name_is_unique_for_its_tenant",
        ),
        (
            "UPDATE clusters_datasetlocation SET region = '' WHERE cluster_id IS NULL",
            "dataset_lies_in_a_region_or_a_cluster",
        ),
        (
            "UPDATE clusters_datasetlocation SET region = 'eu' WHERE cluster_id IS NOT NULL",
            "dataset_lies_in_a_region_or_a_cluster",
        ),
        (
            SAME_PLACE,
            "a_place_holds_a_dataset_once",
        ),
    ],
)
def test_the_database_refuses(call, north, statement, constraint):
    assert call(person("manager"), "post", "/datasets", wanted())[0] == 201
    with pytest.raises(IntegrityError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert constraint_of(refused.value) == constraint


def test_a_tenant_with_datasets_is_not_removed(call, north):
    admin = person("admin", "acme")
    assert call(admin, "post", "/datasets", wanted())[0] == 201
    tenant = make_tenant("acme/team")
    assert call(admin, "delete", f"/tenants/{tenant.id}")[1]["code"] == "tenant_not_empty"


def test_a_removed_cluster_holds_no_data(call, north):
    call(person("manager"), "post", "/datasets", wanted())
    both = known_data(["imagenet", "other"])["imagenet"]["acme/team"]
    assert both.places == (Place("eu-north", north.id), Place("eu-west-1"))
    type(north).objects.filter(id=north.id).update(removed_at=now())
    assert known_data(["imagenet"])["imagenet"]["acme/team"].places == (Place("eu-west-1"),)
    assert known_data([]) == {}


def test_the_pages_record_change_and_forget(client, north):
    manager = person("manager")
    client.force_login(manager)
    assert b"No datasets yet" in client.get("/datasets/").content
    typed = {"tenant": "acme/team", "name": "imagenet", "size": "150Gi", "regions": "eu-west-1", "clusters": "north"}
    refused = client.post("/datasets/", typed | {"size": "much", "name": "<b>", "regions": "", "clusters": ""})
    assert refused.status_code == 422
    for told in (b"such as 150Gi", b"lower-case letters", b"regions and clusters in total"):
        assert told in refused.content
    assert b"has no cluster of that name" in client.post("/datasets/", typed | {"clusters": "x"}).content
    assert client.post("/datasets/", typed).status_code == 302
    made = Dataset.objects.get()
    page = f"/datasets/{made.id}/"
    assert b"150Gi" in client.get(page).content
    assert client.post(page, {"size": "1Gi", "regions": "us-east", "clusters": ""}).status_code == 302
    assert client.post(page, {"size": "-", "regions": "us-east"}).status_code == 422
    assert b"us-east" in client.get("/datasets/").content
    client.force_login(person("viewer"))
    assert b"Save the dataset" not in client.get(page).content
    assert client.post(page, {"size": "2Gi", "regions": "us-east"}).status_code == 403
    assert client.post(f"{page}remove/").status_code == 403
    client.force_login(person("admin", "globex"))
    assert client.get(page).status_code == client.post(f"{page}remove/").status_code == 404
    client.force_login(manager)
    assert client.post(f"{page}remove/").status_code == 302
    assert not Dataset.objects.exists()


def test_a_job_means_its_own_tenants_data_and_else_the_nearest_above():
    known = catalogue_of(KnownData(path, "d", size, ()) for size, path in enumerate(["a", "a/b", "a/b/c", "x"]))
    means = {path: meant(known, path, "d") for path in ("a", "a/b", "a/bb", "a/b/c/d", "x/y", "z", "")}
    sizes = {path: found.size_bytes if found else None for path, found in means.items()}
    assert sizes == {"a": 0, "a/b": 1, "a/bb": 0, "a/b/c/d": 2, "x/y": 3, "z": None, "": None}
    assert meant(known, "a", "e") is None


@given(st.integers(1, MOST_BYTES))
def test_sizes_come_back_as_they_went(size):
    assert size_of(bytes_text(size)) == size


@given(st.text(max_size=12) | st.from_regex(r"[0-9]{1,3}(\.[0-9])?(Gi|m|n|E|e9)?", fullmatch=True))
def test_what_is_taken_as_a_size_is_one(text):
    with contextlib.suppress(BadSize):
        assert 1 <= size_of(text) <= MOST_BYTES


def test_what_is_no_size_is_refused_with_a_code():
    for text, code in (
        ("much", "bad_quantity"),
        ("", "bad_quantity"),
        ("0.5", "out_of_range"),
        ("2Ei", "out_of_range"),
    ):
        with pytest.raises(BadSize) as refused:
            size_of(text)
        assert refused.value.code == code
