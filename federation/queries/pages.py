"""The contents of the job pages, as frozen values."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db.models import OuterRef, QuerySet, Subquery

from billing.queries import runs_not_charged
from federation.engine.intake.job_fields import JOB_FIELDS, Choice, JobField, Part
from federation.engine.lifecycle import JobState
from federation.models import TERMINAL_JOB_STATES, Attempt, Job, JobEvent, PodRun, RemoteObject, Reservation
from federation.queries.artifacts import ArtifactLine, artifacts_of
from federation.queries.estimates import EstimateLine, estimate_of_attempt
from federation.queries.failures import DiagnosisView, diagnosis_of
from federation.queries.jobs import expected_start, job_states, permission_to_change
from federation.queries.pod_set_lines import PodSetLine, asks_text, pod_set_lines, sizes_of
from federation.queries.preemptions import PreemptionView, preemption_views
from federation.queries.quota_in_the_way import QuotaInTheWay, quota_in_the_way
from federation.queries.reports import Reports, reports_of_job
from federation.queries.reservations import names_of, reservation_ids
from federation.queries.runtimes import runtime_of_job
from federation.queries.sessions import may_be_opened, session_wish
from federation.queries.went_first import reason_texts
from federation.queries.why_not import WhyNot, WhyNotGroup, grouped, headline
from foundation import clock
from foundation.paging import page_of
from foundation.problems import NotFound
from placement.ranking.runtimes import runtime_text
from placement.values.quantities import duration_text
from placement.values.reason_codes import meaning_of
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, TenantMatch, match_tenants, permissions_at, visible_tenants

JOBS_A_PAGE = "25"
JOB_LIST_FILTERS = ("tenant", "state", "cluster", "label", "q")
LABEL_SIGNS = re.compile("[:=]")
EVENTS_SHOWN = 200
PODS_SHOWN = 100
NOT_LISTS = ("overflow", "reservation")
HAVE_THEIR_OWN_PLACE = ("name", "strategy", "priority_class")
"""Simple fields of a spec that the page of a job shows in a line each."""
"""Constraints that are shown separately."""


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job in a list, with the cluster of its newest attempt."""

    id: UUID
    name: str
    tenant: str
    state: str
    reason_code: str
    reason_message: str
    asks: str
    cluster: str
    created_by: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class JobList:
    jobs: tuple[JobLine, ...]
    next: str | None
    filters: Mapping[str, str]
    match: TenantMatch


@dataclass(frozen=True, slots=True)
class ObjectLine:
    name: str
    uid: str
    flavor: str
    outcome: str


@dataclass(frozen=True, slots=True)
class PodLine:
    name: str
    node: str
    phase: str
    reason: str
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    init_step: int | None = None
    """The number of the init step that failed with that exit code."""


@dataclass(frozen=True, slots=True)
class AttemptLine:
    """One attempt; the page shows the newest first."""

    id: UUID
    number: int
    cluster_id: UUID
    cluster: str
    state: str
    flavor: str
    size: str
    domain: str
    unit_price: Any
    currency: str
    estimate: EstimateLine | None
    namespace: str
    reserved_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    end_reason: str
    end_message: str
    lost_seconds: int | None
    not_charged: Sequence[tuple[str, Decimal]]
    """By currency."""
    failure: DiagnosisView | None
    objects: tuple[ObjectLine, ...]
    pods: tuple[PodLine, ...]


@dataclass(frozen=True, slots=True)
class EventLine:
    at: datetime
    kind: str
    message: str
    attempt: int | None


@dataclass(frozen=True, slots=True)
class JobView:
    """Everything that the page of one job shows, except costs."""

    line: JobLine
    tenant_id: UUID
    labels: tuple[tuple[str, str], ...]
    priority_class: str
    strategy: str
    exit_code: int | None
    pod_sets: tuple[PodSetLine, ...]
    wishes: tuple[tuple[str, str], ...]
    reservation: tuple[str, str] | None
    """Id and name of the reservation that it names."""
    run_time: str
    start: str
    spec_text: str
    headline: str
    """The reason for its state, in a sentence; reasons of a single cluster are shown with the cluster."""
    why_not: tuple[WhyNotGroup, ...]
    """The reasons of clusters that may accept it later."""
    why_never: tuple[WhyNotGroup, ...]
    """The reasons of clusters that cannot run it as requested; `never_count` is their number."""
    never_count: int
    considered_at: datetime | None
    quota: tuple[QuotaInTheWay, ...]
    attempts: tuple[AttemptLine, ...]
    reports: Reports
    artifacts: tuple[ArtifactLine, ...]
    preemptions: tuple[PreemptionView, ...]
    events: tuple[EventLine, ...]
    may_cancel: bool
    may_move: bool
    may_suspend: bool
    may_resume: bool
    may_submit: bool
    may_open: bool
    is_over: bool


def jobs_seen_by(actor: Actor) -> QuerySet[Job]:
    """Jobs of the tenants the actor may see."""
    return Job.objects.filter(tenant__in=visible_tenants(actor))


def job_list(actor: Actor, query: Mapping[str, str]) -> JobList:
    """One page of jobs, newest first, filtered as the API filters them: `state` (with commas), `cluster`, `label`
    (`name:value`, here also `name=value`); `tenant` may also be a part of a path, and `q` is a part of the job's name.
    """
    filters = {name: query.get(name, "").strip()[:1100] for name in JOB_LIST_FILTERS}
    match = match_tenants(actor, filters["tenant"])
    found = page_of(
        with_newest_cluster(_filtered(match, filters)),
        {"limit": JOBS_A_PAGE, **({"cursor": query["cursor"]} if query.get("cursor") else {})},
        orders={"newest": "-id"},
        scope=f"jobs-page|{actor.user_id}|{json.dumps(filters, sort_keys=True)}",
        render=lambda job: job,
    )
    return JobList(jobs=lines_of(actor, found["items"]), next=found["next"], filters=filters, match=match)


def job_view(actor: Actor, job_id: UUID) -> JobView:
    """One job; NotFound if there is none or the actor may not see it."""
    job = with_newest_cluster(jobs_seen_by(actor)).filter(id=job_id).first()
    if job is None:
        raise NotFound
    held = permissions_at(actor, job.tenant)
    is_over = job.state in TERMINAL_JOB_STATES
    spec = job.spec
    (line,) = lines_of(actor, [job])
    reasons = grouped(_why_not(job.explanation)) if job.state == JobState.QUEUED else ()
    never = tuple(group for group in reasons if group.is_for_good)
    may_change = not is_over and job.state != JobState.CANCELLING and permission_to_change(job, actor) in held
    return JobView(
        line=line,
        tenant_id=job.tenant_id,
        labels=tuple(sorted((str(k), str(v)) for k, v in job.labels.items())),
        priority_class=str(spec.get("priority_class", "")),
        strategy=str(spec.get("strategy", "")),
        exit_code=job.exit_code,
        pod_sets=pod_set_lines(spec),
        wishes=tuple(_wishes(spec)),
        reservation=next(iter(names_of(reservation_ids(spec)).items()), None),
        run_time="" if (runtime := None if is_over else runtime_of_job(job)) is None else runtime_text(runtime),
        start=str(told["message"]) if (told := expected_start(job, clock.now())) else "",
        spec_text=json.dumps(spec, indent=2, ensure_ascii=False),
        headline=headline(line.reason_message, reasons, meaning_of(job.reason_code)),
        why_not=tuple(group for group in reasons if not group.is_for_good),
        why_never=never,
        never_count=sum(group.count for group in never),
        considered_at=job.reason_at,
        quota=quota_in_the_way(actor, job),
        attempts=_attempts(job),
        reports=reports_of_job(job, clock.now()),
        artifacts=artifacts_of([job]).get(job.id, ()),
        preemptions=preemption_views(actor, job.id),
        events=_events(job.id),
        may_cancel=may_change,
        may_move=may_change and job.state == JobState.RUNNING and job.suspend_requested_at is None,
        may_suspend=may_change and job.suspend_requested_at is None,
        may_resume=may_change and (job.suspend_requested_at is not None or job.stop_wish is not None),
        may_submit=Permission.SUBMIT in held,
        may_open=may_be_opened(job, actor, held),
        is_over=is_over,
    )


def _filtered(match: TenantMatch, filters: Mapping[str, str]) -> QuerySet[Job]:
    jobs = Job.objects.filter(tenant__in=match.tenants)
    if filters["state"]:
        jobs = jobs.filter(state__in=job_states(filters["state"]))
    if filters["cluster"]:
        jobs = jobs.filter(id__in=Attempt.objects.filter(cluster__name=filters["cluster"]).values("job_id"))
    if filters["label"]:
        name, value = (*LABEL_SIGNS.split(filters["label"], maxsplit=1), "")[:2]
        jobs = jobs.filter(labels__contains={name: value}) if value else jobs.filter(labels__has_key=name)
    if filters["q"]:
        jobs = jobs.filter(name__icontains=filters["q"])
    return jobs


def with_newest_cluster(jobs: QuerySet[Job]) -> QuerySet[Job]:
    """The jobs with tenant, submitter and the name of their newest attempt's cluster, as `lines_of` needs them."""
    newest = Attempt.objects.filter(job=OuterRef("pk")).order_by("-number").values("cluster__name")[:1]
    return jobs.select_related("tenant", "created_by").annotate(newest_cluster=Subquery(newest))


def lines_of(actor: Actor, jobs: Iterable[Job]) -> tuple[JobLine, ...]:
    """Jobs from `with_newest_cluster` as lines of a list."""
    found = list(jobs)
    texts = reason_texts(actor, found)
    return tuple(_line_of(job, texts[job.id]) for job in found)


def _line_of(job: Job, why: str) -> JobLine:
    cluster: str | None = job.newest_cluster  # type: ignore[attr-defined]
    return JobLine(
        id=job.id,
        name=job.name,
        tenant=job.tenant.path,
        state=job.state,
        reason_code=job.reason_code,
        reason_message=why or meaning_of(job.reason_code),
        asks=asks_text(job.spec),
        cluster=cluster or "",
        created_by=job.created_by.email,
        created_at=job.created_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
    )


def _wishes(spec: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    """The job's requirements on its place; only those that are set."""
    constraints = spec.get("constraints") or {}
    tiers = constraints.get("overflow", ())
    lists = {name: values for name, values in constraints.items() if values and name not in NOT_LISTS}
    found = [(name.replace("_", " "), ", ".join(values)) for name, values in lists.items()]
    found += [("overflow", "; ".join(map(_tier_text, tiers)))] * bool(tiers)
    topology = spec.get("topology") or {}
    if topology.get("level", "cluster") != "cluster":
        found.append(("topology", f"one {topology['level']}, {topology.get('mode', '')}"))
    if data := spec.get("data"):
        found.append(("data", ", ".join(map(_data_text, data))))
    if speeds := spec.get("throughput"):
        found.append(("throughput", ", ".join(f"{model} {speed}" for model, speed in speeds.items())))
    if retries := spec.get("retries"):
        found.append(("retries", ", ".join(f"{cause.replace('_', ' ')} {most}" for cause, most in retries.items())))
    if spec.get("reports"):
        found.append(("reports", "progress and checkpoints"))
    found += session_wish(spec)
    return [*found, *(_simple_wish(field, spec[field.name]) for field in JOB_FIELDS if _is_simple_wish(field, spec))]


def _is_simple_wish(field: JobField, spec: Mapping[str, Any]) -> bool:
    if isinstance(field.kind, Part) or field.name in HAVE_THEIR_OWN_PLACE:
        return False
    is_usual = isinstance(field.kind, Choice) and spec.get(field.name) == field.default
    return spec.get(field.name) is not None and not is_usual


def _simple_wish(field: JobField, value: str | int) -> tuple[str, str]:
    text = duration_text(int(value)) if field.name.endswith("_seconds") else str(value)
    return field.name.removesuffix("_seconds").replace("_", " "), text


def _data_text(need: Mapping[str, Any]) -> str:
    return f"{need['read']} of {need['name']}" if need["read"] else str(need["name"])


def _tier_text(tier: Mapping[str, Any]) -> str:
    places = " in ".join(", ".join(names) for names in (tier["clusters"], tier["regions"]) if names) or "anywhere"
    return f"{places} after {duration_text(tier['after_seconds'])}" if tier["after_seconds"] else places


def _why_not(explanation: Any) -> list[WhyNot]:
    entries = explanation.get("clusters", []) if isinstance(explanation, Mapping) else []
    return [
        WhyNot(
            cluster=str(entry.get("cluster", "")),
            code=str(entry.get("code", "")),
            message=str(entry.get("message", "")),
            is_for_good=bool(entry.get("is_for_good")),
        )
        for entry in entries
    ]


def _pod_line(pod: PodRun) -> PodLine:
    return PodLine(
        pod.name, pod.node, pod.shown_phase, pod.reason, pod.started_at, pod.over_at, pod.exit_code, pod.init_step
    )


def _attempts(job: Job) -> tuple[AttemptLine, ...]:
    attempts = list(Attempt.objects.filter(job=job).select_related("cluster", "diagnosis").order_by("-number"))
    objects: dict[UUID, list[ObjectLine]] = {attempt.id: [] for attempt in attempts}
    pods: dict[UUID, list[PodLine]] = {attempt.id: [] for attempt in attempts}
    remotes = RemoteObject.objects.filter(attempt__in=attempts).order_by("attempt_id", "position")
    for remote in remotes:
        objects[remote.attempt_id].append(ObjectLine(remote.name, remote.uid, remote.flavor, remote.outcome))
    for pod in PodRun.objects.filter(attempt__in=attempts).order_by("attempt_id", "position", "name")[:PODS_SHOWN]:
        pods[pod.attempt_id].append(_pod_line(pod))
    sizes = sizes_of(job.spec, [(one.attempt_id, one.position, one.pods) for one in remotes])
    waived = runs_not_charged([attempt.id for attempt in attempts if attempt.settled_at is not None])
    return tuple(
        AttemptLine(
            id=attempt.id,
            number=attempt.number,
            cluster_id=attempt.cluster_id,
            cluster=attempt.cluster.name,
            state=attempt.state,
            flavor=attempt.flavor,
            size=sizes.get(attempt.id, ""),
            domain=" / ".join(part for part in attempt.domain.split("/") if part),
            unit_price=attempt.unit_price,
            currency=attempt.currency,
            estimate=estimate_of_attempt(attempt),
            namespace=attempt.namespace,
            reserved_at=attempt.reserved_at,
            started_at=attempt.started_at,
            finished_at=attempt.finished_at,
            end_reason=attempt.end_reason,
            end_message=attempt.end_message,
            lost_seconds=attempt.lost_seconds,
            not_charged=tuple(waived.get(attempt.id, {}).items()),
            failure=diagnosis_of(attempt),
            objects=tuple(objects[attempt.id]),
            pods=tuple(pods[attempt.id]),
        )
        for attempt in attempts
    )


def _events(job_id: UUID) -> tuple[EventLine, ...]:
    rows = JobEvent.objects.filter(job_id=job_id).select_related("attempt").order_by("-id")[:EVENTS_SHOWN]
    return tuple(EventLine(row.at, row.kind, row.message, row.attempt.number if row.attempt else None) for row in rows)


def tenant_used_last(actor: Actor, kind: type[Job | Reservation] = Job) -> str | None:
    """The tenant of the actor's newest job (or reservation); without a reservation, that of their newest job."""
    newest = (
        kind.objects.filter(created_by=actor.user_id).order_by("-id").values_list("tenant__path", flat=True).first()
    )
    return newest if newest or kind is Job else tenant_used_last(actor)
