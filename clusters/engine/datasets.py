"""The names and sizes of datasets, and which dataset a tenant's job means by a name."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from .quantities import Implausible, parse

DATASET_PATTERN = r"^[a-z0-9]([a-z0-9._-]{0,118}[a-z0-9])?\Z"
DATASET_NAME = "lower-case letters, digits, '.', '_' and '-', at most 120, starting and ending with a letter or digit"
REGION_PATTERN = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z"
REGION = "letters, digits and `._-` only, at most 63"
MOST_BYTES = 2**60
MOST_PLACES = 20


class BadSize(ValueError):
    """Not a valid size of a dataset; `code` is the field's, the text gives the reason."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code


def size_of(text: str) -> int:
    """Bytes in a Kubernetes quantity such as `150Gi`. Raises BadSize."""
    try:
        found = parse(text)
    except Implausible:
        raise BadSize("bad_quantity", "a size as Kubernetes writes it, such as 150Gi") from None
    if found.denominator != 1 or not 1 <= found <= MOST_BYTES:
        raise BadSize("out_of_range", "whole bytes, from 1 to 1Ei")
    return found.numerator


def is_name(text: str) -> bool:
    """Whether this is a valid name of a dataset."""
    return re.match(DATASET_PATTERN, text) is not None


def is_region(text: str) -> bool:
    """Whether this can be a cluster's region."""
    return re.match(REGION_PATTERN, text) is not None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a dataset is stored: in `region`, or on one cluster in that region (empty if the cluster reports none)."""

    region: str
    cluster_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class KnownData:
    """A dataset as jobs of its tenant and its descendants see it."""

    tenant_path: str
    name: str
    size_bytes: int
    places: tuple[Place, ...]
    id: UUID | None = None


Catalogue = Mapping[str, Mapping[str, KnownData]]
"""By name, then by tenant's path."""


def catalogue_of(datasets: Iterable[KnownData]) -> Catalogue:
    """The datasets, indexed for lookup."""
    found: dict[str, dict[str, KnownData]] = {}
    for one in datasets:
        found.setdefault(one.name, {})[one.tenant_path] = one
    return found


def meant(catalogue: Catalogue, tenant_path: str, name: str) -> KnownData | None:
    """The dataset that a tenant's job means: its own, else the nearest ancestor's; None if there is none."""
    by_path = catalogue.get(name)
    while by_path:
        if tenant_path in by_path:
            return by_path[tenant_path]
        tenant_path, slash, _ = tenant_path.rpartition("/")
        if not slash:
            break
    return None
