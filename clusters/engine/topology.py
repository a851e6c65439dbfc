"""A node's place in the topology: zone, block, rack, node and NVLink clique, read from the labels of clouds
and tools.
"""

import re
from collections.abc import Collection, Mapping
from math import prod

LEVELS = ("zone", "block", "rack", "node", "clique")
"""The levels of a domain path, wide to narrow. A level without a label is an empty string."""

_HOSTNAME = "kubernetes.io/hostname"
LABELS: Mapping[str, tuple[str, ...]] = {
    "zone": ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    "block": (
        "topology.switchyard.dev/block",
        "cloud.provider.com/topology-block",
        "cloud.com/topology-block",
        "cloud.google.com/gce-topology-block",
        "topology.k8s.aws/network-node-layer-2",
        "oci.oraclecloud.com/rdma.network_block_id",
        "network.topology.nvidia.com/spine",
        "network.topology.nvidia.com/block",
        "topology.kubernetes.io/block",
    ),
    "rack": (
        "topology.switchyard.dev/rack",
        "cloud.provider.com/topology-rack",
        "cloud.com/topology-rack",
        "cloud.google.com/gce-topology-subblock",
        "topology.k8s.aws/network-node-layer-3",
        "oci.oraclecloud.com/rdma.local_block_id",
        "network.topology.nvidia.com/leaf",
        "topology.kubernetes.io/rack",
    ),
    "node": (_HOSTNAME,),
    "clique": ("nvidia.com/gpu.clique", "network.topology.nvidia.com/accelerator"),
}
"""The labels read for each level; the first that a node carries counts. Ours come first, so that an administrator can
correct it.
"""
TPU_TOPOLOGY = "cloud.google.com/gke-tpu-topology"
TPU_SLICE = "cloud.google.com/gke-tpu-slice"
TPU_SLICE_LABELS = (TPU_SLICE, "cloud.google.com/gke-nodepool")
"""The label that distinguishes slices of several hosts; GKE makes a node pool for each."""
DOMAIN_LABELS = frozenset(key for keys in (*LABELS.values(), TPU_SLICE_LABELS) for key in keys)
_CHIPS_PER_HOST = 4
_MOST_HOSTS = 10_000
_CHIPS = re.compile(r"[0-9]{1,3}")
is_arrangement = re.compile(r"[0-9]{1,4}(x[0-9]{1,4}){0,3}").fullmatch
"""Matches how the chips of an accelerator are arranged: `4x4`, `2x2x4`."""


def label_of(level: str, labels: Mapping[str, str]) -> tuple[str, str] | None:
    """The label (key, value) that selects this node's domain of that level; None if there is no label."""
    for key in _keys(level, labels):
        if labels.get(key):
            return key, labels[key]
    return None


def _keys(level: str, labels: Mapping[str, str]) -> tuple[str, ...]:
    """The clique of a TPU node is its slice."""
    return TPU_SLICE_LABELS if level == "clique" and tpu_slice_hosts(labels) > 1 else LABELS[level]


def tpu_slice_hosts(labels: Mapping[str, str]) -> int:
    """The number of nodes in this node's TPU slice; 1 for every other node."""
    return hosts_of(labels.get(TPU_TOPOLOGY), labels.get("cloud.google.com/gke-accelerator-count"))


def hosts_of(arrangement: str | None, chips: str | None) -> int:
    """The number of nodes in an accelerator of this arrangement, with `chips` chips per node; 1 without one."""
    if not arrangement or not is_arrangement(arrangement):
        return 1
    per_host = int(chips) if chips and _CHIPS.fullmatch(chips) else _CHIPS_PER_HOST
    return min(max(1, prod(map(int, arrangement.split("x"))) // max(per_host, 1)), _MOST_HOSTS)


def domain_of(node: str, labels: Mapping[str, str]) -> tuple[str, str, str, str, str]:
    """The node's path (zone, block, rack, node, clique), empty where unknown. Compare paths only as a whole: racks of
    different blocks may have the same name.
    """
    found = {level: label_of(level, labels) for level in ("zone", "block", "rack", "clique")}
    zone, block, rack, clique = (pair[1] if pair else "" for pair in found.values())
    return zone, block, rack, node, clique


_AROUND: Mapping[str, tuple[str, ...]] = {
    "zone": ("zone",),
    "block": ("zone", "block"),
    "rack": ("zone", "block", "rack"),
    "clique": ("zone", "block", "rack", "clique"),
}


def selector_of(level: str, labels: Mapping[str, str], keys_in_use: Collection[str]) -> dict[str, str]:
    """The selector of the nodes in this node's domain of that level that have the same labels.

    It names the whole path, because a rack's name is ambiguous without its block. It also excludes the labels that
    would have taken precedence: `keys_in_use` are those that any node of the cluster carries. Read it with
    `flavors.match_expressions`. If nodes of one domain are labelled in different ways, each way needs a selector.
    """
    selector: dict[str, str] = {}
    for around in _AROUND[level]:
        for key in _keys(around, labels):
            if labels.get(key):
                selector[key] = labels[key]
                break
            if key in labels:
                selector[key] = ""
            elif key in keys_in_use:
                selector[f"!{key}"] = "*"
    return selector
