"""The data that jobs name, looked up outside the cycle: its size, and its sources."""

from collections.abc import Sequence
from dataclasses import replace

from clusters.engine.datasets import Catalogue, meant
from clusters.queries import known_data
from foundation.problems import FieldError, NotFound
from placement.values.datasets import DataNeed
from placement.values.model import JobRequest


def with_data(requests: Sequence[JobRequest]) -> tuple[JobRequest, ...]:
    """The requests with the current places of their data. No query if none of them names data.

    Jobs of one shape whose names mean different data differ in shape.
    """
    names = {need.name for request in requests for need in request.data}
    if not names:
        return tuple(requests)
    catalogue = known_data(names)
    return tuple(_with_data(request, catalogue) if request.data else request for request in requests)


def _with_data(request: JobRequest, catalogue: Catalogue) -> JobRequest:
    data = tuple(_known(request.tenant_path, need, catalogue) for need in request.data)
    shape = f"{request.shape} data {[(need.size_bytes, need.sources) for need in data]}"
    return replace(request, data=data, shape=shape)


def _known(tenant_path: str, need: DataNeed, catalogue: Catalogue) -> DataNeed:
    """The need with the dataset's known size and places; a dataset deleted meanwhile has no places."""
    found = meant(catalogue, tenant_path, need.name)
    if found is None:
        return need
    size = need.size_bytes or found.size_bytes
    return replace(need, size_bytes=size, sources=found.places, dataset_id=found.id)


def refuse_unknown_data(request: JobRequest) -> None:
    """Returns if the tenant has all datasets that its job names; else NotFound with each missing one (a foreign one
    looks the same).
    """
    if not request.data:
        return
    catalogue = known_data({need.name for need in request.data})
    errors = [
        FieldError(f"data[{index}].name", "not_found", "this tenant has no dataset of that name, nor has any above it")
        for index, need in enumerate(request.data)
        if meant(catalogue, request.tenant_path, need.name) is None
    ]
    if errors:
        raise NotFound("The job names a dataset that this tenant does not have.", errors=errors)
