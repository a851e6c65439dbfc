"""What quota leaves of a flavor on a cluster: the tenant's own, what it may borrow, and what others may take back."""

from dataclasses import dataclass

from placement.fleet.limits import Lines
from placement.values.model import FleetFlavor, LimitState
from quotas.engine.origin import Lenders, room


@dataclass(frozen=True, slots=True)
class FlavorRoom:
    """What the limits leave of a flavor, in base units of `resource`: `gpu`, or `cpu` for work without a GPU.

    `own` stays within the nominal amounts, `guaranteed` is the part of it that no other tenant can take, and `borrowable` the
    rest of what is free; None if no limit counts it. `owed` is the most that others may take back of what is held now under one
    of the limits, and `reclaimers` are those tenants.
    """

    flavor: str
    resource: str
    guaranteed: int | None
    own: int | None
    borrowable: int | None
    owed: int
    reclaimers: tuple[str, ...]


def flavor_room(flavor: FleetFlavor, chains: Lines, lenders: Lenders[LimitState], *, has_gpu: bool) -> FlavorRoom:
    """What these limits leave of a flavor: the least that any of them leaves, because each counts the same units."""
    resources = ("gpu", f"gpu:{flavor.gpu_model}") if has_gpu else ("cpu",)
    counting = [chain for resource in resources for chain in chains.get(resource, ())]
    rooms = [room(chain, lenders) for chain in counting]
    if not rooms:
        return FlavorRoom(flavor.name, resources[0], None, None, None, 0, ())
    free, own = min(one.free for one in rooms), min(one.own for one in rooms)
    # what is reserved and not used is not held: no tenant takes it back
    now = [one for one, chain in zip(rooms, counting, strict=True) if all(line.of is None for line in chain)]
    limits = [chain[0].limit for chain in counting]
    of_tenants = [one for one, of in zip(rooms, limits, strict=True) if of.user is None and not of.class_name]
    return FlavorRoom(
        flavor=flavor.name,
        resource=resources[0],
        guaranteed=min(free, min((one.guaranteed for one in of_tenants), default=free)),
        own=own,
        borrowable=free - own,
        owed=max(one.owed for one in now),
        reclaimers=tuple(sorted({tenant for one in now for tenant in one.reclaimers})),
    )
