"""The beginning of every world: an organisation, two users, two clusters with their nodes, limits and prices."""

from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

from django.conf import settings

import clusters.operations
from billing.operations.prices import NewPrice, create_price
from clusters.drivers.simulated import SCHEME
from clusters.models import Cluster as ClusterRow
from clusters.models import Flavor
from devtools.simulation.clusters.objects import Node
from federation.models import PriorityClass
from foundation.bell import ensure_rows
from foundation.schedule import Schedule
from quotas.engine.holds import Borrowing
from quotas.operations import put_limit
from tenancy.engine.roles import Role
from tenancy.models import Membership, RoleBinding, Tenant, User
from tenancy.queries import SYSTEM, Actor

from .past import record_past

BEGINS_AT = datetime(2026, 6, 1, 12, tzinfo=UTC)
MONTH_ENDS_AT = datetime(2026, 6, 30, 23, 57, 30, tzinfo=UTC)
"""When some worlds begin instead: their jobs run into another month."""
BEGAN_US = round(BEGINS_AT.timestamp() * 1_000_000)
TEAMS = ("acme/research/vision", "acme/research/speech")
CLUSTERS = ("east", "west")
VIEWER = "eve"
USERS = ("ada", "ben", VIEWER)
"""Administrators of the organisation, and one who may only look."""
GPUS_PER_NODE = 4
NODES = 2
GPU_LIMIT = 12
SHIELD_SECONDS = 10
"""How long jobs run at least before more urgent ones may replace them. Those of the class `high` may."""
ROUTINES = {
    "cycle": 10.0, "expect": 120.0, "dispatch": 6.0, "settle": 15.0, "sweep": 10.0, "reconcile": 15.0, "accrue": 120.0,
    "examine": 30.0, "weigh": 120.0, "relocate": 15.0,
}  # fmt: skip
"""The routines and their longest silences: two or three times those of a real gateway, so that a run has fewer idle steps.
The nightly proof is a judge; the others touch no job.
"""
BELL_POLL_SECONDS = 3.0
OBSERVER_ROUND_SECONDS = 5.0


def nodes_of(cluster: str, *, has_racks: bool = False) -> list[Node]:
    """The nodes of a cluster; each is in its own rack if there are racks."""
    return [
        Node(f"{cluster}-{n}", f"{cluster}-uid-{n}", GPUS_PER_NODE, rack=f"{cluster}-rack-{n}" if has_racks else "")
        for n in range(NODES)
    ]


def identity_of(cluster: str) -> str:
    """The uid of its kube-system namespace."""
    return f"00000000-0000-4000-8000-{CLUSTERS.index(cluster):012d}"


def schedules(pace: float = 1.0) -> list[Schedule]:
    """The routines that the bell rings. `pace`: by how much longer their silences are."""
    return [
        Schedule(name, **{**settings.ROUTINES[name], "every_seconds": every * pace}) for name, every in ROUTINES.items()
    ]


def image_schedule() -> Schedule:
    """The routine of images that are pulled to nodes, which few worlds have."""
    return Schedule("prepull", **settings.ROUTINES["prepull"])


def stage_schedule() -> Schedule:
    """The routine of copies of datasets, which few worlds have."""
    return Schedule("stage", **settings.ROUTINES["stage"])


def set_up() -> None:
    """Writes the rows."""
    parent: Tenant | None = None
    for depth, (kind, name) in enumerate((("organisation", "acme"), ("department", "research"))):
        path = f"{parent.path}/{name}" if parent else name
        parent = Tenant.objects.create(parent=parent, kind=kind, name=name, path=path, depth=depth)
    Tenant.objects.create(
        parent=Tenant.objects.get(path="acme"), kind="department", name="lab", path="acme/lab", depth=1
    )
    for path in TEAMS:
        Tenant.objects.create(parent=parent, kind="team", name=path.rpartition("/")[2], path=path, depth=2)
    organisation = Tenant.objects.get(path="acme")
    for number, name in enumerate(USERS):
        user = User.objects.create(id=UUID(int=number + 1), email=f"{name}@acme.example", password="!")  # noqa: S106
        Membership.objects.create(user=user, organisation=organisation)
        RoleBinding.objects.create(tenant=organisation, user=user, role=Role.VIEWER if name == VIEWER else Role.ADMIN)
    for name in CLUSTERS:
        row = ClusterRow.objects.create(
            owner=organisation,
            name=name,
            driver=SCHEME,
            server=f"{SCHEME}://{name}",
            region="eu-west-1",
            identity=identity_of(name),
            last_seen_at=BEGINS_AT,
        )
        clusters.operations.record_inventory(row.id, [node.seen() for node in nodes_of(name)], {})
        for flavor in Flavor.objects.filter(cluster=row):
            price = Decimal(2 if name == "east" else 3)
            create_price(SYSTEM, NewPrice(name, flavor.name, price, effective_from=datetime(2026, 1, 1, tzinfo=UTC)))
    PriorityClass.objects.update(shield_seconds=SHIELD_SECONDS)
    PriorityClass.objects.filter(name="high").update(preempts="lower")
    put_limit(SYSTEM, "acme", "gpu", nominal=GPU_LIMIT * 1000)
    put_limit(SYSTEM, TEAMS[0], "gpu", nominal=GPU_LIMIT * 1000 // 2, borrowing=Borrowing(None, 1000))
    put_limit(SYSTEM, TEAMS[1], "gpu", nominal=GPU_LIMIT * 1000 // 2, borrowing=Borrowing(None, reclaims=True))
    ensure_rows([*schedules(), image_schedule(), stage_schedule()])
    record_past(TEAMS)


def user(name: str) -> Actor:
    """A user who acts for themselves."""
    number = USERS.index(name)
    return Actor(user_id=UUID(int=number + 1), name=f"{name}@acme.example")
