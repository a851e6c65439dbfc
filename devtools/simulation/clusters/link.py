"""The network between the gateway and one cluster."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clusters.drivers import Refused
from devtools.simulation.core.faults import Faults
from devtools.simulation.core.scheduler import Scheduler

from .frail_cluster import FrailCluster


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
        self.hides_pods = self.hangs = self.hides_logs = False
        self.hidden_us: list[tuple[int, int]] = []
        """From when to when it hid its pods."""
        self.lacks: set[str] = set()
        """Resources to which the gateway's credential has no right now."""
        self.lacked: set[str] = set()
        """To which it ever had none."""
        self.unheard: set[str] = set()
        """Jobs by uid that were released without a reply: a webhook refuses their next release."""
        self.on_write: Callable[[str, str], None] = lambda _what, _uid: None
        """Called with each request that changes a Job, when it is sent: what it does, and the uid."""
        self.on_reach: Callable[[], None] = lambda: None
        """Called before each way of a call over this network."""

    def show_pods(self) -> None:
        """Raises Refused while pods cannot be read."""
        if self.hides_pods:
            raise Refused('pods is forbidden: User "switchyard" cannot list resource "pods"', status=403)

    def require(self, resource: str) -> None:
        """Raises Refused while the credential has no right to these."""
        if resource in self.lacks:
            raise Refused(f'{resource} is forbidden: User "switchyard" has no right to it', status=403)

    def happens(self, kind: str) -> bool:
        """Whether the fault happens now, and says so."""
        return self.faults.happens(kind)

    def fault_of_release(self, uid: str) -> str:
        """What happens to a release: a webhook refuses it, or its reply is lost, and the next one is refused."""
        if self.refuses_releases or (uid in self.unheard and not self.faults.is_healed):
            self.unheard.discard(uid)
            return "refused"
        if self.happens("release_unheard"):
            self.unheard.add(uid)
            return "reply_lost"
        return ""

    def open_gate(self, namespace: str, pod: str, uid: str, gate: str, wishes: Sequence[Mapping[str, Any]]) -> None:
        """Removes the gate of a pod. A webhook may refuse preferences, or the whole request; rights may lack for a while."""
        if wishes and self.happens("wishes_refused"):
            raise Refused("an admission webhook denied the preferences", status=422)
        if self.happens("gate_forbidden"):
            raise Refused("forbidden", status=403)
        if self.happens("gate_refused"):
            self.cluster.note_gate(uid, is_open=False)
            raise Refused("an admission webhook denied the request", status=422)
        self.cluster.open_gate(namespace, pod, uid, gate)
