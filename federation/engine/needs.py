"""Where jobs may run, as recommendations need it: read from the parts of their stored specs that a statement selects."""

from collections.abc import Mapping
from typing import Any

from billing.engine.recommendations import Needs

PARTICULAR = (
    "gpu_memory_gib_min",
    "gpu_architecture",
    "gpu_compute_capability_min",
    "gpu_driver_min",
    "gpu_cuda_min",
)


def needs_of(constraints: Mapping[str, Any], *, is_bound: bool) -> Needs:
    """Of stored constraints. A job with tiers of places is recommended no other cluster: which tier applies depends on its wait."""
    return Needs(
        clusters=frozenset(constraints.get("clusters") or ()),
        exclude_clusters=frozenset(constraints.get("exclude_clusters") or ()),
        regions=tuple(constraints.get("regions") or ()),
        capacity_types=frozenset(constraints.get("capacity_types") or ()),
        is_bound=is_bound or bool(constraints.get("overflow")),
        is_particular=any(constraints.get(name) for name in PARTICULAR),
    )
