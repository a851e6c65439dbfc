"""Who may have room kept in a cycle: few jobs, one of each tenant before any tenant has two, and none for ever.

What was kept in the cycle before remains with its job, on the same nodes as long as they can still hold it. After a set time it
is given up; as long again, nothing is kept for that job. So a job behind runs that do not end idles nodes for at most
half of the time.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property
from uuid import UUID

from placement.fleet.amounts import amounts_of
from placement.fleet.fleet_state import FleetState
from placement.values.decisions import KeptRoom
from placement.values.model import FleetFlavor, JobRequest, Release, Snapshot
from quotas.engine.amounts import format_amount

from .idle_nodes import idle_on, together
from .kept_room import MOST_AT_ONCE, Keeping, keep_room
from .timeline import Seeker, instant_text

MOST_TRIED = 100
"""The most jobs in a cycle for which a place to keep is searched; one costs about as much as considering a job."""


class Holdings:
    """What a cycle keeps, and for whom."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._earlier = {one.job_id: one for one in snapshot.kept}
        self._tenants: Counter[str] = Counter()
        self._tried = 0
        self._jobs: dict[UUID, JobRequest] = {}
        self.kept: dict[UUID, Keeping] = {}

    @cached_property
    def _coming(self) -> dict[UUID, str]:
        """The jobs for which room was kept before, one of each tenant, and whose turn has not come yet, with their tenants."""
        found: dict[str, UUID] = {}
        for job in self._snapshot.queue if self._earlier else ():
            earlier = self._earlier.get(job.id)
            if earlier is not None and not earlier.is_given_up(self._snapshot.now):
                found.setdefault(job.tenant_path, job.id)
        return {job_id: path for path, job_id in found.items()}

    @cached_property
    def _impatient(self) -> frozenset[str]:
        """The tenants with a job that has waited too long."""
        return frozenset(job.tenant_path for job in self._snapshot.queue if self._is_impatient(job))

    def _is_impatient(self, job: JobRequest) -> bool:
        now = self._snapshot.now
        return (now - (job.submitted_at or now)).total_seconds() > self._snapshot.patience_seconds

    def had(self, job: JobRequest) -> bool:
        """Whether room was kept for the job in the cycle before."""
        return job.id in self._earlier

    def reached(self, job: JobRequest) -> None:
        """The job's turn has come: no place is left open for it any more."""
        if self._earlier:
            self._coming.pop(job.id, None)

    def may_keep(self, job: JobRequest) -> bool:
        """Whether nodes may be kept for the job, as far as other jobs and the time are concerned."""
        left = MOST_AT_ONCE - len(self.kept)
        if left <= 0 or self._tried >= MOST_TRIED or not self._is_impatient(job) or self.resting(job):
            return False
        self._tried += 1
        own = sum(path == job.tenant_path for path in self._coming.values())
        if own or self._tenants[job.tenant_path]:
            return left > own + len(self._impatient - self._tenants.keys() - {job.tenant_path})
        return left > len(self._coming)

    def resting(self, job: JobRequest) -> KeptRoom | None:
        """What was given up so recently that nothing is kept for the job yet."""
        earlier = self._earlier.get(job.id)
        return earlier if earlier is not None and earlier.rests(self._snapshot.now) else None

    def find(self, seeker: Seeker, state: FleetState, releases: Sequence[Release]) -> Keeping | None:
        """The nodes to keep: those of the cycle before, if they can still hold the job; else those that hold it first."""
        now, everywhere = self._snapshot.now, seeker.ranked
        earlier = self._earlier.get(seeker.job.id)
        if earlier is not None and not earlier.is_given_up(now):
            number = next((n for n, one in enumerate(state.fleet.clusters) if one.id == earlier.cluster_id), None)
            if number is not None:
                seeker.ranked = [one for one in everywhere if seeker.cluster_of[one] == number]
                kept = keep_room(seeker, _only(state, number, set(earlier.nodes)), releases, now)
                if kept is not None:
                    return kept
                seeker.ranked = everywhere
        return keep_room(seeker, state, releases, now)

    def keep(self, job: JobRequest, kept: Keeping) -> None:
        """Keeps them."""
        self.kept[job.id], self._jobs[job.id] = kept, job
        self._tenants[job.tenant_path] += 1

    def room(self, job: JobRequest, state: FleetState) -> KeptRoom:
        """What is kept for the job, with what is free of it in this state; of a job that waits for data, beyond what it holds."""
        kept, now, seconds = self.kept[job.id], self._snapshot.now, self._snapshot.keep_seconds
        cluster = state.fleet.clusters[kept.cluster]
        names = {state.fleet.pools[pool].node_names[node] for pool, nodes in kept.nodes for node in nodes}
        earlier = self._earlier.get(job.id)
        if earlier is not None and not earlier.is_given_up(now):
            since, until, again = earlier.since, earlier.until, earlier.again
        else:
            longest = None if seconds is None else timedelta(seconds=seconds)
            since = now
            until = None if longest is None else (now if kept.start is None else kept.start.at) + longest
            again = None if until is None or longest is None else until + longest
        nodes = tuple(sorted(names))
        idle = idle_on(together(kept.nodes), state)
        if job.awaits_on is not None:
            held = amounts_of(job, _flavors(job, kept, state))
            idle = {name: rest for name, amount in idle.items() if (rest := amount - held.get(name, 0)) > 0}
        return KeptRoom(job.id, cluster.id, nodes, since, until, again, kept.start, idle)

    def rooms(self, state: FleetState) -> tuple[KeptRoom, ...]:
        """Everything that is kept."""
        return tuple(self.room(self._jobs[job_id], state) for job_id in self.kept)

    def kept_text(self, job: JobRequest, state: FleetState) -> str:
        """Until when, and at whose cost: ` until 13:20 UTC at most; 12 GPUs idle there count as used by acme/ml`."""
        room, now = self.room(job, state), self._snapshot.now
        if room.until is None:
            return ""
        words = f" until {instant_text(room.until, now)} at most"
        idle = " and ".join(_amount_text(name, amount) for name, amount in room.idle.items())
        return f"{words}; {idle} idle there count as used by {job.tenant_path}" if idle else words

    def rest_text(self, room: KeptRoom) -> str:
        """Why nothing is kept for a job any more."""
        now = self._snapshot.now
        assert room.until is not None
        assert room.again is not None
        since, until, again = (instant_text(at, now) for at in (room.since, room.until, room.again))
        return f"nodes were kept for it from {since} until {until} and did not become free in time; from {again} on they may be again"


def _amount_text(resource: str, amount: int) -> str:
    number = format_amount(resource, amount)
    return f"{number} {'GPU' if number == '1' else 'GPUs'}" if resource == "gpu" else f"{number} cores"


def _only(state: FleetState, cluster: int, names: set[str]) -> FleetState:
    """A copy in which all other nodes of the cluster are closed."""
    copied = state.copy()
    for number in range(*state.fleet.first_pool_of_cluster[cluster : cluster + 2]):
        others = [node for node, name in enumerate(state.fleet.pools[number].node_names) if name not in names]
        if others:
            copied.close(number, others)
    return copied


def _flavors(job: JobRequest, kept: Keeping, state: FleetState) -> dict[str, FleetFlavor]:
    """The flavors of the kept nodes, by pod set."""
    pools = (state.fleet.pools[number] for number, _ in kept.nodes)
    return {pods.name: pool.flavor for pods, pool in zip(job.pod_sets, pools, strict=True)}
