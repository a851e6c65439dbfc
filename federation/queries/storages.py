"""The storages that jobs mount, looked up outside the engine: where a tenant may, and what an attempt gets of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from clusters.engine.storages import Shelves
from clusters.queries import known_storages
from federation.engine.objects.mounts import promised_mount
from foundation.problems import FieldError, NotFound
from placement.values.model import JobRequest
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
    return replace(request, constraints=replace(request.constraints, storages=needs), shape=shape)


def _known(tenant_path: str, need: StorageNeed, shelves: Shelves) -> StorageNeed:
    serving = (
        one for one in shelves.get(need.name, {}).values() if one.serves(tenant_path, is_written=need.is_written)
    )
    return replace(need, clusters=tuple(sorted(one.cluster_id for one in serving)))


def refuse_unknown_storages(request: JobRequest) -> None:
    """Returns if the tenant may mount each storage that its job names on some cluster; else NotFound with each missing
    one (a foreign one looks the same).
    """
    shelves = storages_of([request])
    errors = [
        FieldError(f"storages.{need.name}", "not_found", "no cluster has a storage of that name for this tenant")
        for need in request.constraints.storages
        if not any(one.serves(request.tenant_path) for one in shelves.get(need.name, {}).values())
    ]
    if errors:
        raise NotFound("The job mounts a storage that this tenant does not have.", errors=errors)


def promised_mounts(
    pod_set: Mapping[str, Any], cluster_id: UUID, tenant_id: UUID, tenant_path: str, shelves: Shelves
) -> list[dict[str, Any]] | None:
    """What the pods of a set mount on a cluster, to be kept with the attempt; None if the tenant may no longer do so."""
    found = []
    for mount in pod_set.get("mounts", ()):
        storage = shelves.get(mount["storage"], {}).get(cluster_id)
        if storage is None or not storage.serves(tenant_path, is_written=not mount["read_only"]):
            return None
        found.append(promised_mount(mount, storage, tenant_id))
    return found
