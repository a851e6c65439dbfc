"""The values of a replay. Times and durations are seconds of virtual time; GPUs are counted whole or in thousandths."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Literal, TypeAlias

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""The start of virtual time for the engine."""
WHOLE = 1000
HOUR = 3600.0

Member: TypeAlias = Literal["spread", "bestfit", "pack"]
MEMBERS: tuple[Member, ...] = ("spread", "bestfit", "pack")


class ReplayError(ValueError):
    """A trace or fleet file that cannot be used; the message names file, line and column."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A node. `flavor` is the name of its GPUs (its cores, if it has none) in the cluster's prices."""

    name: str
    flavor: str
    model: str
    gpus: int
    cpu_millicores: int
    memory_mib: int
    domain: tuple[str, str, str] = ("", "", "")
    """Zone, block and rack."""
    clique: str = ""
    pods: int = 110
    capacity_type: str = "on_demand"


@dataclass(frozen=True, slots=True)
class PriceChange:
    """The hourly price of a unit of the flavor from this second on."""

    at: float
    flavor: str
    price: Decimal


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A cluster: its nodes, the hourly price of a unit of each flavor, and how its own scheduler picks nodes.

    With `hints` it follows the nodes that the gateway names, if any.
    """

    name: str
    machines: tuple[Machine, ...]
    prices: Mapping[str, Decimal] = field(default_factory=dict)
    price_changes: tuple[PriceChange, ...] = ()
    member: Member = "spread"
    hints: bool = True
    region: str = ""
    summary_seconds: float | None = None
    """The interval at which the gateway learns what is free here; None = the replay's default."""
    interruptions: Mapping[str, float] = field(default_factory=dict)
    """How many times an hour a node of a spot flavor is reclaimed; nodes of other flavors never are."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A gang of `pods` equal pods. `seconds` is how long it runs once it has started; None = to the
    end of the replay.
    """

    name: str
    submitted: float
    seconds: float | None
    pods: int
    gpus: int
    """Devices per pod."""
    gpu_milli: int = WHOLE
    """What it uses of each device; less than a whole only with one device."""
    cpu_millicores: int = 0
    memory_mib: int = 0
    models: tuple[str, ...] = ()
    priority: int = 0
    tenant: str = "trace"
    estimated_seconds: int | None = None
    """The user's estimate of its run time."""
    checkpoint_seconds: int | None = None
    """The most work that an interruption loses; None: its whole run."""
    kind: str = ""
    """Equal for jobs with similar runs; empty if the trace does not have it."""
    user: str = ""
    """Who submitted it, within its tenant; empty if that is not known."""

    @property
    def stater(self) -> str:
        """Equal for the estimates of one user in one tenant."""
        return f"{self.tenant}|{self.user}" if self.user else self.tenant

    @property
    def milli(self) -> int:
        """The total use of the gang, in thousandths of a GPU."""
        return self.pods * self.gpus * self.gpu_milli


@dataclass(frozen=True, slots=True)
class Failures:
    """Nodes fail at a fixed interval, one after the other by a fixed stride, and return repaired after a while."""

    every_seconds: float
    repair_seconds: float


@dataclass(frozen=True, slots=True)
class Conditions:
    """How a replay is run."""

    summary_seconds: float = 0.0
    """The largest age of the gateway's knowledge of a cluster; 0 = it sees everything immediately."""
    cycle_seconds: float = 0.0
    """The shortest interval between decisions; 0 = whenever something has happened."""
    failures: Failures | None = None
    seed: int = 1
    """The seed of the draws of spot reclaims: the same times for every gateway."""
    reclaimed_seconds: float = 600.0
    """How long a reclaimed spot node is absent."""
    checkpoint_seconds: int | None = None
    """The default for jobs without their own. Jobs on a lost node wait again, and continue from their last
    checkpoint."""
    since: float = 0.0
    until: float | None = None
    """Figures count between these times; without an end, until the last job was submitted. Jobs then run to their ends,
    unless `stops` is set."""
    stops: bool = False
    samples: int = 240
    """Points of the curves over time."""
