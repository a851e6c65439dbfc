"""What would happen to a job if it were submitted now, and the number of further jobs of its shape that fit. Read-only.

A process loads the queue and the fleet only so often that this takes at most a tenth of its time. In between, it
answers from the last load. Whatever the queue's length, it decides no more of it than a round would consider.
"""

import threading
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from federation.engine.intake.normal_form import request_of, shape_of, spec_json
from federation.engine.intake.spec import MAX_SECONDS, JobSpec
from federation.queries.budgets import load_budgets
from federation.queries.consolidation import load_plan_claims
from federation.queries.datasets import with_data
from federation.queries.feasibility import refuse_hopeless
from federation.queries.images import known_images, pull_seconds
from federation.queries.kept_estimates import with_kept_estimates
from federation.queries.lent_quota import UNSHIELDED, Shield, reclaimers_in, reclaimers_in_capacity, seen_among
from federation.queries.networks import with_networks
from federation.queries.policies import load_policies
from federation.queries.policy_hooks import Draft, has_hooks, review
from federation.queries.preemption import load_claims, load_overdrawn
from federation.queries.priority_classes import TenantRules, rules_at
from federation.queries.queue import QUEUE_DEPTH, load_queue, request_to_move
from federation.queries.reservations import load_reservations, with_reservation
from federation.queries.runtimes import runtimes_of
from federation.queries.secrets import with_secrets
from federation.queries.shares import load_fair_share
from federation.queries.snapshot import (
    load_class_limits,
    load_egress,
    load_fleet,
    load_limits,
    load_user_limits,
    with_times,
)
from federation.queries.storages import with_storages
from federation.queries.submissions import read_shape, read_submission
from federation.queries.windows import load_windows
from foundation import clock
from foundation.caches import reset_with
from foundation.clock import database_now
from foundation.ids import new_id
from placement.answers.moves import MoveQuote, quoted
from placement.answers.quotes import Capacity, Quote, Quoter, capacity
from placement.fleet.fleet import FleetIndex
from placement.ranking.kept_estimates import stater
from placement.ranking.runtimes import Groups, groups_of
from placement.values.images import KnownImage
from placement.values.model import JobRequest, Runtime, Snapshot
from placement.values.preemption import RunningJob
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.queries import Actor, tenant_by_path

KEEP_SECONDS = 1.0
MOST_KEPT_SECONDS = 30.0
REST = 10
"""A state that took one second to load and decide is kept for ten seconds."""


@dataclass(frozen=True, slots=True)
class JobQuote:
    """A quote, with the regions of the clusters it names. `seen` are the tenants in it that the asker may see."""

    tenant_path: str
    quote: Quote
    snapshot: Snapshot
    shield: Shield = UNSHIELDED
    seen: frozenset[str] = frozenset()

    @property
    def regions(self) -> dict[str, str]:
        """The regions by cluster."""
        return {cluster.name: cluster.region for cluster in self.snapshot.clusters}


@dataclass(frozen=True, slots=True)
class RoomSeen:
    """A capacity; `seen` are the tenants in it that the asker may see."""

    capacity: Capacity
    seen: frozenset[str]


class _Desk:
    """What this process loaded last, for one thread at a time."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.index = FleetIndex()
        self._quoter: Quoter | None = None
        self._seen_at = 0.0
        self._spent_seconds = 0.0

    def quote(self, job: JobRequest, runtimes: Mapping[str, Runtime], images: Mapping[str, KnownImage]) -> JobQuote:
        """The quote as of the last load, or of a new one if that is old."""
        with self.lock:
            quoter = self._fresh()
            began = clock.monotonic()
            quote = quoter.quote(job, runtimes, images)
            self._spent_seconds += clock.monotonic() - began
            return JobQuote(job.tenant_path, quote, quoter.snapshot)

    def move(self, job: JobRequest, run: RunningJob, overdrawn: Mapping[UUID, int]) -> MoveQuote:
        """Likewise, the place of a running job after a move."""
        with self.lock:
            quoter = self._fresh()
            return quoted(quoter.snapshot, job, run, quoter.move(job, run, overdrawn))

    def capacity(self, job: JobRequest) -> Capacity:
        """Likewise."""
        with self.lock:
            quoter = self._fresh()
            return capacity(job, quoter.snapshot, self.index)

    def forget(self) -> None:
        """Makes the next answer load again."""
        self._quoter = None

    def _fresh(self) -> Quoter:
        kept = min(MOST_KEPT_SECONDS, max(KEEP_SECONDS, REST * self._spent_seconds))
        began = clock.monotonic()
        if self._quoter is None or began - self._seen_at >= kept:
            self._quoter = Quoter(load_state(), self.index, depth=QUEUE_DEPTH)
            self._seen_at = began
            self._spent_seconds = clock.monotonic() - began
        return self._quoter


_desk = _Desk()
reset_with(_desk.forget)


def put_in(queue: Sequence[JobRequest], more: Iterable[JobRequest]) -> tuple[JobRequest, ...]:
    """The queue with more jobs, each behind those of its priority."""
    found = list(queue)
    for job in more:
        found.insert(bisect_right([-one.priority for one in found], -job.priority), job)
    return tuple(found)


def load_state(more: Iterable[JobRequest] = ()) -> Snapshot:
    """The queue, with more jobs in it, and the fleet as the next round would see them; of the queue, what a round considers."""
    at = clock.now()
    queue = put_in(load_queue(at, QUEUE_DEPTH), more)
    fleet = load_fleet(at)
    return with_times(
        Snapshot(
            now=at,
            clusters=fleet,
            queue=queue,
            limits=load_limits(),
            user_limits=load_user_limits(),
            class_limits=load_class_limits(),
            budgets=load_budgets(at, queue, fleet, MAX_SECONDS),
            policies=load_policies(),
            egress=load_egress(at),
            reservations=load_reservations(at),
            windows=load_windows(at),
            claims=(*load_claims(at), *load_plan_claims(at)),
            fair_share=load_fair_share(),
            images=known_images(queue),
            pull_seconds=pull_seconds(),
        )
    )


def move_quote(job_id: UUID, run: RunningJob, user_id: UUID, named: Collection[UUID] = ()) -> MoveQuote:
    """Where the next round would put the job on another cluster, of those named if any are, if its run had ended now."""
    job = request_to_move(clock.now(), job_id, run.cluster_id, named)
    return replace(_desk.move(job, replace(run, user=user_id), load_overdrawn()), at=database_now())


def quote_of(actor: Actor, body: object) -> JobQuote:
    """What the next round would do with the job in `body`, the body of a submission.

    Raises what submitting it would raise. Policy hooks are called too, with the flag for a dry run.
    """
    submission = read_submission(body)
    tenant = tenant_by_path(actor, submission.tenant_path, Permission.SUBMIT)
    rules = rules_at(actor, tenant)
    spec = submission.under(rules)
    if has_hooks():
        spec = review(actor, Draft(tenant.path, spec, rules), is_dry_run=True).spec
    return _quoted(tenant, spec, rules, actor)


def quote_of_draft(actor: Actor, body: object) -> JobQuote:
    """As `quote_of`, for a body in which names and images may still be missing; policy hooks are not called."""
    submission = read_shape(body)
    tenant = tenant_by_path(actor, submission.tenant_path, Permission.SUBMIT)
    rules = rules_at(actor, tenant)
    return _quoted(tenant, submission.under(rules), rules, actor)


def _quoted(tenant: Tenant, spec: JobSpec, rules: TenantRules, actor: Actor) -> JobQuote:
    by = stater(tenant.id, actor.user_id) if actor.user_id and spec.estimated_seconds else ""
    named = rules.classes.named(spec.priority_class)
    job, groups = _asked(tenant, spec, named.value)
    [job] = with_kept_estimates([replace(job, stated_by=by, user=actor.user_id)])
    refuse_hopeless(job, tenant.id)
    found = _desk.quote(job, runtimes_of([groups]), known_images([job]))
    shield = Shield(named.shield_seconds, rules.classes.replaces(named.value))
    return replace(found, shield=shield, seen=seen_among(actor, reclaimers_in(found.quote)))


def capacity_of(actor: Actor, shape: object, tenant_path: str = "") -> RoomSeen:
    """The number of further jobs of a shape that fit now, and where, on the clusters that serve the tenant.

    `shape` is the body of a submission in which names and images may be missing. Raises Invalid with every field at
    fault, NotFound for a tenant that the actor may not see.
    """
    submission = read_shape(shape, default_tenant=tenant_path)
    tenant = tenant_by_path(actor, submission.tenant_path, Permission.VIEW)
    job, _ = _asked(tenant, submission.shape_under(rules_at(actor, tenant)), priority=0)
    found = _desk.capacity(replace(job, user=actor.user_id))
    return RoomSeen(found, seen_among(actor, reclaimers_in_capacity(found)))


def _asked(tenant: Tenant, spec: JobSpec, priority: int) -> tuple[JobRequest, Groups]:
    stored = spec_json(with_reservation(spec, tenant))
    groups = groups_of(tenant.id, stored)
    request = request_of(
        stored,
        job_id=_ANY,
        tenant_path=tenant.path,
        shape=shape_of(stored, priority),
        priority=priority,
        kind=groups.job,
    )
    [request] = with_secrets(with_networks(with_storages(with_data([request]))))
    return request, groups


_ANY: UUID = new_id()
"""The id of the job that is never submitted."""
