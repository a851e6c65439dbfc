"""No path that a user writes leads out of the part of a volume that the tenant's jobs get."""

import posixpath
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.engine.declared import by_name
from clusters.engine.storages import (
    MOST_PREFIX,
    Escape,
    KnownStorage,
    is_claim,
    is_prefix,
    is_relative,
    sub_path_of,
)
from federation.engine.intake.mounts import CLOSED, is_container_path, is_inside
from federation.engine.intake.normal_form import request_of, shape_of, spec_json
from federation.engine.intake.reading import Refused
from federation.engine.intake.spec import MAX_MOUNTS, Mount, Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.objects.mounts import lay_mounts, promised_mount
from federation.engine.objects.rendering import Devices, render_job
from placement.cycle.cycle import decide
from placement.values.storages import StorageNeed
from tests.builders import make_spec
from tests.engine.fleets import cluster, flavor, job, node, snapshot
from tests.engine.test_rendering import identity
from tests.pod_security import violations

TENANT = UUID("0193f3a2-0000-7000-8000-0123456789ab")
HOSTILE = [
    "..", ".", "../x", "a/..", "a/../b", "a/../../b", "a/.", "./a", "/", "/etc", "//", "a//b", "a/", "\x00", "a\x00b",
    "a\n", "a\n/..", " ", "a b", "a\\..\\b", "$(HOME)", "${X}", "{tenant}", "a/{tenant}", "%2e%2e/x%00", "..\u2215x",
    "\uff0e\uff0e/x", "\u2024\u2024/x", "\u0430", "é", "\U0001f600", "a\u202e", "\ud800", "a:b", "*", "a;b", "a" * 256, "a/" * 300 + "a",
    "..\u0000", "x/\u2025/y", "\t", "a\r", "\u00a0", "..;/x", "`id`", "'", '"', "",
]  # fmt: skip
plain = st.from_regex(r"[A-Za-z0-9._=+@,~-]{1,12}", fullmatch=True).filter(lambda name: name not in {".", ".."})
paths = st.lists(plain, min_size=1, max_size=5).map("/".join)
prefixes = st.builds(
    lambda before, after: "/".join([*before, "{tenant}", *after]),
    st.lists(plain, max_size=2),
    st.lists(plain, max_size=2),
) | st.sampled_from(["", "shared", "a.{tenant}"])


@given(prefixes, st.text(max_size=40) | paths | st.sampled_from(HOSTILE), st.uuids())
def test_what_a_job_gets_is_below_its_tenants_part_whatever_it_asks_for(prefix, within, tenant_id):
    try:
        found = sub_path_of(prefix, tenant_id, within)
    except Escape:
        return
    own = prefix.replace("{tenant}", str(tenant_id))
    assert found == posixpath.normpath(found) if found else (own, within) == ("", "")
    assert not found.startswith("/")
    assert ".." not in found.split("/")
    assert not own or is_inside(found, own)
    assert ("{tenant}" in prefix) <= (str(tenant_id) in found)


@pytest.mark.parametrize("text", [one for one in HOSTILE if one])
def test_a_hostile_sub_path_is_refused_by_the_reader_and_by_the_engine(text):
    assert not is_relative(text)
    with pytest.raises(Escape):
        sub_path_of("t/{tenant}", TENANT, text)
    pod = {"mounts": [{"storage": "data", "path": "/data", "sub_path": text}]}
    with pytest.raises(Refused) as refused:
        read_spec(make_spec(pod=pod), Rules())
    assert {fault.field for fault in refused.value.faults} == {"pod_sets[0].mounts[0].sub_path"}


@pytest.mark.parametrize("text", [*(one for one in HOSTILE if one not in {"{tenant}", "a/{tenant}", ""}), "{tenant}{tenant}",
                                  "{tenant}/../{tenant}", "{TENANT}", "{tenant", "a" * (MOST_PREFIX + 1)])  # fmt: skip
def test_a_hostile_prefix_is_refused(text):
    assert not is_prefix(text)
    with pytest.raises(Escape):
        sub_path_of(text, TENANT, "a")


@pytest.mark.parametrize(
    "text", ["", "a", "a/b", "{tenant}", "t/{tenant}/x", "dt=2026-01-01/part-{tenant}", ".hidden", "..a", "a.."]
)
def test_a_plain_prefix_is_accepted(text):
    assert is_prefix(text)


def test_two_tenants_of_one_storage_never_meet():
    first, second = (sub_path_of("t/{tenant}", uuid4(), "same/place") for _ in range(2))
    assert not is_inside(first, second)
    assert not is_inside(second, first)


@pytest.mark.parametrize("path", ["", "data", "/", "//data", "/data/", "/data//x", "/data/../etc", "/.", "/..", "/data/.", "/a b",
                                  "/data\x00", "/data\n", "/d\u00e9", "/a:b", "/$(X)", "/" + "a" * 600])  # fmt: skip
def test_a_path_in_the_container_is_plain(path):
    with pytest.raises(Refused) as refused:
        read_spec(make_spec(pod={"mounts": [{"storage": "data", "path": path}]}), Rules())
    assert {fault.field for fault in refused.value.faults} == {"pod_sets[0].mounts[0].path"}
    assert len(path) > 512 or not is_container_path(path)


@pytest.mark.parametrize("directory", CLOSED)
def test_nothing_is_mounted_over_what_the_runtime_makes(directory):
    for path in (directory, f"{directory}/x"):
        with pytest.raises(Refused, match="nothing can be mounted"):
            read_spec(make_spec(pod={"mounts": [{"storage": "data", "path": path}]}), Rules())
    assert read_spec(make_spec(pod={"mounts": [{"storage": "data", "path": f"{directory}x"}]}), Rules()).pod_sets


@pytest.mark.parametrize(
    ("mounts", "field", "code"),
    [
        ([{"storage": "a", "path": "/d"}, {"storage": "b", "path": "/d"}], "mounts[1].path", "duplicate"),
        ([{"storage": "a", "path": "/d"}, {"storage": "b", "path": "/d/e"}], "mounts[1].path", "duplicate"),
        ([{"storage": "a", "path": "/d/e"}, {"storage": "b", "path": "/d"}], "mounts[1].path", "duplicate"),
        ([{"storage": "a", "path": f"/m{n}"} for n in range(MAX_MOUNTS + 1)], "mounts", "too_many"),
        ([{"storage": "A b", "path": "/d"}], "mounts[0].storage", "bad_format"),
        ([{"path": "/d"}], "mounts[0].storage", "required"),
        ([{"storage": "a"}], "mounts[0].path", "required"),
        ([{"storage": "a", "path": "/d", "read_only": "no"}], "mounts[0].read_only", "wrong_type"),
        ([{"storage": "a", "path": "/d", "read_only": 0}], "mounts[0].read_only", "wrong_type"),
        ([{"storage": "a", "path": "/d", "hostPath": "/"}], "mounts[0].hostPath", "unknown_field"),
        ([{"storage": "a", "path": "/d", "claim": "x"}], "mounts[0].claim", "unknown_field"),
        (["a"], "mounts[0]", "wrong_type"),
        ({"a": "/d"}, "mounts", "wrong_type"),
    ],
)
def test_a_bad_mount_is_refused_by_its_field(mounts, field, code):
    with pytest.raises(Refused) as refused:
        read_spec(make_spec(pod={"mounts": mounts}), Rules())
    assert [(fault.field, fault.code) for fault in refused.value.faults] == [(f"pod_sets[0].{field}", code)]


MOUNTS: list[dict[str, Any]] = [
    {"storage": "data", "path": "/data", "sub_path": "imagenet", "read_only": True},
    {"storage": "out", "path": "/out", "sub_path": "", "read_only": False},
    {"storage": "out", "path": "/old", "sub_path": "old", "read_only": True},
]


def test_a_stored_spec_is_read_again_as_it_was_and_has_mounts_only_if_the_job_does():
    spec = read_spec(make_spec(pod={"mounts": MOUNTS}), Rules())
    assert spec_json(spec)["pod_sets"][0]["mounts"] == MOUNTS
    assert read_spec(spec_json(spec), Rules()) == spec
    for nothing in ({}, {"mounts": []}, {"mounts": None}):
        assert "mounts" not in spec_json(read_spec(make_spec(pod=nothing), Rules()))["pod_sets"][0]


def test_a_mount_is_only_read_unless_the_job_says_that_it_writes():
    assert Mount("data", "/data").is_read_only
    (mount,) = read_spec(make_spec(pod={"mounts": [{"storage": "data", "path": "/data"}]}), Rules()).pod_sets[0].mounts
    assert mount.is_read_only


def test_placement_sees_which_storages_a_job_names_and_whether_it_writes():
    stored = spec_json(read_spec(make_spec(pod={"mounts": MOUNTS}), Rules()))
    request = request_of(stored, job_id=TENANT, tenant_path="acme", shape="")
    assert request.constraints.storages == (StorageNeed("data"), StorageNeed("out", is_written=True))
    reading = [one | {"read_only": True} for one in MOUNTS]
    elsewhere = [one | {"path": f"/x{one['path']}", "sub_path": "else"} for one in MOUNTS]
    shapes = [
        shape_of(spec_json(read_spec(make_spec(pod={"mounts": given}), Rules())))
        for given in ([], MOUNTS, reading, MOUNTS[1:], elsewhere)
    ]
    assert len(set(shapes)) == 4
    assert shapes[1] == shapes[4]


def storage(**changes):
    given: dict[str, Any] = {
        "cluster_id": TENANT, "cluster_owner_path": "acme", "tenant_path": "acme/ml", "name": "data", "claim": "shared",
        "is_writable": False, "prefix": "t/{tenant}",
    }  # fmt: skip
    return KnownStorage(**(given | changes))


def test_a_storage_serves_its_tenant_and_those_below_that_the_cluster_serves():
    assert storage().serves("acme/ml")
    assert storage().serves("acme/ml/vision")
    assert not storage().serves("acme")
    assert not storage().serves("acme/mlx")
    assert not storage().serves("acme/ml", is_written=True)
    assert storage(is_writable=True).serves("acme/ml", is_written=True)
    assert not storage(cluster_owner_path="acme/ml/vision").serves("acme/ml")
    assert not storage(cluster_owner_path="globex").serves("acme/ml")
    assert by_name([storage()]) == {"data": {TENANT: storage()}}


@pytest.mark.parametrize(("name", "is_good"), [("a", True), ("a.b-c", True), ("A", False), ("", False), ("-a", False), ("a\n", False), ("a/b", False), ("a" * 254, False)])  # fmt: skip
def test_a_claims_name_is_one_of_kubernetes(name, is_good):
    assert is_claim(name) is is_good


def test_a_pod_gets_one_volume_for_each_storage_and_no_more_than_was_promised():
    shelves = {"data": storage(), "out": storage(name="out", claim="scratch", is_writable=True, prefix="")}
    promised = [promised_mount(one, shelves[one["storage"]], TENANT) for one in MOUNTS]
    spec = spec_json(read_spec(make_spec(pod={"mounts": MOUNTS}), Rules()))
    pod = render_job(spec, 0, identity(), Devices())["spec"]["template"]["spec"]
    lay_mounts(pod, promised)
    assert pod["volumes"] == [
        {"name": "storage-0", "persistentVolumeClaim": {"claimName": "shared", "readOnly": True}},
        {"name": "storage-1", "persistentVolumeClaim": {"claimName": "scratch"}},
    ]
    assert pod["containers"][0]["volumeMounts"] == [
        {"name": "storage-0", "mountPath": "/data", "subPath": f"t/{TENANT}/imagenet", "readOnly": True},
        {"name": "storage-1", "mountPath": "/out"},
        {"name": "storage-1", "mountPath": "/old", "subPath": "old", "readOnly": True},
    ]
    assert violations(pod) == []


def test_a_storage_that_may_only_be_read_is_only_read_whatever_the_stored_spec_says():
    promised = promised_mount({**MOUNTS[1], "storage": "data"}, storage(), TENANT)
    assert promised["read_only"] is True


def test_a_job_runs_only_where_all_its_storages_are_and_is_told_which_one_a_cluster_lacks():
    of = flavor()
    clusters = [cluster(n, [node(f"n{n}", of)], [of]) for n in (1, 2)]
    here, there = StorageNeed("data", clusters=(UUID(int=2),)), StorageNeed("out", clusters=(UUID(int=1), UUID(int=2)))
    (placement,) = decide(snapshot(clusters, [job(storages=(there, here))])).placements
    assert placement.cluster == "c2"
    (wait,) = decide(snapshot(clusters[:1], [job(storages=(there, here))])).waits
    (reason,) = wait.per_cluster
    assert wait.code == reason.code == "storage_missing"
    assert reason.message == "has no storage data that the job's tenant may mount"
    assert wait.message == f"c1 {reason.message}"
    written = StorageNeed("data", is_written=True, clusters=(UUID(int=2),))
    (wait,) = decide(snapshot(clusters[:1], [job(storages=(written,))])).waits
    assert wait.per_cluster[0].message == "has no storage data that the job's tenant may write to"
    full = cluster(2, [node("n2", of, free=0)], [of])
    (wait,) = decide(snapshot([clusters[0], full], [job(storages=(there, here))])).waits
    assert wait.code == "waiting_for_capacity"


def test_a_job_whose_tenant_lacks_its_secret_waits_everywhere():
    of = flavor()
    (wait,) = decide(snapshot([cluster(1, [node("n", of)], [of])], [job(lacks_secret="token")])).waits
    (reason,) = wait.per_cluster
    assert wait.code == reason.code == "secret_missing"
    assert "token" in reason.message
    assert wait.message == reason.message
