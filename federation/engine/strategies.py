"""How candidates are ranked: strategies are weights over four terms, documented in docs/reference/strategies.md.

    price          how much dearer than the cheapest candidate: 0.25 = a quarter dearer
    free           which part of the flavor's devices is free in the cluster: 0 none, 1 all (negative: the emptier the better)
    cluster_free   the same over all devices of the cluster
    stranding      how many GPUs would lose their use for the pods that usually come (`fragmentation`); for single pods

The lowest sum wins; equal sums keep the order of cluster ids and flavor names. Before all else comes what has a price,
then what has none, then pods without a GPU on nodes that have some.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .candidates import Ask
from .fleet import Floats, Mask


@dataclass(frozen=True, slots=True)
class Weights:
    """What a strategy counts."""

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
_A_TIER = 1e9
"""More than any sum of terms."""


def price_terms(strategy: str, ask: Ask, is_allowed: Mask) -> Floats:
    """The part of each candidate's score that stays the same for the whole cycle."""
    cost = np.nan_to_num(ask.hourly_cost)
    priced = cost[is_allowed & (cost > 0)]
    cheapest = float(priced.min()) if priced.size else 1.0
    tier = np.isnan(ask.hourly_cost) + 2 * ask.borrows_gpu_nodes
    terms: Floats = STRATEGIES[strategy].price * (cost / cheapest - 1.0) + _A_TIER * tier
    return terms
