"""The network between the gateway and one cluster."""

from collections.abc import Callable

from .faults import Faults
from .frail_cluster import FrailCluster
from .scheduler import Scheduler


class Link:
    """The network between the gateway and one cluster, and who answers at its address."""

    def __init__(self, cluster: FrailCluster, faults: Faults, scheduler: Scheduler) -> None:
        self.cluster = cluster
        self.faults = faults
        self.scheduler = scheduler
        self.is_cut = False
        self.are_watches_dead = False
        self.is_revoked = False
        self.refuses_releases = False
        self.is_destroyed = False
        self.on_write: Callable[[str, str], None] = lambda _what, _uid: None
        """Called with each request that changes a Job, when it is sent: what it does, and the uid."""

    def happens(self, kind: str) -> bool:
        """Whether the fault happens now, and says so."""
        return self.faults.happens(kind)
