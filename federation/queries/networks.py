"""The networks that jobs name, looked up outside the engine: where a tenant may use them, and what an attempt gets of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from clusters.engine.networks import Networks
from clusters.queries import known_networks
from federation.engine.objects.networks import promised_network
from foundation.problems import FieldError, NotFound
from placement.values.model import JobRequest
from placement.values.networks import NetworkNeed


def networks_of(requests: Sequence[JobRequest]) -> Networks:
    """The networks that these requests name, as they are now. No query if they name none."""
    return known_networks({need.name for request in requests for need in request.constraints.networks})


def with_networks(requests: Sequence[JobRequest]) -> tuple[JobRequest, ...]:
    """The requests with the clusters where each may use its networks.

    Jobs of one shape whose tenants may do so on different clusters differ in shape.
    """
    networks = networks_of(requests)
    return tuple(_with_networks(request, networks) if request.constraints.networks else request for request in requests)


def _with_networks(request: JobRequest, networks: Networks) -> JobRequest:
    needs = tuple(_known(request.tenant_path, need, networks) for need in request.constraints.networks)
    shape = f"{request.shape} networks {[[str(one) for one in need.clusters] for need in needs]}"
    return replace(request, constraints=replace(request.constraints, networks=needs), shape=shape)


def _known(tenant_path: str, need: NetworkNeed, networks: Networks) -> NetworkNeed:
    serving = (one.cluster_id for one in networks.get(need.name, {}).values() if one.serves(tenant_path))
    return replace(need, clusters=tuple(sorted(serving)))


def refuse_unknown_networks(request: JobRequest) -> None:
    """Returns if the tenant may use each network that its job names on some cluster; else NotFound with each missing
    one (a foreign one looks the same).
    """
    [known] = with_networks([request])
    errors = [
        FieldError(f"networks.{need.name}", "not_found", "no cluster has a network of that name for this tenant")
        for need in known.constraints.networks
        if not need.clusters
    ]
    if errors:
        raise NotFound("The job uses a network that this tenant does not have.", errors=errors)


def promised_networks(
    pod_set: Mapping[str, Any], cluster_id: UUID, tenant_path: str, networks: Networks
) -> list[dict[str, Any]] | None:
    """The attachments of the pods of a set on a cluster, to be kept with the attempt; None if the tenant may no longer use one."""
    found = [networks.get(name, {}).get(cluster_id) for name in pod_set.get("networks", ())]
    serving = [one for one in found if one is not None and one.serves(tenant_path)]
    return [promised_network(one) for one in serving] if len(serving) == len(found) else None
