"""Says how datasets come to storages of clusters, and records the replicas that came there. The copying is done elsewhere."""

from collections.abc import Collection
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction

from clusters.engine.staging import SHA256, is_path, is_sha256, overlap, why_not
from clusters.engine.storages import PATH
from clusters.locks import lock_cluster, lock_staging_plans, lock_storages
from clusters.models import Cluster, DatasetReplica, StagingPlan, Storage
from clusters.queries.datasets import dataset_by_id
from clusters.queries.staging import known_storage, plan_by_id, writes_into
from clusters.queries.visible import visible_clusters
from foundation.outbox import announce
from foundation.problems import Conflict, FieldError, Invalid
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.operations import record_audit
from tenancy.queries import SYSTEM, Actor

UNIQUE = "a_dataset_comes_to_a_cluster_one_way"


@dataclass(frozen=True, slots=True)
class Spot:
    """A path on a storage, by name."""

    storage: str
    path: str


@dataclass(frozen=True, slots=True)
class WantedPlan:
    """A plan to make: on which cluster, from where and to where. `sha256` is what the copy must have; empty: anything."""

    cluster: str
    source: Spot
    target: Spot
    sha256: str = ""


def make_staging_plan(actor: Actor, dataset_id: UUID, wanted: WantedPlan) -> StagingPlan:
    """The new plan. The actor must manage the dataset's tenant, whose jobs may read the one storage and write to the other.

    Raises NotFound and NotAllowedHere (dataset), Invalid with every field at fault, Conflict `staging_plan_exists`.
    """
    dataset = dataset_by_id(actor, dataset_id, Permission.MANAGE_TENANTS)
    cluster = _cluster(actor, dataset.tenant, wanted)
    storages = Storage.objects.filter(cluster=cluster, name__in=[wanted.source.storage, wanted.target.storage])
    by_name = {one.name: one for one in storages.select_related("tenant")}
    source, target = by_name.get(wanted.source.storage), by_name.get(wanted.target.storage)
    plan = StagingPlan(dataset=dataset, cluster=cluster, source=source, target=target, created_by=actor.name[:300])
    plan.source_path, plan.target_path, plan.sha256 = wanted.source.path, wanted.target.path, wanted.sha256
    _check(plan, source, target)
    try:
        with transaction.atomic():
            lock_cluster(cluster.id)  # another plan for the same place waits here
            if writes_into(plan):
                raise Invalid.field("target.path", "not_allowed", "it overlaps the target of another dataset's plan")
            plan.save(force_insert=True)
            _record(actor, "staging_plan.create", plan, standing_of_plan(plan))
            announce("cycle")
    except IntegrityError as error:
        if UNIQUE in str(error):
            told = f"{dataset.name} already has a staging plan on {cluster.name}."
            raise Conflict(told, code="staging_plan_exists") from None
        raise
    return plan_by_id(actor, dataset_id, plan.id)


def remove_staging_plan(actor: Actor, dataset_id: UUID, plan_id: UUID) -> None:
    """Removes the plan; its replica is forgotten, and its copy stays on the storage. What copies now is stopped."""
    plan = plan_by_id(actor, dataset_id, plan_id, Permission.MANAGE_TENANTS)
    with transaction.atomic():
        lock_staging_plans([plan_id])  # before its copy, as those who begin one
        before = standing_of_plan(plan)
        StagingPlan.objects.filter(id=plan_id).delete()
        _record(actor, "staging_plan.remove", plan, before)
        announce("stage", "cycle")


def keep_plans(plan_ids: Collection[UUID]) -> None:
    """Until commit, none of these plans is removed."""
    lock_staging_plans(plan_ids)


def keep_storages(plan: StagingPlan) -> bool:
    """Whether the plan's storages are where they were when it was read; until commit they stay there."""
    now = {one.id: _place_of(one) for one in lock_storages({plan.source_id, plan.target_id})}
    return all(now.get(one.id) == _place_of(one) for one in (plan.source, plan.target))


def forget_replica(plan_id: UUID) -> None:
    """Placement counts the replica of the plan no longer. Its files stay."""
    DatasetReplica.objects.filter(plan_id=plan_id).delete()


def record_replica(
    plan: StagingPlan, *, size_bytes: int | None, sha256: str, egress_cost: Decimal | None, egress_currency: str
) -> bool:
    """Whether the replica of the plan is new. Its egress is posted with it: once, to the dataset's tenant."""
    row: dict[str, Any] = {"dataset_id": plan.dataset_id, "cluster_id": plan.cluster_id, "storage_id": plan.target_id}
    row |= {"path": plan.target_path, "size_bytes": size_bytes, "sha256": sha256}
    row |= {"egress_cost": egress_cost, "egress_currency": egress_currency}
    _, is_new = DatasetReplica.objects.get_or_create(plan_id=plan.id, defaults=row)
    if is_new:
        told = None if egress_cost is None else {"amount": str(egress_cost), "currency": egress_currency}
        detail = {"size_bytes": size_bytes, "sha256": sha256, "egress": told, **standing_of_plan(plan)}
        _record(SYSTEM, "dataset.staged", plan, detail)
        announce("cycle")
    return is_new


def standing_of_plan(plan: StagingPlan) -> dict[str, Any]:
    """What the audit trail keeps of a plan."""
    return {
        "cluster": plan.cluster.name,
        "source": {"storage": plan.source.name, "path": plan.source_path},
        "target": {"storage": plan.target.name, "path": plan.target_path},
        "wanted_sha256": plan.sha256,
    }


def _place_of(storage: Storage) -> tuple[str, ...]:
    return storage.claim, storage.prefix, storage.endpoint, storage.region, storage.bucket


def _cluster(actor: Actor, tenant: Tenant, wanted: WantedPlan) -> Cluster:
    """The cluster of that name that serves the tenant."""
    serving = visible_clusters(actor).filter(owner__path__in=tenant.path_prefixes, name=wanted.cluster)
    found = serving.order_by("owner__depth", "id").first()
    if found is None:
        raise Invalid.field("cluster", "not_found", f"{tenant.path} has no cluster of that name")
    return found


def _check(plan: StagingPlan, source: Storage | None, target: Storage | None) -> None:
    path = plan.dataset.tenant.path
    errors = []
    for name, storage, within in (("source", source, plan.source_path), ("target", target, plan.target_path)):
        known = None if storage is None else known_storage(plan, storage)
        if known is None or not known.serves(path) or not known.keeps_data:
            detail = f"{plan.cluster.name} has no storage of that name for {path}"
            errors.append(FieldError(f"{name}.storage", "not_found", detail))
        elif name == "target" and why_not(known, known, path):
            errors.append(FieldError("target.storage", "not_allowed", why_not(known, known, path)))
        if not is_path(within):
            errors.append(FieldError(f"{name}.path", "bad_format", PATH))
    if plan.sha256 and not is_sha256(plan.sha256):
        errors.append(FieldError("sha256", "bad_format", SHA256))
    if errors or source is None or target is None:
        raise Invalid(errors=errors)
    places = known_storage(plan, source), plan.source_path, known_storage(plan, target), plan.target_path
    if overlap(*places, plan.dataset.tenant_id):
        raise Invalid.field("target.path", "not_allowed", "it overlaps the source")


def _record(actor: Actor, action: str, plan: StagingPlan, detail: dict[str, Any]) -> None:
    told = {"name": plan.dataset.name, **detail}
    tenant_id = plan.dataset.tenant_id
    record_audit(actor, action, object_kind="dataset", object_id=plan.dataset_id, tenant_id=tenant_id, detail=told)
