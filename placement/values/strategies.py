"""The strategies by name: weights over five terms, documented in docs/reference/strategies.md.

`ranking/strategies.py` ranks the candidates by them. A policy may replace a strategy's weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of a strategy's terms."""

    price: float
    free: float = 0.0
    cluster_free: float = 0.0
    stranding: float = 0.0
    carbon: float = 0.0


STRATEGIES: Mapping[str, Weights] = {
    "balanced": Weights(price=1.0, free=0.2),
    "cheapest": Weights(price=1000.0, free=0.2),
    "soonest": Weights(price=0.1, free=-1.0),
    "pack": Weights(price=0.001, cluster_free=0.25, stranding=1.0),
    "spread": Weights(price=0.001, free=-1.0),
    "greenest": Weights(price=0.001, free=0.0002, carbon=1000.0),
}
STRATEGY_NAMES = tuple(STRATEGIES)
"""The default of a tenant whose policies set none is the first of these that they allow."""
TERMS = ("price", "free", "cluster_free", "stranding")
BOUNDS: Mapping[str, tuple[int, int]] = {
    "price": (0, 1000),
    "free": (-10, 10),
    "cluster_free": (-10, 10),
    "stranding": (0, 10),
}
"""The bounds of a tenant's own weights. No policy sets that of carbon, which `greenest` alone has."""
