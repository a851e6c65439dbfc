"""The job spec as frozen values, and its bounds."""

from dataclasses import dataclass, field

from federation.engine.artifacts import Artifact
from federation.engine.failures.rules import Rule
from federation.engine.retries import NO_WISHES, Retries
from federation.engine.sessions import Session
from placement.values.datasets import DataNeed
from placement.values.model import Constraints, GpuRequest, ModelSpeed, Topology

CAPACITY_TYPES = ("on_demand", "spot", "reserved")
ON_CLUSTER_LOST = ("hold",)

MAX_POD_SETS = 16
MAX_COUNT = 10_000
MAX_COMPLETIONS = 100_000
MAX_GPUS_PER_POD = 64
WHOLE_GPU_MILLI = 1000
MAX_ENVIRONMENT = 256
MAX_ENVIRONMENT_BYTES = 64 * 1024
MAX_ARGUMENTS = 256
MAX_ARGUMENT_BYTES = 32 * 1024
MAX_LABELS = 64
MAX_SPEC_BYTES = 256 * 1024
MAX_TIERS = 8
MAX_DATASETS = 16
MAX_MOUNTS = 16
MAX_SECRETS = 16
MAX_INIT_STEPS = 8
MAX_SIDECARS = 4
MAX_SPEEDS = 32
MAX_RESOURCES = 16
MAX_RESOURCE_AMOUNT = 1_000_000
"""Of a resource besides CPU, memory and GPUs: units, or MiB of huge pages."""
SPEED_MILLI = 1000
MAX_SPEED = 1000
MAX_SECONDS = 30 * 24 * 3600
DEFAULT_DEADLINE_SECONDS = 24 * 3600
MIN_CPU_MILLICORES, MAX_CPU_MILLICORES = 1, 1_024_000
MIN_MEMORY_BYTES, MAX_MEMORY_BYTES = 2**20, 64 * 2**40
MIN_LOCAL_BYTES, MAX_SCRATCH_BYTES = 2**20, 64 * 2**40
DEFAULT_SCRATCH_PATH = "/scratch"
MAX_PATH_BYTES = 255
MAX_PORTS = 16
MAX_PORT = 65_535
LONGEST_ESCAPE = 6
LONGEST_ITEM = 64
"""An upper bound of the characters of a dataset or a model besides its name."""
LONGEST_BOUNDED_PART = 1200
"""An upper bound of the characters of a pod set's or a job's fields besides those counted one by one."""
DNS_LABEL = "lower-case letters, digits and '-', at most 63, starting and ending with a letter or digit"


@dataclass(frozen=True, slots=True)
class Rules:
    """What an installation allows: simulated run times, resources besides CPU, memory and GPUs, jobs that report to it,
    sessions; and whether images must be pinned by digest.
    """

    allow_simulation: bool = False
    require_digest: bool = False
    resources: tuple[str, ...] = ()
    takes_reports: bool = False
    has_sessions: bool = False


@dataclass(frozen=True, slots=True)
class Port:
    """A TCP port on which the container listens."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class Scratch:
    """An empty directory on the node's local disk, which is deleted with the pod."""

    size_bytes: int
    path: str = DEFAULT_SCRATCH_PATH


@dataclass(frozen=True, slots=True)
class Mount:
    """A storage at `path` in the container: the part of the tenant's part of it below `sub_path`; empty: all of that.

    With `size_bytes`, a new volume of that size of a storage class instead, which the job always writes to.
    """

    storage: str
    path: str
    sub_path: str = ""
    is_read_only: bool = True
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SecretUse:
    """A secret by name, and where its value goes: the variable `env`, or the `file` at this path."""

    secret: str
    env: str = ""
    file: str = ""


@dataclass(frozen=True, slots=True)
class InitStep:
    """A program that each pod runs to its end before the next step and before its own. It has the pod set's mounts and
    scratch, no GPU, and None of CPU or memory means all that the pod set asks for. `uses_secrets`: also its secrets.
    """

    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    cpu_millicores: int | None = None
    memory_bytes: int | None = None
    uses_secrets: bool = False


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A program that runs beside that of each pod, and ends with it. Its CPU and memory are held besides the pod set's."""

    name: str
    image: str
    cpu_millicores: int
    memory_bytes: int
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    uses_secrets: bool = False


@dataclass(frozen=True, slots=True)
class PodSet:
    """`count` equal pods. Memory is in bytes, as requested; placement sees it rounded up to MiB."""

    name: str
    count: int
    image: str
    cpu_millicores: int
    memory_bytes: int
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    gpu: GpuRequest | None = None
    ports: tuple[Port, ...] = ()
    shm_bytes: int | None = None
    """The size of /dev/shm, part of the memory; None for the default."""
    scratch: Scratch | None = None
    mounts: tuple[Mount, ...] = ()
    secrets: tuple[SecretUse, ...] = ()
    pull_secret: str = ""
    resources: tuple[tuple[str, int], ...] = ()
    """Name and amount per pod of each other resource, by name: units, or MiB of huge pages."""
    init: tuple[InitStep, ...] = ()
    sidecars: tuple[Sidecar, ...] = ()
    networks: tuple[str, ...] = ()
    """The names of network attachments, in the order of the pods' interfaces."""


@dataclass(frozen=True, slots=True)
class ElasticPods:
    """The pod set of which a run may have fewer pods than its `count`, and the fewest. `grow`: the gateway may stop a run so that it
    continues with more pods.
    """

    pod_set: str
    min_count: int
    grow: bool = False


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A user's validated request. `job_fields` has the reader, the normal form and the shape of each field."""

    name: str
    pod_sets: tuple[PodSet, ...]
    completions: int | None = None
    estimated_seconds: int | None = None
    checkpoint_seconds: int | None = None
    deadline_seconds: int = DEFAULT_DEADLINE_SECONDS
    strategy: str = "balanced"
    priority_class: str = "normal"
    constraints: Constraints = field(default_factory=Constraints)
    topology: Topology = field(default_factory=Topology)
    on_cluster_lost: str = "hold"
    labels: tuple[tuple[str, str], ...] = ()
    data: tuple[DataNeed, ...] = ()
    stage_within_seconds: int | None = None
    throughput: tuple[ModelSpeed, ...] = ()
    retries: Retries = NO_WISHES
    failure_rules: tuple[Rule, ...] = ()
    reports: bool = False
    """Whether its runs may report progress and checkpoints to the gateway."""
    moves: str = "never"
    """Whether the gateway itself may move it to another cluster (`engine.relocation`)."""
    finish_within_seconds: int | None = None
    """By when it is to have finished, from its submission. It is not stopped then."""
    artifacts: tuple[Artifact, ...] = ()
    """What its runs will write and announce, in their reports."""
    elastic: ElasticPods | None = None
    session: Session | None = None
    """Set if users open it in their browser, through the gateway."""
