"""Pre-pull policies: as their next pulls are decided, as workers carry them out, and as users see them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.db.models import Exists, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Concat

from clusters.engine.images import normal_name
from clusters.engine.secrets import Kind, meant_secret
from clusters.engine.taints import tolerations_for
from clusters.models import Cluster, Flavor, Node
from clusters.queries import cluster_by_id, known_secrets, nodes_with, require_at_owner
from clusters.queries.avoided import avoided_on
from clusters.queries.capacity import node_standing
from clusters.queries.windows import open_windows
from federation.engine.objects.prepull_jobs import pull_hash
from federation.engine.objects.rendering import Identity
from federation.engine.prepulls import ImageProgress, Line, Past, State, Wanted, lines_of, progress_of
from federation.models import DISPATCH_IS_OPEN, Prepull, PrepullPolicy, ProvenImage
from foundation.clock import database_now
from foundation.problems import Invalid, NotFound
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, visible_tenants

READ_FIRST = timedelta(seconds=60)
"""The time after a change in which observers learn which nodes have a policy's images."""
MOST_LINES = 1000
READ_OF_NODES = ("cluster_id", "name", "uid", "devices", "taints", "is_ready", "is_schedulable")
"""A node's other columns are large, and each round reads all nodes."""
ANSWERING = (Cluster.Health.READY, Cluster.Health.DEGRADED)
_IS_OPEN = f"SELECT {DISPATCH_IS_OPEN}"
_IN_USE = "SELECT EXISTS (SELECT FROM federation_prepullpolicy)"


def prepulls_are_in_use() -> bool:
    """Whether there are policies, or were until their pulls have ended."""
    with connection.cursor() as cursor:
        cursor.execute(_IN_USE)
        return bool(cursor.fetchone()[0])


def may_prepull() -> bool:
    """Whether objects may be made on clusters: not in a standstill."""
    with connection.cursor() as cursor:
        cursor.execute(_IS_OPEN)
        return bool(cursor.fetchone()[0])


def visible_policies(actor: Actor, cluster_id: UUID) -> QuerySet[PrepullPolicy]:
    """The policies of a cluster for tenants that the actor may see, and all of them if the actor manages the cluster. NotFound for
    a cluster that the actor may not see.
    """
    cluster = cluster_by_id(actor, cluster_id)
    at_or_below = Q(path=OuterRef("tenant__path")) | Q(path__startswith=Concat(OuterRef("tenant__path"), Value("/")))
    found = PrepullPolicy.objects.filter(
        Exists(visible_tenants(actor).filter(at_or_below)), cluster=cluster, removed_at=None
    )
    return found.select_related("cluster__owner", "tenant")


def policy_by_id(actor: Actor, cluster_id: UUID, policy_id: UUID) -> PrepullPolicy:
    """The policy; NotFound if it does not exist on this cluster or the actor may not see it."""
    found = visible_policies(actor, cluster_id).filter(id=policy_id).first()
    if found is None:
        raise NotFound
    return found


def manages(actor: Actor, cluster: Cluster) -> bool:
    """Whether the actor manages the cluster, and so its policies."""
    return visible_tenants(actor, Permission.MANAGE_CLUSTERS).filter(id=cluster.owner_id).exists()


def managed_policy(actor: Actor, cluster_id: UUID, policy_id: UUID) -> PrepullPolicy:
    """The same, for an actor who manages the cluster; NotAllowedHere otherwise."""
    found = policy_by_id(actor, cluster_id, policy_id)
    require_at_owner(actor, found.cluster)
    return found


def wanted_of(policy: PrepullPolicy, now: datetime) -> Wanted:
    """All that the policy's next pulls depend on."""
    cluster_id = policy.cluster_id
    nodes = nodes_of(policy)
    flavors = {flavor.name: flavor for flavor in Flavor.objects.filter(cluster_id=cluster_id)}
    avoided = avoided_on([cluster_id]).get(cluster_id, {})
    closed = closed_nodes(cluster_id, now)
    proven = _proven(policy)
    there = nodes_with(cluster_id, proven)
    return Wanted(
        images=policy.images,
        nodes={
            node.name: _why_unusable(policy, node, flavors)
            or (f"avoided: {avoided[node.uid]}" if node.uid in avoided else "")
            or ("under maintenance" if closed is None or node.name in closed else "")
            for node in nodes
        },
        present={image: there.get(normal_name(image), frozenset()) for image in policy.images},
        past={(row.image, row.node): _past(row) for row in policy.prepulls.all()},
        at_once=policy.at_once,
        why_not=why_not(policy),
        unread=frozenset(
            image for image in policy.images if normal_name(image) in proven and now - policy.changed_at < READ_FIRST
        ),
    )


def nodes_of(policy: PrepullPolicy) -> list[Node]:
    """The nodes that should have its images."""
    rows = Node.objects.filter(cluster_id=policy.cluster_id).only(*READ_OF_NODES).order_by("name")
    return list(rows.filter(devices__contains=[{"flavor": policy.flavor}]) if policy.flavor else rows)


def why_not(policy: PrepullPolicy) -> str:
    """Why nothing of it is pulled now; empty if pulls may begin."""
    cluster = policy.cluster
    if policy.is_paused:
        return "The policy is paused."
    if cluster.health not in ANSWERING:
        return f"{cluster.name} does not answer."
    if cluster.wish != Cluster.Wish.OPEN:
        return f"{cluster.name} is {cluster.wish}."
    if policy.pull_secret:
        keyring = known_secrets({policy.pull_secret})
        if meant_secret(keyring, policy.tenant.path, policy.pull_secret, Kind.REGISTRY) is None:
            return f"{policy.tenant.path} has no secret {policy.pull_secret} for a registry."
    return ""


def closed_nodes(cluster_id: UUID, now: datetime) -> frozenset[str] | None:
    """The nodes under maintenance; None if the whole cluster is."""
    active = [one for one in open_windows(now) if one.cluster_id == cluster_id and one.starts_at <= now]
    if any(one.is_whole for one in active):
        return None
    return frozenset(name for one in active for name in one.nodes)


def _proven(policy: PrepullPolicy) -> frozenset[str]:
    """Those of its images that its organisation has pulled: of others, it does not learn which nodes have them."""
    organisation = policy.tenant.path.partition("/")[0]
    names = [normal_name(image) for image in policy.images]
    rows = ProvenImage.objects.filter(organisation__path=organisation, name__in=names)
    return frozenset(rows.values_list("name", flat=True))


def _own(node: Node, flavors: Mapping[str, Flavor]) -> dict[str, Flavor]:
    return {entry["flavor"]: flavors[entry["flavor"]] for entry in node.devices if entry["flavor"] in flavors}


def _why_unusable(policy: PrepullPolicy, node: Node, flavors: Mapping[str, Flavor]) -> str:
    stands = node_standing(node, _own(node, flavors))
    return stands.why_unusable or (stands.repels.get(policy.flavor, "") if policy.flavor else "")


def tolerations_on(policy: PrepullPolicy, node: Node) -> tuple[Mapping[str, str], ...]:
    """The tolerations of a pull there: those of jobs on a flavor that the node offers."""
    offered = [entry["flavor"] for entry in node.devices]
    own = _own(node, {one.name: one for one in Flavor.objects.filter(cluster_id=node.cluster_id, name__in=offered)})
    repelled = node_standing(node, own).repels
    usable = [own[name] for name in sorted(own) if name not in repelled and policy.flavor in ("", name)]
    return tolerations_for(usable[0].vendor, usable[0].capacity_type) if usable else ()


def _past(row: Prepull) -> Past:
    return Past(
        is_live=row.phase != Prepull.Phase.IDLE,
        outcome=row.outcome,
        failures=row.failures,
        pulls=row.pulls,
        ended_at=row.ended_at,
        pulled_at=row.pulled_at,
        message=row.message,
    )


def identity_of(row: Prepull) -> Identity:
    """The owner of the pull's object, for its labels."""
    policy = row.policy
    assert row.object_id is not None
    return Identity(
        install=settings.INSTALL_ID,
        tenant_id=policy.tenant_id,
        tenant_path=policy.tenant.path,
        job_id=policy.id,
        attempt_id=row.object_id,
        attempt_number=row.pulls + row.failures + 1,
        spec_hash=pull_hash(row.image),
        kept_namespace=row.namespace,
    )


def live_prepulls(cluster_id: UUID, *phases: str) -> list[Prepull]:
    """The pulls of a cluster that are under way, in these phases; in any without one."""
    rows = Prepull.objects.filter(cluster_id=cluster_id, slot__isnull=False).order_by("id")
    rows = rows.filter(phase__in=phases) if phases else rows
    return list(rows.select_related("policy__tenant", "policy__cluster"))


def known_pulls(object_ids: Sequence[UUID]) -> set[UUID]:
    """Those of these ids that are the objects of pulls under way."""
    found = Prepull.objects.filter(object_id__in=object_ids).values_list("object_id", flat=True)
    return {object_id for object_id in found if object_id is not None}


@dataclass(frozen=True, slots=True)
class PolicyView:
    """A policy as users see it."""

    policy: PrepullPolicy
    images: tuple[ImageProgress, ...]
    why_not: str
    troubled: tuple[Line, ...]
    """Nodes that lack an image for a reason."""

    @property
    def is_stopped(self) -> bool:
        """Whether a user can make it try again."""
        return any(image.brake for image in self.images) or any(line.needs_user for line in self.troubled)


def view_of(policy: PrepullPolicy, now: datetime | None = None, most: int = MOST_LINES) -> PolicyView:
    """The policy with its progress and at most this number of troubled nodes."""
    wanted = wanted_of(policy, now or database_now())
    lines = [line for line in lines_of(wanted) if line.state in (State.FAILED, State.UNUSABLE, State.PULLING)]
    lines.sort(key=lambda line: (line.state == State.UNUSABLE, line.state == State.PULLING))
    return PolicyView(policy, tuple(progress_of(wanted)), wanted.why_not, tuple(lines[:most]))


def lines_in(policy: PrepullPolicy, state: str = "") -> Sequence[Line]:
    """The images on nodes, at most MOST_LINES, in this state; in any if it is empty. Invalid for an unknown one."""
    if state and state not in set(State):
        raise Invalid.field("state", "unknown_value", f"one of: {', '.join(State)}")
    lines = lines_of(wanted_of(policy, database_now()))
    return [line for line in lines if state in ("", line.state)][:MOST_LINES]


def standing_of_policy(policy: PrepullPolicy) -> dict[str, Any]:
    """What the audit trail keeps of a policy."""
    kept = {name: getattr(policy, name) for name in ("name", "images", "flavor", "pull_secret", "at_once", "is_paused")}
    return {"tenant": policy.tenant.path, **kept}
