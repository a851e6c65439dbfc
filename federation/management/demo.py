"""The contents of the demo: an organisation, its people, a simulated fleet, prices, quotas, and months of work.

All data is invented. Prices resemble those of clouds; nothing comes from a real organisation.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from typing import Any

from billing.operations.budgets import WantedBudget
from clusters.drivers.simulated import Trouble
from quotas.engine.holds import Borrowing

ORGANISATION = "acme"
ADMIN = "admin@acme.example"
PASSWORD = "switchyard-demo"  # noqa: S105 - the demo's, printed when it starts


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """`count` equal nodes; devices by extended resource, labels as the vendors' plugins write them."""

    name: str
    count: int
    zone: str
    resources: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    cpu: int = 64
    memory_gib: int = 256
    nodes_a_rack: int = 4


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    name: str
    region: str
    provider: str
    groups: Sequence[NodeGroup]
    strangers: int = 0
    """Devices that foreign pods use, so that not all are ours."""
    is_cordoned: bool = False
    trouble: Trouble | None = None


def nvidia(product: str, memory_mib: int, count: int = 8) -> dict[str, str]:
    """The labels that GPU feature discovery sets on a node."""
    return {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.memory": str(memory_mib),
        "nvidia.com/gpu.count": str(count),
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
    }


GPU = "nvidia.com/gpu"
H100 = nvidia("NVIDIA-H100-80GB-HBM3", 81559)
H200 = nvidia("NVIDIA-H200", 143771)
A100 = nvidia("NVIDIA-A100-SXM4-80GB", 81920)
L4 = nvidia("NVIDIA-L4", 23034, 4)
V100 = nvidia("Tesla-V100-SXM2-32GB", 32768)
MIG = A100 | {
    "nvidia.com/mig.strategy": "mixed",
    "nvidia.com/gpu.replicas": "0",
    "nvidia.com/mig-1g.10gb.count": "56",
    "nvidia.com/mig-1g.10gb.product": "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb",
    "nvidia.com/mig-1g.10gb.memory": "9728",
    "nvidia.com/mig-1g.10gb.replicas": "1",
    "nvidia.com/mig-1g.10gb.sharing-strategy": "none",
}
SPOT = {"eks.amazonaws.com/capacityType": "SPOT"}

SITES = (  # region, provider, kind, names
    ("eu-north-1", "aws", "h100", ("stockholm", "lulea", "uppsala")),
    ("eu-west-3", "aws", "a100", ("paris", "lyon")),
    ("eu-south-1", "aws", "l4", ("milan", "turin", "genoa")),
    ("us-east-1", "aws", "h100", ("ashburn", "richmond", "columbus")),
    ("ap-northeast-1", "aws", "a100", ("tokyo", "osaka")),
    ("ap-southeast-2", "aws", "l4", ("sydney", "melbourne")),
    ("europe-west4", "gcp", "a100", ("eemshaven", "groningen", "utrecht")),
    ("asia-south1", "gcp", "l4", ("mumbai", "pune")),
    ("us-east4", "gcp", "h200", ("reston", "norfolk")),
    ("southamerica-east1", "gcp", "l4", ("campinas", "santos")),
    ("swedencentral", "azure", "h100", ("gavle", "sandviken")),
    ("canadacentral", "azure", "a100", ("toronto", "ottawa", "kingston")),
    ("uksouth", "azure", "cpu", ("reading", "slough")),
    ("on-prem-2", "", "v100", ("basement", "annex")),
    ("on-prem-3", "", "cpu", ("lab", "warehouse")),
)
SICK, STALE = "ashburn", "toronto"
CLAIMED = "tokyo"
"""Its past runs claimed their GPUs, so that these are known."""
FAILING_NODE, FAILING_DEVICE = "a100-02", 5
"""A node of that cluster, and the GPU that has failed its runs for some weeks."""
FAILS_SINCE = timedelta(days=25)
FAILED_TEXT = "NVRM: Xid (PCI:0000:bb:00): 79, GPU has fallen off the bus."


def _sites() -> Iterator[ClusterPlan]:
    """The clusters besides the first five: one kind of node each, in different numbers."""
    kinds = {
        "h100": ({GPU: 8}, H100, 192, 2048),
        "h200": ({GPU: 8}, H200, 192, 2048),
        "a100": ({GPU: 8}, A100, 96, 1152),
        "l4": ({GPU: 4}, L4, 48, 192),
        "v100": ({GPU: 8}, V100, 64, 488),
        "cpu": ({}, {}, 64, 256),
    }
    for region, provider, kind, names in SITES:
        for number, name in enumerate(names):
            groups = [NodeGroup(kind, 2 + 2 * number, f"{region}-a", *kinds[kind])]
            if kind in ("h100", "a100"):
                groups.append(NodeGroup("cpu", 1 + number, f"{region}-b"))
            trouble: Trouble | None = {SICK: "unreachable", STALE: "unwatched"}.get(name)  # type: ignore[assignment]
            yield ClusterPlan(name, region, provider, groups, strangers=number * 2, trouble=trouble)


FLEET = (
    ClusterPlan(
        "frankfurt",
        "eu-central-1",
        "aws",
        (
            NodeGroup("h100", 8, "eu-central-1a", {GPU: 8}, H100, 192, 2048),
            NodeGroup("cpu", 2, "eu-central-1a"),
        ),
        strangers=6,
    ),
    ClusterPlan(
        "dublin",
        "eu-west-1",
        "aws",
        (
            NodeGroup("a100", 6, "eu-west-1a", {GPU: 8}, A100, 96, 1152),
            NodeGroup("a100-spot", 4, "eu-west-1b", {GPU: 8}, {**A100, **SPOT}, 96, 1152),
        ),
        strangers=9,
    ),
    ClusterPlan(
        "oregon",
        "us-west-2",
        "aws",
        (NodeGroup("h200", 4, "us-west-2a", {GPU: 8}, H200, 192, 2048), NodeGroup("cpu", 3, "us-west-2b")),
    ),
    ClusterPlan(
        "iowa",
        "us-central1",
        "gcp",
        (
            NodeGroup("mig", 2, "us-central1-a", {GPU: 0, "nvidia.com/mig-1g.10gb": 56}, MIG, 96, 1152),
            NodeGroup("l4", 6, "us-central1-b", {GPU: 4}, L4, 48, 192),
        ),
        strangers=3,
    ),
    ClusterPlan(
        "cellar",
        "on-prem-1",
        "",
        (NodeGroup("v100", 4, "hall-1", {GPU: 8}, V100, 64, 488),),
        is_cordoned=True,
    ),
    *_sites(),
)

PRICES = {  # a unit and hour, USD: by GPU model and capacity type; CPU-only flavors by core
    ("H100-80GB", "on_demand"): Decimal("3.93"),
    ("H200", "on_demand"): Decimal("4.98"),
    ("A100-80GB", "on_demand"): Decimal("2.74"),
    ("A100-80GB", "spot"): Decimal("1.12"),
    ("L4", "on_demand"): Decimal("0.71"),
    ("V100-32GB", "on_demand"): Decimal("0.55"),
    ("", "on_demand"): Decimal("0.042"),
}
MIG_SHARE = Decimal("0.39")

TENANTS = (
    ("research", "department"),
    ("research/vision", "team"),
    ("research/vision/segmentation", "project"),
    ("research/language", "team"),
    ("research/language/pretraining", "project"),
    ("research/language/evaluation", "project"),
    ("products", "department"),
    ("products/search", "team"),
    ("products/search/ranking", "project"),
    ("products/assistant", "team"),
    ("platform", "department"),
    ("platform/ci", "team"),
)
PEOPLE = (  # email's name, shown name, tenant, role
    ("ines", "Ines Almeida", "research/language", "manager"),
    ("tomasz", "Tomasz Nowak", "research/language", "submitter"),
    ("yuki", "Yuki Tanaka", "research/vision", "submitter"),
    ("amara", "Amara Okafor", "products", "submitter"),
    ("lena", "Lena Fischer", "", "finance"),
    ("ci-bot", "CI pipeline", "platform/ci", "submitter"),
)
LIMITS = (  # tenant, resource, amount in base units, clusters
    ("", "gpu", 640_000, ()),
    ("research", "gpu", 400_000, ()),
    ("research/language", "gpu", 240_000, ()),
    ("research/language", "gpu:H100-80GB", 64_000, ("frankfurt",)),
    ("research/vision", "gpu", 120_000, ()),
    ("products", "gpu", 160_000, ()),
    ("products/search", "gpu", 40_000, ()),
    ("platform/ci", "cpu", 64_000, ()),
    ("platform/ci", "memory", 262_144, ()),
)
BORROWING = {"research/language": Borrowing(80_000, None), "research/vision": Borrowing(40_000, 80_000)}
"""Of limits on `gpu`: language may borrow from research, and vision keeps a third of its limit to itself."""
BUDGETS = (
    WantedBudget(f"{ORGANISATION}/research", "money", Decimal(25_000), "EUR", "month"),
    WantedBudget(f"{ORGANISATION}/products", "gpu_hours", Decimal(4_000), "", "quarter", stops_admission=True),
    WantedBudget(f"{ORGANISATION}/platform/ci", "money", Decimal(5), "USD", "month"),
)
BILLED_IN = "EUR"
DOLLARS_A_EURO = (Decimal("1.0812"), Decimal("1.0795"), Decimal("1.0841"), Decimal("1.0877"), Decimal("1.0833"))
"""Of weekdays in turn, invented."""
DATASETS = (  # tenant, name, bytes, regions
    ("research/language", "web-text-2026", 35 * 2**40, ("eu-central-1", "eu-north-1")),
    ("research/vision", "street-scenes", 2_200 * 2**30, ("eu-west-1",)),
    ("products/search", "clicks-q3", 580 * 2**30, ("eu-west-1", "us-central1")),
)
RESERVED: Mapping[str, Any] = {
    "tenant": f"{ORGANISATION}/research/language",
    "name": "release-evaluation",
    "pod_sets": [{"count": 2, "cpu": "96", "memory": "1Ti", "gpu": {"count": 8, "models": ["H100-80GB"]}}],
}
RESERVED_FOR = timedelta(hours=8)
DOCUMENTS = ("", "research/language", "products/search")
"""Tenants with a document of the last month that the demo closes."""
REMARKS = (  # who, the tenant whose document it is, kind, text, answer
    ("ines", "research/language", "dispute", "Our own records show fewer GPU-hours. Which jobs are these?", ""),
)
PREPULLS = (  # cluster, name, images
    ("frankfurt", "training", ("registry.example/llm/train:2.3", "registry.example/llm/tune:2.3")),
    ("dublin", "vision", ("registry.example/vision/seg:0.14",)),
)
COMMITMENTS = """
commitments:
  - name: h100-frankfurt
    kind: reserved_instance
    clusters: [frankfurt]
    flavor: h100-80gb
    capacity_type: on_demand
    units: 4
    start: {start:%Y-%m-%d}T00:00:00Z
    until: {until:%Y-%m-%d}T00:00:00Z
    upfront: 10000
    recurring: 4750
    currency: USD
  - name: compute-nordics
    kind: savings_plan
    clusters: [stockholm, lulea, uppsala]
    hourly: 9.20
    rates:
      - {{flavor: h100-80gb, capacity_type: on_demand, rate: 2.75}}
    start: {start:%Y-%m-%d}T00:00:00Z
    until: {until:%Y-%m-%d}T00:00:00Z
    currency: USD
"""
"""Some GPUs of the largest cluster for a year from this month on, cheaper than by the hour; and a spend for each hour on three others."""
PRICED_IN_EUROS = "paris"
"""A cluster whose provider charges euros from this month on."""


@dataclass(frozen=True, slots=True)
class Work:
    """A kind of job that a user runs, and its requests."""

    name: str
    tenant: str
    who: str
    image: str
    command: Sequence[str]
    pods: int = 1
    gpus: int = 0
    models: Sequence[str] = ()
    mig: str = ""
    cpu: str = "8"
    memory: str = "64Gi"
    minutes: tuple[int, int] = (5, 60)
    labels: Mapping[str, str] = field(default_factory=dict)
    weight: int = 1
    more: Mapping[str, Any] = field(default_factory=dict)

    def spec(self, number: int, labels: Mapping[str, str]) -> dict[str, Any]:
        """The spec to submit, without its tenant."""
        pod_set: dict[str, Any] = {
            "name": "main",
            "count": self.pods,
            "image": self.image,
            "command": list(self.command),
            "cpu": self.cpu,
            "memory": self.memory,
        }
        if self.mig:
            pod_set["gpu"] = {"mig": self.mig, "count": 1}
        elif self.gpus:
            pod_set["gpu"] = {"count": self.gpus, "models": list(self.models)}
        return {
            "name": f"{self.name}-{number}",
            "pod_sets": [pod_set],
            "estimated_seconds": sum(self.minutes) * 30,
            "labels": {**self.labels, **labels},
            **self.more,
        }


RACK = {"topology": {"level": "rack", "mode": "preferred"}}
WORK = (
    Work(
        "pretrain-7b", "research/language/pretraining", "tomasz", "registry.example/llm/train:2.3",
        ("torchrun", "train.py", "--config", "7b.yaml"), 4, 8, ("H100-80GB",), cpu="96", memory="1Ti",
        minutes=(90, 240), labels={"model": "7b", "stage": "pretrain"}, weight=2, more=RACK,
    ),
    Work(
        "finetune", "research/language/evaluation", "ines", "registry.example/llm/tune:2.3",
        ("python", "tune.py", "--lora"), 1, 8, ("H200", "H100-80GB"), cpu="48", memory="512Gi",
        minutes=(30, 120), labels={"stage": "finetune"}, weight=4,
    ),
    Work(
        "eval-suite", "research/language/evaluation", "ines", "registry.example/llm/eval:1.9",
        ("python", "-m", "evals", "--suite", "full"), 1, 2, ("A100-80GB",), cpu="16", memory="128Gi",
        minutes=(10, 45), labels={"stage": "eval"}, weight=6,
    ),
    Work(
        "segment-sweep", "research/vision/segmentation", "yuki", "registry.example/vision/seg:0.14",
        ("python", "sweep.py"), 1, 4, ("A100-80GB",), cpu="32", memory="256Gi", minutes=(20, 90), labels={"experiment": "s42"}, weight=5,
        more={"checkpoint_seconds": 900},
    ),
    Work(
        "rank-train", "products/search/ranking", "amara", "registry.example/search/rank:7.1",
        ("python", "-m", "rank.train"), 2, 4, ("A100-80GB", "L4"), cpu="24", memory="96Gi", minutes=(15, 60), labels={"service": "search"}, weight=4,
    ),
    Work(
        "assistant-notebook", "products/assistant", "amara", "registry.example/notebook:3.2",
        ("start-notebook",), mig="1g.10gb", cpu="4", memory="16Gi", minutes=(20, 120),
        labels={"kind": "notebook"}, weight=5,
    ),
    Work(
        "unit-tests", "platform/ci", "ci-bot", "registry.example/ci/runner:24.11", ("make", "test"),
        cpu="8", memory="16Gi", minutes=(3, 12), labels={"pipeline": "main"}, weight=9,
    ),
)  # fmt: skip
LIVE = (  # index into WORK, simulated minutes
    (0, 45), (0, 70), (1, 20), (1, 12), (1, 33), (2, 6), (2, 9), (2, 14), (2, 21), (3, 18), (3, 25), (3, 8), (3, 50), (4, 16),
    (4, 22), (4, 38), (5, 40), (5, 55), (5, 30), (6, 3), (6, 4), (6, 5), (6, 2),
)  # fmt: skip
STRANDED = Work(
    "pretrain-3b", "research/language/pretraining", "tomasz", "registry.example/llm/train:2.3",
    ("torchrun", "train.py", "--config", "3b.yaml"), 2, 8, ("H100-80GB",), cpu="96", memory="1Ti", minutes=(120, 240),
    labels={"model": "3b", "stage": "pretrain"}, more={"constraints": {"clusters": [SICK]}},
)  # fmt: skip
"""Runs on a cluster that soon stops answering, so that one job's state is unknown."""
WAITING = (
    Work(
        "pretrain-70b", "research/language/pretraining", "tomasz", "registry.example/llm/train:2.3",
        ("torchrun", "train.py", "--config", "70b.yaml"), 8, 8, ("H100-80GB",), cpu="96", memory="1Ti",
        minutes=(600, 900), labels={"model": "70b", "stage": "pretrain"}, more={**RACK, "priority_class": "high"},
    ),
    Work(
        "rank-backfill", "products/search/ranking", "amara", "registry.example/search/rank:7.1",
        ("python", "-m", "rank.backfill"), 10, 4, ("A100-80GB",), cpu="24", memory="96Gi", minutes=(60, 120),
        labels={"service": "search"},
    ),
)  # fmt: skip


def nodes_of(plan: ClusterPlan) -> Iterator[tuple[str, dict[str, str], dict[str, str]]]:
    """Each node of a planned cluster: its name, labels and allocatable resources."""
    for group in plan.groups:
        for number in range(group.count):
            name = f"{group.name}-{number + 1:02d}"
            labels = {
                "kubernetes.io/hostname": name,
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "topology.kubernetes.io/region": plan.region,
                "topology.kubernetes.io/zone": group.zone,
                "cloud.provider.com/topology-block": "b1",
                "cloud.provider.com/topology-rack": f"r{number // group.nodes_a_rack + 1}",
                **group.labels,
            }
            allocatable = {"cpu": str(group.cpu), "memory": f"{group.memory_gib}Gi", "pods": "110"}
            yield name, labels, allocatable | {resource: str(units) for resource, units in group.resources.items()}
