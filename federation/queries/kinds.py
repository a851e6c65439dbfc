"""The kind of a job's run: computed once per process for jobs of one tenant, name pattern and shape."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from federation.queries.runtimes import runtimes_of
from foundation.caches import Store
from placement.ranking.runtimes import Groups, groups_of, name_pattern
from placement.values.model import Runtime

MOST_KEPT = 200_000


class _Alike(NamedTuple):
    """What jobs of one kind share. The groups follow from it, because the shape is a digest of the pods too."""

    tenant_id: UUID
    name_pattern: str
    shape: str


_groups: Store[_Alike, Groups] = Store(MOST_KEPT)
_by_kind: Store[str, Groups] = Store(MOST_KEPT)


def kind_of(tenant_id: UUID, spec: Mapping[str, Any], shape: str) -> str:
    """Equal for jobs with similar runs."""
    known = known_kind(tenant_id, spec["name"], shape)
    if known is not None:
        return known
    groups = groups_of(tenant_id, spec)
    _groups.put(_Alike(tenant_id, name_pattern(spec["name"]), shape), groups)
    _by_kind.put(groups.job, groups)
    return groups.job


def known_kind(tenant_id: UUID, name: str, shape: str) -> str | None:
    """The kind, if it was computed before."""
    found = _groups.get(_Alike(tenant_id, name_pattern(name), shape))
    return None if found is None else found.job


def runtimes_of_kinds(kinds: Iterable[str]) -> dict[str, Runtime]:
    """The learned run times of these kinds, as far as they were computed in this process."""
    return runtimes_of([groups for kind in kinds if (groups := _by_kind.get(kind)) is not None])
