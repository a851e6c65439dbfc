"""What a replay is made of. Instants and durations are seconds of virtual time, GPUs are counted whole or in thousandths."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Literal, TypeAlias

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""Where the engine sees virtual time begin."""
WHOLE = 1000
HOUR = 3600.0

Member: TypeAlias = Literal["spread", "bestfit", "pack"]
MEMBERS: tuple[Member, ...] = ("spread", "bestfit", "pack")


class ReplayError(ValueError):
    """A trace or fleet file that cannot be used; the message names file, line and column."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A node. `flavor` names what its GPUs are (its cores, if it has none) in the cluster's prices."""

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
    """From this second on a unit of the flavor costs so much an hour."""

    at: float
    flavor: str
    price: Decimal


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """A cluster: its nodes, what a unit of each flavor costs an hour, and how its own scheduler picks nodes.

    With `hints` it follows the nodes that the gateway names, if the gateway names some.
    """

    name: str
    machines: tuple[Machine, ...]
    prices: Mapping[str, Decimal] = field(default_factory=dict)
    price_changes: tuple[PriceChange, ...] = ()
    member: Member = "spread"
    hints: bool = True
    region: str = ""
    summary_seconds: float | None = None
    """How often the gateway learns what is free here; None = as the whole replay."""
    interruptions: Mapping[str, float] = field(default_factory=dict)
    """How often an hour a node of a spot flavor is taken back; nodes of flavors that are not named never are."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A gang of `pods` equal pods. `seconds` is how long it runs once it has started; None = to the end of the replay."""

    name: str
    submitted: float
    seconds: float | None
    pods: int
    gpus: int
    """Devices per pod."""
    gpu_milli: int = WHOLE
    """What it takes of each; less than a whole only with one device."""
    cpu_millicores: int = 0
    memory_mib: int = 0
    models: tuple[str, ...] = ()
    priority: int = 0
    tenant: str = "trace"
    estimated_seconds: int | None = None
    """What its user says it will take."""
    checkpoint_seconds: int | None = None
    """How much work at most it loses when it is cut short; None: all of its run."""
    kind: str = ""
    """Equal for jobs whose runs are alike; empty if the trace does not tell."""

    @property
    def milli(self) -> int:
        """All that the gang takes, in thousandths of a GPU."""
        return self.pods * self.gpus * self.gpu_milli


@dataclass(frozen=True, slots=True)
class Failures:
    """A node fails every so often, in turn by a fixed stride, and comes back repaired after a while."""

    every_seconds: float
    repair_seconds: float


@dataclass(frozen=True, slots=True)
class Conditions:
    """How a replay is run."""

    summary_seconds: float = 0.0
    """How old what the gateway knows of a cluster may get; 0 = it sees everything at once."""
    cycle_seconds: float = 0.0
    """How far apart decisions are at least; 0 = whenever something has happened."""
    failures: Failures | None = None
    seed: int = 1
    """Of the draws that decide when spot nodes are taken back: the same instants whoever decides."""
    reclaimed_seconds: float = 600.0
    """How long a spot node that was taken back stays away."""
    checkpoint_seconds: int | None = None
    """Of jobs that do not tell their own. Jobs on a node that goes wait again, and go on from their last checkpoint."""
    since: float = 0.0
    until: float | None = None
    """Figures count between these instants; without an end, until the last job was submitted. Jobs then run on to their
    ends, unless `stops` is set."""
    stops: bool = False
    samples: int = 240
    """Points of the curves over time."""
