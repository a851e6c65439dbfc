"""Shared memory, local disk and ports of a pod: read, written, and rendered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.engine.intake.normal_form import shape_of, spec_json
from federation.engine.intake.reading import Refused
from federation.engine.intake.spec import Port, Rules, Scratch
from federation.engine.intake.spec_reading import read_spec
from federation.engine.objects.rendering import Devices, render_job
from federation.engine.objects.volumes import shm_text, volumes_of
from placement.values.quantities import whole_bytes
from tests.builders import make_spec

from .test_meeting import WHOSE


def stored(**pod):
    return spec_json(read_spec(make_spec(pod=pod), Rules()))


def pod_of(**pod):
    return render_job(stored(**pod), 0, WHOSE, Devices())["spec"]["template"]["spec"]


def faults(**pod):
    with pytest.raises(Refused) as refusal:
        read_spec(make_spec(pod=pod), Rules())
    return {(fault.field.removeprefix("pod_sets[0]."), fault.code) for fault in refusal.value.faults}


def test_what_is_set_is_read_written_and_read_again():
    ports = [{"name": "http", "number": 8080}, {"name": "grpc-web", "number": 1}]
    spec = read_spec(
        make_spec(pod={"ports": ports, "shm": 1073741824, "scratch": {"size": "0.5Ti", "path": "/data/x"}}), Rules()
    )
    (pod_set,) = spec.pod_sets
    assert pod_set.ports == (Port("http", 8080), Port("grpc-web", 1))
    assert (pod_set.shm_bytes, pod_set.scratch) == (2**30, Scratch(2**39, "/data/x"))
    written = spec_json(spec)
    assert written["pod_sets"][0]["ports"] == ports
    assert written["pod_sets"][0]["shm"] == "1Gi"
    assert written["pod_sets"][0]["scratch"] == {"size": "512Gi", "path": "/data/x"}
    assert read_spec(written, Rules()) == spec


def test_what_is_not_set_leaves_the_stored_spec_as_it_was():
    assert set(stored()["pod_sets"][0]) == {
        "name", "count", "image", "command", "args", "env", "cpu", "memory", "gpu",
    }  # fmt: skip
    assert stored(ports=[], shm=None, scratch=None) == stored()


def test_placement_sees_none_of_it():
    assert shape_of(stored(shm="1Gi", scratch={"size": "1Ti"}, ports=[{"name": "a", "number": 1}])) == shape_of(
        stored()
    )


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        ({"shm": "1.5Gi"}, {("shm", "out_of_range")}),
        ({"shm": "1Ki"}, {("shm", "out_of_range")}),
        ({"shm": "much"}, {("shm", "bad_quantity")}),
        ({"shm": []}, {("shm", "wrong_type")}),
        ({"scratch": "1Gi"}, {("scratch", "wrong_type")}),
        ({"scratch": {}}, {("scratch.size", "required")}),
        ({"scratch": {"size": "65Ti"}}, {("scratch.size", "out_of_range")}),
        ({"scratch": {"size": "1", "medium": "Memory"}}, {("scratch.size", "out_of_range"), ("scratch.medium", "unknown_field")}),
        ({"ports": [{"name": "a", "number": 1, "hostPort": 1}]}, {("ports[0].hostPort", "unknown_field")}),
        ({"ports": [{"name": "a", "number": 1}, {"name": "a", "number": 1}]},
         {("ports[1].name", "duplicate"), ("ports[1].number", "duplicate")}),
        ({"ports": [{"name": "a", "number": 65_536}]}, {("ports[0].number", "out_of_range")}),
        ({"ports": [{"name": "a", "number": 0}]}, {("ports[0].number", "out_of_range")}),
        ({"ports": [{"name": "a"}]}, {("ports[0].number", "required")}),
        ({"ports": [{"number": 1}]}, {("ports[0].name", "required")}),
        ({"ports": [{"name": f"p{n}", "number": n + 1} for n in range(17)]}, {("ports", "too_many")}),
        ({"ports": "80"}, {("ports", "wrong_type")}),
    ],
)  # fmt: skip
def test_bad_values_are_refused_by_name(pod, expected):
    assert faults(**pod) == expected


@pytest.mark.parametrize("name", ["HTTP", "8080", "a--b", "-a", "a-", "a_b", "sixteen-letters1", "", "ä", "a\n"])
def test_a_port_that_kubernetes_cannot_name_is_refused(name):
    assert {code for _, code in faults(ports=[{"name": name, "number": 1}])} == {"bad_format"}


@pytest.mark.parametrize(
    "path",
    ["/", "", "data", "/dev", "/dev/shm", "/proc/1", "/sys", "/etc/switchyard", "/etc", "/a/../etc", "/a/./b", "/a//b", "/a/",
     "/a:b", "/a b", "/ä", "/a\n", "/" + "a" * 255],
)  # fmt: skip
def test_a_local_disk_hides_nothing_that_the_pod_needs(path):
    (fault,) = faults(scratch={"size": "1Gi", "path": path})
    assert fault[0] == "scratch.path"
    assert fault[1] in {"bad_format", "too_long"}


@pytest.mark.parametrize("path", ["/tmp", "/scratch", "/data/..x", "/development", "/a/dev", "/" + "a" * 254])
def test_other_paths_are_taken(path):
    assert stored(scratch={"size": "1Gi", "path": path})["pod_sets"][0]["scratch"]["path"] == path


def test_shared_memory_and_local_disk_are_bounded_and_the_disk_is_reserved_on_the_node():
    pod = pod_of(shm="256Mi", scratch={"size": "1Ti"}, ports=[{"name": "http", "number": 80}])
    (container,) = pod["containers"]
    assert pod["volumes"] == [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "256Mi"}},
        {"name": "scratch", "emptyDir": {"sizeLimit": "1Ti"}},
    ]
    assert container["volumeMounts"] == [
        {"name": "shm", "mountPath": "/dev/shm"},
        {"name": "scratch", "mountPath": "/scratch"},
    ]
    resources = container["resources"]
    assert resources["requests"]["ephemeral-storage"] == "1Ti"
    assert resources["limits"]["ephemeral-storage"] == "1088Gi"
    assert resources["requests"]["memory"] == resources["limits"]["memory"] == "1Gi"
    assert container["ports"] == [{"name": "http", "containerPort": 80}]


@given(st.integers(2**20, 2**46), st.booleans(), st.integers(2**20, 2**46) | st.none())
def test_shared_memory_is_never_more_than_the_memory_that_it_is_part_of(memory, has_gpu, asked):
    pod = {"memory": str(memory)} | ({"gpu": {"count": 1}} if has_gpu else {})
    if asked is not None and asked <= memory:
        pod["shm"] = str(asked)
    (pod_set,) = stored(**pod)["pod_sets"]
    size = whole_bytes(shm_text(pod_set) or "0")
    assert size <= memory
    if "shm" in pod:
        assert size == asked
    elif has_gpu:
        half = memory // 2 // 2**20 * 2**20
        assert size == (half if half > 64 * 2**20 else 0), "the runtime's own has 64 MiB"
    else:
        assert size == 0
    assert bool(volumes_of(pod_set).volumes) == bool(size)
