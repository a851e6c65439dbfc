"""The normal form of a job spec, in which it is stored and shown: how it is written, its digest by shape, and what
placement sees of it.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from hashlib import blake2s
from typing import Any
from uuid import UUID

from clusters.engine.images import normal_name
from placement.values.datasets import DataNeed
from placement.values.gpu_needs import GpuNeeds
from placement.values.model import Constraints, GpuRequest, JobRequest, ModelSpeed, PodSetRequest, Tier, Topology
from placement.values.networks import NetworkNeed
from placement.values.quantities import mib_rounded_up, millicores, whole_bytes
from placement.values.storages import StorageNeed

from .elastic import elastic_of
from .gpu_needs import gpu_needs_of
from .init_and_sidecars import has_sidecars, held_cpu_millicores, held_memory_bytes
from .job_fields import JOB_FIELDS, Part
from .networks import network_names
from .resources import resource_amounts
from .secrets import secrets_named
from .spec import SPEED_MILLI, JobSpec

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode
_STEERING = tuple(field.name for field in JOB_FIELDS if field.steers_placement)
_WORD_OF = {-100: "low", 0: "normal", 100: "high"}
"""What digests have in place of these priorities: when each had a name, digests were made of the names."""
_STEERING_AS_STORED = tuple(
    field.name for field in JOB_FIELDS if field.steers_placement and not isinstance(field.kind, Part)
)


def spec_json(spec: JobSpec) -> dict[str, Any]:
    """The normal form, as stored and shown: quantities are canonical and sets are sorted."""
    found: dict[str, Any] = {}
    for field in JOB_FIELDS:
        value = getattr(spec, field.name)
        if field.is_always_stored or value != field.default:
            found[field.name] = field.json(value)
    return found


def shape_of(stored: Mapping[str, Any], priority: int = 0) -> str:
    """32 hex digits, equal for stored specs that are the same to placement (whatever their name, labels, image or the
    name of their priority class).
    """
    pods = [(item["name"], item["count"], item["cpu"], item["memory"], item["gpu"]) for item in stored["pod_sets"]]
    seen = [
        pods,
        stored["constraints"],
        stored["topology"],
        stored["strategy"],
        stored["estimated_seconds"],
        _WORD_OF.get(priority, priority),
    ]
    seen += [
        ["sidecars", item["name"], held_cpu_millicores(item), held_memory_bytes(item)]
        for item in stored["pod_sets"]
        if item.get("sidecars")
    ]
    seen += [["resources", item["name"], item["resources"]] for item in stored["pod_sets"] if item.get("resources")]
    seen += [{name: stored[name]} for name in _STEERING if stored.get(name) is not None]
    seen += [
        ["storage", need.name, need.is_written, *([need.size_bytes] if need.size_bytes else [])]
        for need in storage_needs(stored)
    ]
    seen += [["network", name] for name in network_names(stored)]
    seen += [["secret", name, kind] for name, kind in secret_needs(stored)]
    return blake2s(encode(seen), digest_size=16).hexdigest()


def encode(value: Any) -> bytes:
    """Canonical JSON: members sorted by name, no blanks."""
    return _canonical(value).encode()


def request_of(  # noqa: PLR0913 - the spec, and each column that a request is made from
    stored: Mapping[str, Any],
    *,
    job_id: UUID,
    tenant_path: str,
    shape: str,
    priority: int = 0,
    submitted_at: datetime | None = None,
    kind: str = "",
    stated_by: str = "",
    user: UUID | None = None,
) -> JobRequest:
    """A stored spec as placement sees it. Trusts the normal form; requests of one shape differ in
    id, tenant and time. `priority` is the job's own, which its class had when it was submitted. An elastic job has its fewest pods.
    """
    constraints, topology, elastic = stored["constraints"], stored["topology"], elastic_of(stored)
    pod_sets = [_pod_set_request(item, gpu_needs_of(constraints)) for item in stored["pod_sets"]]
    if elastic is not None:
        pod_sets[elastic.position] = replace(pod_sets[elastic.position], count=elastic.fewest)
    return JobRequest(
        id=job_id,
        tenant_path=tenant_path,
        shape=shape,
        pod_sets=tuple(pod_sets),
        priority=priority,
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
            storages=storage_needs(stored),
            networks=tuple(NetworkNeed(name) for name in network_names(stored)),
            secrets=secret_needs(stored),
            needs_sidecars=has_sidecars(stored),
        ),
        topology=Topology(topology["level"], topology["mode"]),
        strategy=stored["strategy"],
        estimated_seconds=stored["estimated_seconds"],
        deadline_seconds=stored["deadline_seconds"],
        kind=kind,
        stated_by=stated_by,
        user=user,
        class_name=stored.get("priority_class", ""),
        data=tuple(_data_need(item) for item in stored.get("data", ())),
        throughput=_speeds_of(stored),
        images=_normal_names(tuple(item["image"] for item in stored["pod_sets"])),
        elastic=elastic,
        **{name: stored[name] for name in _STEERING_AS_STORED if name in stored},
    )


def storage_needs(stored: Mapping[str, Any]) -> tuple[StorageNeed, ...]:
    """The storages that a stored spec names, by name: each once, and once more for the largest new volume of it."""
    written: dict[tuple[str, bool], bool] = {}
    largest: dict[tuple[str, bool], int] = {}
    for pod_set in stored["pod_sets"]:
        for mount in pod_set.get("mounts", ()):
            key = mount["storage"], "size" in mount
            written[key] = written.get(key, False) or not mount["read_only"]
            largest[key] = max(largest.get(key, 0), whole_bytes(mount["size"]) if "size" in mount else 0)
    return tuple(StorageNeed(key[0], written[key], size_bytes=largest[key]) for key in sorted(written))


def secret_needs(stored: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Name and kind of each secret that a stored spec names."""
    return tuple(sorted({named for pod_set in stored["pod_sets"] for named in secrets_named(pod_set)}))


@lru_cache(maxsize=10_000)
def _normal_names(images: tuple[str, ...]) -> tuple[str, ...]:
    """One value for all jobs with these images."""
    return tuple(map(normal_name, images))


def _data_need(stored: Mapping[str, Any]) -> DataNeed:
    size = None if stored["read"] is None else whole_bytes(stored["read"])
    return DataNeed(stored["name"], size, stage=stored.get("stage", False))


def _speeds_of(stored: Mapping[str, Any]) -> tuple[ModelSpeed, ...]:
    """The throughputs in a stored spec, by GPU model."""
    told: Mapping[str, int | float] = stored.get("throughput", {})
    return tuple(ModelSpeed(model, round(told[model] * SPEED_MILLI)) for model in sorted(told))


def _pod_set_request(stored: Mapping[str, Any], needs: GpuNeeds | None) -> PodSetRequest:
    return PodSetRequest(
        name=stored["name"],
        count=stored["count"],
        cpu_millicores=held_cpu_millicores(stored),
        memory_mib=mib_rounded_up(held_memory_bytes(stored)),
        gpu=None if stored["gpu"] is None else gpu_request_of(stored["gpu"], needs),
        resources=resource_amounts(stored) if "resources" in stored else (),
    )


def gpu_request_of(stored: Mapping[str, Any], needs: GpuNeeds | None = None) -> GpuRequest:
    """The stored `gpu` member of a pod set as a value, with what its job's GPUs must be."""
    models, vendor = tuple(stored["models"]), stored.get("vendor", "")
    if "fraction" in stored:
        return GpuRequest(1, models, fraction_milli=millicores(stored["fraction"]), vendor=vendor, needs=needs)
    return GpuRequest(stored["count"], models, mig=stored.get("mig", ""), vendor=vendor, needs=needs)
