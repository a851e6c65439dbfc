"""How many devices exist, and how many a job can have now: one vocabulary for pages, API and reports.

GPUs and slices are never added: a slice is a part of a GPU (a MIG profile, one of N shares), counted in its own unit.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceCount:
    """Devices of one unit. The five fields add up to `total`, so each device counts once."""

    ours: int = 0
    """In use by this gateway's jobs."""
    others: int = 0
    """In use by foreign pods."""
    free: int = 0
    """Idle, on a node and a cluster that take new work and were observed recently."""
    out_of_service: int = 0
    """Idle, on a node or a cluster that takes no new work."""
    unseen: int = 0
    """Last seen idle, on a cluster that is not observed now."""

    @property
    def used(self) -> int:
        """In use by any pod, as last observed."""
        return self.ours + self.others

    @property
    def total(self) -> int:
        """All of them."""
        return self.used + self.idle

    @property
    def idle(self) -> int:
        """Not in use."""
        return self.free + self.unavailable

    @property
    def unavailable(self) -> int:
        """Idle, but not available to jobs now."""
        return self.out_of_service + self.unseen

    def __add__(self, other: "DeviceCount") -> "DeviceCount":
        return DeviceCount(
            self.ours + other.ours,
            self.others + other.others,
            self.free + other.free,
            self.out_of_service + other.out_of_service,
            self.unseen + other.unseen,
        )


NONE = DeviceCount()


def count_on_node(units: int, used: int, used_by_others: int, *, is_seen: bool, is_open: bool) -> DeviceCount:
    """The devices of one flavor on one node. A node that reports more in use than it has counts as full."""
    taken = min(max(used, 0), units)
    others = min(max(used_by_others, 0), taken)
    idle = units - taken
    return DeviceCount(
        ours=taken - others,
        others=others,
        free=idle if is_seen and is_open else 0,
        out_of_service=idle if is_seen and not is_open else 0,
        unseen=0 if is_seen else idle,
    )
