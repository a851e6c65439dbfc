"""Pod sets of a stored spec in words, as pages show them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from clusters.engine.resources import told
from federation.engine.intake.elastic import elastic_of
from federation.engine.intake.resources import resource_amounts


@dataclass(frozen=True, slots=True)
class PodSetLine:
    name: str
    count: str
    """`8`; of an elastic pod set `4 to 8`."""
    image: str
    cpu: str
    memory: str
    gpu: str
    gpu_models: Sequence[str]
    command: str
    local_state: Sequence[str]
    """Its shared memory, local disk, ports, other resources, init steps and sidecars, in words; only what is set."""


def asks_text(spec: Mapping[str, Any]) -> str:
    """The pod sets of a stored spec: `4 to 8 × 8 H100-80GB + 4 CPU, 8Gi`."""
    return " + ".join(pod_set_text(item, _fewest(spec, item)) for item in spec.get("pod_sets", []))


def pod_set_text(pod_set: Mapping[str, Any], fewest: int | None = None) -> str:
    """`8 × 8 H100-80GB`, `4 cores, 8Gi`."""
    count = _count_text(pod_set, fewest)
    count = "" if count == "1" else f"{count} × "
    gpu = pod_set.get("gpu")
    return count + (_gpu_text(gpu) if gpu else f"{pod_set.get('cpu', '?')} CPU, {pod_set.get('memory', '?')}")


def _gpu_text(gpu: Mapping[str, Any]) -> str:
    models = " or ".join(gpu.get("models") or []) or "GPU"
    if gpu.get("fraction"):
        return f"{gpu['fraction']} of a {models}"
    if gpu.get("mig"):
        return f"{gpu.get('count', 1)} MIG {gpu['mig']}"
    return f"{gpu.get('count', 1)} {models}"


def pod_set_lines(spec: Mapping[str, Any]) -> tuple[PodSetLine, ...]:
    """The pod sets of a stored spec as the page of the job shows them."""
    return tuple(pod_set_line(item, _fewest(spec, item)) for item in spec.get("pod_sets", []))


def sizes_of(spec: Mapping[str, Any], objects: Iterable[tuple[UUID, int, int]]) -> dict[UUID, str]:
    """`6 of 4 to 8 pods`, by attempt, of an elastic job. `objects` are attempts with position and pods of each of their objects."""
    elastic = elastic_of(spec)
    if elastic is None:
        return {}
    return {attempt_id: elastic.text(pods) for attempt_id, position, pods in objects if position == elastic.position}


def _fewest(spec: Mapping[str, Any], item: Mapping[str, Any]) -> int | None:
    elastic = spec.get("elastic") or {}
    return elastic["min_count"] if elastic and elastic["pod_set"] == item.get("name") else None


def _count_text(item: Mapping[str, Any], fewest: int | None) -> str:
    count = int(item.get("count", 1))
    return f"{count}" if fewest in (None, count) else f"{fewest} to {count}"


def pod_set_line(item: Mapping[str, Any], fewest: int | None = None) -> PodSetLine:
    """A stored pod set as the page of its job shows it."""
    command = [*item.get("command", []), *item.get("args", [])]
    return PodSetLine(
        name=str(item.get("name", "")),
        count=_count_text(item, fewest),
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
