"""Reads a fleet file and writes its nodes as Node objects, labelled as each vendor's own plugins label them.

    clusters:
      - name: east
        region: us-east-1
        provider: aws            # decides how spot nodes are labelled
        nodes:
          - {name: h100, count: 16, vendor: nvidia, model: NVIDIA-H100-80GB-HBM3, gpus: 8, gpu_memory_mib: 81559,
             cpu: 192, memory_gib: 2048, zone: us-east-1a, block: b1, rack: r{rack}, nodes_per_rack: 8}

Fields of a group: `count`, `cpu` (cores), `memory_gib`; for GPUs `vendor` (nvidia, amd, google), `model`, `gpus`,
`gpu_memory_mib`, `mig` (profile: devices a node), `timeslice` (replicas a GPU), `claimed` (published as ResourceSlices,
not as extended resources); `spot`; `zone`, `block`, `rack` (`{rack}` counts up every `nodes_per_rack` nodes), `clique`;
`labels`, `taints`; `runs: true` (the test kubelet runs the pods' commands here; otherwise KWOK pretends to).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .kubelet import RUNS_LABEL
from .labels import device_labels, devices, place_labels

PODS_PER_NODE = 110
CONDITIONS = [
    {"type": kind, "status": status, "reason": reason}
    for kind, status, reason in (
        ("Ready", "True", "KubeletReady"),
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("NetworkUnavailable", "False", "RouteCreated"),
    )
]
KWOK_NODE = {"kwok.x-k8s.io/node": "fake"}


class BadFleetFile(Exception):
    """The fleet file cannot be used; the message names the place."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that are alike. Memory in GiB, GPU memory in MiB, CPU in cores, each as of one node or one GPU."""

    name: str
    count: int
    cpu: int | float
    memory_gib: int | float
    vendor: str = ""
    model: str = ""
    gpus: int = 0
    gpu_memory_mib: int = 0
    mig: Mapping[str, int] = field(default_factory=dict)
    timeslice: int = 1
    claimed: bool = False
    spot: bool = False
    zone: str = ""
    block: str = ""
    rack: str = ""
    nodes_per_rack: int = 8
    clique: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    runs: bool = False


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """One cluster of a fleet file."""

    name: str
    region: str = ""
    provider: str = ""
    groups: tuple[NodeGroup, ...] = ()

    @property
    def runs_pods(self) -> bool:
        """Whether some of its nodes need the test kubelet."""
        return any(group.runs for group in self.groups)


def read_fleet(path: Path) -> tuple[ClusterSpec, ...]:
    """The clusters of a fleet file, in its order."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        return tuple(_cluster(entry) for entry in document["clusters"])
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise BadFleetFile(f"{path}: {error!r}") from error


def _cluster(entry: Mapping[str, Any]) -> ClusterSpec:
    unknown = set(entry) - {"name", "region", "provider", "nodes"}
    if unknown:
        raise ValueError(f"cluster {entry.get('name')}: unknown fields {sorted(unknown)}")
    groups = tuple(NodeGroup(**{**group, "taints": tuple(group.get("taints", ()))}) for group in entry.get("nodes", ()))
    return ClusterSpec(entry["name"], entry.get("region", ""), entry.get("provider", ""), groups)


def node_objects(cluster: ClusterSpec) -> Iterator[dict[str, Any]]:
    """The cluster's Node objects, ready and with their capacity, in a fixed order."""
    for group in cluster.groups:
        for index in range(group.count):
            rack = group.rack.format(rack=1 + index // group.nodes_per_rack)
            yield _node(cluster, group, f"{group.name}-{index:03d}", rack)


def _node(cluster: ClusterSpec, group: NodeGroup, name: str, rack: str) -> dict[str, Any]:
    resources = {
        "cpu": f"{round(group.cpu * 1000)}m",
        "memory": f"{round(group.memory_gib * 1024)}Mi",
        "pods": str(PODS_PER_NODE),
        **{resource: str(amount) for resource, amount in devices(group).items()},
    }
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        **({RUNS_LABEL: "true"} if group.runs else {"type": "kwok"}),
        **place_labels(cluster, group, rack),
        **device_labels(group),
        **group.labels,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {} if group.runs else KWOK_NODE},
        "spec": {"taints": [dict(taint) for taint in group.taints]} if group.taints else {},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            # The test kubelet says itself when it is ready.
            "conditions": [] if group.runs else CONDITIONS,
            "phase": "Running",
        },
    }
