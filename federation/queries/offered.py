"""Converts a flavor of the room `clusters` to placement's value."""

from clusters.queries import FlavorView
from placement.values.model import FleetFlavor


def offered(flavor: FlavorView) -> FleetFlavor:
    """The flavor without prices."""
    return FleetFlavor(
        name=flavor.name,
        vendor=flavor.vendor,
        gpu_model=flavor.gpu_model,
        gpu_memory_mib=flavor.gpu_memory_mib,
        sharing=flavor.sharing,
        capacity_type=flavor.capacity_type,
        slice_hosts=flavor.slice_hosts,
        unplaceable=flavor.unplaceable,
    )
