"""The preemptions of a job as its viewers may see them: why it was stopped, or who was stopped for it.

Jobs of tenants that the viewer may not see keep their ids and costs, without names.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Prefetch, Q, QuerySet

from federation.models import Job, Preemption, PreemptionVictim
from federation.queries.jobs import job_of
from placement.values.preemption import MILLI
from tenancy.queries import Actor, visible_tenants

MOST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class CandidateLine:
    """A job that was stopped, or could have been. `name` and `tenant` are empty if the viewer may not see it."""

    job_id: UUID
    name: str
    tenant: str
    priority: int
    gpus: float
    lost_seconds: int
    times_preempted: int
    cost_gpu_seconds: float
    is_stopped: bool
    loan: Mapping[str, Any] | None = None
    """The quota that it had borrowed, if that is why it could be stopped. `tenant` is null where the viewer may not see the
    job.
    """
    kept_nodes: tuple[str, ...] = ()
    """Of an elastic job that was stopped: the nodes on which it may go on with fewer pods. None are shown to a viewer who may not
    see the job.
    """

    @property
    def cost_gpu_hours(self) -> float:
        """As pages show it."""
        return self.cost_gpu_seconds / 3600


@dataclass(frozen=True, slots=True)
class PreemptionView:
    """A decision. `is_victim`: the job was stopped; else others were stopped for it. Without a beneficiary it was stopped
    because of `limits`: those on the path of its tenant that were lowered.
    """

    id: UUID
    is_victim: bool
    beneficiary_id: UUID | None
    beneficiary: str
    beneficiary_tenant: str
    beneficiary_priority: int
    limits: tuple[Mapping[str, Any], ...]
    cluster: str
    nodes: tuple[str, ...]
    cost_gpu_seconds: float
    is_exact: bool
    created_at: datetime
    deadline_at: datetime
    ended_at: datetime | None
    outcome: str
    victims: tuple[CandidateLine, ...]
    considered: tuple[CandidateLine, ...]
    alternatives: tuple[Mapping[str, Any], ...]

    @property
    def is_reclaim(self) -> bool:
        """Whether all that were stopped had borrowed quota."""
        return self.beneficiary_id is not None and all(one.loan is not None for one in self.victims)

    @property
    def groups(self) -> tuple[tuple[CandidateLine, ...], ...]:
        """Those that were stopped, and the others."""
        return self.victims, self.considered


def preemptions_of(actor: Actor, job_id: UUID) -> QuerySet[Preemption]:
    """The decisions in which the job was stopped, or others were stopped for it; NotFound if the actor may not see it."""
    return _of(job_of(actor, job_id).id)


def preemption_views(actor: Actor, job_id: UUID) -> tuple[PreemptionView, ...]:
    """The newest of them. One query for a job without any."""
    return views_of(actor, job_id, _of(job_id).order_by("-id")[:MOST_SHOWN])


def _of(job_id: UUID) -> QuerySet[Preemption]:
    victims = PreemptionVictim.objects.select_related("job__tenant").order_by("-cost_gpu_seconds", "attempt_id")
    own = PreemptionVictim.objects.filter(job_id=job_id).values("preemption_id")
    rows = Preemption.objects.filter(Q(beneficiary_id=job_id) | Q(id__in=own))
    return rows.select_related("cluster", "beneficiary__tenant").prefetch_related(Prefetch("victims", victims))


def views_of(
    actor: Actor, job_id: UUID, rows: Collection[Preemption] | QuerySet[Preemption]
) -> tuple[PreemptionView, ...]:
    """The decisions as the actor may see them, from the side of this job."""
    found = list(rows)
    if not found:
        return ()
    named = {UUID(one["job"]) for row in found for one in row.considered}
    others = {job.id: job for job in Job.objects.filter(id__in={*named, job_id}).select_related("tenant")}
    seen = set(visible_tenants(actor).values_list("id", flat=True))
    return tuple(_view(row, others[job_id], others, seen) for row in found)


def _view(row: Preemption, job: Job, others: Mapping[UUID, Job], seen: Collection[UUID]) -> PreemptionView:
    victims: Sequence[PreemptionVictim] = list(row.victims.all())
    name, tenant = _shown(row.beneficiary, seen)
    own = f"{job.tenant.path}/"
    return PreemptionView(
        id=row.id,
        is_victim=row.beneficiary_id != job.id,
        beneficiary_id=row.beneficiary_id,
        beneficiary=name,
        beneficiary_tenant=tenant,
        beneficiary_priority=0 if row.beneficiary is None else row.beneficiary.priority,
        limits=tuple(one for one in row.limits if own.startswith(f"{one['tenant']}/")),
        cluster="" if row.cluster is None else row.cluster.name,
        nodes=tuple(row.nodes),
        cost_gpu_seconds=row.cost_gpu_seconds,
        is_exact=row.is_exact,
        created_at=row.created_at,
        deadline_at=row.deadline_at,
        ended_at=row.ended_at,
        outcome=row.outcome,
        victims=tuple(_stopped(one, seen) for one in victims),
        considered=tuple(_spared(one, others.get(UUID(one["job"])), seen) for one in row.considered),
        alternatives=tuple(row.alternatives),
    )


def _stopped(one: PreemptionVictim, seen: Collection[UUID]) -> CandidateLine:
    return CandidateLine(
        one.job_id,
        *_shown(one.job, seen),
        priority=one.job.priority,
        gpus=one.gpu_milli / MILLI,
        lost_seconds=one.lost_seconds,
        times_preempted=one.times_preempted,
        cost_gpu_seconds=one.cost_gpu_seconds,
        is_stopped=True,
        loan=_loan(one.loan, one.job, seen),
        kept_nodes=tuple(one.nodes) if _shown(one.job, seen)[0] else (),
    )


def _spared(one: Mapping[str, Any], job: Job | None, seen: Collection[UUID]) -> CandidateLine:
    return CandidateLine(
        UUID(one["job"]),
        *_shown(job, seen),
        priority=one["priority"],
        gpus=one["gpus"],
        lost_seconds=one["lost_seconds"],
        times_preempted=one["times_preempted"],
        cost_gpu_seconds=one["cost_gpu_seconds"],
        is_stopped=False,
        loan=_loan(one.get("loan"), job, seen),
    )


def _loan(loan: Mapping[str, Any] | None, job: Job | None, seen: Collection[UUID]) -> Mapping[str, Any] | None:
    if loan is None:
        return None
    return dict(loan) | ({} if _shown(job, seen)[0] else {"tenant": None})


def _shown(job: Job | None, seen: Collection[UUID]) -> tuple[str, str]:
    """Name and tenant; empty if they may not be seen."""
    return (job.name, job.tenant.path) if job is not None and job.tenant_id in seen else ("", "")
