"""Small fleets and jobs for tests of the engine."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

from placement.values.advance import AdvanceReservation
from placement.values.maintenance import MaintenanceWindow
from placement.values.model import (
    Constraints,
    FleetCluster,
    FleetFlavor,
    FleetNode,
    GpuRequest,
    JobRequest,
    LimitState,
    PodSetRequest,
    Snapshot,
    Topology,
)
from placement.values.nodes import NodeResources, fleet_node

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
H100 = "H100-80GB"
A100 = "A100-80GB"


def flavor(
    gpu_model=H100, *, sharing="whole", price="2.00", capacity_type="on_demand", name=None, memory_mib=81920
) -> FleetFlavor:
    label = name or "-".join(part for part in (gpu_model or "cpu", sharing, capacity_type) if part)
    return FleetFlavor(
        name=label,
        vendor="nvidia" if gpu_model else "",
        gpu_model=gpu_model,
        gpu_memory_mib=memory_mib if gpu_model else 0,
        sharing=sharing,
        capacity_type=capacity_type,
        unit_price=None if price is None else Decimal(price),
    )


def node(
    name,
    of,
    total=8,
    free=None,
    *,
    domain=("z1", "b1", "r1"),
    cpu=128_000,
    memory=1_048_576,
    pods=110,
    clique="",
    **more,
) -> FleetNode:
    """A node of one flavor (or of several: `of` a list, `total` and `free` lists); all of it free unless said."""
    flavors = of if isinstance(of, list) else [of]
    totals = total if isinstance(total, list) else [total]
    frees = totals if free is None else free if isinstance(free, list) else [free]
    units = {one.name: total for one, total in zip(flavors, totals, strict=True)}
    taken = {one.name: total - free for one, total, free in zip(flavors, totals, frees, strict=True)}
    built = fleet_node(
        name,
        NodeResources(pods, cpu, memory, units),
        NodeResources(units=taken),
        domain=domain,
        clique=clique,
    )
    return replace(built, **more)


def cluster(number, nodes: Iterable[FleetNode], flavors: Sequence[FleetFlavor], **more) -> FleetCluster:
    defaults = {"owner_path": "acme", "region": "eu-west-1", "state": "ready"}
    return FleetCluster(
        id=UUID(int=number),
        name=more.pop("name", f"c{number}"),
        flavors={one.name: one for one in flavors},
        nodes=tuple(nodes),
        **(defaults | more),
    )


def uniform(number, nodes=4, of=None, total=8, *, per_rack=4, free=None, **more) -> FleetCluster:
    """A cluster of equal nodes, so many to a rack."""
    one = of or flavor()
    return cluster(
        number,
        [
            node(f"c{number}-n{n:03d}", one, total, free, domain=("z1", "b1", f"r{n // per_rack:02d}"))
            for n in range(nodes)
        ],
        [one],
        **more,
    )


def pods(count=1, gpus=1, *, models=(), mig="", fraction=0, cpu=1000, memory=1024, name="worker") -> PodSetRequest:
    gpu = GpuRequest(gpus, tuple(models), mig, fraction) if gpus or mig or fraction else None
    return PodSetRequest(name, count, cpu, memory, gpu)


_numbers = iter(range(10**6, 10**9))


def job(*pod_sets, tenant="acme/ml", shape="", level="cluster", mode="preferred", **more) -> JobRequest:
    constraints = {key: more.pop(key) for key in Constraints.__dataclass_fields__ if key in more}
    return JobRequest(
        id=more.pop("id", None) or UUID(int=next(_numbers)),
        tenant_path=tenant,
        shape=shape,
        pod_sets=pod_sets or (pods(),),
        constraints=Constraints(**constraints),
        topology=Topology(level, mode),
        **more,
    )


def limit(
    tenant, resource, cap, held=0, clusters=(), number=None, *, guaranteed=0, nominal=None, reclaims=False
) -> LimitState:
    id_ = UUID(int=number or next(_numbers))
    return LimitState(id_, tenant, resource, tuple(clusters), cap, held, guaranteed, nominal, reclaims)


def reservation(
    number, *nodes, on=1, tenant="acme/ml", starts=0, minutes=60, recall=None, reserved=(), used=()
) -> AdvanceReservation:
    """Nodes of cluster `on` for an hour from now, unless it starts so many minutes later or takes so long."""
    starts_at = NOW + timedelta(minutes=starts)
    return AdvanceReservation(
        UUID(int=number), f"r{number}", tenant, UUID(int=on), f"c{on}", starts_at,
        starts_at + timedelta(minutes=minutes), nodes, recall, tuple(reserved), tuple(used),
    )  # fmt: skip


def window(number, *nodes, on=1, starts=0, minutes=60) -> MaintenanceWindow:
    """Maintenance of nodes of cluster `on`, or of all of it, for an hour from now, unless it starts so many minutes later
    or takes so long.
    """
    starts_at = NOW + timedelta(minutes=starts)
    until_at = starts_at + timedelta(minutes=minutes)
    return MaintenanceWindow(UUID(int=number), UUID(int=on), f"c{on}", starts_at, until_at, not nodes, nodes)


def snapshot(clusters, queue, limits=(), policies=(), reservations=(), windows=(), *, budgets=()) -> Snapshot:
    return Snapshot(
        NOW,
        tuple(clusters),
        tuple(queue),
        tuple(limits),
        policies=tuple(policies),
        reservations=tuple(reservations),
        windows=tuple(windows),
        budgets=tuple(budgets),
    )
