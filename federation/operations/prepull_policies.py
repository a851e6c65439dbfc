"""Makes, changes and removes pre-pull policies. Those who manage a cluster do: images take the disks of all who use its nodes."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from clusters.engine.images import normal_name
from clusters.models import Cluster, Flavor
from clusters.queries import cluster_by_id, require_at_owner, served_tenant
from federation.engine.names import image_fault
from federation.locks import lock_prepull_policy
from federation.models import Prepull, PrepullPolicy
from federation.models.prepulls import LONGEST_IMAGE
from federation.queries.prepulls import managed_policy, standing_of_policy
from foundation.outbox import announce
from foundation.problems import Conflict, FieldError, Invalid, NotFound
from tenancy.operations import record_audit
from tenancy.queries import Actor

MOST_POLICIES = 20
"""Of one cluster."""
UNIQUE = "prepull_name_is_unique_on_its_cluster"


@dataclass(frozen=True, slots=True)
class WantedPolicy:
    """A policy to make; without a tenant, it is that of the cluster's owner. `images` are as jobs name them."""

    name: str
    images: tuple[str, ...]
    tenant: str = ""
    flavor: str = ""
    pull_secret: str = ""
    at_once: int = 2


@dataclass(frozen=True, slots=True)
class PolicyChanges:
    """The changes; None leaves a value as it is. A policy keeps its name and its tenant."""

    images: tuple[str, ...] | None = None
    flavor: str | None = None
    pull_secret: str | None = None
    at_once: int | None = None
    is_paused: bool | None = None


def make_prepull_policy(actor: Actor, cluster_id: UUID, wanted: WantedPolicy) -> PrepullPolicy:
    """The new policy; its pulls begin with the next round. The actor must manage the cluster.

    Raises NotFound and NotAllowedHere (cluster), Invalid with every field at fault, Conflict `prepull_policy_exists` and
    `too_many_prepull_policies`.
    """
    cluster = cluster_by_id(actor, cluster_id)
    require_at_owner(actor, cluster)
    _check(cluster, wanted.images, wanted.flavor)
    tenant = served_tenant(actor, cluster, wanted.tenant)
    if PrepullPolicy.objects.filter(cluster=cluster, removed_at=None).count() >= MOST_POLICIES:
        told = (
            f"{cluster.name} has {MOST_POLICIES} pre-pull policies. Remove one first, or add the images to one of them."
        )
        raise Conflict(told, code="too_many_prepull_policies")
    columns = {**asdict(wanted), "tenant": tenant, "images": list(wanted.images)}
    try:
        with transaction.atomic():
            policy = PrepullPolicy.objects.create(cluster=cluster, created_by=actor.name[:300], **columns)
            _record(actor, "prepull.create", policy, after=standing_of_policy(policy))
    except IntegrityError as error:
        if UNIQUE in str(error):
            told = f"{cluster.name} already has a pre-pull policy {wanted.name}."
            raise Conflict(told, code="prepull_policy_exists") from None
        raise
    return managed_policy(actor, cluster_id, policy.id)


def change_prepull_policy(actor: Actor, cluster_id: UUID, policy_id: UUID, changes: PolicyChanges) -> PrepullPolicy:
    """The policy after the change. Pulls of images that it no longer names are stopped, and all if it is paused; what failed
    before counts no longer. Raises as `make_prepull_policy` does.
    """
    policy = managed_policy(actor, cluster_id, policy_id)
    columns: dict[str, Any] = {name: value for name, value in asdict(changes).items() if value is not None}
    if "images" in columns:
        columns["images"] = list(columns["images"])
    _check(policy.cluster, columns.get("images", policy.images), columns.get("flavor", policy.flavor))
    with transaction.atomic():
        before = standing_of_policy(_locked(policy_id))
        PrepullPolicy.objects.filter(id=policy_id).update(changed_at=Now(), **columns)
        after = managed_policy(actor, cluster_id, policy_id)
        stale = Prepull.objects.filter(policy_id=policy_id)
        _stop(stale if after.is_paused else stale.exclude(image__in=after.images))
        stale.exclude(image__in=after.images).filter(phase=Prepull.Phase.IDLE).delete()
        if {"images", "pull_secret", "is_paused"} & set(columns):
            _forgive(policy_id)
        _record(actor, "prepull.update", after, before=before, after=standing_of_policy(after))
    return after


def retry_prepulls(actor: Actor, cluster_id: UUID, policy_id: UUID) -> PrepullPolicy:
    """The policy, whose failures no longer count: its pulls go on with the next round. Harmless without failures."""
    policy = managed_policy(actor, cluster_id, policy_id)
    with transaction.atomic():
        _locked(policy_id)
        _forgive(policy_id)
        _record(actor, "prepull.retry", policy)
    return policy


def remove_prepull_policy(actor: Actor, cluster_id: UUID, policy_id: UUID) -> None:
    """Removes the policy. Its pulls are stopped; nodes keep the images until their kubelet needs the disk."""
    policy = managed_policy(actor, cluster_id, policy_id)
    with transaction.atomic():
        before = standing_of_policy(_locked(policy_id))
        PrepullPolicy.objects.filter(id=policy_id).update(removed_at=Now())
        _stop(Prepull.objects.filter(policy_id=policy_id))
        _record(actor, "prepull.remove", policy, before=before)


def _stop(rows: Any) -> None:
    """Their objects have to go."""
    rows.exclude(phase=Prepull.Phase.IDLE).update(phase=Prepull.Phase.ENDING)


def _forgive(policy_id: UUID) -> None:
    failed = Prepull.objects.filter(policy_id=policy_id, failures__gt=0)
    failed.update(failures=0, outcome="", ended_at=None, message="")


def _locked(policy_id: UUID) -> PrepullPolicy:
    policy = lock_prepull_policy(policy_id)
    if policy is None or policy.removed_at is not None:
        raise NotFound
    return policy


def _check(cluster: Cluster, images: Sequence[str], flavor: str) -> None:
    errors = []
    seen: set[str] = set()
    for number, image in enumerate(images):
        fault = image_fault(image, require_digest=settings.REQUIRE_DIGEST)
        if len(image) > LONGEST_IMAGE:  # the database would cut it
            errors.append(FieldError(f"images[{number}]", "too_long", f"at most {LONGEST_IMAGE} characters"))
        elif fault is not None:
            errors.append(FieldError(f"images[{number}]", *fault))
        elif normal_name(image) in seen:
            errors.append(FieldError(f"images[{number}]", "duplicate", "another entry names the same image"))
        else:
            seen.add(normal_name(image))
    if flavor and not Flavor.objects.filter(cluster=cluster, name=flavor).exists():
        errors.append(FieldError("flavor", "unknown_flavor", f"the cluster has no flavor {flavor[:100]}"))
    if errors:
        raise Invalid(errors=errors)


def _record(
    actor: Actor,
    action: str,
    policy: PrepullPolicy,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    cluster = policy.cluster
    detail = {"cluster": cluster.name, "name": policy.name, "before": before, "after": after}
    record_audit(
        actor, action, object_kind="prepull_policy", object_id=policy.id, tenant_id=cluster.owner_id, detail=detail
    )
    announce("prepull")
