"""What the order of turns is made from: the weight of each tenant, what it holds, and what it used."""

from collections.abc import Mapping
from dataclasses import dataclass, field

COUNTED = ("gpu", "cpu", "memory")
"""The resources that count: milli-GPU of any model, millicores, MiB."""


@dataclass(frozen=True, slots=True)
class TenantShare:
    """A tenant's own part, without that of the tenants below it, in base units by resource.

    `used` is the exponentially weighted mean of what it held in the past, running work included.
    """

    path: str
    weight: float = 1.0
    held: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PastCapacity:
    """What a cluster had in the past: the same weighted mean as of past use, of all its nodes, in the order of COUNTED. It may
    have left. Only tenants at or below `owner_path` could use it.
    """

    owner_path: str
    amounts: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class FairShare:
    """The tenants with a weight other than 1, holds or past use. `strength` is what a unit of past use counts, in units
    held now; 0 forgets the past. `credit_cap` is the most that past use moves a tenant, forwards or back, as a part of
    its fair part; None: no bound. Past use is a part of what tenants could use in the past: `past`, or what they can use now
    where that is empty.
    """

    tenants: tuple[TenantShare, ...] = ()
    strength: float = 1.0
    credit_cap: float | None = None
    past: tuple[PastCapacity, ...] = ()
