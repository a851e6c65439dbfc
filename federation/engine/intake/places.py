"""Where a job may run and how close together: read from untrusted JSON, and written in the normal form."""

from typing import Any

from federation.engine import names
from placement.values.model import LEVELS, Constraints, Tier, Topology

from .gpu_needs import NEED_FIELDS, gpu_needs_json, read_gpu_needs
from .reading import Fields
from .spec import CAPACITY_TYPES, DNS_LABEL, MAX_SECONDS, MAX_TIERS, Rules

CONSTRAINT_FIELDS = NEED_FIELDS | {
    *("clusters", "exclude_clusters", "regions", "capacity_types", "overflow", "reservation"),
}
TIER_FIELDS = frozenset(["after_seconds", "clusters", "regions"])
TOPOLOGY_FIELDS = frozenset(["level", "mode"])


def read_constraints(fields: Fields, _rules: Rules) -> Constraints:
    """The places that the job may or must use."""
    given = Fields(fields.values["constraints"], fields.at("constraints"), fields.faults, CONSTRAINT_FIELDS)
    return Constraints(
        clusters=given.names("clusters", names.dns_label, DNS_LABEL),
        exclude_clusters=given.names("exclude_clusters", names.dns_label, DNS_LABEL),
        regions=given.names("regions", names.region_pattern, "a region; '*' matches anything"),
        capacity_types=given.names(
            "capacity_types", CAPACITY_TYPES.__contains__, f"one of: {', '.join(CAPACITY_TYPES)}", most=3
        ),
        overflow=_read_overflow(given),
        reservation=_read_reservation(given),
        gpu=read_gpu_needs(given),
    )


def constraints_json(constraints: Constraints) -> dict[str, Any]:
    """The normal form of the constraints."""
    return {
        "clusters": list(constraints.clusters),
        "exclude_clusters": list(constraints.exclude_clusters),
        "regions": list(constraints.regions),
        "capacity_types": list(constraints.capacity_types),
        **({"overflow": [_tier_json(tier) for tier in constraints.overflow]} if constraints.overflow else {}),
        **({"reservation": constraints.reservation} if constraints.reservation else {}),
        **gpu_needs_json(constraints.gpu),
    }


def read_topology(fields: Fields, _rules: Rules) -> Topology:
    """The domain in which each pod set must or should fit."""
    given = Fields(fields.values["topology"], fields.at("topology"), fields.faults, TOPOLOGY_FIELDS)
    level = given.choice("level", LEVELS, "cluster")
    is_required = given.choice("mode", ("preferred", "required"), "preferred") == "required"
    return Topology(level, "required" if is_required else "preferred")


def topology_json(topology: Topology) -> dict[str, Any]:
    """The normal form of the topology."""
    return {"level": topology.level, "mode": topology.mode}


def _read_reservation(constraints: Fields) -> str:
    """Name or id; the caller that stores the spec replaces a name with the id."""
    if constraints.values.get("reservation") is None:
        return ""
    return constraints.checked("reservation", names.dns_label, "the name or the id of a reservation", most_bytes=63)


def _read_overflow(constraints: Fields) -> tuple[Tier, ...]:
    """The tiers: the first opens immediately, each other one later than the one before it."""
    tiers: list[Tier] = []
    least, most = 0, 0
    for index, value in enumerate(constraints.array("overflow", most=MAX_TIERS)):
        given = Fields(value, f"{constraints.at('overflow')}[{index}]", constraints.faults, TIER_FIELDS)
        after_seconds = given.whole("after_seconds", least, most, required=True) or 0
        clusters = given.names("clusters", names.dns_label, DNS_LABEL)
        regions = given.names("regions", names.region_pattern, "a region; '*' matches anything")
        tiers.append(Tier(after_seconds, clusters, regions))
        least, most = after_seconds + 1, MAX_SECONDS
    return tuple(tiers)


def _tier_json(tier: Tier) -> dict[str, Any]:
    return {"after_seconds": tier.after_seconds, "clusters": list(tier.clusters), "regions": list(tier.regions)}
