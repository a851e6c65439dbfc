"""What ran on a node and how it ended, with the periods in which jobs avoided the node: the newest first, in pages."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db.models import Q

from billing.queries.charges import losses_of
from billing.queries.costs import runs_not_charged
from clusters.models import AvoidedNode
from federation.engine.claimed import short_names
from federation.models import Diagnosis, PodRun
from federation.queries.nodes import node_of, pods_on
from foundation.paging import page_of
from tenancy.queries import Actor, visible_tenants

NEWEST = {"-seen": "-id"}
MOST_PERIODS = 200
"""The most periods, in which jobs avoided a node, of which a page shows the beginnings and ends."""


@dataclass(frozen=True, slots=True)
class JobOfRun:
    """The job of a run, for those who may see its tenant."""

    id: UUID
    name: str
    tenant: str
    attempt_id: UUID
    attempt: int


@dataclass(frozen=True, slots=True)
class RunHere:
    """A pod on the node, and how its attempt ended. What the program or its tenant says is empty for those who may not see the
    job.
    """

    job: JobOfRun | None
    flavor: str
    devices: Mapping[str, str]
    """Its devices as driver/pool/name, each with its short name; empty if they are not known."""
    gpu_units: int
    started_at: datetime | None
    finished_at: datetime | None
    is_estimated: bool
    state: str
    end_reason: str
    exit_code: int | None
    disruption: str
    """The component that evicted it; empty if none did."""
    reason: str
    failure_class: str
    """What failed, by the gateway's own rules, if it failed on this node."""
    text: str
    failed_on: str
    """The other node that the attempt failed on; empty if it did not fail, or here."""
    lost_work: str
    """Why its work counts as lost by infrastructure; empty if it does not."""
    not_charged: Mapping[str, Decimal]
    """What is credited of it, by currency."""
    is_settled: bool


@dataclass(frozen=True, slots=True)
class Avoidance:
    """That jobs began to avoid the node, or use it again."""

    id: UUID
    begins: bool
    reason: str
    until_at: datetime
    by: str
    """Who let jobs use it again early; empty if its time was up, or another node has its name."""


@dataclass(frozen=True, slots=True)
class Happening:
    """An entry of the history. `at` is by the gateway's clock: when it first saw the run, or when jobs began to avoid the node."""

    at: datetime
    run: RunHere | None = None
    avoidance: Avoidance | None = None


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """A part of the history. `following` is the cursor of the next; None on the last page."""

    items: tuple[Happening, ...]
    following: str | None


def node_history(
    actor: Actor, cluster_id: UUID, node: str, query: Mapping[str, str], scope: str, device: str = ""
) -> HistoryPage:
    """A page: as many runs as `query` limits it to, and what happened between them. With a device, only its runs. Raises as `node_of`
    does, and Invalid for a wrong limit or cursor.
    """
    node_of(actor, cluster_id, node)
    rows = pods_on(cluster_id, node)
    if device:
        rows = rows.filter(devices__contains=[device])
    wanted = rows.select_related("attempt__job__tenant", "attempt__diagnosis", "remote_object")
    page = page_of(wanted, query, orders=NEWEST, scope=scope, render=lambda pod: pod)
    pods: Sequence[PodRun] = page["items"]
    before = rows.filter(id__gt=pods[0].id).order_by("id").first() if pods and query.get("cursor") else None
    since = pods[-1].first_seen_at if page["next"] else None
    runs = _runs(actor, pods, node)
    between = _avoidances(cluster_id, node, since, before.first_seen_at if before else None)
    # Stable: of what happened at the same time, runs come first.
    items = sorted([*runs, *between], key=lambda one: one.at, reverse=True)
    return HistoryPage(tuple(items), page["next"])


def _runs(actor: Actor, pods: Sequence[PodRun], node: str) -> Iterable[Happening]:
    ids = {pod.attempt_id for pod in pods}
    lost, waived = losses_of(ids), runs_not_charged(ids)
    tenants = {pod.attempt.job.tenant_id for pod in pods}
    visible = set(visible_tenants(actor).filter(id__in=tenants).values_list("id", flat=True))
    for pod in pods:
        loss = lost.get(pod.attempt_id)
        is_visible = pod.attempt.job.tenant_id in visible
        run = _run(pod, node, loss.cause if loss else "", waived.get(pod.attempt_id, {}), is_visible=is_visible)
        yield Happening(pod.first_seen_at, run=run)


def _run(pod: PodRun, node: str, lost: str, waived: Mapping[str, Decimal], *, is_visible: bool) -> RunHere:
    attempt = pod.attempt
    job = attempt.job
    found: Diagnosis | None = getattr(attempt, "diagnosis", None)
    judged = found if found is not None and found.judged_at is not None else None
    is_here = judged is not None and judged.node == node
    return RunHere(
        job=JobOfRun(job.id, job.name, job.tenant.path, attempt.id, attempt.number) if is_visible else None,
        flavor=pod.remote_object.flavor if pod.remote_object else attempt.flavor,
        devices=short_names(pod.devices),
        gpu_units=pod.remote_object.gpu_units if pod.remote_object else 0,
        started_at=pod.started_at,
        finished_at=pod.over_at,
        is_estimated=pod.is_estimated,
        state=attempt.state,
        end_reason=attempt.end_reason,
        exit_code=pod.exit_code,
        disruption=pod.disruption,
        reason=pod.reason if is_visible else "",
        failure_class=judged.own_class if judged is not None and is_here else "",
        text=judged.text if judged is not None and is_here and is_visible else "",
        failed_on="" if judged is None or is_here or not is_visible else judged.node,
        lost_work=lost,
        not_charged=waived,
        is_settled=attempt.settled_at is not None,
    )


def _avoidances(cluster_id: UUID, node: str, since: datetime | None, before: datetime | None) -> Iterable[Happening]:
    """The beginnings and ends of periods from `since` to before `before`, without bounds where these are None."""
    rows = AvoidedNode.objects.filter(cluster_id=cluster_id, node=node)
    if since is not None:
        rows = rows.filter(Q(ended_at=None) | Q(ended_at__gte=since))
    if before is not None:
        rows = rows.filter(began_at__lt=before)
    for row in rows.order_by("-id")[:MOST_PERIODS]:
        for at, begins in ((row.began_at, True), (row.ended_at, False)):
            if at is not None and (since is None or at >= since) and (before is None or at < before):
                yield Happening(at, avoidance=Avoidance(row.id, begins, row.reason, row.until_at, row.ended_by))
