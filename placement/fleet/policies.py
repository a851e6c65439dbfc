"""Tenants' policies in a cycle: a tenant's own policy applies to it together with those of every tenant above it.

Every list on the path must allow a cluster, a flavor or a strategy. The default strategy, the default priority
class, the weights and what may be moved come from the nearest policy on the path that sets them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from placement.values.model import FleetCluster, FleetFlavor, StrategyWeights, TenantPolicy
from placement.values.strategies import STRATEGY_NAMES


@dataclass(frozen=True, slots=True)
class Policy:
    """The policies that apply to a tenant: those on its path, root first."""

    path: tuple[TenantPolicy, ...] = ()

    def cluster_fault(self, cluster: FleetCluster) -> str:
        """A text that names the policy which excludes a cluster; empty if none does."""
        for policy in self.path:
            if policy.clusters and not _named(cluster.name, policy.clusters):
                return f"the policy of {policy.tenant_path} allows only the clusters {', '.join(policy.clusters)}"
            if policy.regions and not _named(cluster.region, policy.regions):
                return f"the policy of {policy.tenant_path} allows only the regions {', '.join(policy.regions)}"
        return ""

    def flavor_fault(self, flavor: FleetFlavor) -> str:
        """Likewise for a flavor."""
        for policy in self.path:
            if policy.capacity_types and flavor.capacity_type not in policy.capacity_types:
                return f"the policy of {policy.tenant_path} allows only {', '.join(policy.capacity_types)} capacity"
            if policy.flavors and not _named(flavor.name, policy.flavors):
                return f"the policy of {policy.tenant_path} allows only the flavors {', '.join(policy.flavors)}"
        return ""

    def strategy_fault(self, strategy: str) -> str:
        """Likewise for a strategy."""
        for policy in self.path:
            if policy.strategies and strategy not in policy.strategies:
                return f"the policy of {policy.tenant_path} allows only {', '.join(policy.strategies)}"
        return ""

    @property
    def default_strategy(self) -> str:
        """The strategy of a job that names none: the nearest default that all allow, else the first strategy that all
        allow.

        If the policies on the path together allow none, it is the first strategy of all.
        """
        said = [policy.default_strategy for policy in reversed(self.path) if policy.default_strategy]
        allowed = [name for name in (*said, *STRATEGY_NAMES) if not self.strategy_fault(name)]
        return next(iter(allowed), STRATEGY_NAMES[0])

    @property
    def default_priority_class(self) -> str:
        """The priority class of a job that names none, as the nearest policy that sets one has it; empty if none does."""
        said = (policy.default_priority_class for policy in reversed(self.path) if policy.default_priority_class)
        return next(said, "")

    @property
    def consolidation(self) -> str:
        """Which running jobs may move so that others fit, as the nearest policy that says so has it; `never` if none does."""
        said = (policy.consolidation for policy in reversed(self.path) if policy.consolidation)
        return next(said, "never")

    def strategy_for(self, wished: str) -> str:
        """The strategy that ranks a job: the one it names, or the default if that one is no longer allowed."""
        return self.default_strategy if self.strategy_fault(wished) else wished

    def own_weights(self, strategy: str) -> StrategyWeights | None:
        """The weights that the nearest policy on the path sets, if any."""
        for policy in reversed(self.path):
            for weights in policy.weights:
                if weights.strategy == strategy:
                    return weights
        return None


NO_POLICY = Policy()


class PolicyBook:
    """The policies of all tenants, by path. Tenants with the same policies get the identical object."""

    def __init__(self, policies: Iterable[TenantPolicy]) -> None:
        self._said = {policy.tenant_path: policy for policy in policies}
        self._of_path: dict[str, Policy] = {}
        self._shared: dict[tuple[str, ...], Policy] = {(): NO_POLICY}

    def of(self, tenant_path: str) -> Policy:
        """The policies that apply to a tenant."""
        found = self._of_path.get(tenant_path)
        if found is None:
            saying = tuple(path for path in prefixes_of(tenant_path) if path in self._said) if self._said else ()
            found = self._shared.get(saying)
            if found is None:
                found = self._shared[saying] = Policy(tuple(self._said[path] for path in saying))
            self._of_path[tenant_path] = found
        return found


def prefixes_of(tenant_path: str) -> list[str]:
    """The paths from the root to the tenant."""
    steps = tenant_path.split("/")
    return ["/".join(steps[:depth]) for depth in range(1, len(steps) + 1)]


def _named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
