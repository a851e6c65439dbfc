"""The ports and volumes of a manifest that a pod set can have, and the refusal of all others."""

import pytest

from federation.engine.intake.manifest import read_manifest
from federation.engine.intake.spec import Port, Rules, Scratch

from .test_manifest import MANIFEST, changed, faults_of

POD = "manifest.spec.template.spec"
CONTAINER = f"{POD}.containers[0]"
SHM = {"name": "dshm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}
DISK = {"name": "cache", "emptyDir": {"sizeLimit": "1Ti"}}


def manifest(volumes=(), mounts=(), ports=()):
    made = changed(["spec", "template", "spec", "volumes"], list(volumes))
    made["spec"]["template"]["spec"]["containers"][0] |= {
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in mounts], "ports": list(ports),
    }  # fmt: skip
    return made


def test_shared_memory_local_disk_and_ports_are_read():
    ports = [{"name": "http", "containerPort": 8080, "protocol": "TCP"}, {"containerPort": 65_535}]
    made = manifest([SHM, DISK], [("cache", "/cache"), ("dshm", "/dev/shm")], ports)
    [pod_set] = read_manifest(made, {}, Rules()).pod_sets
    assert pod_set.shm_bytes == 16 * 2**30
    assert pod_set.scratch == Scratch(2**40, "/cache")
    assert pod_set.ports == (Port("http", 8080), Port("port-65535", 65_535))


def test_a_manifest_without_any_is_read_as_ever():
    assert read_manifest(manifest(), {}, Rules()) == read_manifest(MANIFEST, {}, Rules())


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (manifest([SHM]), {f"{POD}.volumes[0].name": "required"}),
        (manifest([], [("dshm", "/dev/shm")]), {f"{CONTAINER}.volumeMounts[0].name": "bad_format"}),
        (manifest([], [("a", "/a"), ("b", "/b")]),
         {f"{CONTAINER}.volumeMounts[0].name": "bad_format", f"{CONTAINER}.volumeMounts[1].name": "bad_format"}),
        (manifest([SHM], [("dshm", "/memory")]), {f"{CONTAINER}.volumeMounts[0].mountPath": "not_allowed"}),
        (manifest([SHM], [("dshm", "/dev/shm"), ("dshm", "/dev/shm")]), {f"{CONTAINER}.volumeMounts[1].name": "bad_format"}),
        (manifest([DISK], [("cache", "/etc")]), {f"{CONTAINER}.volumeMounts[0].mountPath": "bad_format"}),
        (manifest([DISK, {**DISK, "name": "b"}], [("cache", "/a"), ("b", "/b")]), {f"{CONTAINER}.volumeMounts[1].name": "conflict"}),
        (manifest([DISK, DISK], [("cache", "/a")]), {f"{POD}.volumes[1].name": "duplicate"}),
        (manifest([{"name": "a", "emptyDir": {}}], [("a", "/a")]), {f"{POD}.volumes[0].emptyDir.sizeLimit": "required"}),
        (manifest([{"name": "a", "emptyDir": {"sizeLimit": "65Ti"}}], [("a", "/a")]),
         {f"{POD}.volumes[0].emptyDir.sizeLimit": "out_of_range"}),
        (manifest([{"name": "a", "emptyDir": {"medium": "Memory", "sizeLimit": "129Gi"}}], [("a", "/dev/shm")]),
         {f"{POD}.volumes[0].emptyDir.sizeLimit": "out_of_range"}),
        (manifest([{"name": "a", "emptyDir": {"medium": "HugePages", "sizeLimit": "1Gi"}}], [("a", "/a")]),
         {f"{POD}.volumes[0].emptyDir.medium": "unknown_value"}),
        (manifest(ports=[{"containerPort": 80, "hostPort": 80}]), {f"{CONTAINER}.ports[0].hostPort": "not_allowed"}),
        (manifest(ports=[{"containerPort": 80, "hostIP": "10.0.0.1"}]), {f"{CONTAINER}.ports[0].hostIP": "not_allowed"}),
        (manifest(ports=[{"containerPort": 80, "protocol": "UDP"}]), {f"{CONTAINER}.ports[0].protocol": "unknown_value"}),
        (manifest(ports=[{"name": "a", "containerPort": 65_536}]), {f"{CONTAINER}.ports[0].containerPort": "out_of_range"}),
        (manifest(ports=[{"containerPort": 80}] * 2), {f"{CONTAINER}.ports[1].name": "duplicate", f"{CONTAINER}.ports[1].containerPort": "duplicate"}),
    ],
)  # fmt: skip
def test_what_a_pod_set_cannot_have_is_refused_in_the_manifests_terms(made, expected):
    assert faults_of(made) == expected


@pytest.mark.parametrize(
    ("source", "code"),
    [
        *((source, "not_allowed") for source in (
            "hostPath", "secret", "configMap", "projected", "downwardAPI", "persistentVolumeClaim", "ephemeral", "csi", "nfs",
        )),
        ("image", "unknown_field"),
    ],
)  # fmt: skip
def test_every_other_kind_of_volume_is_refused_by_its_path(source, code):
    faults = faults_of(manifest([{"name": "v", source: {"path": "/"}}], [("v", "/v")]))
    assert faults[f"{POD}.volumes[0].{source}"] == code
