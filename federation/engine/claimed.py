"""The devices that a cluster says it gave to pods by claims: names that are kept with their runs."""

import re
from collections.abc import Iterable

MOST_DEVICES = 128
"""The most devices that are kept for one pod."""
LONGEST_DEVICE = 400
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?").fullmatch
_POOL = re.compile(r"[a-z0-9]([-a-z0-9./]{0,251}[a-z0-9])?").fullmatch


def is_node_name(text: str) -> bool:
    """Whether a node may have this name in Kubernetes."""
    return _NAME(text) is not None


def device_names(devices: Iterable[tuple[str, str, str]]) -> frozenset[str]:
    """The devices (driver, pool, name) as `driver/pool/name`, without those that have no name that Kubernetes allows."""
    found = (
        f"{driver}/{pool}/{name}" for driver, pool, name in devices if _NAME(driver) and _POOL(pool) and _NAME(name)
    )
    return frozenset(sorted(one for one in found if len(one) <= LONGEST_DEVICE)[:MOST_DEVICES])


def short_names(devices: Iterable[str]) -> dict[str, str]:
    """What to call each device of one node: its own name, or all of it if another has that name too."""
    named = {one: one.rpartition("/")[2] for one in devices}
    shared = list(named.values())
    return {one: name if shared.count(name) == 1 else one for one, name in named.items()}
