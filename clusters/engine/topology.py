"""Where a node stands: zone, block, rack, node and NVLink clique, read from the labels that clouds and tools put there."""

from collections.abc import Collection, Mapping

LEVELS = ("zone", "block", "rack", "node", "clique")
"""The levels of a domain path, wide to narrow. A level nobody labelled is an empty string."""

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
"""The labels read for each level; the first that a node carries counts. Ours come first, so an administrator can correct."""


def label_of(level: str, labels: Mapping[str, str]) -> tuple[str, str] | None:
    """The label (key, value) by which this node's domain of that level can be selected; None where nobody labelled it."""
    for key in LABELS[level]:
        if labels.get(key):
            return key, labels[key]
    return None


def domain_of(node: str, labels: Mapping[str, str]) -> tuple[str, str, str, str, str]:
    """The node's path (zone, block, rack, node, clique), empty where unknown. A path is only equal to another as a whole:
    racks of different blocks may bear the same name.
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
    """What selects the nodes of this node's domain of that level that are labelled as it is.

    It names the whole path, since a rack's name says little without its block, and it rules out the labels that would
    have counted before the one that did: `keys_in_use` are those that any node of the cluster carries. Read it with
    `flavors.match_expressions`. Nodes of one domain that are labelled in different ways take a selector for each way.
    """
    selector: dict[str, str] = {}
    for around in _AROUND[level]:
        for key in LABELS[around]:
            if labels.get(key):
                selector[key] = labels[key]
                break
            if key in labels:
                selector[key] = ""
            elif key in keys_in_use:
                selector[f"!{key}"] = "*"
    return selector
