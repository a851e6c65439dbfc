"""Queries on how datasets come to storages of clusters."""

from collections.abc import Collection, Iterable
from uuid import UUID

from django.db.models import QuerySet

from clusters.engine.staging import Place, meet, place_of
from clusters.engine.storages import KnownStorage
from clusters.models import DatasetReplica, StagingPlan, Storage
from foundation.problems import NotFound
from tenancy.engine.roles import Permission
from tenancy.queries import Actor

from .datasets import dataset_by_id, visible_datasets
from .storages import known_storage as as_known
from .visible import cluster_by_id, visible_clusters

RELATED = ("dataset__tenant", "cluster__owner", "source__tenant", "target__tenant")


def plans_of_dataset(actor: Actor, dataset_id: UUID, permission: Permission = Permission.VIEW) -> QuerySet[StagingPlan]:
    """The plans of a dataset for clusters that the actor may see. NotFound for a dataset that the actor may not see,
    NotAllowedHere without the permission at its tenant.
    """
    dataset = dataset_by_id(actor, dataset_id, permission)
    found = StagingPlan.objects.filter(dataset=dataset, cluster__in=visible_clusters(actor))
    return found.select_related(*RELATED, "replica")


def plan_by_id(actor: Actor, dataset_id: UUID, plan_id: UUID, permission: Permission = Permission.VIEW) -> StagingPlan:
    """The plan; NotFound if the dataset has none of this id that the actor may see."""
    found = plans_of_dataset(actor, dataset_id, permission).filter(id=plan_id).first()
    if found is None:
        raise NotFound
    return found


def plans_on_cluster(actor: Actor, cluster_id: UUID) -> QuerySet[StagingPlan]:
    """The plans on a cluster for datasets that the actor may see. NotFound for a cluster that the actor may not see."""
    cluster = cluster_by_id(actor, cluster_id)
    found = StagingPlan.objects.filter(cluster=cluster, dataset__in=visible_datasets(actor))
    return found.select_related(*RELATED, "replica")


def staging_facts(pairs: Collection[tuple[UUID, UUID]]) -> dict[tuple[UUID, UUID], UUID]:
    """By dataset and cluster, the plan of each that has one and no replica yet."""
    datasets, places = {pair[0] for pair in pairs}, {pair[1] for pair in pairs}
    rows = StagingPlan.objects.filter(dataset__in=datasets, cluster__in=places, replica=None)
    found = {(row.dataset_id, row.cluster_id): row.id for row in rows.only("id", "dataset_id", "cluster_id")}
    return {pair: found[pair] for pair in pairs if pair in found}


def staged(plan_ids: Iterable[UUID]) -> set[UUID]:
    """Those of the plans whose replica exists."""
    return set(DatasetReplica.objects.filter(plan__in=list(plan_ids)).values_list("plan_id", flat=True))


def writes_into(plan: StagingPlan) -> bool:
    """Whether the target of the plan and that of another dataset on its cluster contain each other."""
    others = StagingPlan.objects.filter(cluster=plan.cluster).exclude(dataset=plan.dataset_id).select_related(*RELATED)
    return any(meet(_target_of(plan), _target_of(other)) for other in others)


def _target_of(plan: StagingPlan) -> Place:
    return place_of(known_storage(plan, plan.target), plan.target_path, plan.dataset.tenant_id)


def known_storage(plan: StagingPlan, storage: Storage) -> KnownStorage:
    """A storage of the plan's cluster, as its copies see it."""
    return as_known(storage, plan.cluster.owner.path)
