"""ResourceSlices and DeviceClasses as NVIDIA's and AMD's drivers of dynamic resource allocation make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .fleetfile import ClusterSpec, NodeGroup

API_VERSION = "resource.k8s.io/v1"
CLASSES = {
    "gpu.nvidia.com": ("gpu.nvidia.com", "gpu"),
    "mig.nvidia.com": ("gpu.nvidia.com", "mig"),
    "gpu.amd.com": ("gpu.amd.com", "amdgpu"),
}
"""Each DeviceClass with its driver and the type of its devices."""


def device_classes() -> Iterator[dict[str, Any]]:
    """The DeviceClass objects in the drivers' charts."""
    for name, (driver, kind) in CLASSES.items():
        of_driver = f'device.driver == "{driver}"'
        expression = f'{of_driver} && device.attributes["{driver}"].type == "{kind}"'
        selectors = [{"cel": {"expression": expression if driver == "gpu.nvidia.com" else of_driver}}]
        yield {
            "apiVersion": API_VERSION,
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": {"selectors": selectors},
        }


def resource_slices(cluster: ClusterSpec) -> Iterator[dict[str, Any]]:
    """A ResourceSlice for each node of the groups whose devices are claimed (`claimed: true`)."""
    for group in cluster.groups:
        for index in range(group.count if group.claimed else 0):
            yield slice_of(group, f"{group.name}-{index:03d}")


def slice_of(group: NodeGroup, node: str) -> dict[str, Any]:
    """The devices of one node."""
    driver = "gpu.amd.com" if group.vendor == "amd" else "gpu.nvidia.com"
    whole = [_whole(group, f"gpu-{number}") for number in range(0 if group.mig else group.gpus)]
    parts = [
        _part(group, profile, f"gpu-{number}-mig-{profile.replace('.', '').replace('+', '-')}")
        for profile, count in group.mig.items()
        for number in range(count)
    ]
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [*whole, *parts],
        },
    }


def _whole(group: NodeGroup, name: str) -> dict[str, Any]:
    kind = "amdgpu" if group.vendor == "amd" else "gpu"
    return _device(group, name, f"{group.gpu_memory_mib}Mi", type=kind)


def _part(group: NodeGroup, profile: str, name: str) -> dict[str, Any]:
    memory_gb = profile.partition(".")[2].partition("gb")[0]
    return _device(group, name, f"{int(memory_gb) * 1024}Mi", type="mig", profile=profile)


def _device(group: NodeGroup, name: str, memory: str, **facts: str) -> dict[str, Any]:
    product = group.model if group.vendor == "amd" else group.model.replace("-", " ")
    return {
        "name": name,
        "attributes": {key: {"string": value} for key, value in {"productName": product, **facts}.items()},
        "capacity": {"memory": {"value": memory}},
    }
