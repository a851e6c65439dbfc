"""Which clusters an actor may see and manage. A cluster of `acme` serves, and is visible to, every tenant
below `acme`.
"""

from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet, Value
from django.db.models.functions import Concat

from clusters.models import Cluster
from foundation.problems import Invalid, NotFound
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.queries import Actor, NotAllowedHere, tenant_by_path, visible_tenants

Health, Wish = Cluster.Health, Cluster.Wish
STATES = (*Health.values, Wish.CORDONED.value, Wish.DRAINING.value)


def visible_clusters(actor: Actor, *, with_removed: bool = False) -> QuerySet[Cluster]:
    """Registered clusters whose owner is at or above a tenant that the actor may see; `with_removed`: also those of before."""
    at_or_below = Q(path=OuterRef("owner__path")) | Q(path__startswith=Concat(OuterRef("owner__path"), Value("/")))
    known = Cluster.everything if with_removed else Cluster.objects
    return known.filter(Exists(visible_tenants(actor).filter(at_or_below))).select_related("owner")


def cluster_by_id(actor: Actor, cluster_id: UUID) -> Cluster:
    """The cluster; NotFound if it does not exist or the actor may not see it."""
    cluster = visible_clusters(actor).filter(id=cluster_id).first()
    if cluster is None:
        raise NotFound
    return cluster


def cluster_by_name(actor: Actor, name: str) -> Cluster:
    """The visible cluster of that name (if there are two, the one owned highest in the tree); NotFound otherwise."""
    cluster = visible_clusters(actor).filter(name=name).order_by("owner__depth", "id").first()
    if cluster is None:
        raise NotFound
    return cluster


def require_at_owner(actor: Actor, cluster: Cluster, permission: Permission = Permission.MANAGE_CLUSTERS) -> None:
    """Returns if the actor has the permission at the cluster's owner; NotAllowedHere otherwise.

    For clusters that the actor may see: tenants further down the tree may use a cluster without managing it.
    """
    if not visible_tenants(actor, permission).filter(id=cluster.owner_id).exists():
        raise NotAllowedHere(cluster.owner, permission)


def served_tenant(actor: Actor, cluster: Cluster, path: str) -> Tenant:
    """The tenant at the path, at or below the cluster's owner; without a path the owner. A tenant outside of it counts as not
    found: Invalid.
    """
    if not path:
        return cluster.owner
    is_served = path == cluster.owner.path or path.startswith(f"{cluster.owner.path}/")
    try:
        if is_served:
            return tenant_by_path(actor, path, Permission.VIEW)
    except NotFound:
        pass
    raise Invalid.field("tenant", "not_found", "the cluster serves no tenant of that path")


def owners_for_registration(actor: Actor) -> list[Tenant]:
    """The organisations where the actor may manage clusters. At most two, because callers only need to know if there is
    more than one.
    """
    return list(visible_tenants(actor, Permission.MANAGE_CLUSTERS).filter(depth=0).order_by("path")[:2])


def in_state(clusters: QuerySet[Cluster], state: str) -> QuerySet[Cluster]:
    """Clusters with this displayed state (`Cluster.state`); Invalid for an unknown word."""
    if state in {Health.UNREACHABLE, Health.AUTH_FAILED}:
        return clusters.filter(health=state)
    answering = clusters.filter(health__in=[Health.READY, Health.DEGRADED])
    if state in {Wish.CORDONED, Wish.DRAINING}:
        return answering.filter(wish=state)
    if state in {Health.READY, Health.DEGRADED}:
        return answering.filter(wish=Wish.OPEN, health=state)
    raise Invalid.field("state", "unknown_state", f"one of: {', '.join(STATES)}")
