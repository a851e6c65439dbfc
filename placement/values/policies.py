"""What tenants' policies say to placement."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StrategyWeights:
    """A tenant's own weights of a strategy; None keeps the strategy's weight."""

    strategy: str
    price: float | None = None
    free: float | None = None
    cluster_free: float | None = None
    stranding: float | None = None


@dataclass(frozen=True, slots=True)
class TenantPolicy:
    """A tenant's policy for its jobs and those of every tenant below it. An empty field sets no rule.

    `clusters`, `regions` and `flavors` are names in which `*` matches anything; jobs go only where all of them allow.
    """

    tenant_path: str
    default_strategy: str = ""
    strategies: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    capacity_types: tuple[str, ...] = ()
    flavors: tuple[str, ...] = ()
    weights: tuple[StrategyWeights, ...] = ()
    default_priority_class: str = ""
    consolidation: str = ""
    """Which running jobs may move so that others fit (`consolidation.CONSOLIDATION`)."""
