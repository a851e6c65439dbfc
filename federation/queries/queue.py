"""The queue as a cycle sees it: the most urgent first, then the oldest, or as set by SWITCHYARD_QUEUE_ORDER.

Of a queue longer than a cycle's depth, the cycle reads the heads by tenant and shape (`placement.cycle.heads`).
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec
from django.conf import settings
from django.db import connection
from django.db.models import Q

from clusters.models import Cluster
from federation.engine.failures.defaults import OWNER
from federation.engine.intake.normal_form import request_of
from federation.engine.lifecycle import JobState
from federation.engine.retries import INTERRUPTIONS, pause_seconds
from federation.models import Attempt, Diagnosis, Job, Move, RemoteObject, RetryBrake
from federation.queries.avoided_nodes import avoided_nodes
from federation.queries.datasets import with_data
from federation.queries.kept_estimates import with_kept_estimates
from federation.queries.kinds import kind_of, runtimes_of_kinds
from federation.queries.moved import kept_to, moved_away
from federation.queries.networks import with_networks
from federation.queries.secrets import with_secrets
from federation.queries.storages import with_storages
from federation.queries.worked import with_worked
from foundation.caches import cached, cached_all
from foundation.problems import RateLimited
from placement.cycle.heads import heads
from placement.cycle.ordering import by_response_ratio
from placement.ranking.deadlines import ALL_LEFT
from placement.ranking.kept_estimates import stater
from placement.values.model import ClusterRefusal, JobRequest, Runtime
from placement.values.reason_codes import ReasonCode
from placement.values.sizes import at_most
from quotas.models import ClassLimit, UserLimit
from tenancy.models import Tenant

QUEUE_DEPTH = 20_000
"""The number of jobs that a round considers."""
REFUSED_FOR = timedelta(minutes=10)
"""How long a job avoids a cluster whose API server has refused it permanently."""
MOST_REQUESTS_KEPT = 200_000
MOST_TENANTS_COUNTED = 200_000
COUNTED_FOR_SECONDS = 1.0
"""How long a process caches the number of a tenant's waiting jobs: jobs that arrive meanwhile may exceed the bound."""
RETRY_SECONDS = 30


class _Waiting(NamedTuple):
    """A waiting job, with a digest of all that its request is made from, and whether it had an attempt."""

    id: UUID
    digest: int
    was_tried: bool


def load_queue(now: datetime, depth: int, awaiting: Mapping[UUID, UUID] | None = None) -> tuple[JobRequest, ...]:
    """At most `depth` waiting jobs, in order, without those whose retry starts later; but with the jobs that are `awaiting` data on
    a cluster. Each process parses a job's request once.
    """
    waiting, of_data = _first(now, depth), _awaiting(now, awaiting or {})
    waiting += of_data
    tried = [job.id for job in waiting if job.was_tried]
    refusals, avoided = (_refusals(now, tried), avoided_nodes(now, tried)) if tried else ({}, {})
    requests = [request for request in _requests(waiting) if request is not None]
    if awaiting and of_data:
        clusters = {job.id: awaiting[job.id] for job in of_data}
        requests = [replace(one, awaits_on=clusters[one.id]) if one.id in clusters else one for one in requests]
        requests.sort(key=lambda one: (-one.priority, one.id))
    queue = with_data(
        [_kept_from(request, refusals.get(request.id, ()), avoided.get(request.id, ())) for request in requests]
    )
    queue = with_secrets(with_networks(with_storages(with_kept_estimates(queue))))
    if tried:
        queue = _saving(now, with_worked(queue, tried), tried)
    if settings.QUEUE_ORDER == "ratio":
        return by_response_ratio(queue, times_of(queue), now)
    return queue


def request_to_move(now: datetime, job_id: UUID, away_from: UUID, named: Collection[UUID] = ()) -> JobRequest:
    """The request of a running job as the queue would have it if it were moved away from a cluster now, to one of those
    named if there are any.
    """
    with connection.cursor() as cursor:
        cursor.execute(REQUESTS, [[job_id]])
        request = _request(_Row(*cursor.fetchall()[0]))
    found = {one.cluster_id: one for one in _refusals(now, [job_id], heeds_names=False).get(job_id, ())}
    refusals = kept_to(named, {**found, away_from: moved_away(away_from)})
    request = _kept_from(request, list(refusals.values()), avoided_nodes(now, [job_id]).get(job_id, ()))
    [request] = with_secrets(with_networks(with_storages(with_kept_estimates(with_data([request])))))
    return request


def requests_again(now: datetime, job_ids: Sequence[UUID]) -> tuple[JobRequest, ...]:
    """The requests of running jobs as the queue would have them if they were stopped now, in its order."""
    ids = list(job_ids)
    with connection.cursor() as cursor:
        cursor.execute(REQUESTS, [ids])
        requests = [_request(_Row(*row)) for row in cursor.fetchall()]
    refusals, avoided = _refusals(now, ids), avoided_nodes(now, ids)
    kept = [_kept_from(one, refusals.get(one.id, ()), avoided.get(one.id, ())) for one in requests]
    again = with_secrets(with_networks(with_storages(with_kept_estimates(with_data(kept)))))
    return tuple(sorted(again, key=lambda one: (-one.priority, one.submitted_at or now, one.id)))


def times_of(queue: Iterable[JobRequest]) -> Mapping[str, Runtime]:
    """The run times of jobs like these, by kind."""
    return runtimes_of_kinds({request.kind for request in queue})


def refuse_when_full(tenant: Tenant, more: int = 1) -> None:
    """Returns if `more` further jobs of the tenant may wait; else raises RateLimited `queue_full`."""
    most = settings.MOST_QUEUED
    if _count(_Bound(tenant.id, most)) + more > most:
        raise RateLimited(
            f"{tenant.path} can have at most {most} waiting jobs. Submit more when some have started.",
            code="queue_full",
            retry_after_seconds=RETRY_SECONDS,
        )


class _Bound(NamedTuple):
    tenant_id: UUID
    most: int


@cached("tenant_id", most=MOST_TENANTS_COUNTED, seconds=COUNTED_FOR_SECONDS)
def _count(bound: _Bound) -> int:
    """The number of the tenant's waiting jobs, counted only just beyond the bound, with only their indexes. Suspended
    jobs count: each may wait for a placement again at any time.
    """
    of_tenant = Job.objects.filter(tenant_id=bound.tenant_id)
    states = (JobState.QUEUED, JobState.SUSPENDED)
    return sum(of_tenant.filter(state=state)[: bound.most + 1].count() for state in states)


_JOBS = "federation_job AS job JOIN tenancy_tenant AS tenant ON tenant.id = job.tenant_id"
_MAY_START = "job.state = 'queued' AND (job.retry_at IS NULL OR job.retry_at <= %s)"
_READ = "job.tenant_id, tenant.path, job.shape, job.priority, job.created_at, job.created_by_id, job.spec"
"""All that a request is made from, beside the job's id."""
FIRST = f"""
SELECT job.id, hash_record_extended(ROW({_READ}), 0), job.attempts_made > 0 FROM {_JOBS}
 WHERE {_MAY_START} ORDER BY job.priority DESC, job.id LIMIT %s
"""
COUNTS = f"""
SELECT tenant_id, shape, count(*) FROM federation_job AS job WHERE {_MAY_START} GROUP BY tenant_id, shape
"""
HEADS = f"""
SELECT head.id, head.digest, head.was_tried FROM unnest(%s::uuid[], %s::text[], %s::int[]) AS wanted(tenant_id, shape, most),
       LATERAL (SELECT job.id, job.priority, hash_record_extended(ROW({_READ}), 0) AS digest,
                      job.attempts_made > 0 AS was_tried FROM {_JOBS}
                 WHERE {_MAY_START} AND job.tenant_id = wanted.tenant_id AND job.shape = wanted.shape
                 ORDER BY job.priority DESC, job.id LIMIT wanted.most) AS head
 ORDER BY head.priority DESC, head.id
"""
# Where each user or a class has a limit, the jobs of one who has reached it do not hide those of others.
_OWNER = """
CASE WHEN %s THEN job.created_by_id::text ELSE '' END || ' ' || CASE WHEN %s THEN coalesce(job.priority_class_id::text, '') ELSE '' END
"""
COUNTS_BY_OWNER = f"""
SELECT tenant_id, shape || ' ' || {_OWNER}, count(*) FROM federation_job AS job WHERE {_MAY_START} GROUP BY 1, 2
"""
HEADS_BY_OWNER = f"""
SELECT head.id, head.digest, head.was_tried FROM unnest(%s::uuid[], %s::text[], %s::int[]) AS wanted(tenant_id, shape, most),
       LATERAL (SELECT job.id, job.priority, hash_record_extended(ROW({_READ}), 0) AS digest,
                      job.attempts_made > 0 AS was_tried FROM {_JOBS}
                 WHERE {_MAY_START} AND job.tenant_id = wanted.tenant_id AND job.shape = split_part(wanted.shape, ' ', 1)
                   AND {_OWNER} = split_part(wanted.shape, ' ', 2) || ' ' || split_part(wanted.shape, ' ', 3)
                 ORDER BY job.priority DESC, job.id LIMIT wanted.most) AS head
 ORDER BY head.priority DESC, head.id
"""
AWAITING = f"""
SELECT job.id, hash_record_extended(ROW({_READ}), 0), job.attempts_made > 0 FROM {_JOBS}
 WHERE job.id = ANY(%s) AND job.state = 'queued' AND job.retry_at > %s
"""
REQUESTS = f"SELECT job.id, {_READ}::text FROM {_JOBS} WHERE job.id = ANY(%s)"


def _first(now: datetime, depth: int) -> list[_Waiting]:
    """All waiting jobs by priority and age, or the heads of every tenant's queue if there are too many; of every user's
    and of every class's, if there are limits on these.
    """
    with connection.cursor() as cursor:
        cursor.execute(FIRST, [now, depth + 1])
        rows = cursor.fetchall()
        if len(rows) > depth:
            owner = [UserLimit.objects.exists(), ClassLimit.objects.exists()]
            if any(owner):
                cursor.execute(COUNTS_BY_OWNER, [*owner, now])
            else:
                cursor.execute(COUNTS, [now])
            waiting: dict[UUID, dict[str, int]] = defaultdict(dict)
            for tenant_id, shape, count in cursor.fetchall():
                waiting[tenant_id][shape] = count
            chosen = heads(depth, waiting)
            wanted = [
                (tenant, shape, most) for tenant, shapes in chosen.items() for shape, most in shapes.items() if most
            ]
            columns = [[row[column] for row in wanted] for column in range(3)]
            if any(owner):
                cursor.execute(HEADS_BY_OWNER, [*columns, now, *owner])
            else:
                cursor.execute(HEADS, [*columns, now])
            rows = cursor.fetchall()
    return [_Waiting(*row) for row in rows]


def _awaiting(now: datetime, awaiting: Mapping[UUID, UUID]) -> list[_Waiting]:
    """Those of these jobs that are queued, and not yet among the waiting jobs. No query without any."""
    if not awaiting:
        return []
    with connection.cursor() as cursor:
        cursor.execute(AWAITING, [list(awaiting), now])
        return [_Waiting(*row) for row in cursor.fetchall()]


@cached_all("id", most=MOST_REQUESTS_KEPT)
def _requests(waiting: Sequence[_Waiting]) -> list[JobRequest | None]:
    """The requests; None for a job that has been deleted meanwhile."""
    with connection.cursor() as cursor:
        cursor.execute(REQUESTS, [[job.id for job in waiting]])
        found = {row[0]: _request(_Row(*row)) for row in cursor.fetchall()}
    return [found.get(job.id) for job in waiting]


class _Row(NamedTuple):
    """What a request is made from, as REQUESTS returns it."""

    job_id: UUID
    tenant_id: UUID
    tenant_path: str
    shape: str
    priority: int
    created_at: datetime
    user_id: UUID
    spec: str


def _request(row: _Row) -> JobRequest:
    spec = msgspec.json.decode(row.spec)
    return request_of(
        spec,
        job_id=row.job_id,
        tenant_path=row.tenant_path,
        shape=row.shape,
        priority=row.priority,
        submitted_at=row.created_at,
        kind=kind_of(row.tenant_id, spec, row.shape),
        stated_by=stater(row.tenant_id, row.user_id) if spec.get("estimated_seconds") else "",
        user=row.user_id,
    )


NEVER_BEGUN = frozenset(
    {
        ReasonCode.DID_NOT_START,
        ReasonCode.STARTED_IN_PART,
        ReasonCode.BLOCKED_IN_PART,
        ReasonCode.CANNOT_START,
        ReasonCode.CREATE_FAILED,
        ReasonCode.SERVICES_CLOSED,
    }
)
"""Ends of attempts after which their job tries other clusters first."""
OURS = Q(diagnosis__isnull=True) | Q(diagnosis__rule__startswith=f"{OWNER}: ")
"""Of ends that a rule of the job or a tenant judged, the rule says what the job avoids."""
GOES_ON_THERE = (Move.Cause.CONSOLIDATION, Move.Cause.GROWTH, Move.Cause.PRICE, Move.Cause.DEADLINE)
"""Moves after which a job may go on where it was: on other nodes that are kept for it, or of another flavor."""
TOO_MUCH_FAILS = "too many of the latest attempts failed because of the infrastructure"


def _refusals(now: datetime, ids: list[UUID], *, heeds_names: bool = True) -> Mapping[UUID, list[ClusterRefusal]]:
    """By job, the messages of clusters that recently refused it, did not start it or interrupted it; if its user has just
    moved it to clusters by name, of all others.
    """
    found: dict[UUID, dict[UUID, ClusterRefusal]] = defaultdict(dict)
    named: dict[UUID, Collection[UUID]] = {}
    times: Counter[tuple[UUID, UUID]] = Counter()
    recent = Attempt.objects.filter(
        OURS,
        job_id__any_of=ids,
        end_reason__in=[ReasonCode.REFUSED_BY_CLUSTER, ReasonCode.MIGRATED, *NEVER_BEGUN, *INTERRUPTIONS],
        finished_at__gt=now - REFUSED_FOR,
    )
    columns = recent.values_list(
        "job_id", "cluster_id", "end_reason", "end_message", "finished_at", "move__clusters", "move__cause"
    )
    for job_id, cluster_id, reason, message, finished_at, clusters, cause in columns.order_by("id"):
        said = message or "it gave no reason"
        if reason == ReasonCode.REFUSED_BY_CLUSTER:
            found[job_id][cluster_id] = ClusterRefusal(cluster_id, said)
            continue
        if cause in GOES_ON_THERE:
            continue
        if reason == ReasonCode.MIGRATED:
            found[job_id][cluster_id] = moved_away(cluster_id)
            named[job_id] = clusters or ()
            continue
        times[job_id, cluster_id] += 1
        assert finished_at is not None
        if now - finished_at < timedelta(seconds=pause_seconds(times[job_id, cluster_id])):
            code = ReasonCode.LATELY_FAILED if reason in NEVER_BEGUN else ReasonCode.LATELY_INTERRUPTED
            found[job_id].setdefault(cluster_id, ClusterRefusal(cluster_id, said, code))
    _avoid_clusters(now, ids, found)
    for job_id, wanted in named.items() if heeds_names else ():
        found[job_id] = kept_to(wanted, found[job_id])
    return {job_id: list(by_cluster.values()) for job_id, by_cluster in found.items()}


def _saving(now: datetime, queue: tuple[JobRequest, ...], tried: Collection[UUID]) -> tuple[JobRequest, ...]:
    """The queue, in which jobs that have just been moved to a cheaper place look for the cheapest one, and those that were moved for
    their deadlines for one that is not taken away.
    """
    moved = Move.objects.filter(
        job__any_of=tried, cause__in=[Move.Cause.PRICE, Move.Cause.DEADLINE], attempt__finished_at__gt=now - REFUSED_FOR
    )
    made = {
        job_id: (cause, run)
        for job_id, cause, run in moved.order_by("attempt__finished_at").values_list("job_id", "cause", "attempt")
    }
    if not made:
        return queue
    runs = {made[one.id][1]: one.elastic.position for one in queue if one.elastic is not None and one.id in made}
    pods = _pods_of(runs) if runs else {}
    return tuple(_wanted(one, made[one.id][0], pods.get(made[one.id][1])) if one.id in made else one for one in queue)


def _pods_of(runs: Mapping[UUID, int]) -> dict[UUID, int]:
    """By run, the pods of the pod set at this position."""
    found = RemoteObject.objects.filter(attempt__in=runs).values_list("attempt", "position", "pods")
    return {run: pods for run, position, pods in found if position == runs[run]}


def _wanted(request: JobRequest, cause: str, pods: int | None) -> JobRequest:
    """`pods`: of the run that was moved, if its job is elastic. It goes on with as many, or with fewer where these do not fit."""
    request = request if pods is None else at_most(request, pods)
    return to_save(request) if cause == Move.Cause.PRICE else replace(request, worked_seconds=ALL_LEFT)


def to_save(request: JobRequest) -> JobRequest:
    """The request of a job that looks for the cheapest place, whatever its strategy."""
    return replace(request, strategy="cheapest", shape=f"{request.shape} saves")


def _avoid_clusters(
    now: datetime, ids: Sequence[UUID], found: MutableMapping[UUID, dict[UUID, ClusterRefusal]]
) -> None:
    """Adds the clusters that failure rules make jobs avoid, and those on which retries wait."""
    rules = Diagnosis.objects.filter(attempt__job_id__any_of=ids, avoid="cluster", avoid_until__gt=now)
    for job_id, cluster_id, text in rules.values_list("attempt__job_id", "attempt__cluster_id", "text"):
        found[job_id].setdefault(cluster_id, ClusterRefusal(cluster_id, text, ReasonCode.AVOIDED_BY_RULE))
    braked = RetryBrake.objects.filter(ended_at=None).values_list("cluster_id", flat=True)
    if not braked:
        return
    waiting = set(Cluster.objects.values_list("id", flat=True)) if None in braked else {one for one in braked if one}
    for job_id in ids:
        for cluster_id in waiting:
            found[job_id][cluster_id] = ClusterRefusal(cluster_id, TOO_MUCH_FAILS, ReasonCode.RETRIES_WAIT)


def _kept_from(
    request: JobRequest, refusals: Sequence[ClusterRefusal], avoided: tuple[tuple[UUID, str], ...] = ()
) -> JobRequest:
    if not refusals and not avoided:
        return request
    constraints = replace(request.constraints, refusals=tuple(refusals), avoid_nodes=avoided)
    shape = f"{request.shape} refused {refusals}" if refusals else request.shape
    return replace(request, constraints=constraints, shape=f"{shape} avoids {avoided}" if avoided else shape)
