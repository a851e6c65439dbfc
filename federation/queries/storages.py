"""The storages that jobs mount, looked up outside the engine: where a tenant may, and what an attempt gets of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from clusters.engine.declared import is_for
from clusters.engine.storages import KnownStorage, Shelves
from clusters.queries import known_storages
from federation.engine.objects.mounts import promised_mount
from foundation.problems import FieldError, Invalid, NotFound
from placement.values.model import JobRequest
from placement.values.quantities import memory_text, whole_bytes
from placement.values.storages import StorageNeed


def storages_of(requests: Sequence[JobRequest]) -> Shelves:
    """The storages that these requests name, as they are now. No query if they name none."""
    return known_storages({need.name for request in requests for need in request.constraints.storages})


def with_storages(requests: Sequence[JobRequest]) -> tuple[JobRequest, ...]:
    """The requests with the clusters where each may mount its storages.

    Jobs of one shape whose tenants may do so on different clusters differ in shape.
    """
    shelves = storages_of(requests)
    return tuple(_with_storages(request, shelves) if request.constraints.storages else request for request in requests)


def _with_storages(request: JobRequest, shelves: Shelves) -> JobRequest:
    needs = tuple(_known(request.tenant_path, need, shelves) for need in request.constraints.storages)
    shape = f"{request.shape} storages {[[str(one) for one in need.clusters] for need in needs]}"
    if any(need.as_image for need in needs):
        shape += f" images {[[str(one) for one in need.as_image] for need in needs]}"
    return replace(request, constraints=replace(request.constraints, storages=needs), shape=shape)


def _known(tenant_path: str, need: StorageNeed, shelves: Shelves) -> StorageNeed:
    serving = [
        one
        for one in shelves.get(need.name, {}).values()
        if one.serves(tenant_path, is_written=need.is_written, size_bytes=need.size_bytes)
    ]
    return replace(
        need,
        clusters=tuple(sorted(one.cluster_id for one in serving)),
        as_image=tuple(sorted(one.cluster_id for one in serving if one.image)),
    )


def refuse_unknown_storages(request: JobRequest) -> None:
    """Returns if the tenant may mount each storage that its job names on some cluster; else NotFound with each missing
    one (a foreign one looks the same), or Invalid with each that is of another kind everywhere, or gives only smaller volumes.
    """
    shelves = storages_of([request])
    errors, misused = [], []
    for need in request.constraints.storages:
        serving = [one for one in shelves.get(need.name, {}).values() if is_for(one, request.tenant_path)]
        if not serving:
            told = "no cluster has a storage of that name for this tenant"
            errors.append(FieldError(f"storages.{need.name}", "not_found", told))
        elif why := _why_misused(need, serving):
            misused.append(FieldError(f"storages.{need.name}", "not_allowed", why))
    if errors:
        raise NotFound("The job mounts a storage that this tenant does not have.", errors=errors)
    if misused:
        raise Invalid("The job mounts a storage in a way in which no cluster offers it.", errors=misused)


def _why_misused(need: StorageNeed, serving: Sequence[KnownStorage]) -> str:
    """Why no storage of this name gives what the job wants of it; empty if some storage does, to read it if not to write to it."""
    if any(one.serves(one.tenant_path, size_bytes=need.size_bytes) for one in serving):
        return ""
    largest = max(one.most_bytes for one in serving)
    if not need.size_bytes:
        return "it is a storage class: its mount needs a `size`"
    if not largest:
        return "it is no storage class: its mount takes no `size`"
    return f"a pod may have at most {memory_text(largest)} of it"


def promised_mounts(
    pod_set: Mapping[str, Any], cluster_id: UUID, tenant_id: UUID, tenant_path: str, shelves: Shelves
) -> list[dict[str, Any]] | None:
    """What the pods of a set mount on a cluster, to be kept with the attempt; None if the tenant may no longer do so."""
    found = []
    for mount in pod_set.get("mounts", ()):
        storage = shelves.get(mount["storage"], {}).get(cluster_id)
        size = whole_bytes(mount["size"]) if "size" in mount else 0
        if storage is None or not storage.serves(tenant_path, is_written=not mount["read_only"], size_bytes=size):
            return None
        found.append(promised_mount(mount, storage, tenant_id))
    return found
