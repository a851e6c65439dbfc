"""Topology labels of several makers, and the path they mean."""

import pytest

from clusters.engine.topology import domain_of, label_of, selector_of


@pytest.mark.parametrize(
    ("labels", "path"),
    [
        ({}, ("", "", "", "n1", "")),
        (
            {
                "topology.kubernetes.io/zone": "us-east-1a",
                "cloud.provider.com/topology-block": "b1",
                "cloud.provider.com/topology-rack": "r1",
                "nvidia.com/gpu.clique": "9f1c.3",
            },
            ("us-east-1a", "b1", "r1", "n1", "9f1c.3"),
        ),
        (
            {"cloud.google.com/gce-topology-block": "x", "cloud.google.com/gce-topology-subblock": "y"},
            ("", "x", "y", "n1", ""),
        ),
        (
            {"topology.k8s.aws/network-node-layer-2": "nn-2", "topology.k8s.aws/network-node-layer-3": "nn-3"},
            ("", "nn-2", "nn-3", "n1", ""),
        ),
        (
            {"network.topology.nvidia.com/spine": "s1", "network.topology.nvidia.com/leaf": "l1"},
            ("", "s1", "l1", "n1", ""),
        ),
        ({"failure-domain.beta.kubernetes.io/zone": "old"}, ("old", "", "", "n1", "")),
        (
            {"topology.switchyard.dev/rack": "right", "cloud.provider.com/topology-rack": "wrong"},
            ("", "", "right", "n1", ""),
        ),
        ({"topology.kubernetes.io/zone": ""}, ("", "", "", "n1", "")),
    ],
)
def test_a_nodes_path(labels, path):
    assert domain_of("n1", labels) == path


def test_a_domain_is_selected_by_the_label_that_named_it():
    labels = {"network.topology.nvidia.com/leaf": "l1"}
    assert label_of("rack", labels) == ("network.topology.nvidia.com/leaf", "l1")
    assert label_of("block", labels) is None


ZONE, BLOCK, RACK = (
    "topology.kubernetes.io/zone",
    "cloud.provider.com/topology-block",
    "cloud.provider.com/topology-rack",
)
OURS = "topology.switchyard.dev/rack"
PLACE = {ZONE: "z", BLOCK: "b1", RACK: "r1"}


@pytest.mark.parametrize(
    ("level", "labels", "in_use", "selector"),
    [
        ("rack", PLACE, set(PLACE), PLACE),
        ("zone", PLACE, set(PLACE), {ZONE: "z"}),
        ("rack", PLACE, {*PLACE, OURS}, PLACE | {f"!{OURS}": "*"}),
        ("rack", PLACE | {OURS: "right"}, {*PLACE, OURS}, {ZONE: "z", BLOCK: "b1", OURS: "right"}),
        ("rack", PLACE | {OURS: ""}, {*PLACE, OURS}, PLACE | {OURS: ""}),
        ("rack", {RACK: "r1"}, {RACK}, {RACK: "r1"}),
        ("rack", {RACK: "r1"}, set(PLACE), {RACK: "r1", f"!{ZONE}": "*", f"!{BLOCK}": "*"}),
        ("clique", PLACE | {"nvidia.com/gpu.clique": "u.1"}, set(), PLACE | {"nvidia.com/gpu.clique": "u.1"}),
    ],
)
def test_a_selector_names_the_whole_path_and_rules_out_what_would_have_counted_first(level, labels, in_use, selector):
    assert selector_of(level, labels, in_use) == selector
