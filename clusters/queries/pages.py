"""The content of the fleet and cluster pages, as frozen values. Counts are as last observed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Count, Q, Sum

from clusters.drivers.registry import kind_of
from clusters.engine.offered import NONE, DeviceCount
from clusters.models import Cluster, ClusterEvent, Flavor, Node
from foundation.clock import now
from foundation.paging import page_of
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, visible_tenants

from .avoided import AvoidedView, avoided_on, history_of
from .capacity import FlavorSummary, flavor_summary, freshness_of, node_standing, shown_reasons
from .visible import visible_clusters

EVENTS_SHOWN = 30
EXPIRES_SOON = timedelta(days=3)
NODES_A_PAGE = "50"


@dataclass(frozen=True, slots=True)
class ReasonLine:
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ClusterCard:
    """A cluster as the fleet page shows it."""

    id: UUID
    name: str
    owner: str
    region: str
    provider: str
    driver: str
    state: str
    health: str
    wish: str
    reasons: tuple[ReasonLine, ...]
    kubernetes_version: str
    last_seen_at: datetime | None
    observed_at: datetime | None
    minutes_stale: int
    """Minutes since its last observation if that is too long ago; else 0."""
    nodes: int
    nodes_ready: int
    cpu_millicores: int
    memory_mib: int
    flavors: tuple[FlavorSummary, ...]
    labels: tuple[tuple[str, str], ...]

    @property
    def gpus(self) -> DeviceCount:
        """Its whole GPUs."""
        return sum((flavor.count for flavor in self.flavors if not flavor.is_sliced), NONE)

    @property
    def slices(self) -> DeviceCount:
        """Its parts of GPUs, each in its own unit."""
        return sum((flavor.count for flavor in self.flavors if flavor.is_sliced), NONE)

    @property
    def is_well(self) -> bool:
        """Whether it is ready and was observed recently."""
        return self.state == "ready" and not self.minutes_stale


@dataclass(frozen=True, slots=True)
class Fleet:
    """All clusters that the actor may see, and their sums."""

    clusters: tuple[ClusterCard, ...]
    may_register: bool

    @property
    def gpus(self) -> DeviceCount:
        """The whole GPUs of all clusters."""
        return sum((card.gpus for card in self.clusters), NONE)

    @property
    def slices(self) -> DeviceCount:
        """The parts of GPUs of all clusters, each in its own unit."""
        return sum((card.slices for card in self.clusters), NONE)

    @property
    def ready(self) -> int:
        return sum(card.is_well for card in self.clusters)

    @property
    def troubled(self) -> tuple[ClusterCard, ...]:
        return tuple(card for card in self.clusters if not card.is_well)


@dataclass(frozen=True, slots=True)
class NodeLine:
    """A node: its place in the topology, and its devices as (flavor, used, units)."""

    name: str
    domain: str
    is_ready: bool
    is_schedulable: bool
    closed: str
    """The taint that keeps our pods off, or those without a GPU; empty if they may use it."""
    is_closed_to_all: bool
    why_avoided: str
    """Why jobs avoid it for a while; empty if they do not."""
    devices: tuple[tuple[str, int, int], ...]
    cpu_millicores: int
    memory_mib: int
    foreign_cpu_millicores: int
    foreign_memory_mib: int


@dataclass(frozen=True, slots=True)
class EventLine:
    at: datetime
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster with one page of its nodes, its latest events, and whether the actor may change it."""

    card: ClusterCard
    server: str
    identity: str
    clock_skew_ms: int
    created_at: datetime
    silent_since: datetime | None
    credential_expires_at: datetime | None
    expires_soon: bool
    """Whether its credential expires within days, or has expired."""
    has_credential: bool
    """Whether it is reached with a credential, which can be replaced."""
    nodes: tuple[NodeLine, ...]
    avoided: tuple[AvoidedView, ...]
    """The nodes that jobs avoid, and those that they avoided, the newest first."""
    next_nodes: str | None
    events: tuple[EventLine, ...]
    may_manage: bool


def fleet_view(actor: Actor) -> Fleet:
    """Every cluster that the actor may see, those in trouble first, then by name. Four queries regardless of the
    fleet's size.
    """
    cards = _cards(list(visible_clusters(actor)))
    in_order = sorted(cards, key=lambda card: (card.is_well, card.name, str(card.id)))
    may_register = visible_tenants(actor, Permission.MANAGE_CLUSTERS).filter(depth=0).exists()
    return Fleet(clusters=tuple(in_order), may_register=may_register)


def cluster_view(actor: Actor, cluster: Cluster, query: Mapping[str, str]) -> ClusterView:
    """The page of one cluster; the caller has checked that the actor may see it. `query` may contain the cursor of its
    nodes.
    """
    flavors = {flavor.name: flavor for flavor in Flavor.objects.filter(cluster=cluster)}
    avoided = avoided_on([cluster.id]).get(cluster.id, {})
    asked = {"limit": NODES_A_PAGE, **({"cursor": query["cursor"]} if query.get("cursor") else {})}
    nodes = page_of(
        Node.objects.filter(cluster=cluster),
        asked,
        orders={"name": "name"},
        scope=f"nodes-page|{cluster.id}|{actor.user_id}",
        render=lambda node: _node(node, flavors, avoided.get(node.uid, "")),
    )
    events = ClusterEvent.objects.filter(cluster=cluster).order_by("-id")[:EVENTS_SHOWN]
    managed = visible_tenants(actor, Permission.MANAGE_CLUSTERS).filter(id=cluster.owner_id)
    return ClusterView(
        card=_cards([cluster])[0],
        server=cluster.server,
        identity=cluster.identity,
        clock_skew_ms=cluster.clock_skew_ms,
        created_at=cluster.created_at,
        silent_since=cluster.silent_since,
        credential_expires_at=cluster.credential_expires_at,
        expires_soon=_expires_soon(cluster),
        has_credential=kind_of(cluster.server).has_credential,
        nodes=tuple(nodes["items"]),
        avoided=history_of(cluster),
        next_nodes=nodes["next"],
        events=tuple(EventLine(event.at, event.kind, event.message) for event in events),
        may_manage=managed.exists(),
    )


def _expires_soon(cluster: Cluster) -> bool:
    expires_at = cluster.credential_expires_at
    return expires_at is not None and expires_at < now() + EXPIRES_SOON


def _cards(clusters: Sequence[Cluster]) -> list[ClusterCard]:
    ids = [cluster.id for cluster in clusters]
    at = now()
    flavors = flavor_summary(clusters, at)
    sums = {
        row["cluster_id"]: row
        for row in Node.objects.filter(cluster_id__in=ids)
        .values("cluster_id")
        .annotate(
            nodes=Count("id"),
            ready=Count("id", filter=Q(is_ready=True, is_schedulable=True)),
            cpu=Sum("cpu_millicores"),
            memory=Sum("memory_mib"),
        )
    }
    return [_card(cluster, flavors[cluster.id], sums.get(cluster.id, {}), at) for cluster in clusters]


def _card(cluster: Cluster, flavors: Sequence[FlavorSummary], sums: Mapping[str, Any], at: datetime) -> ClusterCard:
    fresh = freshness_of(cluster, at)
    return ClusterCard(
        id=cluster.id,
        name=cluster.name,
        owner=cluster.owner.path,
        region=cluster.region,
        provider=cluster.provider,
        driver=cluster.driver,
        state=cluster.state,
        health=cluster.health,
        wish=cluster.wish,
        reasons=tuple(_reason(reason) for reason in shown_reasons(cluster, at)),
        kubernetes_version=cluster.kubernetes_version,
        last_seen_at=cluster.last_seen_at,
        observed_at=cluster.observed_at,
        minutes_stale=fresh.minutes if fresh.is_stale else 0,
        nodes=sums.get("nodes", 0),
        nodes_ready=sums.get("ready", 0),
        cpu_millicores=sums.get("cpu") or 0,
        memory_mib=sums.get("memory") or 0,
        flavors=tuple(flavors),
        labels=tuple(sorted((str(name), str(value)) for name, value in cluster.labels.items())),
    )


def _reason(reason: Any) -> ReasonLine:
    if isinstance(reason, Mapping):
        return ReasonLine(str(reason.get("code", "")), str(reason.get("message", "")))
    return ReasonLine("", str(reason))


def _node(node: Node, flavors: Mapping[str, Flavor], why_avoided: str) -> NodeLine:
    offered = {str(entry["flavor"]): int(entry["units"]) for entry in node.devices if entry["flavor"] in flavors}
    own = {name: flavors[name] for name in offered}
    devices = [(name, int(node.used_devices.get(own[name].resource_name, 0)), units) for name, units in offered.items()]
    stands = node_standing(node, own)
    is_in_order = node.is_ready and node.is_schedulable
    return NodeLine(
        name=node.name,
        domain=" / ".join(str(part) for part in node.domain if part and part != node.name),
        is_ready=node.is_ready,
        is_schedulable=node.is_schedulable,
        closed=(stands.why_unusable or next(iter(stands.repels.values()), "")) if is_in_order else "",
        is_closed_to_all=bool(stands.why_unusable),
        why_avoided=why_avoided,
        devices=tuple(entry for entry in devices if entry[2] > 0),
        cpu_millicores=node.cpu_millicores,
        memory_mib=node.memory_mib,
        foreign_cpu_millicores=node.foreign_cpu_millicores,
        foreign_memory_mib=node.foreign_memory_mib,
    )
