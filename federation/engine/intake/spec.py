"""The job spec as frozen values, its bounds, the one normal form in which it is stored, and its digest by shape."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2s
from typing import Any
from uuid import UUID

from federation.engine.retries import NO_WISHES, Retries, retries_json
from placement.values.datasets import DataNeed
from placement.values.model import Constraints, GpuRequest, JobRequest, ModelSpeed, PodSetRequest, Tier, Topology
from placement.values.quantities import (
    cpu_text,
    memory_text,
    mib_rounded_up,
    millicores,
    whole_bytes,
)

PRIORITIES = {"low": -100, "normal": 0, "high": 100}
CAPACITY_TYPES = ("on_demand", "spot", "reserved")
ON_CLUSTER_LOST = ("hold",)

MAX_POD_SETS = 16
MAX_COUNT = 10_000
MAX_COMPLETIONS = 100_000
MAX_GPUS_PER_POD = 64
WHOLE_GPU_MILLI = 1000
MAX_ENVIRONMENT = 256
MAX_ENVIRONMENT_BYTES = 64 * 1024
MAX_ARGUMENTS = 256
MAX_ARGUMENT_BYTES = 32 * 1024
MAX_LABELS = 64
MAX_SPEC_BYTES = 256 * 1024
MAX_TIERS = 8
MAX_DATASETS = 16
MAX_SPEEDS = 32
SPEED_MILLI = 1000
MAX_SPEED = 1000
MAX_SECONDS = 30 * 24 * 3600
DEFAULT_DEADLINE_SECONDS = 24 * 3600
MIN_CPU_MILLICORES, MAX_CPU_MILLICORES = 1, 1_024_000
MIN_MEMORY_BYTES, MAX_MEMORY_BYTES = 2**20, 64 * 2**40
LONGEST_ESCAPE = 6
LONGEST_ITEM = 64
"""An upper bound of the characters of a dataset or a model besides its name."""
LONGEST_BOUNDED_PART = 1200
"""An upper bound of the characters of a pod set's or a job's fields besides those counted one by one."""
DNS_LABEL = "lower-case letters, digits and '-', at most 63, starting and ending with a letter or digit"

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode
JOB_FIELDS = frozenset(
    [
        "name",
        "pod_sets",
        "completions",
        "deadline_seconds",
        "estimated_seconds",
        "checkpoint_seconds",
        "priority_class",
        "constraints",
        "topology",
        "strategy",
        "on_cluster_lost",
        "labels",
        "data",
        "throughput",
        "retries",
    ]
)
POD_SET_FIELDS = frozenset(["name", "count", "image", "command", "args", "env", "cpu", "memory", "gpu"])
GPU_FIELDS = frozenset(["count", "models", "mig", "fraction", "vendor"])
GPU_VENDORS = ("nvidia", "amd", "intel", "google")
CONSTRAINT_FIELDS = frozenset(["clusters", "exclude_clusters", "regions", "capacity_types", "overflow", "reservation"])
TIER_FIELDS = frozenset(["after_seconds", "clusters", "regions"])
DATA_FIELDS = frozenset(["name", "read"])
TOPOLOGY_FIELDS = frozenset(["level", "mode"])


@dataclass(frozen=True, slots=True)
class Rules:
    """What an installation allows: simulated run times, and whether images must be pinned by digest."""

    allow_simulation: bool = False
    require_digest: bool = False


@dataclass(frozen=True, slots=True)
class PodSet:
    """`count` equal pods. Memory is in bytes, as requested; placement sees it rounded up to MiB."""

    name: str
    count: int
    image: str
    cpu_millicores: int
    memory_bytes: int
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    gpu: GpuRequest | None = None


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A user's validated request."""

    name: str
    pod_sets: tuple[PodSet, ...]
    completions: int | None = None
    deadline_seconds: int = DEFAULT_DEADLINE_SECONDS
    estimated_seconds: int | None = None
    checkpoint_seconds: int | None = None
    priority_class: str = "normal"
    constraints: Constraints = field(default_factory=Constraints)
    topology: Topology = field(default_factory=Topology)
    strategy: str = "balanced"
    on_cluster_lost: str = "hold"
    labels: tuple[tuple[str, str], ...] = ()
    data: tuple[DataNeed, ...] = ()
    throughput: tuple[ModelSpeed, ...] = ()
    retries: Retries = NO_WISHES

    @property
    def priority(self) -> int:
        """The larger number goes first."""
        return PRIORITIES[self.priority_class]


def spec_json(spec: JobSpec) -> dict[str, Any]:
    """The normal form, as stored and shown: every field is present (tiers, data, throughput and retries only if set),
    quantities are canonical, and sets are sorted.
    """
    return {
        "name": spec.name,
        "priority_class": spec.priority_class,
        "pod_sets": [_pod_set_json(pod_set) for pod_set in spec.pod_sets],
        "completions": spec.completions,
        "deadline_seconds": spec.deadline_seconds,
        "estimated_seconds": spec.estimated_seconds,
        "checkpoint_seconds": spec.checkpoint_seconds,
        "constraints": {
            "clusters": list(spec.constraints.clusters),
            "exclude_clusters": list(spec.constraints.exclude_clusters),
            "regions": list(spec.constraints.regions),
            "capacity_types": list(spec.constraints.capacity_types),
            **(
                {"overflow": [_tier_json(tier) for tier in spec.constraints.overflow]}
                if spec.constraints.overflow
                else {}
            ),
            **({"reservation": spec.constraints.reservation} if spec.constraints.reservation else {}),
        },
        "topology": {"level": spec.topology.level, "mode": spec.topology.mode},
        "strategy": spec.strategy,
        "on_cluster_lost": spec.on_cluster_lost,
        "labels": dict(spec.labels),
        **({"data": [_data_json(need) for need in spec.data]} if spec.data else {}),
        **({"throughput": {one.model: _speed_json(one) for one in spec.throughput}} if spec.throughput else {}),
        **({"retries": retries_json(spec.retries)} if spec.retries != NO_WISHES else {}),
    }


def _data_json(need: DataNeed) -> dict[str, Any]:
    return {"name": need.name, "read": None if need.size_bytes is None else memory_text(need.size_bytes)}


def _speed_json(one: ModelSpeed) -> int | float:
    whole, rest = divmod(one.speed_milli, SPEED_MILLI)
    return one.speed_milli / SPEED_MILLI if rest else whole


def _tier_json(tier: Tier) -> dict[str, Any]:
    return {"after_seconds": tier.after_seconds, "clusters": list(tier.clusters), "regions": list(tier.regions)}


def _pod_set_json(pod_set: PodSet) -> dict[str, Any]:
    return {
        "name": pod_set.name,
        "count": pod_set.count,
        "image": pod_set.image,
        "command": list(pod_set.command),
        "args": list(pod_set.args),
        "env": dict(pod_set.env),
        "cpu": cpu_text(pod_set.cpu_millicores),
        "memory": memory_text(pod_set.memory_bytes),
        "gpu": None if pod_set.gpu is None else _gpu_json(pod_set.gpu),
    }


def _gpu_json(gpu: GpuRequest) -> dict[str, Any]:
    named = {"models": list(gpu.models), **({"vendor": gpu.vendor} if gpu.vendor else {})}
    if gpu.fraction_milli:
        return {"fraction": f"0.{gpu.fraction_milli:03d}".rstrip("0"), **named}
    if gpu.mig:
        return {"mig": gpu.mig, "count": gpu.count, **named}
    return {"count": gpu.count, **named}


def shape_of(stored: Mapping[str, Any]) -> str:
    """32 hex digits, equal for stored specs that are the same to placement (whatever their name, labels or image)."""
    pods = [(item["name"], item["count"], item["cpu"], item["memory"], item["gpu"]) for item in stored["pod_sets"]]
    seen = [
        pods,
        stored["constraints"],
        stored["topology"],
        stored["strategy"],
        stored["estimated_seconds"],
        stored["priority_class"],
    ]
    if stored.get("checkpoint_seconds") is not None:
        seen.append({"checkpoint_seconds": stored["checkpoint_seconds"]})
    seen += [{name: stored[name]} for name in ("data", "throughput") if stored.get(name)]
    return blake2s(encode(seen), digest_size=16).hexdigest()


def encode(value: Any) -> bytes:
    """Canonical JSON: members sorted by name, no blanks."""
    return _canonical(value).encode()


def request_of(
    stored: Mapping[str, Any],
    *,
    job_id: UUID,
    tenant_path: str,
    shape: str,
    submitted_at: datetime | None = None,
    kind: str = "",
) -> JobRequest:
    """A stored spec as placement sees it. Trusts the normal form; requests of one shape differ in
    id, tenant and time.
    """
    constraints, topology = stored["constraints"], stored["topology"]
    return JobRequest(
        id=job_id,
        tenant_path=tenant_path,
        shape=shape,
        pod_sets=tuple(_pod_set_request(item) for item in stored["pod_sets"]),
        priority=PRIORITIES[stored["priority_class"]],
        submitted_at=submitted_at,
        constraints=Constraints(
            tuple(constraints["clusters"]),
            tuple(constraints["exclude_clusters"]),
            tuple(constraints["regions"]),
            tuple(constraints["capacity_types"]),
            overflow=tuple(
                Tier(tier["after_seconds"], tuple(tier["clusters"]), tuple(tier["regions"]))
                for tier in constraints.get("overflow", ())
            ),
            reservation=constraints.get("reservation", ""),
        ),
        topology=Topology(topology["level"], topology["mode"]),
        strategy=stored["strategy"],
        estimated_seconds=stored["estimated_seconds"],
        deadline_seconds=stored["deadline_seconds"],
        kind=kind,
        checkpoint_seconds=stored.get("checkpoint_seconds"),
        data=tuple(_data_need(item) for item in stored.get("data", ())),
        throughput=speeds_of(stored),
    )


def _data_need(stored: Mapping[str, Any]) -> DataNeed:
    return DataNeed(stored["name"], None if stored["read"] is None else whole_bytes(stored["read"]))


def speeds_of(stored: Mapping[str, Any]) -> tuple[ModelSpeed, ...]:
    """The throughputs in a stored spec, by GPU model."""
    told: Mapping[str, int | float] = stored.get("throughput", {})
    return tuple(ModelSpeed(model, round(told[model] * SPEED_MILLI)) for model in sorted(told))


def _pod_set_request(stored: Mapping[str, Any]) -> PodSetRequest:
    return PodSetRequest(
        name=stored["name"],
        count=stored["count"],
        cpu_millicores=millicores(stored["cpu"]),
        memory_mib=mib_rounded_up(whole_bytes(stored["memory"])),
        gpu=None if stored["gpu"] is None else gpu_request_of(stored["gpu"]),
    )


def gpu_request_of(stored: Mapping[str, Any]) -> GpuRequest:
    """The stored `gpu` member of a pod set as a value."""
    models = tuple(stored["models"])
    if "fraction" in stored:
        return GpuRequest(1, models, fraction_milli=millicores(stored["fraction"]), vendor=stored.get("vendor", ""))
    return GpuRequest(stored["count"], models, mig=stored.get("mig", ""), vendor=stored.get("vendor", ""))
