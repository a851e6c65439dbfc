"""Images of nodes and durations of pulls, as Kubernetes shows them: bounded, and worth nothing else if they are malformed."""

import json
from typing import Any

import msgspec
import pytest

from clusters.drivers.kubernetes.node_shapes import MOST_IMAGE_BYTES, Node, node_seen
from clusters.drivers.kubernetes.shapes import Pod, pod_seen
from clusters.engine.images import NO_IMAGES, key_of, size_on
from clusters.engine.weights import weight_of_node

GIB = 2**30
DIGEST = "sha256:" + "cd" * 32
OURS = {"switchyard.dev/install": "here"}


def node(images: Any, **status: Any):
    meta = {"name": "n", "uid": "u", "labels": {"a": "b"}}
    told = {"allocatable": {"cpu": "4"}, "images": images, **status}
    return node_seen(msgspec.json.decode(json.dumps({"metadata": meta, "status": told}), type=Node))


def test_a_node_has_the_images_that_its_kubelet_lists_under_all_their_names():
    seen = node(
        [{"names": [f"registry:5000/t@{DIGEST}", "registry:5000/t:v1"], "sizeBytes": 2 * GIB}, {"sizeBytes": 5}]
    )
    assert size_on(seen.images, key_of("registry:5000/t:v1")) == 2048
    assert size_on(seen.images, key_of(f"registry:5000/t:other@{DIGEST}")) == 2048


@pytest.mark.parametrize(
    "images",
    [
        None,
        [],
        {},
        "none",
        7,
        [7],
        [{"names": "python"}],
        [{"names": [7]}],
        [{"names": ["python"], "sizeBytes": "big"}],
        [{"names": ["python"], "sizeBytes": 1.5}],
        [{"names": ["python"], "sizeBytes": None}],
        [{"names": None, "sizeBytes": 1}],
        [{"names": ["x" * MOST_IMAGE_BYTES], "sizeBytes": 1}],
        [{"names": [f"i:{n}"], "sizeBytes": 1} for n in range(40_000)],
        [[[[[[[[[[]]]]]]]]]],
    ],
    ids=lambda images: str(images)[:30],
)
def test_attack_a_list_in_another_form_counts_as_no_image_and_the_node_counts_as_before(images):
    seen = node(images)
    assert seen.images == NO_IMAGES
    assert (seen.name, seen.allocatable, seen.is_schedulable) == ("n", {"cpu": "4"}, True)


def test_a_node_without_the_field_has_no_images():
    bare = msgspec.json.decode(b'{"metadata":{"name":"n"},"status":{}}', type=Node)
    assert node_seen(bare).images == NO_IMAGES


def test_nodes_that_differ_only_in_images_are_equal_and_images_count_as_memory():
    few, many = node([]), node([{"names": [f"i:{n}"], "sizeBytes": 1} for n in range(50)])
    assert few == many
    assert many.images
    assert weight_of_node(many) > weight_of_node(few)


def pod(labels: Any = OURS, *, ready: str | None = "2026-01-01T10:00:00Z", state: Any = None, images: Any = ("r/t:1",)):
    conditions = (
        [] if ready is None else [{"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": ready}]
    )
    meta = {"name": "p", "namespace": "n", "uid": "u", "labels": labels}
    spec = {"nodeName": "n1", "containers": [{"name": f"c{n}", "image": image} for n, image in enumerate(images)]}
    status = {"phase": "Running", "conditions": conditions, "containerStatuses": [{"state": state}]}
    return pod_seen(msgspec.json.decode(json.dumps({"metadata": meta, "spec": spec, "status": status}), type=Pod))


RAN = {"startedAt": "2026-01-01T10:00:42Z"}


@pytest.mark.parametrize("state", [{"running": RAN}, {"terminated": {"exitCode": 0, **RAN}}])
def test_a_pull_lasts_from_the_sandbox_until_the_container_runs(state):
    seen = pod(state=state)
    assert (seen.image, seen.pull_seconds) == ("r/t:1", 42)


@pytest.mark.parametrize(
    "changes",
    [
        {"ready": None, "state": {"running": RAN}},
        {"ready": "2026-01-01T10:00:43Z", "state": {"running": RAN}},
        {"state": {"running": {}}},
        {"state": {"running": None}},
        {"state": {"waiting": {"reason": "ContainerCreating"}}},
        {"state": {"terminated": {"exitCode": 1}}},
        {"labels": {}, "state": {"running": RAN}},
    ],
)
def test_without_both_times_in_order_or_for_foreign_pods_nothing_is_known_of_a_pull(changes):
    assert pod(**changes).pull_seconds is None


@pytest.mark.parametrize("changes", [{"labels": {}}, {"images": ()}, {"images": ("a", "b")}, {"images": ("x" * 601,)}])
def test_only_a_pod_of_ours_with_one_container_has_an_image(changes):
    assert pod(**changes).image == ""
