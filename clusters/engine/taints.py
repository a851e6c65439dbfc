"""Which taints of a node our pods tolerate: only those that mark accelerators and spot capacity.

Tolerations follow from the flavor a pod set was placed on; users cannot set any. A pod without a GPU tolerates no GPU
taint, so CPU work does not run on GPU nodes that an administrator tainted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_BY_VENDOR: Mapping[str, tuple[str, ...]] = {
    "nvidia": ("nvidia.com/gpu", "sku", "accelerator"),
    "amd": ("amd.com/gpu", "sku", "accelerator"),
    "google": ("google.com/tpu",),
    "intel": ("gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi"),
}
_BY_CAPACITY: Mapping[str, tuple[str, ...]] = {
    "spot": (
        "cloud.google.com/gke-spot",
        "cloud.google.com/gke-preemptible",
        "cloud.google.com/gke-provisioning",
        "kubernetes.azure.com/scalesetpriority",
        "karpenter.sh/capacity-type",
        "eks.amazonaws.com/capacityType",
        "switchyard.dev/capacity-type",
    ),
    "reserved": ("switchyard.dev/capacity-type",),
}


@dataclass(frozen=True, slots=True)
class Standing:
    """Which of our pods a node accepts. `why_unusable` is empty unless it accepts none. `repels` is the taint that
    keeps other pods off, by the flavor whose devices they use, empty for pods that use none.
    """

    why_unusable: str
    repels: Mapping[str, str]


def standing(
    *,
    is_ready: bool,
    is_schedulable: bool,
    taints: Sequence[Mapping[str, str]],
    flavors: Mapping[str, tuple[str, str]],
) -> Standing:
    """Which of our pods a node accepts; `flavors` are its offers by name: vendor and capacity type."""
    if not is_ready or not is_schedulable:
        return Standing("not schedulable" if is_ready else "not ready", {})
    bought_as = next((bought for _, bought in flavors.values()), "")
    takers = {"": ("", bought_as), **flavors}
    found = {name: untolerated(taints, vendor, bought) for name, (vendor, bought) in takers.items()} if taints else {}
    repels = {name: f"with taint {taint}" for name, taint in found.items() if taint}
    if repels and len(repels) == len(takers):
        return Standing(next(reversed(repels.values())), {})
    return Standing("", repels)


def tolerations_for(vendor: str, capacity_type: str) -> tuple[Mapping[str, str], ...]:
    """The tolerations to render for pods placed on a flavor of this vendor (empty for CPU) and capacity type."""
    keys = (*_BY_VENDOR.get(vendor, ()), *_BY_CAPACITY.get(capacity_type, ()))
    return tuple({"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys)


def untolerated(taints: Sequence[Mapping[str, str]], vendor: str, capacity_type: str) -> str:
    """The first taint that keeps our pods off a node, as `key=value:effect`; empty if there is none.

    NoExecute is never tolerated: such a node is unhealthy or being emptied. PreferNoSchedule keeps no pod off.
    """
    tolerated = {toleration["key"] for toleration in tolerations_for(vendor, capacity_type)}
    for taint in taints:
        effect = taint.get("effect", "")
        if effect == "NoExecute" or (effect == "NoSchedule" and taint.get("key", "") not in tolerated):
            value = taint.get("value", "")
            return f"{taint.get('key', '')}{'=' if value else ''}{value}:{effect}"
    return ""
