"""What preemption reads and decides: running jobs that may be stopped for a waiting one, and room that is claimed.

Units as in `model`; work is counted in GPU-seconds. A job without GPUs counts `CORES_PER_GPU` cores as one GPU.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

MILLI = 1000
CORES_PER_GPU = 16
RESTART_SECONDS = 60
"""To stop a job and start it again costs this time of all its GPUs, besides the work that it repeats."""
MOST_TIMES_PREEMPTED = 3
"""A job that was stopped for others this many times is not stopped for another one."""
OVERDUE_WEIGHT = 1e-6
"""What of its cost counts in the choice for a job that runs longer than the estimate with which it borrowed: it goes first."""


@dataclass(frozen=True, slots=True)
class HeldPods:
    """Pods of one set: what each uses, and their number on each node."""

    flavor: str
    units: int
    cpu_millicores: int
    memory_mib: int
    nodes: Mapping[str, int]
    resources: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A running attempt whose job another one of its organisation may replace. `amounts` is its hold on quota."""

    attempt_id: UUID
    job_id: UUID
    tenant_path: str
    priority: int
    cluster_id: UUID
    cluster: str
    pods: tuple[HeldPods, ...]
    amounts: Mapping[str, int]
    started_at: datetime
    shield_until: datetime
    """It is not stopped for another job before this time."""
    times_preempted: int = 0
    checkpoint_seconds: int | None = None
    saved_at: datetime | None = None
    """When it wrote the newest checkpoint that it reported."""
    estimated_seconds: int | None = None
    """How long its user said that it runs."""
    replaced: frozenset[UUID] = frozenset()
    """The jobs that were stopped for it. It is not stopped for one of them."""
    user: UUID | None = None
    """Whose limits its end relieves, if those count."""
    class_name: str = ""
    """The priority class whose limits its end relieves."""
    reservation: str = ""
    """The id of the advance reservation that it runs in. What it gives back of the quota of that remains reserved."""

    def is_overdue(self, now: datetime) -> bool:
        """Whether it has run longer than its user said."""
        return self.estimated_seconds is not None and (now - self.started_at).total_seconds() > self.estimated_seconds

    def lost_seconds(self, now: datetime) -> int:
        """The seconds of work that it repeats if it is stopped now: those since its last checkpoint."""
        ran = max(0, int((now - self.started_at).total_seconds()))
        if self.saved_at is not None:
            return min(ran, max(0, int((now - self.saved_at).total_seconds())))
        return ran if self.checkpoint_seconds is None else ran % self.checkpoint_seconds

    @property
    def gpu_milli(self) -> int:
        """Its size in thousandths of a GPU; of a job without GPUs, by its cores."""
        return self.amounts.get("gpu", 0) or self.amounts.get("cpu", 0) // CORES_PER_GPU

    def cost(self, now: datetime) -> float:
        """What it costs to stop it now, in GPU-seconds. It doubles, triples … with the times it was stopped before."""
        return (self.lost_seconds(now) + RESTART_SECONDS) * self.gpu_milli / MILLI * (1 + self.times_preempted)


@dataclass(frozen=True, slots=True)
class Leaving:
    """What an attempt that is being stopped still holds of quota."""

    tenant_path: str
    cluster: str
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Loan:
    """The limit by which a running job uses borrowed quota, in base units: `held` there counts all jobs that are not being
    stopped, and `nominal` is what is the tenant's own.
    """

    tenant_path: str
    resource: str
    clusters: tuple[str, ...]
    held: int
    nominal: int
    is_overdue: bool
    """Whether the job runs longer than the estimate with which it borrowed."""

    @property
    def weight(self) -> float:
        """What of the job's cost counts in the choice: the less, the more of what its tenant holds is borrowed."""
        if self.is_overdue:
            return OVERDUE_WEIGHT
        return 1 - (self.held - self.nominal) / (2 * self.held)


@dataclass(frozen=True, slots=True)
class RoomClaim:
    """Nodes of a cluster, and quota, that are kept for a waiting job, for which others are being stopped, until a deadline."""

    id: UUID
    job_id: UUID
    cluster_id: UUID
    cluster: str
    nodes: tuple[str, ...]
    until_at: datetime
    victims: int
    """The number of jobs that are stopped for it."""
    ended: int = 0
    """How many of them have ended."""
    borrowers: int = 0
    """How many of the victims use quota that they borrowed."""
    amounts: Mapping[str, int] = field(default_factory=dict, hash=False)
    """What the hold of the waiting job will take."""
    kind: str = "preemption"
    """`preemption`; `shrunk` if it is one that was stopped, and goes on here with fewer pods; `grows` if it is
    one that is stopped to go on with more, `moves` if for a cheaper place or a deadline; `consolidation` if the others are
    moved; `moved` if it is one that was moved, and this is its new place; `again_here` if it failed here and starts again.
    """
    lost_seconds: int = 0
    """The work that moved jobs repeat, in GPU-seconds."""
    leaving: Leaving | None = field(default=None, hash=False)
    """What its job still holds where it is being stopped, if it does not wait yet."""
    needed_at: datetime | None = None
    """When the job starts there at the earliest: until then the place is lent to jobs that must end before. None: it is not lent."""

    def lends_to(self, end: datetime | None) -> bool:
        """Whether a job that must end at that time ends before the place is needed."""
        return end is not None and self.needed_at is not None and end <= self.needed_at


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much may be stopped now (the brake). `gpu_milli` is what is left of each organisation's share of this hour, by
    its name. An organisation that is missing has stopped nothing in the last hour: its next preemption has any size.
    """

    most_victims: int = 0
    gpu_milli: Mapping[str, int] | None = None

    def left(self, organisation: str) -> int | None:
        """In thousandths of a GPU; None for any size."""
        return (self.gpu_milli or {}).get(organisation)


@dataclass(frozen=True, slots=True)
class Surplus:
    """A limit that was lowered below what is held there, and whose delay has passed, in base units. `held` counts what jobs
    that are being stopped, or have ended, still hold; `most` is what may be held.
    """

    limit_id: UUID
    tenant_id: UUID
    tenant_path: str
    resource: str
    clusters: tuple[str, ...]
    held: int
    most: int
    due_at: datetime
    """Since when it is taken back."""
    lowered_by: str

    def counts(self, run: RunningJob) -> bool:
        """Whether what the run holds counts at the limit."""
        return (
            run.amounts.get(self.resource, 0) > 0
            and f"{run.tenant_path}/".startswith(f"{self.tenant_path}/")
            and (not self.clusters or run.cluster in self.clusters)
        )


@dataclass(frozen=True, slots=True)
class KeptPlace:
    """The smaller place that is kept for an elastic job that is stopped: its nodes, what its hold will take, and the pods of its
    elastic pod set.
    """

    nodes: tuple[str, ...]
    amounts: Mapping[str, int]
    pods: int


@dataclass(frozen=True, slots=True)
class Victim:
    """A job that is stopped, or could have been, and what that costs in GPU-seconds. `loan` is the quota that it borrowed
    from the waiting job's tenant; None if the waiting job is more urgent. `surplus` is the lowered limit for which it is
    stopped, if for one.
    """

    run: RunningJob
    lost_seconds: int
    cost: float
    loan: Loan | None = None
    surplus: Surplus | None = None
    kept: KeptPlace | None = None
    """Where it goes on with fewer pods, if it is elastic and there is room."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another cluster where the job would have fitted, and what that would have cost."""

    cluster: str
    victims: int
    cost: float


@dataclass(frozen=True, slots=True)
class Preemption:
    """A decision: these jobs are stopped so that a waiting one gets this place. `nodes` are those of the place."""

    job_id: UUID
    cluster_id: UUID
    cluster: str
    nodes: tuple[str, ...]
    victims: tuple[Victim, ...]
    considered: tuple[Victim, ...]
    """The other jobs that might have been stopped there, the cheapest first."""
    alternatives: tuple[Alternative, ...]
    is_exact: bool
    """Whether no cheaper choice exists on that cluster; else it is the best that was found."""
    amounts: Mapping[str, int] = field(default_factory=dict)
    """What the hold of the waiting job will take."""

    @property
    def cost(self) -> float:
        """In GPU-seconds."""
        return sum(one.cost for one in self.victims)


def organisation_of(tenant_path: str) -> str:
    """The tenant at the top of the path."""
    return tenant_path.partition("/")[0]


def claims_of_others(claims: Sequence[RoomClaim], job_id: UUID, end: datetime | None = None) -> tuple[RoomClaim, ...]:
    """The claims whose nodes are closed to a job that ends at `end`, if it must; without the nodes that are kept for it as
    well as for others.
    """
    own = {(one.cluster_id, name) for one in claims if one.job_id == job_id for name in one.nodes}
    others = (one for one in claims if one.job_id != job_id and not one.lends_to(end))
    if not own:
        return tuple(others)
    return tuple(_without(one, own) for one in others)


def _without(claim: RoomClaim, own: set[tuple[UUID, str]]) -> RoomClaim:
    left = tuple(name for name in claim.nodes if (claim.cluster_id, name) not in own)
    return claim if len(left) == len(claim.nodes) else replace(claim, nodes=left)
