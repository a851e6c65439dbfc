"""Topology labels of several makers, and the path they mean."""

import pytest

from clusters.engine.topology import DOMAIN_LABELS, domain_of, hosts_of, label_of, selector_of


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


ORDERED = {
    "zone": "topology.kubernetes.io/zone failure-domain.beta.kubernetes.io/zone",
    "block": "topology.switchyard.dev/block cloud.provider.com/topology-block cloud.com/topology-block"
    " cloud.google.com/gce-topology-block topology.k8s.aws/network-node-layer-2 oci.oraclecloud.com/rdma.network_block_id"
    " network.topology.nvidia.com/spine network.topology.nvidia.com/block topology.kubernetes.io/block",
    "rack": "topology.switchyard.dev/rack cloud.provider.com/topology-rack cloud.com/topology-rack"
    " cloud.google.com/gce-topology-subblock topology.k8s.aws/network-node-layer-3 oci.oraclecloud.com/rdma.local_block_id"
    " network.topology.nvidia.com/leaf topology.kubernetes.io/rack",
    "node": "kubernetes.io/hostname",
    "clique": "nvidia.com/gpu.clique network.topology.nvidia.com/accelerator",
}


@pytest.mark.parametrize("level", ORDERED)
def test_of_the_labels_of_a_level_the_first_that_has_a_value_counts(level):
    keys = ORDERED[level].split()
    labels = {key: f"of {key}" for key in keys}
    for key in keys:
        assert label_of(level, labels) == (key, f"of {key}")
        labels[key] = ""
    assert label_of(level, labels) is None
    assert set(keys) <= DOMAIN_LABELS


@pytest.mark.parametrize(
    ("arrangement", "chips", "hosts"),
    [
        (None, "4", 1), ("", "4", 1), ("4x", "4", 1), ("2x2x2x2x2", "4", 1), ("12345", "4", 1), ("2x2", "4", 1),
        ("1x1", "4", 1), ("2x4", "4", 2), ("2x4", None, 2), ("2x4", "", 2), ("2x4", "x", 2), ("2x4", "1234", 2),
        ("2x4", "1", 8), ("2x4", "8", 1), ("2x4", "0", 8), ("4x4x4", "4", 16), ("2x2x2x2", "4", 4), ("16", "4", 4),
        ("9999x9999", "4", 10_000),
    ],
)  # fmt: skip
def test_an_accelerator_has_as_many_hosts_as_its_chips_need(arrangement, chips, hosts):
    assert hosts_of(arrangement, chips) == hosts


def test_the_clique_of_a_tpu_of_several_hosts_is_its_slice_and_of_one_host_it_is_not():
    tpu = {"cloud.google.com/gke-tpu-topology": "4x4", "cloud.google.com/gke-accelerator-count": "4"}
    pool, own = {"cloud.google.com/gke-nodepool": "p"}, {"cloud.google.com/gke-tpu-slice": "s"}
    assert label_of("clique", {**tpu, **pool}) == ("cloud.google.com/gke-nodepool", "p")
    assert label_of("clique", {**tpu, **pool, **own}) == ("cloud.google.com/gke-tpu-slice", "s")
    assert label_of("clique", {**tpu, **pool, "cloud.google.com/gke-tpu-topology": "2x2"}) is None
    assert {*pool, *own} <= DOMAIN_LABELS
