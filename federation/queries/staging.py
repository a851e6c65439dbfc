"""Copies of datasets: as their next steps are decided, as workers carry them out, and as users see them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

import billing.queries
from billing.queries.comparable import comparable_rates
from clusters.engine.datasets import Place
from clusters.engine.object_stores import is_allowed
from clusters.engine.quantities import bytes_text
from clusters.engine.staging import overlap
from clusters.engine.staging import why_not as forbidden
from clusters.models import Cluster, DatasetReplica, StagingPlan
from clusters.queries import staging_facts
from clusters.queries.datasets import dataset_by_id
from clusters.queries.staging import RELATED as PLAN_RELATED
from clusters.queries.staging import known_storage, plans_of_dataset, plans_on_cluster
from federation.engine import names
from federation.engine.objects.rendering import Identity
from federation.engine.objects.stage_jobs import stage_hash
from federation.engine.staging import LONGEST_MESSAGE, USUAL_WAIT_SECONDS, Outcome, Standing
from federation.models import DataWait, StageIn
from federation.queries.prepulls import ANSWERING, closed_nodes
from federation.queries.stage_places import keys_for, why_unable
from foundation.clock import database_now
from placement.fleet.egress import cheapest_move
from placement.fleet.fleet import sees
from placement.values.datasets import DataNeed
from placement.values.model import JobRequest
from placement.values.reason_codes import ReasonCode
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, permissions_at

_IN_USE = """
SELECT EXISTS (SELECT FROM federation_stagein WHERE is_wanted OR slot IS NOT NULL)
    OR EXISTS (SELECT FROM federation_datawait WHERE ended_at IS NULL)
"""
_RECALLED = f"""
SELECT wait.id FROM federation_datawait AS wait
  JOIN quotas_hold AS hold ON hold.holder_id = wait.id AND hold.state = 'pending'
  JOIN tenancy_tenant AS own ON own.id = hold.tenant_id
 WHERE wait.ended_at IS NULL AND EXISTS (
    SELECT FROM quotas_quotalimit AS due JOIN tenancy_tenant AS at_due ON at_due.id = due.tenant_id
     WHERE due.removed_at IS NULL AND (hold.amounts ->> due.resource)::bigint > 0 AND due.held > due.nominal
       AND (cardinality(due.clusters) = 0 OR hold.cluster_name = ANY (due.clusters))
       AND starts_with(own.path || '/', at_due.path || '/')
       AND (due.reclaim_at <= now() OR EXISTS (
            SELECT FROM quotas_quotalimit AS lender JOIN tenancy_tenant AS at_lender ON at_lender.id = lender.tenant_id
              JOIN tenancy_tenant AS its ON starts_with(its.path || '/', at_lender.path || '/')
              JOIN federation_job AS job ON job.tenant_id = its.id
             WHERE lender.parent_id = due.parent_id AND lender.removed_at IS NULL AND lender.reclaims
               AND lender.held < lender.nominal AND job.state = 'queued'
               AND job.reason_code = '{ReasonCode.WAITING_FOR_QUOTA.value}')))
"""
_RELATED = ("plan__dataset__tenant", "plan__cluster__owner", "plan__source__tenant", "plan__target__tenant")
_REPLICA = "plan__replica"


def stage_ins_are_in_use() -> bool:
    """Whether anything is copied, wants to be, or is waited for."""
    with connection.cursor() as cursor:
        cursor.execute(_IN_USE)
        return bool(cursor.fetchone()[0])


def needed_plans(requests: Mapping[UUID, JobRequest], places: Sequence[tuple[UUID, UUID]]) -> dict[UUID, list[UUID]]:
    """By job, the plans by which its data comes to the cluster where it is placed, as far as it is not there. No query if no job
    wants its data staged. `places` are jobs, each with its cluster.
    """
    wanted = {
        job_id: [
            (need.dataset_id, cluster_id)
            for need in requests[job_id].data
            if need.stage and need.dataset_id and not any(place.cluster_id == cluster_id for place in need.sources)
        ]
        for job_id, cluster_id in places
        if requests[job_id].data
    }
    pairs = {pair for asked in wanted.values() for pair in asked}
    if not pairs:
        return {}
    known = staging_facts(pairs)
    found = {job_id: [known[pair] for pair in asked if pair in known] for job_id, asked in wanted.items()}
    return {job_id: plans for job_id, plans in found.items() if plans}


def hopeless_plans(plan_ids: Collection[UUID]) -> set[UUID]:
    """Those of the plans for which no job waits: that are gone, that their storages do not allow, that the installation cannot
    carry out, and whose copy has failed too often or was stopped.
    """
    rows = stage_ins_by_plan(plan_ids)
    plans = {plan.id: plan for plan in StagingPlan.objects.filter(id__in=plan_ids).select_related(*PLAN_RELATED)}
    keyring = keys_for(plans.values())
    return {
        plan_id
        for plan_id in plan_ids
        if plan_id not in plans
        or why_forbidden(plans[plan_id])
        or why_unable(plans[plan_id], keyring)
        or (plan_id in rows and standing_of(rows[plan_id], "").is_stopped)
    }


def earlier_waits(job_ids: Collection[UUID]) -> dict[UUID, list[DataWait]]:
    """By job, its waits for data, the first first."""
    found: dict[UUID, list[DataWait]] = {}
    for row in DataWait.objects.filter(job__in=job_ids).order_by("made_at", "id"):
        found.setdefault(row.job_id, []).append(row)
    return found


def wait_seconds_of(spec: Mapping[str, Any]) -> int:
    """How long a job waits for data in all."""
    return int(spec.get("stage_within_seconds") or USUAL_WAIT_SECONDS)


def is_staged(plan: StagingPlan) -> bool:
    """Whether its replica exists."""
    return hasattr(plan, "replica")


def standing_of(row: StageIn, why_not: str) -> Standing:
    """The stage-in as its next step is decided. One whose replica was forgotten, because its storage is elsewhere, is as if it had
    never copied: the next job asks for it.
    """
    is_live, is_there = row.phase != StageIn.Phase.IDLE, is_staged(row.plan)
    is_wanted = row.is_wanted or (row.outcome == Outcome.STAGED and not is_there)
    return Standing(is_wanted, is_live, is_there, row.failures, row.ended_at, why_not)


def why_not_on(cluster: Cluster, now: datetime) -> str:
    """Why no copy begins on a cluster now; empty if copies may."""
    if cluster.health not in ANSWERING:
        return f"{cluster.name} does not answer."
    if cluster.wish != Cluster.Wish.OPEN:
        return f"{cluster.name} is {cluster.wish}."
    return f"{cluster.name} is under maintenance." if closed_nodes(cluster.id, now) is None else ""


def why_forbidden(plan: StagingPlan) -> str:
    """Why the plan's storages no longer allow the copy; empty if they do."""
    source, target, tenant = known_storage(plan, plan.source), known_storage(plan, plan.target), plan.dataset.tenant
    told = forbidden(source, target, tenant.path)
    if not told and overlap(source, plan.source_path, target, plan.target_path, tenant.id):
        told = "Its source and its target contain each other."
    if not told and source.store is not None and not is_allowed(source.store.endpoint, settings.OBJECT_STORES):
        told = f"The host of {source.name} is not among those that the installation allows (SWITCHYARD_OBJECT_STORES)."
    return told[:LONGEST_MESSAGE]


def identity_of(row: StageIn) -> Identity:
    """The owner of the copy's object, for its labels."""
    tenant = row.plan.dataset.tenant
    assert row.object_id is not None
    return Identity(
        install=settings.INSTALL_ID,
        tenant_id=tenant.id,
        tenant_path=tenant.path,
        job_id=row.plan_id,
        attempt_id=row.object_id,
        attempt_number=row.failures + 1,
        spec_hash=stage_hash(row.image, row.plan.sha256, row.store),
        kept_namespace=row.namespace,
    )


def all_stage_ins() -> list[StageIn]:
    """Those that want to copy, in the order in which they were asked for."""
    rows = StageIn.objects.filter(is_wanted=True, phase=StageIn.Phase.IDLE, plan__replica=None)
    return list(rows.select_related(*_RELATED).order_by("changed_at", "id"))


def live_stage_ins(cluster_id: UUID | None, *phases: str) -> list[StageIn]:
    """The copies of a cluster that are under way, in these phases; of all clusters without one, in any phase without any."""
    rows = StageIn.objects.filter(slot__isnull=False).order_by("id")
    rows = rows if cluster_id is None else rows.filter(cluster_id=cluster_id)
    rows = rows.filter(phase__in=phases) if phases else rows
    return list(rows.select_related(*_RELATED, "cluster"))


def known_stage_ins(object_ids: Sequence[UUID]) -> set[UUID]:
    """Those of these ids that are the objects of copies under way."""
    found = StageIn.objects.filter(object_id__in=object_ids).values_list("object_id", flat=True)
    return {object_id for object_id in found if object_id is not None}


def open_waits() -> list[DataWait]:
    """The waits for data that have not ended."""
    return list(DataWait.objects.filter(ended_at=None).select_related("job", "cluster").order_by("id"))


def recalled_waits() -> set[UUID]:
    """The waits under way whose quota others need: a limit was lowered below what is held there and its delay has passed, or a
    tenant that reclaims what it lent has a job that waits for quota.
    """
    with connection.cursor() as cursor:
        cursor.execute(_RECALLED)
        return {row[0] for row in cursor.fetchall()}


def stage_ins_by_plan(plan_ids: Collection[UUID]) -> dict[UUID, StageIn]:
    """The stage-ins of these plans."""
    rows = StageIn.objects.filter(plan__in=list(plan_ids)).select_related(*_RELATED, _REPLICA)
    return {row.plan_id: row for row in rows}


def egress_of(plan: StagingPlan) -> tuple[Decimal | None, str]:
    """What moving the dataset to the cluster costs by today's egress prices, from its cheapest location, with its currency; None
    if that is unknown.
    """
    path, now = plan.dataset.tenant.path, database_now()
    own = [rate for rate in billing.queries.egress_rates(now) if sees(path, rate.owner_path)]
    rates = comparable_rates(own, now)
    places = [
        Place(one.region or (one.cluster.region if one.cluster else ""))
        for one in plan.dataset.locations.select_related("cluster").order_by("id")
    ]
    region = plan.cluster.region
    currency = rates[0].currency if rates else ""
    if any(place.region and place.region == region for place in places):
        return (Decimal(0), currency) if currency else (None, "")
    move = cheapest_move(DataNeed(plan.dataset.name, plan.dataset.size_bytes, tuple(places)), region, rates, now)
    return (None, "") if move.cost is None else (move.cost, currency)


def progress_text(row: StageIn | None) -> str:
    """How far a copy is, for users."""
    if row is None:
        return "its staging plan was removed"
    name, where = row.plan.dataset.name, row.plan.cluster.name
    if is_staged(row.plan):
        return f"{name} is on {where}"
    if row.phase == StageIn.Phase.RELEASED and row.total_bytes:
        done = f"{bytes_text(row.copied_bytes or 0)} of {bytes_text(row.total_bytes)}"
        return f"{name} is being copied to {where}: {done}"
    told = f" ({row.message})" if row.message else ""
    if row.phase != StageIn.Phase.IDLE:
        return f"the copy of {name} to {where} is starting{told}"
    if row.failures:
        return f"the copy of {name} to {where} has failed {row.failures} times{told}"
    return f"the copy of {name} to {where} has not begun{told}"


@dataclass(frozen=True, slots=True)
class StageInView:
    """A plan with its copy as users see it. `state` is one of STATES."""

    plan: StagingPlan
    row: StageIn | None
    replica: DatasetReplica | None
    state: str
    why_not: str
    next_at: datetime | None
    waiting: int
    """The number of jobs that wait for it."""
    may_change: bool = False

    @property
    def message(self) -> str:
        """Of its last failure, or what its pod waits for."""
        return self.row.message if self.row else ""


STATES = ("idle", "waiting", "copying", "ending", "staged", "failed", "stopped")


def views_of_dataset(actor: Actor, dataset_id: UUID) -> list[StageInView]:
    """The plans of a dataset with their copies. Raises NotFound as `plans_of_dataset` does."""
    dataset = dataset_by_id(actor, dataset_id)
    may_change = Permission.MANAGE_TENANTS in permissions_at(actor, dataset.tenant)
    return _views(list(plans_of_dataset(actor, dataset_id).order_by("cluster__name", "id")), may_change=may_change)


def views_on_cluster(actor: Actor, cluster_id: UUID) -> list[StageInView]:
    """The plans on a cluster with their copies. Raises NotFound as `plans_on_cluster` does."""
    return _views(list(plans_on_cluster(actor, cluster_id).order_by("dataset__name", "id")))


def view_of(plan: StagingPlan) -> StageInView:
    """One plan with its copy."""
    return _views([plan])[0]


def _views(plans: Sequence[StagingPlan], *, may_change: bool = False) -> list[StageInView]:
    rows = {row.plan_id: row for row in StageIn.objects.filter(plan__in=plans)}
    waited = [plan_id for wait in DataWait.objects.filter(ended_at=None) for plan_id in wait.plans] if plans else []
    now, keyring = database_now(), keys_for(plans)
    return [
        _view(
            plan,
            rows.get(plan.id),
            waited.count(plan.id),
            why_forbidden(plan) or why_unable(plan, keyring) or why_not_on(plan.cluster, now),
            may_change=may_change,
        )
        for plan in plans
    ]


def _view(plan: StagingPlan, row: StageIn | None, waiting: int, why_not: str, *, may_change: bool) -> StageInView:
    replica = plan.replica if is_staged(plan) else None
    if row is not None:
        row.plan = plan
    standing = None if row is None else standing_of(row, why_not)
    state = _state(row, standing, is_there=replica is not None)
    next_at = standing.next_at if standing else None
    return StageInView(plan, row, replica, state, why_not, next_at, waiting, may_change)


def _state(row: StageIn | None, standing: Standing | None, *, is_there: bool) -> str:
    if row is not None and standing is not None and standing.is_live:
        return "ending" if row.phase == StageIn.Phase.ENDING else "copying"
    if is_there:
        return "staged"
    if row is None or standing is None or (row.outcome == Outcome.STAGED and not row.is_wanted):
        return "idle"
    if standing.is_stopped:
        return "stopped"
    return "failed" if row.failures else "waiting"


def namespace_for(plan: StagingPlan) -> str:
    """The namespace in which a copy that begins now runs: that of the dataset's tenant."""
    tenant = plan.dataset.tenant
    return names.namespace_of(tenant.path, tenant.id)
