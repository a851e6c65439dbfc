"""How candidates are ranked: strategies are weights over four terms, documented in docs/reference/strategies.md.

price          how much dearer than the cheapest candidate, per hour of work (`work`): 0.25 = a quarter dearer free
the free part of the flavor's devices in the cluster: 0 none, 1 all (negative: the emptier the better) cluster_free
the same over all devices of the cluster stranding      the GPUs that would be unusable for the usual pods
(`fragmentation`); for jobs of one pod set

The lowest sum wins; equal sums keep the order of cluster ids and flavor names. Candidates with a price rank before all
others, then those without a price for the place or the data's move, then pods without a GPU on nodes with GPUs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from placement.fleet.policies import Policy
from placement.fleet.pools import Floats, Mask

from .candidates import Ask
from .work import Work


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a strategy's terms."""

    price: float
    free: float = 0.0
    cluster_free: float = 0.0
    stranding: float = 0.0


STRATEGIES: Mapping[str, Weights] = {
    "cheapest": Weights(price=1000.0, free=0.2),
    "soonest": Weights(price=0.1, free=-1.0),
    "pack": Weights(price=0.001, cluster_free=0.25, stranding=1.0),
    "spread": Weights(price=0.001, free=-1.0),
    "balanced": Weights(price=1.0, free=0.2),
}
TERMS = ("price", "free", "cluster_free", "stranding")
BOUNDS: Mapping[str, tuple[int, int]] = {
    "price": (0, 1000),
    "free": (-10, 10),
    "cluster_free": (-10, 10),
    "stranding": (0, 10),
}
"""The bounds of a tenant's own weights."""
_A_TIER = 1e9
"""More than any sum of terms: the largest weight of 1,000 times at most 4e5 for the price of 1e21 times the
cheapest."""
_LINEAR = 1e4


def weights_of(strategy: str, policy: Policy) -> Weights:
    """The strategy's weights for a tenant with this policy."""
    weights, own = STRATEGIES[strategy], policy.own_weights(strategy)
    if own is None:
        return weights
    said = {name: value for name in TERMS if (value := getattr(own, name)) is not None}
    return replace(weights, **said)


def price_terms(weights: Weights, ask: Ask, is_allowed: Mask, work: Work | None) -> Floats:
    """The part of each candidate's score that does not change during a cycle."""
    cost = np.nan_to_num(ask.hourly_cost)
    is_unknown = np.isnan(ask.hourly_cost)
    if work is not None:
        cost = work.hourly(cost, ask)
        is_unknown |= work.is_unknown(ask)
    cheapest = _cheapest(cost, is_allowed & ~is_unknown, is_allowed)
    tier = is_unknown + 2 * ask.borrows_gpu_nodes
    terms: Floats = weights.price * _bounded(cost / cheapest - 1.0) + _A_TIER * tier
    return terms


def _bounded(times: Floats) -> Floats:
    """Grows with the cost without end, yet stays below the weight of a tier: beyond _LINEAR times the cheapest,
    logarithmically.
    """
    bounded: Floats = np.minimum(times, _LINEAR) + _LINEAR * np.log(np.maximum(times / _LINEAR, 1.0))
    return bounded


def _cheapest(cost: Floats, known: Mask, allowed: Mask) -> float:
    """The lowest known cost of the allowed candidates, else of any; 1 if nothing has a cost."""
    for some in (known, allowed):
        costs = cost[some & (cost > 0)]
        if costs.size:
            return float(costs.min())
    return 1.0
