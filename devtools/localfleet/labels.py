"""The labels and extended resources that vendors' plugins and clouds give their nodes.

NVIDIA: GPU feature discovery and the device plugin with the mixed MIG strategy. AMD: the GPU operator's node labeller.
Google: GKE's own labels on GPU nodes, and on TPU nodes. Racks and blocks: the labels Kueue documents, which clouds' and
NVIDIA's topology discovery are set up to write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .fleetfile import ClusterSpec, NodeGroup

SPOT_LABELS = {
    "aws": {"eks.amazonaws.com/capacityType": "SPOT"},
    "gcp": {"cloud.google.com/gke-spot": "true", "cloud.google.com/gke-provisioning": "spot"},
    "azure": {"kubernetes.azure.com/scalesetpriority": "spot"},
}
ANY_SPOT = {"karpenter.sh/capacity-type": "spot"}
FAMILIES = {
    "H200": ("hopper", "9", "0"),
    "H100": ("hopper", "9", "0"),
    "A100": ("ampere", "8", "0"),
    "A10": ("ampere", "8", "6"),
    "L40S": ("ada-lovelace", "8", "9"),
    "L4": ("ada-lovelace", "8", "9"),
    "T4": ("turing", "7", "5"),
    "V100": ("volta", "7", "0"),
    "P100": ("pascal", "6", "0"),
}


def place_labels(cluster: ClusterSpec, group: NodeGroup, rack: str) -> dict[str, str]:
    """The node's place, and whether its cloud may reclaim it."""
    labels = {
        "topology.kubernetes.io/region": cluster.region,
        "topology.kubernetes.io/zone": group.zone,
        "cloud.provider.com/topology-block": group.block,
        "cloud.provider.com/topology-rack": rack,
    }
    if group.spot:
        labels |= SPOT_LABELS.get(cluster.provider, ANY_SPOT)
    return {key: value for key, value in labels.items() if value}


def devices(group: NodeGroup) -> dict[str, int]:
    """Extended resources of one node, as its device plugin advertises them; none if its devices are claimed."""
    if not group.gpus or group.claimed:
        return {}
    if group.vendor == "amd":
        return {"amd.com/gpu": group.gpus}
    if group.vendor == "google" and group.model.startswith("tpu"):
        return {"google.com/tpu": group.gpus}
    if group.mig:
        return {"nvidia.com/gpu": 0} | {
            f"nvidia.com/{_mig_resource(profile)}": count for profile, count in group.mig.items()
        }
    return {"nvidia.com/gpu": group.gpus * group.timeslice}


def device_labels(group: NodeGroup) -> dict[str, str]:
    """The labels of the vendor's discovery for the node's GPUs."""
    if not group.gpus or group.claimed:
        return {}
    if group.vendor == "amd":
        return _amd(group)
    return _google(group) if group.vendor == "google" else _nvidia(group)


def _nvidia(group: NodeGroup) -> dict[str, str]:
    family, major, minor = next((facts for part, facts in FAMILIES.items() if part in group.model), ("", "", ""))
    shared = group.timeslice > 1
    labels = {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": group.model + ("-SHARED" if shared else ""),
        "nvidia.com/gpu.count": str(group.gpus),
        "nvidia.com/gpu.memory": str(group.gpu_memory_mib),
        "nvidia.com/gpu.replicas": "0" if group.mig else str(group.timeslice),
        "nvidia.com/gpu.sharing-strategy": "time-slicing" if shared else "none",
        "nvidia.com/gpu.family": family,
        "nvidia.com/gpu.compute.major": major,
        "nvidia.com/gpu.compute.minor": minor,
        "nvidia.com/gpu.clique": group.clique,
        "nvidia.com/mig.capable": "true" if family in {"ampere", "hopper"} and major + minor != "86" else "false",
        "nvidia.com/mig.strategy": "mixed" if group.mig else "single",
    }
    for profile, count in group.mig.items():
        memory_gb = profile.partition(".")[2].partition("gb")[0]
        prefix = f"nvidia.com/{_mig_resource(profile)}"
        labels |= {
            f"{prefix}.count": str(count),
            f"{prefix}.memory": str(int(memory_gb) * 1024),
            f"{prefix}.product": f"{group.model}-MIG-{profile.replace('+', '.')}",
            f"{prefix}.replicas": "1",
            f"{prefix}.sharing-strategy": "none",
        }
    return {key: value for key, value in labels.items() if value}


def _mig_resource(profile: str) -> str:
    return f"mig-{profile.replace('+', '.')}"


def _amd(group: NodeGroup) -> dict[str, str]:
    gib = f"{round(group.gpu_memory_mib / 1024)}G"
    return {
        "amd.com/gpu.product-name": group.model,
        "amd.com/gpu.family": "AI",
        "amd.com/gpu.vram": gib,
        "beta.amd.com/gpu.family": "AI",
        "beta.amd.com/gpu.vram": gib,
        f"beta.amd.com/gpu.vram.{gib}": str(group.gpus),
    }


def _google(group: NodeGroup) -> dict[str, str]:
    if group.model.startswith("tpu"):
        return {
            "cloud.google.com/gke-tpu-accelerator": group.model,
            "cloud.google.com/gke-accelerator-count": str(group.gpus),
        }
    labels = {
        "cloud.google.com/gke-accelerator": group.model,
        "cloud.google.com/gke-accelerator-count": str(group.gpus),
        "cloud.google.com/gke-gpu": "true",
    }
    if group.timeslice > 1:
        labels |= {
            "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
            "cloud.google.com/gke-max-shared-clients-per-gpu": str(group.timeslice),
        }
    return labels
