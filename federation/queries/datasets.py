"""The data that jobs name, looked up outside the cycle: how much there is to bring, and from where."""

from collections.abc import Sequence
from dataclasses import replace

from clusters.engine.datasets import Catalogue, meant
from clusters.queries import known_data
from foundation.problems import FieldError, NotFound
from placement.values.datasets import DataNeed
from placement.values.model import JobRequest


def with_data(requests: Sequence[JobRequest]) -> tuple[JobRequest, ...]:
    """The requests with where their data lies now. No query where none of them names any.

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
    """What is known of a dataset; one that was forgotten meanwhile lies nowhere."""
    found = meant(catalogue, tenant_path, need.name)
    if found is None:
        return need
    return DataNeed(need.name, need.size_bytes or found.size_bytes, found.places)


def refuse_unknown_data(request: JobRequest) -> None:
    """Returns if the tenant knows all data that its job names; NotFound with each that it does not (a foreign one looks the same)."""
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
