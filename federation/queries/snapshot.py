"""The complete input of one cycle: the queue, the fleet with its free capacity, limits, prices and policies.

The free capacity of a node is what is allocatable, less foreign pods, less our own pods bound there, less what was
decided for it but is not bound yet. Clusters without changes since the last cycle are the identical objects, so the
engine's arrays for them cost nothing.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TypeAlias
from uuid import UUID

from django.conf import settings
from django.db import connection

import billing.queries
import clusters.queries
import quotas.queries
from billing.queries import PriceView
from clusters.engine.health import FRESH, OPEN_STATES, Freshness
from clusters.queries.fleet import ClusterView, NodeView
from federation.models import LIVE_ATTEMPT_STATES
from federation.queries.offered import offered
from federation.queries.policies import load_policies
from federation.queries.queue import load_queue, times_of
from federation.queries.releases import load_releases
from federation.queries.reservations import load_reservations
from placement.ranking.interruptions import are_interrupted
from placement.values.model import (
    FleetCluster,
    FleetFlavor,
    FleetNode,
    LimitState,
    PriceChange,
    Snapshot,
)

SPOT = "spot"


@dataclass(frozen=True, slots=True)
class Taken:
    """What our own pods use of one node: pods, millicores, MiB, and units by flavor."""

    pods: int
    cpu_millicores: int
    memory_mib: int
    units: Mapping[str, int]


Dated: TypeAlias = tuple[PriceView | None, tuple[tuple[datetime, PriceView], ...]]
"""A flavor's current price, and the announced ones, the earliest first."""
NO_PRICE: Dated = (None, ())
NOTHING_TAKEN = Taken(0, 0, 0, {})
Use = Mapping[str, Taken]
"""By node name."""


def load_snapshot(now: datetime, depth: int) -> Snapshot:
    """The input of a cycle at `now`, with the first `depth` jobs of the queue."""
    queue = load_queue(now, depth)
    if not queue:
        return Snapshot(now, (), ())
    snapshot = Snapshot(
        now=now,
        clusters=load_fleet(now),
        queue=queue,
        limits=load_limits(),
        policies=load_policies(),
        egress=billing.queries.egress_rates(now) if any(request.data for request in queue) else (),
        reservations=load_reservations(now),
    )
    return with_times(snapshot) if _needs_times(snapshot) else snapshot


def _needs_times(snapshot: Snapshot) -> bool:
    """Whether the cycle's decisions depend on run times."""
    if any(request.data or request.throughput for request in snapshot.queue):
        return True
    return _someone_is_out_of_patience(snapshot) or are_interrupted(snapshot.clusters)


def with_times(snapshot: Snapshot) -> Snapshot:
    """The snapshot with its jobs' expected run times and the expected ends of running jobs, as far as known."""
    return replace(snapshot, runtimes=times_of(snapshot.queue), releases=load_releases(snapshot.now))


def _someone_is_out_of_patience(snapshot: Snapshot) -> bool:
    """Whether room may be kept for a job that has waited too long: only then do a cycle's decisions depend on time."""
    since = snapshot.now - timedelta(seconds=snapshot.patience_seconds)
    return any(request.submitted_at is not None and request.submitted_at < since for request in snapshot.queue)


def load_limits() -> tuple[LimitState, ...]:
    """Every quota limit and the amount held against it."""
    return tuple(
        LimitState(limit.id, limit.tenant_path, limit.resource, limit.clusters, limit.cap, limit.held)
        for limit in quotas.queries.limit_states()
    )


_built: dict[UUID, tuple[tuple[ClusterView, Use, object, Freshness], FleetCluster]] = {}


def load_fleet(now: datetime) -> tuple[FleetCluster, ...]:
    """Every registered cluster with its free capacity."""
    book, announced = billing.queries.price_book(now), billing.queries.announced_prices(now)
    prices = {key: (book.get(key), announced.get(key, ())) for key in book.keys() | announced.keys()}
    taken = _taken()
    fresh = clusters.queries.fleet_freshness(now)
    views = clusters.queries.fleet()
    return tuple(_cluster(view, taken.get(view.id, {}), prices, fresh.get(view.id, FRESH)) for view in views)


def _cluster(view: ClusterView, use: Use, prices: Mapping[tuple[UUID, str], Dated], fresh: Freshness) -> FleetCluster:
    own_prices = {name: prices.get((view.id, name), NO_PRICE) for name in view.flavors}
    known = _built.get(view.id)
    if known is not None and known[0][0] is view and known[0][1:] == (use, own_prices, fresh):
        return known[1]
    built = FleetCluster(
        id=view.id,
        name=view.name,
        owner_path=view.owner_path,
        region=view.region,
        state="stale" if fresh.is_stale and view.state in OPEN_STATES else view.state,
        minutes_unseen=fresh.minutes,
        flavors={name: _flavor(view, name, own_prices) for name in view.flavors},
        nodes=tuple(_node(node, use.get(node.name, NOTHING_TAKEN)) for node in view.nodes),
    )
    _built[view.id] = ((view, use, own_prices, fresh), built)
    return built


def _flavor(view: ClusterView, name: str, prices: Mapping[str, Dated]) -> FleetFlavor:
    flavor, (price, _) = view.flavors[name], prices[name]
    stand_in = _stand_in(view, name)
    instants = {at for own in (name, stand_in) if own for at, _ in prices[own][1]}
    unit, cpu, memory, guest_cpu, guest_memory = _asked(price, prices[stand_in][0] if stand_in else None)
    return replace(
        offered(flavor),
        unit_price=unit,
        currency=price.currency if price else "USD",
        cpu_price=cpu,
        memory_price=memory,
        guest_cpu_price=guest_cpu,
        guest_memory_price=guest_memory,
        interruptions_per_hour=_interruptions(flavor.capacity_type, price),
        price_changes=tuple(
            PriceChange(at, *_asked(_at(prices[name], at), _at(prices[stand_in], at) if stand_in else None))
            for at in sorted(instants)
        ),
    )


def _interruptions(capacity_type: str, price: PriceView | None) -> float:
    if capacity_type != SPOT:
        return 0.0
    known = None if price is None else price.interruptions_per_hour
    return float(settings.SPOT_INTERRUPTIONS_PER_HOUR if known is None else known)


def _asked(price: PriceView | None, stand_in: PriceView | None) -> tuple[Decimal | None, ...]:
    """The prices of a unit, a core and a GiB, and for a pod without GPUs of a core and a GiB. The latter come from the
    `stand_in` price if the flavor's own price has none for such pods.
    """
    own = (price.unit_price, price.cpu_price, price.memory_price) if price else (None, None, None)
    if stand_in is not None and own[1] is None and own[2] is None:
        return *own, stand_in.unit_price, stand_in.memory_price
    return *own, own[1], own[2]


def _at(prices: Dated, at: datetime) -> PriceView | None:
    price, later = prices
    return next((view for begins, view in reversed(later) if begins <= at), price)


def _stand_in(view: ClusterView, name: str) -> str:
    """The flavor whose price metering uses for a pod without GPUs there: the first CPU-only one of
    its capacity type.
    """
    host = view.flavors[name]
    alike = (n for n, f in view.flavors.items() if not f.gpu_model and f.capacity_type == host.capacity_type)
    return min(alike, default="") if host.gpu_model else ""


def _node(node: NodeView, taken: Taken) -> FleetNode:
    return FleetNode(
        name=node.name,
        domain=node.domain,
        total=node.devices,
        free={
            name: max(0, units - node.foreign_devices.get(name, 0) - taken.units.get(name, 0))
            for name, units in node.devices.items()
        },
        cpu_millicores=node.cpu_millicores,
        memory_mib=node.memory_mib,
        pods=node.pods,
        free_cpu_millicores=max(0, node.cpu_millicores - node.foreign_cpu_millicores - taken.cpu_millicores),
        free_memory_mib=max(0, node.memory_mib - node.foreign_memory_mib - taken.memory_mib),
        free_pods=max(0, node.pods - node.foreign_pods - taken.pods),
        is_usable=node.is_usable,
        why_unusable=node.why_unusable,
        repels=node.repels,
        clique=node.clique,
    )


# An ended pod has freed its place; so has one that is gone without a seen end.
BOUND = """
SELECT attempt.cluster_id, pod.node, object.flavor, count(*),
       sum(object.gpu_units), sum(object.cpu_millicores), sum(object.memory_mib)
  FROM federation_attempt AS attempt
  JOIN federation_podrun AS pod ON pod.attempt_id = attempt.id
  JOIN federation_remoteobject AS object ON object.attempt_id = attempt.id AND object.position = pod.position
 WHERE attempt.state = ANY(%s) AND pod.node <> '' AND pod.finished_at IS NULL AND NOT pod.is_gone
 GROUP BY attempt.cluster_id, pod.node, object.flavor
"""
# Objects without a pod seen on a node yet: they count on the assumed nodes, and many of them are equal.
UNSEEN = """
SELECT attempt.cluster_id, object.flavor, object.gpu_units, object.cpu_millicores, object.memory_mib,
       object.assumed_nodes::text AS nodes, count(*)
  FROM federation_attempt AS attempt
  JOIN federation_remoteobject AS object ON object.attempt_id = attempt.id
 WHERE attempt.state = ANY(%s) AND object.outcome = ''
   AND NOT EXISTS (SELECT FROM federation_podrun AS pod
                    WHERE pod.attempt_id = attempt.id AND pod.position = object.position AND pod.node <> '')
 GROUP BY attempt.cluster_id, object.flavor, object.gpu_units, object.cpu_millicores, object.memory_mib, nodes
"""
# Objects with some pods seen on nodes and some not.
PARTLY_SEEN = """
SELECT attempt.cluster_id, object.flavor, object.gpu_units, object.cpu_millicores, object.memory_mib,
       object.assumed_nodes::text, object.pods - count(*), array_agg(pod.node)
  FROM federation_attempt AS attempt
  JOIN federation_remoteobject AS object ON object.attempt_id = attempt.id
  JOIN federation_podrun AS pod ON pod.attempt_id = attempt.id AND pod.position = object.position AND pod.node <> ''
 WHERE attempt.state = ANY(%s) AND object.outcome = ''
 GROUP BY attempt.cluster_id, object.id
HAVING count(*) < object.pods
"""


class _Sum:
    """The running sum of one node."""

    def __init__(self) -> None:
        self.pods = self.cpu_millicores = self.memory_mib = 0
        self.units: dict[str, int] = defaultdict(int)

    def add(self, flavor: str, pods: int, units: int, cpu_millicores: int, memory_mib: int) -> None:
        self.pods += pods
        self.units[flavor] += units
        self.cpu_millicores += cpu_millicores
        self.memory_mib += memory_mib

    def taken(self) -> Taken:
        return Taken(self.pods, self.cpu_millicores, self.memory_mib, dict(self.units))


def _taken() -> Mapping[UUID, Use]:
    sums: dict[UUID, dict[str, _Sum]] = defaultdict(lambda: defaultdict(_Sum))
    with connection.cursor() as cursor:
        cursor.execute(BOUND, [LIVE_ATTEMPT_STATES])
        for cluster_id, node, flavor, pods, units, cpu_millicores, memory_mib in cursor.fetchall():
            sums[cluster_id][node].add(flavor, pods, int(units), int(cpu_millicores), int(memory_mib))
        cursor.execute(UNSEEN, [LIVE_ATTEMPT_STATES])
        for cluster_id, flavor, *each, assumed, objects in cursor.fetchall():
            for node, pods in json.loads(assumed).items():
                sums[cluster_id][node].add(flavor, pods * objects, *(amount * pods * objects for amount in each))
        cursor.execute(PARTLY_SEEN, [LIVE_ATTEMPT_STATES])
        for cluster_id, flavor, *each, assumed, pending, seen in cursor.fetchall():
            for node, pods in still_assumed(json.loads(assumed), seen, pending).items():
                sums[cluster_id][node].add(flavor, pods, *(amount * pods for amount in each))
    return {cluster_id: {node: total.taken() for node, total in nodes.items()} for cluster_id, nodes in sums.items()}


def still_assumed(assumed: Mapping[str, int], seen: Iterable[str], pending: int) -> dict[str, int]:
    """Where the `pending` pods are expected: the assumed places, less those that bound pods already occupy."""
    left = dict(assumed)
    for node in seen:
        if left.get(node, 0) > 0:
            left[node] -= 1
    result: dict[str, int] = {}
    for node, pods in left.items():
        count = min(pods, pending)
        if count > 0:
            result[node] = count
            pending -= count
    return result
