"""Storages that are a StorageClass or an image: what a job may ask of them, where it may run, and what its pods get."""

from typing import Any
from uuid import UUID

import pytest

from clusters.engine.staging import why_not
from clusters.engine.storages import KnownStorage
from clusters.engine.versions import mounts_images
from clusters.engine.volumes import (
    LEAST_BYTES,
    MOST_BYTES,
    MOST_IMAGE,
    BadSize,
    is_class,
    is_pinned_image,
    size_bytes_of,
    size_text,
)
from federation.engine.intake.normal_form import request_of, shape_of, spec_json
from federation.engine.intake.reading import Refused
from federation.engine.intake.spec import Mount, Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.objects.mounts import lay_mounts, promised_mount
from federation.engine.objects.rendering import Devices, render_job
from placement.cycle.cycle import decide
from placement.values.storages import StorageNeed
from tests.builders import make_spec
from tests.engine.fleets import cluster, flavor, job, node, snapshot
from tests.engine.test_rendering import identity
from tests.pod_security import violations

TENANT, HERE, THERE = UUID("0193f3a2-0000-7000-8000-0123456789ab"), UUID(int=1), UUID(int=2)
GIB = 2**30
DIGEST = "a" * 64
IMAGE = f"registry.example/models/weights@sha256:{DIGEST}"
FRESH: dict[str, Any] = {"storage": "fast", "path": "/fast", "size": "200Gi"}


def known(name="fast", **changes):
    given: dict[str, Any] = {
        "cluster_id": HERE, "cluster_owner_path": "acme", "tenant_path": "acme/ml", "name": name, "claim": "", "is_writable": False,
        "prefix": "",
    }  # fmt: skip
    return KnownStorage(**(given | changes))


CLASS = known(storage_class="local-nvme", most_bytes=500 * GIB, is_writable=True)
WEIGHTS = known("weights", image=IMAGE)
CLAIM = known("data", claim="shared", is_writable=True, prefix="t/{tenant}")


def stored_with(*mounts, **pod):
    return spec_json(read_spec(make_spec(pod={"mounts": list(mounts), **pod}), Rules()))


def refused(*mounts):
    with pytest.raises(Refused) as found:
        read_spec(make_spec(pod={"mounts": list(mounts)}), Rules())
    return [(fault.field.removeprefix("pod_sets[0]."), fault.code) for fault in found.value.faults]


@pytest.mark.parametrize(
    ("size", "stored"),
    [("200Gi", "200Gi"), ("1024Gi", "1Ti"), (2**20, "1Mi"), ("1500G", "1464843750Ki"), ("0.5Gi", "512Mi"), ("1e12", "976562500Ki"), ("64Ti", "64Ti")],
)  # fmt: skip
def test_a_size_is_read_and_stored_in_one_form_and_its_volume_is_written(size, stored):
    spec = read_spec(make_spec(pod={"mounts": [FRESH | {"size": size}]}), Rules())
    [mount] = spec_json(spec)["pod_sets"][0]["mounts"]
    assert mount == {"storage": "fast", "path": "/fast", "sub_path": "", "read_only": False, "size": stored}
    assert read_spec(spec_json(spec), Rules()) == spec
    assert spec.pod_sets[0].mounts == (Mount("fast", "/fast", is_read_only=False, size_bytes=size_bytes_of(stored)),)


@pytest.mark.parametrize("read_only", [False, None])
def test_a_new_volume_may_be_said_to_be_written(read_only):
    assert not read_spec(
        make_spec(pod={"mounts": [FRESH | {"read_only": read_only}]}), Rules()
    ).pod_sets[0].mounts[0].is_read_only  # fmt: skip


@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        *(
            ({"size": size}, "size", "bad_quantity")
            for size in (
                "", "big", "200Gi\n", "200Gi\nstorageClassName: root", "{}", "-0x1", "1Gi; rm", "0.1", "NaN", "Infinity", "1e400", "\u0661Gi", "200 Gi",
                "${SIZE}", "[1]", "200Gib", "1e31",
            )
        ),
        *(({"size": size}, "size", "out_of_range") for size in (0, "0", "-1Gi", -1, "1023Ki", str(MOST_BYTES + 1), "1Ei", 10**18)),
        *(({"size": size}, "size", "wrong_type") for size in (True, False, [], {}, ["200Gi"], {"storage": "1Gi"}, float("nan"), float("inf"))),
        ({"size": "9" * 33}, "size", "too_long"),
        ({"size": 10**33}, "size", "too_long"),
        ({"size": "1\x00Gi"}, "size", "bad_characters"),
        ({"size": "1\ud800"}, "size", "bad_characters"),
        ({"sub_path": "a"}, "sub_path", "not_allowed"),
        ({"read_only": True}, "read_only", "not_allowed"),
        ({"storage_class": "root"}, "storage_class", "unknown_field"),
        ({"storageClassName": "root"}, "storageClassName", "unknown_field"),
        ({"ephemeral": {}}, "ephemeral", "unknown_field"),
        ({"image": IMAGE}, "image", "unknown_field"),
        ({"hostPath": {"path": "/"}}, "hostPath", "unknown_field"),
    ],
    ids=repr,
)  # fmt: skip
def test_a_bad_size_is_refused_by_its_field(change, field, code):
    assert refused(FRESH | change) == [(f"mounts[0].{field}", code)]


def test_a_pod_gets_one_new_volume_of_a_storage_whatever_the_order():
    plain = {"storage": "fast", "path": "/data"}
    for second in (FRESH | {"path": "/more"}, plain):
        assert refused(FRESH, second) == [("mounts[1].storage", "duplicate")]
    assert refused(plain, FRESH) == [("mounts[1].storage", "duplicate")]
    assert len(stored_with(FRESH, FRESH | {"storage": "other", "path": "/other"})["pod_sets"][0]["mounts"]) == 2


def test_what_goes_with_the_pod_is_no_place_for_an_artifact():
    body = make_spec(pod={"mounts": [FRESH]}) | {
        "reports": True,
        "artifacts": [{"name": "model", "storage": "fast", "path": "model"}],
    }
    with pytest.raises(Refused, match="without a `size`"):
        read_spec(body, Rules())


def test_placement_sees_the_largest_size_and_jobs_of_other_sizes_are_of_other_shapes():
    body = make_spec(pod={"mounts": [FRESH]})
    body["pod_sets"].append(body["pod_sets"][0] | {"name": "more", "mounts": [FRESH | {"size": "300Gi"}]})
    body["pod_sets"].append(body["pod_sets"][0] | {"name": "less", "mounts": [FRESH | {"size": "1Gi"}]})
    body["pod_sets"].append(body["pod_sets"][0] | {"name": "old", "mounts": [{"storage": "fast", "path": "/x"}]})
    request = request_of(spec_json(read_spec(body, Rules())), job_id=TENANT, tenant_path="acme", shape="")
    assert request.constraints.storages == (
        StorageNeed("fast"), StorageNeed("fast", is_written=True, size_bytes=300 * GIB),
    )  # fmt: skip
    shapes = [
        shape_of(stored_with(*given))
        for given in ((FRESH,), (FRESH | {"size": "201Gi"},), ({"storage": "fast", "path": "/x", "read_only": False},))
    ]
    assert len(set(shapes)) == 3
    assert shape_of(stored_with(FRESH | {"path": "/elsewhere"})) == shapes[0]


@pytest.mark.parametrize(
    ("storage", "wish", "is_served"),
    [
        (CLASS, {"size_bytes": 1}, True),
        (CLASS, {"size_bytes": 500 * GIB, "is_written": True}, True),
        (CLASS, {"size_bytes": 500 * GIB + 1, "is_written": True}, False),
        (CLASS, {}, False),
        (CLASS, {"is_written": True}, False),
        (CLAIM, {"size_bytes": 1}, False),
        (CLAIM, {"size_bytes": 1, "is_written": True}, False),
        (CLAIM, {"is_written": True}, True),
        (WEIGHTS, {}, True),
        (WEIGHTS, {"is_written": True}, False),
        (WEIGHTS, {"size_bytes": 1}, False),
    ],
)
def test_a_storage_gives_what_its_kind_has_and_only_to_its_tenants(storage, wish, is_served):
    assert storage.serves("acme/ml/vision", **wish) is is_served
    assert not storage.serves("acme", **wish)
    assert not storage.serves("globex", **wish)


def test_datasets_are_copied_only_between_storages_that_keep_data():
    assert why_not(CLAIM, CLAIM, "acme/ml") == ""
    for other in (CLASS, WEIGHTS):
        assert not other.keeps_data
        assert why_not(other, CLAIM, "acme/ml") != ""
        assert why_not(CLAIM, other, "acme/ml") != ""


def test_a_pod_gets_a_new_volume_of_its_size_and_an_image_that_nobody_writes_to():
    shelf = {"fast": CLASS, "weights": WEIGHTS, "data": CLAIM}
    stored = stored_with(
        FRESH,
        {"storage": "weights", "path": "/weights", "sub_path": "llama/8b"},
        {"storage": "weights", "path": "/all"},
        {"storage": "data", "path": "/data"},
        init=[{"image": "i", "command": ["true"]}],
    )
    promised = [promised_mount(one, shelf[one["storage"]], TENANT) for one in stored["pod_sets"][0]["mounts"]]
    pod = render_job(stored, 0, identity(), Devices())["spec"]["template"]["spec"]
    lay_mounts(pod, promised)
    assert [volume for volume in pod["volumes"] if volume["name"].startswith("storage-")] == [
        {"name": "storage-0", "ephemeral": {"volumeClaimTemplate": {"spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "local-nvme", "resources": {"requests": {"storage": "200Gi"}}}}}},
        {"name": "storage-1", "image": {"reference": IMAGE, "pullPolicy": "Always"}},
        {"name": "storage-2", "persistentVolumeClaim": {"claimName": "shared"}},
    ]  # fmt: skip
    mounts = [
        {"name": "storage-0", "mountPath": "/fast"},
        {"name": "storage-1", "mountPath": "/weights", "subPath": "llama/8b", "readOnly": True},
        {"name": "storage-1", "mountPath": "/all", "readOnly": True},
        {"name": "storage-2", "mountPath": "/data", "subPath": f"t/{TENANT}", "readOnly": True},
    ]
    for container in (*pod["containers"], *pod["initContainers"]):
        assert container["volumeMounts"][-4:] == mounts
    assert violations(pod) == []


def test_an_image_is_only_read_whatever_the_stored_spec_says():
    wish = {"storage": "weights", "path": "/weights", "sub_path": "", "read_only": False}
    assert promised_mount(wish, WEIGHTS, TENANT)["read_only"] is True


@pytest.mark.parametrize(
    "image",
    [
        IMAGE,
        f"registry.example:5000/a@sha256:{DIGEST}",
        f"registry.example/a/b_c/d__e/f--g.h:v1.2-x_y@sha256:{DIGEST}",
        f"xn--bcher-kva.example/a@sha256:{DIGEST}",
    ],
)
def test_an_image_with_registry_and_digest_is_accepted(image):
    assert is_pinned_image(image)


@pytest.mark.parametrize(
    "image",
    [
        "", "weights", "registry.example/weights", "registry.example/weights:1", f"weights@sha256:{DIGEST}", f"library/weights@sha256:{DIGEST}",
        f"localhost/weights@sha256:{DIGEST}", f"localhost:5000/weights@sha256:{DIGEST}", f"10.0.0.1/weights@sha256:{DIGEST}",
        f"169.254.169.254/weights@sha256:{DIGEST}", f"0x7f.1/w@sha256:{DIGEST}", f"[::1]/w@sha256:{DIGEST}", f"{IMAGE}\n", f"{IMAGE} ",
        f"\n{IMAGE}", f" {IMAGE}", f"{IMAGE},x", f"{IMAGE}\npullPolicy: Never", f'{IMAGE}"', f"{IMAGE}@sha256:{DIGEST}", IMAGE[:-1], f"{IMAGE}a",
        IMAGE.replace("sha256", "sha512"), IMAGE.replace("a" * 64, "A" * 64), IMAGE.upper(), f"https://{IMAGE}", f"ada:pw@{IMAGE}", f"//{IMAGE}",
        f"registry.example//w@sha256:{DIGEST}", f"registry.example/../w@sha256:{DIGEST}", f"registry.example/./w@sha256:{DIGEST}",
        f"registry.example/w/@sha256:{DIGEST}", f"registry..example/w@sha256:{DIGEST}", f"-registry.example/w@sha256:{DIGEST}",
        f"registry.example:port/w@sha256:{DIGEST}", f"registry.example/$(X)@sha256:{DIGEST}", f"r\u0435gistry.example/w@sha256:{DIGEST}",
        f"registry.example/{'a' * MOST_IMAGE}@sha256:{DIGEST}", f"registry.example/w:{'a' * 129}@sha256:{DIGEST}", f"registry.example/w\x00@sha256:{DIGEST}",
    ],
)  # fmt: skip
def test_any_other_image_is_refused(image):
    assert not is_pinned_image(image)


@pytest.mark.parametrize(("name", "is_good"), [("fast", True), ("a.b-c", True), ("", False), ("Fast", False), ("-a", False), ("a\n", False), ("a/b", False), ('a"', False), ("a'", False), ("a" * 254, False), ("{}", False)])  # fmt: skip
def test_a_class_is_named_as_kubernetes_names_them(name, is_good):
    assert is_class(name) is is_good


@pytest.mark.parametrize(
    "text", ["", "0", "-1Gi", "1023Ki", "0.5", "65Ti", "1e30", "a", "1Gi\n", "1Gi, x", "1 Gi", "9" * 70]
)
def test_a_largest_size_is_within_bounds(text):
    with pytest.raises(BadSize):
        size_bytes_of(text)


def test_sizes_have_one_text():
    assert [size_bytes_of(text) for text in ("1Mi", "1048576", "64Ti")] == [LEAST_BYTES, LEAST_BYTES, MOST_BYTES]
    assert [size_text(size) for size in (0, LEAST_BYTES, 1024 * GIB)] == ["", "1Mi", "1Ti"]


@pytest.mark.parametrize(
    ("version", "can"),
    [
        ("v1.35.0", True),
        ("v1.36.2+k3s1", True),
        ("v2.0.0", True),
        ("", True),
        ("odd", True),
        ("v1.34.9", False),
        ("1.31", False),
    ],
)
def test_images_are_mounted_from_the_version_on_that_does_so_by_default(version, can):
    assert mounts_images(version) is can


def test_a_job_with_an_image_runs_only_where_kubernetes_mounts_images_and_is_told_so():
    of = flavor()
    old, new = (
        cluster(number, [node(f"n{number}", of)], [of], has_image_volumes=can)
        for number, can in ((1, False), (2, True))
    )
    weights = StorageNeed("weights", clusters=(HERE, THERE), as_image=(HERE, THERE))
    (placement,) = decide(snapshot([old, new], [job(storages=(weights,))])).placements
    assert placement.cluster == "c2"
    (wait,) = decide(snapshot([old], [job(storages=(weights,))])).waits
    (reason,) = wait.per_cluster
    assert (reason.code, reason.is_for_good) == ("image_volumes_missing", True)
    assert reason.message == "its Kubernetes is too old to mount images, as the storage weights is one"
    as_claim = StorageNeed("weights", clusters=(HERE, THERE), as_image=(THERE,))
    (placement,) = decide(snapshot([old], [job(storages=(as_claim,))])).placements
    assert placement.cluster == "c1"


def test_a_job_whose_volume_is_too_large_for_a_cluster_is_told_the_size():
    of = flavor()
    only = cluster(1, [node("n", of)], [of])
    (wait,) = decide(
        snapshot([only], [job(storages=(StorageNeed("fast", is_written=True, size_bytes=300 * GIB),))])
    ).waits
    assert wait.code == "storage_missing"
    assert wait.per_cluster[0].message == "has no storage fast of which the job's tenant may have a volume of 300Gi"
