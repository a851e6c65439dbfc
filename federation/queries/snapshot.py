"""The complete input of one cycle: the queue, the fleet with its free capacity, limits, prices and policies.

The free capacity of a node is what is allocatable, less foreign pods, less our own pods bound there, less what was
decided for it but is not bound yet. Clusters without changes since the last cycle are the identical objects, so the
engine's arrays for them cost nothing.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple, TypeAlias
from uuid import UUID

from django.conf import settings
from django.db import connection

import billing.queries
import clusters.queries
import quotas.queries
from billing.engine.egress import EgressRate
from billing.queries import PriceView
from billing.queries.carbon import EmissionRates, emission_rates
from billing.queries.comparable import comparable_rates, in_comparable_currencies, unconverted
from clusters.engine.gpu_share import gpu_per_unit
from clusters.engine.health import FRESH, Freshness
from clusters.queries.fleet import ClusterView, FlavorView
from federation.models import LIVE_ATTEMPT_STATES
from federation.queries.budgets import load_budgets
from federation.queries.consolidation import with_consolidation, with_plan_claims
from federation.queries.images import known_images, pull_seconds
from federation.queries.in_use import ALL, InUse
from federation.queries.kept_room import jobs_that_await_data, load_kept
from federation.queries.offered import cluster_of, foreign_use, node_of, offered
from federation.queries.policies import load_policies
from federation.queries.preemption import with_preemption
from federation.queries.queue import load_queue, times_of
from federation.queries.releases import load_releases
from federation.queries.reservations import load_reservations
from federation.queries.shares import load_fair_share
from federation.queries.windows import load_windows
from foundation.caches import cached_all
from placement.ranking.interruptions import are_interrupted
from placement.values.emissions import Emissions
from placement.values.model import (
    FleetCluster,
    FleetFlavor,
    JobRequest,
    LimitState,
    PriceChange,
    Snapshot,
    UserLimitState,
)
from placement.values.nodes import NO_RESOURCES, NodeResources

SPOT = "spot"
A_MICROGRAM = Decimal("0.000001")


Dated: TypeAlias = tuple[PriceView | None, tuple[tuple[datetime, PriceView | None], ...]]
"""A flavor's current price, and the announced ones, the earliest first."""
Use = Mapping[str, NodeResources]
"""By node name."""


def load_snapshot(now: datetime, depth: int, features: InUse | None = None, *, with_moves: bool = True) -> Snapshot:
    """The input of a cycle at `now`, with the first `depth` jobs of the queue.

    With `features`, only what the decisions depend on: those that are not in use cost no query, nor do the shares of tenants
    if all jobs are of one. Without it, everything. `with_moves`: also which running jobs may move so that others fit.
    """
    in_use = features or ALL
    queue = load_queue(now, depth, jobs_that_await_data() if in_use.kept_room and in_use.data_waits else {})
    if not queue:
        return Snapshot(now, (), ())
    fleet = load_fleet(now, in_use)
    snapshot = Snapshot(
        now=now,
        clusters=fleet,
        queue=queue,
        limits=load_limits() if in_use.limits else (),
        user_limits=load_user_limits() if in_use.user_limits else (),
        class_limits=load_class_limits() if in_use.class_limits else (),
        budgets=load_budgets(now, queue, fleet) if in_use.budgets else (),
        policies=load_policies() if in_use.policies else (),
        egress=load_egress(now) if any(request.data for request in queue) else (),
        reservations=load_reservations(now) if in_use.reservations else (),
        windows=load_windows(now) if in_use.windows else (),
        fair_share=load_fair_share() if features is None or _is_shared(queue) else None,
        images=(images := known_images(queue)),
        pull_seconds=pull_seconds() if images else {},
        kept=load_kept(now) if in_use.kept_room else (),
        keep_seconds=settings.KEPT_ROOM_SECONDS,
    )
    snapshot = with_preemption(snapshot, in_use)
    snapshot = with_consolidation(snapshot, in_use) if with_moves else with_plan_claims(snapshot, in_use)
    return with_times(snapshot) if _needs_times(snapshot) else snapshot


def _is_shared(queue: Sequence[JobRequest]) -> bool:
    """Whether the order of turns depends on shares: the jobs of one tenant go in the order of the queue."""
    return len({request.tenant_path for request in queue}) > 1


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
        LimitState(
            limit.id,
            limit.tenant_path,
            limit.resource,
            limit.clusters,
            limit.cap,
            limit.held,
            limit.guaranteed,
            limit.nominal,
            limit.reclaims,
        )
        for limit in quotas.queries.limit_states()
    )


def load_user_limits() -> tuple[UserLimitState, ...]:
    """Every limit on users and what they hold against it."""
    return tuple(
        UserLimitState(limit.id, limit.tenant_path, limit.resource, limit.most, limit.held)
        for limit in quotas.queries.user_limit_states()
    )


def load_class_limits() -> tuple[LimitState, ...]:
    """Every limit of a priority class, of the installation and of tenants, and the amount held against it."""
    return tuple(
        LimitState(
            one.id, one.tenant_path, one.resource, (), one.cap, one.held, nominal=one.nominal, class_name=one.class_name
        )
        for one in quotas.queries.class_limit_states()
    )


class _ClusterState(NamedTuple):
    """All that a cluster's value depends on."""

    view: ClusterView
    use: Use
    prices: Mapping[str, Dated]
    """By flavor."""
    seen: Freshness
    usual_interruptions: Decimal
    """Per hour, of spot nodes that have no rate."""
    emissions: EmissionRates | None
    unconverted: Mapping[str, str]
    """By flavor, the currency of a price that no rate of today converts."""

    @property
    def id(self) -> UUID:
        """The cluster's."""
        return self.view.id


def load_egress(now: datetime) -> tuple[EgressRate, ...]:
    """The prices of moving data, in the currencies of the fleet's."""
    return comparable_rates(billing.queries.egress_rates(now), now)


def load_fleet(now: datetime, in_use: InUse = ALL) -> tuple[FleetCluster, ...]:
    """Every registered cluster with its free capacity."""
    announced = billing.queries.announced_prices(now) if in_use.announced_prices else {}
    charged = billing.queries.price_book(now)
    book, later = in_comparable_currencies(charged, announced, now)
    unknown = unconverted((charged, announced), (book, later))
    taken = _taken()
    fresh = clusters.queries.fleet_freshness(now)
    views = clusters.queries.fleet()
    emitting: Mapping[UUID, EmissionRates] = {}
    if in_use.carbon:
        emitting = emission_rates({one.id: {of.gpu_model for of in one.flavors.values()} for one in views}, now)
    states = [
        _ClusterState(
            view=view,
            use=taken.get(view.id, {}),
            prices={name: (book.get((view.id, name)), later.get((view.id, name), ())) for name in view.flavors},
            seen=fresh.get(view.id, FRESH),
            usual_interruptions=settings.SPOT_INTERRUPTIONS_PER_HOUR,
            emissions=emitting.get(view.id),
            unconverted={name: unknown[view.id, name] for name in view.flavors if (view.id, name) in unknown},
        )
        for view in views
    ]
    return tuple(_clusters(states))


@cached_all("id")
def _clusters(states: Sequence[_ClusterState]) -> list[FleetCluster]:
    return [_cluster(state) for state in states]


def _cluster(state: _ClusterState) -> FleetCluster:
    view, use = state.view, state.use
    nodes = (node_of(node, foreign_use(node), use.get(node.name, NO_RESOURCES)) for node in view.nodes)
    return cluster_of(view, {name: _flavor(state, name) for name in view.flavors}, nodes, state.seen)


def _flavor(state: _ClusterState, name: str) -> FleetFlavor:
    flavor, prices, (price, _) = state.view.flavors[name], state.prices, state.prices[name]
    stand_in = _stand_in(state.view, name)
    instants = {at for own in (name, stand_in) if own for at, _ in prices[own][1]}
    of_guests = prices[stand_in][0] if stand_in else None
    announced = [view for own in (name, stand_in) if own for _, view in prices[own][1]]
    unit, cpu, memory, guest_cpu, guest_memory = _asked(price, of_guests)
    return replace(
        offered(flavor),
        unit_price=unit,
        currency=next((one.currency for one in (price, of_guests, *announced) if one), "USD"),
        cpu_price=cpu,
        memory_price=memory,
        guest_cpu_price=guest_cpu,
        guest_memory_price=guest_memory,
        emissions=_emissions(state.emissions, flavor),
        unconverted=state.unconverted.get(name) or state.unconverted.get(stand_in, ""),
        interruptions_per_hour=_interruptions(flavor.capacity_type, price, state.usual_interruptions),
        price_changes=tuple(
            PriceChange(at, *_asked(_at(prices[name], at), _at(prices[stand_in], at) if stand_in else None))
            for at in sorted(instants)
        ),
    )


def _emissions(rates: EmissionRates | None, flavor: FlavorView) -> Emissions | None:
    if rates is None:
        return None
    gpu = rates.gpus.get(flavor.gpu_model)
    unit = None if gpu is None else gpu * gpu_per_unit(flavor.sharing, flavor.gpu_model)
    return Emissions(*(None if grams is None else _grams(grams) for grams in (unit, rates.core, rates.gib)))


def _grams(exact: Fraction) -> Decimal:
    return (Decimal(exact.numerator) / exact.denominator).quantize(A_MICROGRAM)


def _interruptions(capacity_type: str, price: PriceView | None, usual: Decimal) -> float:
    if capacity_type != SPOT:
        return 0.0
    known = None if price is None else price.interruptions_per_hour
    return float(usual if known is None else known)


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


# Objects that use other resources, with the nodes of their pods and of those that have not ended. Few jobs use any: an
# index has only these.
OTHERS = """
SELECT attempt.cluster_id, object.resources::text, object.assumed_nodes::text, object.pods, object.outcome = '',
       array_agg(pod.node) FILTER (WHERE pod.node <> ''),
       array_agg(pod.node) FILTER (WHERE pod.node <> '' AND pod.finished_at IS NULL AND NOT pod.is_gone)
  FROM federation_remoteobject AS object
  JOIN federation_attempt AS attempt ON attempt.id = object.attempt_id
  LEFT JOIN federation_podrun AS pod ON pod.attempt_id = object.attempt_id AND pod.position = object.position
 WHERE object.resources <> '{}' AND attempt.state = ANY(%s)
 GROUP BY attempt.cluster_id, object.id
"""


class _Sum:
    """The running sum of one node."""

    def __init__(self) -> None:
        self.pods = self.cpu_millicores = self.memory_mib = 0
        self.units: dict[str, int] = defaultdict(int)
        self.others: dict[str, int] = defaultdict(int)

    def add(self, flavor: str, pods: int, units: int, cpu_millicores: int, memory_mib: int) -> None:
        self.pods += pods
        self.units[flavor] += units
        self.cpu_millicores += cpu_millicores
        self.memory_mib += memory_mib

    def taken(self) -> NodeResources:
        return NodeResources(self.pods, self.cpu_millicores, self.memory_mib, dict(self.units), dict(self.others))


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
        cursor.execute(OTHERS, [LIVE_ATTEMPT_STATES])
        for cluster_id, resources, assumed, total, is_open, seen, bound in cursor.fetchall():
            pods_on = Counter(bound or ())
            if is_open:
                pods_on.update(still_assumed(json.loads(assumed), seen or (), max(0, total - len(seen or ()))))
            for node, pods in pods_on.items():
                for name, amount in json.loads(resources).items():
                    sums[cluster_id][node].others[name] += amount * pods
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
