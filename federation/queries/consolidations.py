"""The plans of moves of a job as its viewers may see them: who moved for it, or for whom it moved.

Jobs of tenants that the viewer may not see keep their ids and costs, without names. Clusters that the viewer may not see
have no names, and their nodes are left out.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Prefetch, Q, QuerySet

from clusters.queries import visible_clusters
from federation.models import Consolidation, Job, Move
from federation.queries.jobs import job_of
from placement.values.preemption import MILLI
from tenancy.queries import Actor, visible_tenants

MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class MoveLine:
    """A job that moved, from where, and the place that was kept for it. `name` and `tenant` are empty if the viewer may not
    see it, and what is known of clusters that they may not see.
    """

    job_id: UUID
    name: str
    tenant: str
    gpus: float
    origin: str
    cluster: str
    nodes: tuple[str, ...]
    lost_seconds: int


@dataclass(frozen=True, slots=True)
class ConsolidationView:
    """A plan. `is_moved`: the job moved for another one; else others moved for it."""

    id: UUID
    is_moved: bool
    job_id: UUID
    name: str
    tenant: str
    gpus: float
    cluster: str
    nodes: tuple[str, ...]
    gain_gpu_seconds: float
    cost_gpu_seconds: float
    lost_gpu_seconds: float
    share: float
    otherwise_at: datetime | None
    is_exact: bool
    created_at: datetime
    deadline_at: datetime
    ended_at: datetime | None
    outcome: str
    moves: tuple[MoveLine, ...]

    @property
    def cost_gpu_hours(self) -> float:
        """As pages show it."""
        return self.cost_gpu_seconds / 3600

    @property
    def gain_gpu_hours(self) -> float:
        """As pages show it."""
        return self.gain_gpu_seconds / 3600


def consolidations_of(actor: Actor, job_id: UUID) -> QuerySet[Consolidation]:
    """The plans in which the job moved, or others moved for it; NotFound if the actor may not see it."""
    return _of(job_of(actor, job_id).id)


def newest_plans(actor: Actor, job_id: UUID) -> tuple[ConsolidationView, ...]:
    """The newest of them, for an actor who may see the job. One query for a job without any."""
    return plan_views(actor, job_id, list(_of(job_id).order_by("-id")[:MOST_SHOWN]))


def _of(job_id: UUID) -> QuerySet[Consolidation]:
    moves = Move.objects.select_related("job__tenant", "attempt").order_by("attempt_id")
    own = Move.objects.filter(job_id=job_id, consolidation__isnull=False).values("consolidation_id")
    rows = Consolidation.objects.filter(Q(beneficiary_id=job_id) | Q(id__in=own))
    return rows.select_related("beneficiary__tenant").prefetch_related(Prefetch("moves", moves))


def plan_views(actor: Actor, job_id: UUID, rows: Collection[Consolidation]) -> tuple[ConsolidationView, ...]:
    """The plans as the actor may see them, from the side of this job."""
    if not rows:
        return ()
    seen = set(visible_tenants(actor).values_list("id", flat=True))
    wanted = {move.expected_id for row in rows for move in row.moves.all()} | {row.cluster_id for row in rows}
    shown = visible_clusters(actor, with_removed=True).filter(id__in=wanted)
    names = dict(shown.values_list("id", "name"))
    return tuple(_view(row, job_id, seen, names) for row in rows)


def _view(row: Consolidation, job_id: UUID, seen: Collection[UUID], names: dict[UUID, str]) -> ConsolidationView:
    name, tenant = _shown(row.beneficiary, seen)
    return ConsolidationView(
        id=row.id,
        is_moved=row.beneficiary_id != job_id,
        job_id=row.beneficiary_id,
        name=name,
        tenant=tenant,
        gpus=row.size_milli / MILLI,
        cluster=names.get(row.cluster_id, ""),
        nodes=tuple(row.nodes) if row.cluster_id in names else (),
        gain_gpu_seconds=row.gain_gpu_seconds,
        cost_gpu_seconds=row.cost_gpu_seconds,
        lost_gpu_seconds=row.lost_gpu_seconds,
        share=row.share,
        otherwise_at=row.otherwise_at,
        is_exact=row.is_exact,
        created_at=row.created_at,
        deadline_at=row.deadline_at,
        ended_at=row.ended_at,
        outcome=row.outcome,
        moves=tuple(_line(move, seen, names) for move in row.moves.all()),
    )


def _line(move: Move, seen: Collection[UUID], names: dict[UUID, str]) -> MoveLine:
    return MoveLine(
        move.job_id,
        *_shown(move.job, seen),
        gpus=(move.size_milli or 0) / MILLI,
        origin=names.get(move.attempt.cluster_id, ""),
        cluster=names.get(move.expected_id, ""),
        nodes=tuple(move.nodes) if move.expected_id in names else (),
        lost_seconds=move.lost_seconds,
    )


def _shown(job: Job, seen: Collection[UUID]) -> tuple[str, str]:
    """Name and tenant; empty if they may not be seen."""
    return (job.name, job.tenant.path) if job.tenant_id in seen else ("", "")
