"""The values that placement thinks in. Frozen, free of any database; `load` builds them, `decide` reads them.

Units: CPU in millicores, memory in MiB, GPU devices in whole units of a flavor (a GPU, a MIG slice, one of N shares).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Literal
from uuid import UUID

from billing.engine.egress import EgressRate

from .advance import AdvanceReservation
from .datasets import DataNeed
from .reason_codes import ReasonCode

LEVELS = ("cluster", "zone", "block", "rack", "clique", "node")
"""Topology levels from wide to narrow. A node's `domain` names its zone, block and rack (empty where unknown); nodes of
equal `clique` share one NVLink fabric. Domains are told apart by their whole path: rack r1 of block b1 is not r1 of b2."""


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """Devices per pod: `count` whole GPUs of one of `models` (any if empty), or `count` slices of a MIG profile, or a
    fraction of one GPU in thousandths. Exactly one of `mig` and `fraction_milli` may be set. Without models, they are of
    `vendor`, and NVIDIA's if that is empty too: an image built for one vendor's devices does not run on another's.
    """

    count: int
    models: tuple[str, ...] = ()
    mig: str = ""
    fraction_milli: int = 0
    vendor: str = ""


@dataclass(frozen=True, slots=True)
class PodSetRequest:
    """`count` equal pods that must run at the same time."""

    name: str
    count: int
    cpu_millicores: int
    memory_mib: int
    gpu: GpuRequest | None = None


@dataclass(frozen=True, slots=True)
class ClusterRefusal:
    """A cluster's API server has lately refused the job's object, or its nodes have interrupted it, in these words."""

    cluster_id: UUID
    message: str
    code: str = ReasonCode.REFUSED_BY_CLUSTER


@dataclass(frozen=True, slots=True)
class Tier:
    """Places that open to a job once it has waited so long. Empty means anywhere; regions may hold `*` wildcards."""

    after_seconds: int
    clusters: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Constraints:
    """Where a job may run. Empty means anywhere; regions may hold `*` wildcards."""

    clusters: tuple[str, ...] = ()
    exclude_clusters: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    capacity_types: tuple[str, ...] = ()
    refusals: tuple[ClusterRefusal, ...] = ()
    """Clusters that it is kept from for a while because they refused or interrupted it, one entry each."""
    overflow: tuple[Tier, ...] = ()
    """The soonest first: only places of the tiers it has reached, among those that the rest allows."""
    tiers_reached: int | None = None
    """How many of them waiting has reached (`eligibility.as_of`); None: all count, however long it waits."""
    reservation: str = ""
    """The id of the advance reservation that it is to run in, and nowhere else."""
    reserved_on: UUID | None = None
    """The cluster of that reservation, where it is known (`visibility`)."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Keep each pod set inside one domain of this level: must (`required`) or if possible (`preferred`)."""

    level: str = "cluster"
    mode: Literal["required", "preferred"] = "preferred"


@dataclass(frozen=True, slots=True)
class Runtime:
    """How long a run is expected to take: in one of ten less than p10, in nine of ten less than p90.

    `runs` is how many runs of its kind there have been. `basis` is what they share with it: `job` (name and pods), `name`,
    `pods`; or it is `estimate`: there were none, and the user's word stands.
    """

    p10_seconds: int
    p50_seconds: int
    p90_seconds: int
    runs: int
    basis: str


@dataclass(frozen=True, slots=True)
class ModelSpeed:
    """How fast a job's work goes on a GPU model, in thousandths of whatever it is told in."""

    model: str
    speed_milli: int


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A queued job as placement sees it. `shape` is equal for jobs that differ in nothing placement looks at.

    `kind` is equal for jobs that are expected to run equally long (`runtimes`); a run is stopped after `deadline_seconds`.
    """

    id: UUID
    tenant_path: str
    shape: str
    pod_sets: tuple[PodSetRequest, ...]
    priority: int = 0
    submitted_at: datetime | None = None
    constraints: Constraints = field(default_factory=Constraints)
    topology: Topology = field(default_factory=Topology)
    strategy: str = "balanced"
    estimated_seconds: int | None = None
    deadline_seconds: int | None = None
    kind: str = ""
    checkpoint_seconds: int | None = None
    """How much work at most it loses when it is interrupted; None: all of it."""
    data: tuple[DataNeed, ...] = ()
    throughput: tuple[ModelSpeed, ...] = ()
    """By model (`pace`); none: all are alike."""


@dataclass(frozen=True, slots=True)
class PriceChange:
    """What a flavor is announced to cost from `at` on, in the terms of `FleetFlavor`."""

    at: datetime
    unit_price: Decimal | None = None
    cpu_price: Decimal | None = None
    memory_price: Decimal | None = None
    guest_cpu_price: Decimal | None = None
    guest_memory_price: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """Room that comes free when a run ends as expected: per node so many pods, each with so much."""

    at: datetime
    cluster_id: UUID
    flavor: str
    units: int
    cpu_millicores: int
    memory_mib: int
    nodes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class FleetFlavor:
    """What some nodes of a cluster offer. `vendor` and `gpu_model` are empty for CPU-only nodes.

    `unit_price` is per unit and hour (a GPU, a slice, a share; for CPU-only flavors a core); None if not priced.
    `cpu_price` (per core) and `memory_price` (per GiB) are asked beside it, None where it includes them. A pod without a
    GPU on a flavor with GPUs pays `guest_cpu_price` and `guest_memory_price` alone; both None: no price for it.
    """

    name: str
    vendor: str
    gpu_model: str
    gpu_memory_mib: int
    sharing: str
    capacity_type: str
    unit_price: Decimal | None = None
    currency: str = "USD"
    slice_hosts: int = 1
    """Over one where so many nodes make up one accelerator: a pod set on it keeps to one clique."""
    unplaceable: str = ""
    """Why no pod can be started on its devices; empty if one can."""
    cpu_price: Decimal | None = None
    memory_price: Decimal | None = None
    guest_cpu_price: Decimal | None = None
    guest_memory_price: Decimal | None = None
    price_changes: tuple[PriceChange, ...] = ()
    """Announced and not in force yet, the soonest first."""
    interruptions_per_hour: float = 0.0
    """How often a job on it must expect to lose its pods; 0 for what is not spot."""


@dataclass(frozen=True, slots=True)
class FleetNode:
    """A node with what is free on it now: everything allocatable, less strangers' pods, ours, and decisions in flight.

    `total` and `free` map flavor name to units. CPU-only nodes map their flavor to 0 units.
    """

    name: str
    domain: tuple[str, ...]
    total: Mapping[str, int]
    free: Mapping[str, int]
    cpu_millicores: int
    memory_mib: int
    pods: int
    free_cpu_millicores: int
    free_memory_mib: int
    free_pods: int
    is_usable: bool
    """Ready, schedulable and free of taints that none of our pods tolerates."""
    why_unusable: str = ""
    clique: str = ""
    device_free_milli: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """For flavors with `divisible` sharing, what is free of each device in thousandths; `free` counts the whole ones."""
    repels: Mapping[str, str] = field(default_factory=dict)
    """On a usable node, why some pods cannot stand there: by the flavor whose devices they take, empty for pods that take
    none. A node tainted for its GPUs repels pods without a GPU only."""


@dataclass(frozen=True, slots=True)
class FleetCluster:
    """A cluster as placement sees it. `state` other than ready or degraded takes no new work; `stale` is one that was last
    observed too long ago.
    """

    id: UUID
    name: str
    owner_path: str
    """Only tenants at or below this path may use it."""
    region: str
    state: str
    flavors: Mapping[str, FleetFlavor]
    nodes: tuple[FleetNode, ...]
    fills: Literal["hinted", "spread"] = "hinted"
    """How its own scheduler picks nodes: where our hints point, or where most CPU and memory is left (kube-scheduler's
    LeastAllocated) because it does not get or follow hints."""
    minutes_unseen: int = 0
    """Since it was last observed, 0 while that is recent: of equally good clusters the one seen later is taken."""


@dataclass(frozen=True, slots=True)
class LimitState:
    """A quota limit and what is held against it, in base units (milli-GPU, millicores, MiB)."""

    id: UUID
    tenant_path: str
    resource: str
    clusters: tuple[str, ...]
    cap: int
    held: int


@dataclass(frozen=True, slots=True)
class StrategyWeights:
    """A tenant's own weights of a strategy; None keeps the strategy's."""

    strategy: str
    price: float | None = None
    free: float | None = None
    cluster_free: float | None = None
    stranding: float | None = None


@dataclass(frozen=True, slots=True)
class TenantPolicy:
    """What a tenant says about its jobs and those of every tenant below it. Empty: it says nothing about that.

    `clusters`, `regions` and `flavors` are names in which `*` stands for anything; jobs go only where all of them allow.
    """

    tenant_path: str
    default_strategy: str = ""
    strategies: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    capacity_types: tuple[str, ...] = ()
    flavors: tuple[str, ...] = ()
    weights: tuple[StrategyWeights, ...] = ()


@dataclass(frozen=True, slots=True)
class TypicalPod:
    """A kind of pod that is expected to come again, with how often it came."""

    pod: PodSetRequest
    weight: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole input of one cycle. `queue` is in the order in which jobs are to be considered."""

    now: datetime
    clusters: tuple[FleetCluster, ...]
    queue: tuple[JobRequest, ...]
    limits: tuple[LimitState, ...] = ()
    typical_pods: tuple[TypicalPod, ...] = ()
    """What packing leaves room for; empty = what is queued now."""
    patience_seconds: int = 600
    """A job that has waited longer for room has nodes kept for it (`kept_room`)."""
    runtimes: Mapping[str, Runtime] = field(default_factory=dict)
    """What history tells of run times, by the `kind` of jobs; for others their estimates stand."""
    policies: tuple[TenantPolicy, ...] = ()
    """Of every tenant that has one."""
    releases: tuple[Release, ...] = ()
    """When what runs is expected to end, as far as anything is known of it."""
    egress: tuple[EgressRate, ...] = ()
    """What moving data between regions costs, if some job names data; those in force and those announced."""
    reservations: tuple[AdvanceReservation, ...] = ()
    """Those that are not over."""
