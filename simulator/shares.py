"""Fair share in a replay: what tenants hold, and the same decayed past use that the gateway counts."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from placement.values.shares import COUNTED, FairShare, TenantShare

from .values import TraceJob


@dataclass(frozen=True, slots=True)
class FairShareRule:
    """How a replay shares turns, like the settings SWITCHYARD_FAIR_SHARE_… and the weights of tenants, by path."""

    weights: Mapping[str, float] = field(default_factory=dict)
    half_life_seconds: float = 86_400.0
    strength: float = 1.0
    credit_cap: float = 0.25


USUAL = FairShareRule()


class PastUses:
    """What each tenant held until now, as an exponentially weighted mean."""

    def __init__(self, rule: FairShareRule) -> None:
        self._rule = rule
        self._held: dict[str, dict[str, int]] = {}
        self._idle: Counter[tuple[str, str]] = Counter()
        """By tenant and resource, what is idle on nodes that are kept for its jobs: it counts as used, not as held."""
        self._used: dict[str, dict[str, float]] = {}
        self._at = 0.0

    def shares(self, running: Iterable[TraceJob], now: float) -> FairShare:
        """The shares at `now`, when these jobs run. Since the last call, what ran then or was placed then counts as held."""
        left = 0.5 ** ((now - self._at) / self._rule.half_life_seconds)
        for path in {*self._held, *self._used, *(path for path, _ in self._idle)}:
            held, used = self._held.get(path, {}), self._used.setdefault(path, {})
            for name in COUNTED:
                taken = held.get(name, 0) + self._idle[path, name]
                used[name] = used.get(name, 0.0) * left + taken * (1 - left)
        self._held, self._at = {}, now
        self._idle.clear()
        self.hold(running)
        weights = self._rule.weights
        paths = sorted({*self._held, *self._used, *weights})
        return FairShare(
            tuple(
                TenantShare(path, weights.get(path, 1.0), self._held.get(path, {}), dict(self._used.get(path, {})))
                for path in paths
            ),
            self._rule.strength,
            self._rule.credit_cap,
        )

    def keep(self, rooms: Iterable[tuple[str, Mapping[str, int]]]) -> None:
        """Counts what is idle on nodes that are kept from now on, with the tenants for whose jobs they are."""
        for path, idle in rooms:
            self._idle.update({(path, name): amount for name, amount in idle.items()})

    def hold(self, jobs: Iterable[TraceJob]) -> None:
        """Counts these jobs as held from now on."""
        for job in jobs:
            own = self._held.setdefault(job.tenant, dict.fromkeys(COUNTED, 0))
            own["gpu"] += job.milli
            own["cpu"] += job.pods * job.cpu_millicores
            own["memory"] += job.pods * job.memory_mib
