"""Weighted max-min fair division, and how far what tenants hold is from it. Knows nothing of the engine's own arithmetic.

A tenant's want is the part of each resource of the fleet that its running and waiting jobs ask for together. Its dominant share
is the largest of these parts. All shares rise together, each by its weight, until the tenant has all that it wants, or a
resource that it needs is used up: weighted dominant resource fairness (Ghodsi et al., NSDI 2011), in closed form from one event to
the next.
"""

from collections.abc import Mapping, Sequence

Parts = Sequence[float]
"""A part of the fleet for each resource."""
TINY = 1e-9


def fair_shares(wants: Mapping[str, Parts], weights: Mapping[str, float]) -> dict[str, float]:
    """The dominant share that each tenant should have; `weights` is 1 where it has none."""
    dominant = {tenant: max(parts, default=0.0) for tenant, parts in wants.items()}
    shares = dict.fromkeys(wants, 0.0)
    left = [1.0] * max((len(parts) for parts in wants.values()), default=0)
    rising = {tenant for tenant, most in dominant.items() if most > TINY}
    while rising:
        speeds = {tenant: weights.get(tenant, 1.0) for tenant in rising}
        per_level = [
            sum(speeds[tenant] * wants[tenant][n] / dominant[tenant] for tenant in rising) for n in range(len(left))
        ]
        to_want = ((dominant[tenant] - shares[tenant]) / speed for tenant, speed in speeds.items())
        to_end = (room / rate for room, rate in zip(left, per_level, strict=True) if rate > TINY)
        level = min(*to_want, *to_end)
        for tenant, speed in speeds.items():
            shares[tenant] += level * speed
        left = [room - level * rate for room, rate in zip(left, per_level, strict=True)]
        used_up = [n for n, room in enumerate(left) if room <= TINY]
        rising = {
            tenant
            for tenant in rising
            if dominant[tenant] - shares[tenant] > TINY and all(wants[tenant][n] <= TINY for n in used_up)
        }
    return shares


def is_contended(wants: Mapping[str, Parts]) -> bool:
    """Whether all wants together are more than there is of some resource."""
    return any(sum(column) > 1.0 + TINY for column in zip(*wants.values(), strict=True))


def shortfall(held: Mapping[str, float], fair: Mapping[str, float]) -> float:
    """What tenants lack of their fair shares, as a part of all of them: 0 to 1."""
    return sum(max(0.0, share - held.get(tenant, 0.0)) for tenant, share in fair.items()) / max(
        TINY, sum(fair.values())
    )
