"""Plain gateways with the engine's order of the queue, so that a comparison does not count the order's merit as placement's.

    cheapest_ratio    cheapest_first, with the queue by response ratio
    easy_backfill     EASY backfill (`backfill`), likewise

Neither has shares: the jobs of all tenants are in one order.
"""

from collections.abc import Callable, Mapping
from functools import partial

from .backfill import EasyBackfill
from .gateways import GATEWAYS, PLAIN, Gateway, plain_gateway
from .queues import Ordered, RatioOrder


def cheapest_ratio() -> Ordered:
    """The cheapest cluster that holds the job, in the order of response ratio."""
    return Ordered(plain_gateway("cheapest_first"), "cheapest_ratio")


def easy_backfill() -> EasyBackfill:
    """EASY backfill in the order of response ratio."""
    return EasyBackfill(RatioOrder())


COMPARED: Mapping[str, Callable[[], Gateway]] = {
    **{name: partial(plain_gateway, name) for name in PLAIN},
    "cheapest_ratio": cheapest_ratio,
    "easy_backfill": easy_backfill,
}
"""All gateways but the engine, by name."""
NAMES = (*GATEWAYS, *(name for name in COMPARED if name not in GATEWAYS))
