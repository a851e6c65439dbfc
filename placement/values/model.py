"""The input values of placement. They are frozen and need no database; `load` builds them, `decide` reads them.

Units: CPU in millicores, memory in MiB, GPU devices in whole units of a flavor (a GPU, a MIG slice, one of N shares).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Literal
from uuid import UUID

from billing.engine.egress import EgressRate
from clusters.engine.gpu_facts import GpuFacts

from .advance import AdvanceReservation
from .budgets import BudgetState
from .consolidation import Consolidating
from .datasets import DataNeed
from .decisions import KeptRoom
from .elastic import Elastic
from .emissions import Emissions
from .gpu_needs import GpuNeeds
from .images import KnownImage
from .limits import LimitState as LimitState
from .limits import UserLimitState as UserLimitState
from .maintenance import MaintenanceWindow
from .networks import NetworkNeed
from .policies import StrategyWeights as StrategyWeights
from .policies import TenantPolicy as TenantPolicy
from .preemption import Allowance, Leaving, RoomClaim, RunningJob
from .reason_codes import ReasonCode
from .shares import FairShare
from .storages import StorageNeed

LEVELS = ("cluster", "zone", "block", "rack", "clique", "node")
"""Topology levels from wide to narrow. A node's `domain` names its zone, block and rack (empty where unknown); nodes of
equal `clique` share one NVLink fabric. A domain is identified by its whole path: rack r1 of block b1 is not r1 of
b2."""


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """Devices per pod: `count` whole GPUs of one of `models` (any if empty), or `count` slices of a MIG profile, or a
    fraction of one GPU in thousandths. At most one of `mig` and `fraction_milli` may be set. Without models, the
    devices are `vendor`'s, or NVIDIA's if that is empty too: an image for one vendor's devices does not run on
    another's.
    """

    count: int
    models: tuple[str, ...] = ()
    mig: str = ""
    fraction_milli: int = 0
    vendor: str = ""
    needs: GpuNeeds | None = None
    """What each of them must be besides."""


@dataclass(frozen=True, slots=True)
class PodSetRequest:
    """`count` equal pods that must run at the same time."""

    name: str
    count: int
    cpu_millicores: int
    memory_mib: int
    gpu: GpuRequest | None = None
    resources: tuple[tuple[str, int], ...] = ()
    """Name and amount per pod of each other resource, by name (`clusters.engine.resources`)."""


@dataclass(frozen=True, slots=True)
class ClusterRefusal:
    """A cluster recently refused the job's object or interrupted the job; the text is the cluster's own message."""

    cluster_id: UUID
    message: str
    code: str = ReasonCode.REFUSED_BY_CLUSTER


@dataclass(frozen=True, slots=True)
class Tier:
    """Places that open to a job after it has waited this long. Empty means anywhere; regions may contain `*`."""

    after_seconds: int
    clusters: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Constraints:
    """Where a job may run. Empty means anywhere; regions may contain `*` wildcards."""

    clusters: tuple[str, ...] = ()
    exclude_clusters: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    capacity_types: tuple[str, ...] = ()
    refusals: tuple[ClusterRefusal, ...] = ()
    """Clusters that the job avoids for a while because they refused or interrupted it, one entry each."""
    overflow: tuple[Tier, ...] = ()
    """Overflow tiers, the earliest first. The job may use the tiers it has reached, within its other constraints."""
    tiers_reached: int | None = None
    """The number of tiers reached by waiting (`eligibility.as_of`); None: all count, whatever the waiting time."""
    reservation: str = ""
    """The id of the advance reservation that the job must run in."""
    reserved_on: UUID | None = None
    """The cluster of that reservation, if known (`visibility`)."""
    storages: tuple[StorageNeed, ...] = ()
    """The storages that the job mounts, each with the clusters where its tenant may."""
    networks: tuple[NetworkNeed, ...] = ()
    """The network attachments that it uses, likewise."""
    secrets: tuple[tuple[str, str], ...] = ()
    """Name and kind of each secret that the job uses."""
    lacks_secret: str = ""
    """One of them that its tenant does not have now; empty if it has all."""
    avoid_nodes: tuple[tuple[UUID, str], ...] = ()
    """Nodes, each with its cluster, that the job avoids for a while because it failed there."""
    is_patient: bool = False
    """Whether it is kept to spot capacity only for as long as it has time (`holding_out`)."""
    needs_sidecars: bool = False
    """Whether its pods have sidecars, which only newer versions of Kubernetes run."""
    gpu: GpuNeeds | None = None
    """What all its GPUs must be; only in a spec: a queued job has it in its pod sets' `GpuRequest`."""


@dataclass(frozen=True, slots=True)
class Topology:
    """Keep each pod set inside one domain of this level: always (`required`) or if possible (`preferred`)."""

    level: str = "cluster"
    mode: Literal["required", "preferred"] = "preferred"


@dataclass(frozen=True, slots=True)
class Runtime:
    """The expected duration of a run: one run in ten takes less than p10, nine in ten take less than p90.

    `runs` is the number of past runs of its kind. `basis` is what they share with it: `job` (name and pods), `name` or
    `pods`. It is `estimate` if there were none: then the user's estimate counts.
    """

    p10_seconds: int
    p50_seconds: int
    p90_seconds: int
    runs: int
    basis: str


@dataclass(frozen=True, slots=True)
class ModelSpeed:
    """The throughput of a job on a GPU model, in thousandths of the unit that the user chose."""

    model: str
    speed_milli: int


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A queued job as placement sees it. `shape` is equal for jobs that differ in nothing that placement considers.

    `kind` is equal for jobs with the same expected run time (`runtimes`); a run is stopped after `deadline_seconds`.
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
    """The most work, in seconds, that an interruption loses; None: all of it."""
    data: tuple[DataNeed, ...] = ()
    throughput: tuple[ModelSpeed, ...] = ()
    """By model (`pace`); if empty, all models count as equally fast."""
    images: tuple[str, ...] = ()
    """The normal names of the images of its pod sets, in their order; they decide only between equals (`pulls`)."""
    stated_by: str = ""
    """Whose estimate it is (`kept_estimates.stater`)."""
    user: UUID | None = None
    """Whose job it is. Without, no limit on users applies."""
    class_name: str = ""
    """Its priority class. Without, no limit of a class applies."""
    awaits_on: UUID | None = None
    """The cluster on which it waits for data and holds its quota; it is not placed, and keeps the room that was kept for it."""
    elastic: Elastic | None = None
    """Set if one of its pod sets may have more pods than the fewest, which a waiting job's request has (`sizes`)."""
    finish_within_seconds: int | None = None
    """By when it is to have finished, from its submission (`deadlines`)."""
    moves: str = ""
    """When the gateway may move it, `when_needed` or `when_cheaper`; else never."""
    worked_seconds: int = 0
    """Of its work, what earlier runs did and saved, at a pace of 1; known only of jobs with `finish_within_seconds`."""


@dataclass(frozen=True, slots=True)
class PriceChange:
    """The announced prices of a flavor from `at` on; the fields are those of `FleetFlavor`."""

    at: datetime
    unit_price: Decimal | None = None
    cpu_price: Decimal | None = None
    memory_price: Decimal | None = None
    guest_cpu_price: Decimal | None = None
    guest_memory_price: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """The room that a run frees when it ends as expected: the number of pods per node, and what each pod uses."""

    at: datetime
    cluster_id: UUID
    flavor: str
    units: int
    cpu_millicores: int
    memory_mib: int
    nodes: Mapping[str, int]
    resources: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class FleetFlavor:
    """What some nodes of a cluster offer. `vendor` and `gpu_model` are empty for CPU-only nodes.

    `unit_price` is per unit and hour (a GPU, a slice, a share; for CPU-only flavors a core); None if not priced.
    `cpu_price` (per core) and `memory_price` (per GiB) are added to it; None if it includes them. A pod without a GPU
    on a flavor with GPUs pays only `guest_cpu_price` and `guest_memory_price`; None: no price. Without `emissions`, they are not known.
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
    """More than one if this number of nodes makes up one accelerator: a pod set on it keeps to one clique."""
    unplaceable: str = ""
    """Why no pod can be started on its devices; empty if one can."""
    cpu_price: Decimal | None = None
    memory_price: Decimal | None = None
    guest_cpu_price: Decimal | None = None
    guest_memory_price: Decimal | None = None
    price_changes: tuple[PriceChange, ...] = ()
    """Announced prices that are not in force yet, the earliest first."""
    interruptions_per_hour: float = 0.0
    """The expected rate at which a job on it loses its pods; 0 for capacity that is not spot."""
    emissions: Emissions | None = None
    unconverted: str = ""
    """The currency of a price that is left out, because no rate of today converts it."""


@dataclass(frozen=True, slots=True)
class FleetNode:
    """A node with its free capacity: what is allocatable, less foreign pods, our pods, and decisions in flight.

    `total` and `free` map a flavor's name to units. CPU-only nodes map their flavor to 0 units.
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
    """For flavors with `divisible` sharing, the free part of each device in thousandths; `free` counts whole
    devices."""
    repels: Mapping[str, str] = field(default_factory=dict)
    """On a usable node, why some pods cannot run there, by the flavor whose devices they use; the empty key is for pods
    without devices. A node tainted for its GPUs repels only pods without a GPU."""
    resources: Mapping[str, int] = field(default_factory=dict)
    """The amounts of other resources (`clusters.engine.resources`) when nothing uses them."""
    free_resources: Mapping[str, int] = field(default_factory=dict)
    gpu_facts: Mapping[str, GpuFacts] = field(default_factory=dict)
    """What is known of its devices, by flavor; a flavor without facts is missing."""


@dataclass(frozen=True, slots=True)
class FleetCluster:
    """A cluster as placement sees it. It takes new work only in the states ready and degraded. It is `stale` if it was
    last observed too long ago.
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
    """How its own scheduler picks nodes: it follows our hints, or it picks the node with most CPU and memory left
    (kube-scheduler's LeastAllocated) because it does not get or follow hints."""
    minutes_unseen: int = 0
    """The age of its last observation, 0 while recent: of equally good clusters, the more recently observed one is
    chosen."""
    has_sidecars: bool = True
    """Whether its version of Kubernetes runs sidecars."""
    has_image_volumes: bool = True
    """Whether pods can mount images on its version of Kubernetes."""


@dataclass(frozen=True, slots=True)
class TypicalPod:
    """A kind of pod that is expected again, with its past frequency."""

    pod: PodSetRequest
    weight: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The complete input of one cycle. `queue` is in the order in which the jobs of one tenant are considered."""

    now: datetime
    clusters: tuple[FleetCluster, ...]
    queue: tuple[JobRequest, ...]
    limits: tuple[LimitState, ...] = ()
    typical_pods: tuple[TypicalPod, ...] = ()
    """The pods that packing leaves room for; empty means those queued now."""
    patience_seconds: int = 600
    """After waiting this long for room, a job has nodes kept for it (`kept_room`)."""
    runtimes: Mapping[str, Runtime] = field(default_factory=dict)
    """Run times learned from history, by the `kind` of jobs; other jobs use their estimates."""
    policies: tuple[TenantPolicy, ...] = ()
    """The policies of all tenants that have one."""
    releases: tuple[Release, ...] = ()
    """When running jobs are expected to end, as far as that is known."""
    egress: tuple[EgressRate, ...] = ()
    """The egress prices between regions, if some job names data: those in force and those announced."""
    reservations: tuple[AdvanceReservation, ...] = ()
    """The reservations that have not ended."""
    windows: tuple[MaintenanceWindow, ...] = ()
    """The maintenance windows that have not ended."""
    images: Mapping[str, KnownImage] = field(default_factory=dict)
    """The images of queued jobs that some nodes have, by `image_key`."""
    budgets: tuple[BudgetState, ...] = ()
    """The budgets that stop admission, in the periods from now to the last deadline of the queue."""
    pull_seconds: Mapping[UUID, tuple[int, ...]] = field(default_factory=dict)
    """By cluster how long a pull takes, for each class of size; missing if none was learned."""
    fair_share: FairShare | None = None
    """Whose turn is first (`fair_share`); None: the order of `queue`, for the jobs of all tenants."""
    preemptors: tuple[UUID, ...] = ()
    """The queued jobs whose priority class lets them replace running ones, the most urgent first."""
    running: tuple[RunningJob, ...] = ()
    """What queued jobs could replace: the running jobs of their organisations."""
    leaving: tuple[Leaving, ...] = ()
    """What jobs that are being stopped still hold."""
    claims: tuple[RoomClaim, ...] = ()
    """The nodes that are kept for jobs for which others are being stopped."""
    allowance: Allowance = field(default_factory=Allowance)
    """How much may be stopped in this cycle."""
    user_limits: tuple[UserLimitState, ...] = ()
    """The limits on what each user may hold."""
    class_limits: tuple[LimitState, ...] = ()
    """The limits on what the jobs of a priority class may hold; each has a `class_name`."""
    overdrawn: Mapping[UUID, int] = field(default_factory=dict)
    """By limit that was reduced below its use, how much of the use must end before anything is free."""
    kept: tuple[KeptRoom, ...] = ()
    """What was kept for jobs in the cycle before, and what was given up and rests."""
    keep_seconds: int | None = None
    """How long room is kept for a job that does not get it; None: without end."""
    consolidation: Consolidating | None = None
    """Which running jobs may move so that a larger one fits; None: none."""
    returning: tuple[JobRequest, ...] = ()
    """The requests with which these would wait again."""
    shrinking: tuple[JobRequest, ...] = ()
    """The requests of those of `running` that are elastic."""
