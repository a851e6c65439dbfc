"""Pod sets of a stored spec in words, as pages show them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusters.engine.resources import told
from federation.engine.intake.resources import resource_amounts


@dataclass(frozen=True, slots=True)
class PodSetLine:
    name: str
    count: int
    image: str
    cpu: str
    memory: str
    gpu: str
    gpu_models: Sequence[str]
    command: str
    local_state: Sequence[str]
    """Its shared memory, local disk, ports, other resources, init steps and sidecars, in words; only what is set."""


def pod_set_text(pod_set: Mapping[str, Any]) -> str:
    """`8 × 8 H100-80GB`, `4 cores, 8Gi`."""
    count = f"{pod_set.get('count', 1)} × " if pod_set.get("count", 1) != 1 else ""
    gpu = pod_set.get("gpu")
    return count + (_gpu_text(gpu) if gpu else f"{pod_set.get('cpu', '?')} CPU, {pod_set.get('memory', '?')}")


def _gpu_text(gpu: Mapping[str, Any]) -> str:
    models = " or ".join(gpu.get("models") or []) or "GPU"
    if gpu.get("fraction"):
        return f"{gpu['fraction']} of a {models}"
    if gpu.get("mig"):
        return f"{gpu.get('count', 1)} MIG {gpu['mig']}"
    return f"{gpu.get('count', 1)} {models}"


def pod_set_line(item: Mapping[str, Any]) -> PodSetLine:
    """A stored pod set as the page of its job shows it."""
    command = [*item.get("command", []), *item.get("args", [])]
    return PodSetLine(
        name=str(item.get("name", "")),
        count=int(item.get("count", 1)),
        image=str(item.get("image", "")),
        cpu=str(item.get("cpu", "")),
        memory=str(item.get("memory", "")),
        gpu=_gpu_text(item["gpu"]) if item.get("gpu") else "",
        gpu_models=(item.get("gpu") or {}).get("models") or (),
        command=" ".join(str(word) for word in command),
        local_state=tuple(_local_state(item)),
    )


def _local_state(item: Mapping[str, Any]) -> Iterator[str]:
    if shm := item.get("shm"):
        yield f"{shm} shared memory"
    if scratch := item.get("scratch"):
        yield f"{scratch['size']} local disk at {scratch['path']}"
    if ports := item.get("ports"):
        yield ", ".join(f"port {port['number']} ({port['name']})" for port in ports)
    if networks := item.get("networks"):
        yield f"networks {', '.join(networks)}"
    if amounts := resource_amounts(item):
        yield told(amounts)
    for number, step in enumerate(item.get("init", ()), 1):
        yield f"init step {number}: {_program(step)}{_amounts(step)}"
    for one in item.get("sidecars", ()):
        yield f"sidecar {one['name']}: {_program(one)}{_amounts(one)}"


def _program(one: Mapping[str, Any]) -> str:
    return " ".join(str(word) for word in (one["image"], *one.get("command", ()), *one.get("args", ())))


def _amounts(one: Mapping[str, Any]) -> str:
    cpu = [f"{one['cpu']} CPU"] if one.get("cpu") else []
    amounts = [*cpu, *([one["memory"]] if one.get("memory") else []), *(["its secrets"] if one.get("secrets") else [])]
    return f" ({', '.join(amounts)})" if amounts else ""
