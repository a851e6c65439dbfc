"""One scheduling round: it loads a snapshot, lets the engine decide, and applies the decisions in short transactions.

Only one round runs at a time (the caller holds the exclusive right). The database still checks every step, because
users cancel jobs and lower limits while the engine decides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from msgspec import json

import billing.operations
import clusters.queries
import quotas.operations
from billing.engine.budgets import BudgetRequest, Commitment
from federation.engine import names
from federation.engine.intake.elastic import spec_of_run
from federation.engine.objects.ranks import Stretch, stretches_of
from federation.engine.objects.rendering import kept_levels
from federation.locks import QueuedJob, lock_queued_jobs, read_reservations
from federation.operations import figures, transitions
from federation.operations.consolidation import consolidate_jobs, end_plans
from federation.operations.data_waits import end_waits, without_promised
from federation.operations.kept_places import beside_new_places, end_places, idle_in_places
from federation.operations.kept_room import keep_room, kept_while_waiting
from federation.operations.lowered_limits import take_back_surplus
from federation.operations.preemption import end_claims, preempt
from federation.operations.reservations import release_no_shows
from federation.operations.supplies import Stock, Supplies
from federation.operations.waiting_reasons import explain, tell_refused, tell_unaffordable
from federation.queries.claimed_attempts import spec_hash_of
from federation.queries.in_use import InUse, features_in_use
from federation.queries.kinds import runtimes_of_kinds
from federation.queries.queue import QUEUE_DEPTH
from federation.queries.reservations import load_reservations
from federation.queries.snapshot import load_snapshot
from federation.queries.windows import load_windows
from foundation.clock import database_now
from foundation.ids import new_id
from foundation.transactions import retried
from placement.answers.estimates import estimate_of, record_of
from placement.cycle import cycle
from placement.cycle.visibility import respects, sight_of
from placement.fleet.amounts import units_per_pod
from placement.fleet.budgets import commitment_of
from placement.fleet.egress import egress_text
from placement.fleet.emissions import emissions_text
from placement.fleet.fleet import FleetIndex
from placement.fleet.pools import WIDTH_OF_LEVEL
from placement.fleet.siting import within_slice
from placement.ranking.interruptions import risk_text
from placement.ranking.pulls import pull_text
from placement.ranking.runtimes import runtime_of
from placement.values.decisions import Placement, PodSetPlacement
from placement.values.model import LEVELS, JobRequest, PodSetRequest, Snapshot, Topology
from placement.values.reason_codes import ReasonCode
from placement.values.sizes import placed_size, size_text
from quotas.operations import HoldRequest

APPLY_BATCH = 500

_fleet_index = FleetIndex()
"""The fleet's arrays, kept between rounds; rounds never overlap (`run_exclusively`)."""


@dataclass(frozen=True, slots=True)
class Round:
    """The result of one round."""

    considered: int
    placed: int
    waiting: int


def run_scheduling_cycle() -> Round:
    """Considers the queue once, in the order of turns."""
    with figures.CYCLE_SECONDS.time():
        quotas.operations.keep_half_life(settings.FAIR_SHARE_HALF_LIFE_SECONDS)
        in_use = features_in_use()
        end_what_is_over(in_use)
        if in_use.lowered_limits:
            take_back_surplus()
        done = _run(load_snapshot(database_now(), QUEUE_DEPTH, in_use), in_use)
    figures.DECISIONS.labels("placed").inc(done.placed)
    figures.DECISIONS.labels("waiting").inc(done.waiting)
    return done


def end_what_is_over(in_use: InUse) -> None:
    """Ends the claims, plans, reservations and waits for data that have passed, before a round reads anything."""
    if in_use.claims:
        end_claims()
        end_places()
    if in_use.consolidations:
        end_plans()
    if in_use.reservations:
        release_no_shows()
    if in_use.data_waits:
        end_waits()


def _run(snapshot: Snapshot, in_use: InUse) -> Round:
    if not snapshot.queue:
        if in_use.kept_room:
            keep_room(())
        return Round(0, 0, 0)
    decisions, final = cycle.run(snapshot, _fleet_index)
    lookup, placed = _Lookup(snapshot), 0
    lookup.know_runtimes(decisions.placements)
    claimed = {claim.job_id for claim in snapshot.claims}
    placements = without_promised(decisions.placements, lookup.requests, lookup.hold_of, lookup.still_lawful, claimed)
    for start in range(0, len(placements), APPLY_BATCH):
        placed += _apply(placements[start : start + APPLY_BATCH], lookup)
    if in_use.kept_room or decisions.kept:
        applied = {one.job_id for one in placements}
        promised = [one for one in decisions.placements if one.job_id not in applied]
        keep_room((*decisions.kept, *kept_while_waiting(promised, snapshot)), idle_in_places(snapshot, final))
    waits = [wait for wait in decisions.waits if wait.code != ReasonCode.WAITING_FOR_DATA]
    explain(consolidate_jobs(snapshot, final, preempt(snapshot, final, waits)))
    return Round(len(snapshot.queue), placed, len(decisions.waits))


class _Lookup:
    """The snapshot's jobs and flavors by id, and how the clusters' labels select their domains."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.requests = {request.id: request for request in snapshot.queue}
        self.flavors = {(c.id, flavor.name): flavor for c in snapshot.clusters for flavor in c.flavors.values()}
        self._now_reserved = snapshot
        self._now = snapshot.now
        self._clusters = {cluster.id: cluster for cluster in snapshot.clusters}
        self._runtimes = snapshot.runtimes
        self._estimates: dict[object, dict[str, Any]] = {}
        self._commitments: dict[object, Commitment] = {}

    def know_runtimes(self, placements: Sequence[Placement]) -> None:
        """Looks up the run times of the placed jobs, if the decisions did not need them."""
        if not self._runtimes:
            self._runtimes = runtimes_of_kinds({self.requests[placed.job_id].kind for placed in placements})

    def request(self, placed: Placement) -> JobRequest:
        """The job with the pods that were placed."""
        return placed_size(self.requests[placed.job_id], placed)

    def estimate(self, placed: Placement) -> dict[str, Any]:
        """The expected duration and cost of the run, as its attempt stores them; computed once for equal runs."""
        job = self.request(placed)
        runtime = runtime_of(job, self._runtimes, placed.pace)
        flavors = tuple([one.flavor for one in placed.pod_sets])
        alike = placed.cluster_id, flavors, job.shape, runtime
        if alike not in self._estimates:
            found = estimate_of(job, placed, self._clusters[placed.cluster_id], runtime, self._now)
            self._estimates[alike] = record_of(found, placed.egress)
        return self._estimates[alike]

    def commitment(self, placed: Placement) -> Commitment:
        """What the run uses at most; computed once for equal runs."""
        job = self.request(placed)
        flavors = tuple([self.flavors[placed.cluster_id, one.flavor] for one in placed.pod_sets])
        alike = placed.cluster_id, tuple([flavor.name for flavor in flavors]), job.pod_sets, job.deadline_seconds
        if alike not in self._commitments:
            self._commitments[alike] = commitment_of(job, flavors, self._now)
        return self._commitments[alike]

    def still_lawful(self, placements: Sequence[Placement]) -> Sequence[Placement]:
        """The placements that respect the current reservations, windows and kept places: some may have been made or ended
        while the engine decided.
        """
        in_use = features_in_use()
        reservations = load_reservations(self.snapshot.now) if in_use.reservations else ()
        windows = load_windows(self.snapshot.now) if in_use.windows else ()
        if in_use.claims:
            placements = beside_new_places(placements, self.snapshot)
        if (reservations, windows) == (self.snapshot.reservations, self.snapshot.windows):
            return placements
        self._now_reserved = replace(self.snapshot, reservations=reservations, windows=windows)
        return [one for one in placements if respects(self.requests[one.job_id], one, self._now_reserved)]

    def reserved_quota(self, job: JobRequest) -> tuple[UUID | None, tuple[UUID, ...]]:
        """The reserved quota that the job is part of, and that for which it leaves room, as of `still_lawful`."""
        if not self._now_reserved.reservations:
            return None, ()
        sight = sight_of(job, self._now_reserved)
        within = sight.inside.id if sight.inside is not None and sight.inside.reserved else None
        return within, tuple(one.id for one in sight.counted if one.reserved)

    def hold_of(self, holder_id: UUID, job: QueuedJob, placed: Placement) -> HoldRequest:
        """What the placement takes from the quotas on its tenant's path."""
        request = self.requests[job.id]
        where = holder_id, job.tenant_id, job.tenant_path, placed.cluster
        return HoldRequest(*where, placed.amounts, request.user, *self.reserved_quota(request), request.class_name)

    @cached_property
    def _domains(self) -> Mapping[UUID, clusters.queries.Domains]:
        return clusters.queries.domains()

    def domain_selectors(self, cluster_id: UUID, topology: Topology, placed: PodSetPlacement) -> list[dict[str, str]]:
        """Label selectors of the domain that the pods of a set must keep to (or should, if nothing is required).

        The required level is the one that the job requested, or the next narrower one that the cluster's labels name.
        """
        levels = kept_levels(topology, placed.level)
        if not levels or cluster_id not in self._domains:
            return []
        node = next(iter(placed.nodes))
        found = (self._domains[cluster_id].selectors(level, node) for level in levels)
        return [dict(selector) for selector in next((selectors for selectors in found if selectors), ())]

    def stretches(self, cluster_id: UUID, placed: PodSetPlacement) -> list[Stretch]:
        """The order of a set's pods on its nodes; empty if they share a domain of every known level."""
        own = self._domains.get(cluster_id)
        if own is None or placed.level == "node":
            return []
        levels = [level for level in reversed(LEVELS) if level not in ("cluster", "node")]
        levels = [level for level in levels if WIDTH_OF_LEVEL[level] < WIDTH_OF_LEVEL[placed.level]]
        paths = [[own.path(level, node) for node in placed.nodes] for level in levels]
        return stretches_of(placed.nodes, paths, lambda level, node: own.selectors(levels[level], node))

    def topology_label(self, cluster_id: UUID, topology: Topology, placed: PodSetPlacement) -> str:
        """The label of the chosen nodes for the level that the job requested."""
        if topology.level == "cluster" or cluster_id not in self._domains:
            return ""
        return self._domains[cluster_id].label(topology.level, next(iter(placed.nodes)))


@retried
def _apply(placements: Sequence[Placement], lookup: _Lookup) -> int:
    """The number of placements that became attempts; each with its hold, its objects and a wake-up, or none of them."""
    with transaction.atomic():
        read_reservations()
        placements = lookup.still_lawful(placements)
        jobs = lock_queued_jobs([placement.job_id for placement in placements])
        stock = Stock.of([lookup.requests[p.job_id] for p in placements])
        made = [_Draft(jobs[p.job_id], p, lookup, stock) for p in placements if p.job_id in jobs]
        made = [draft for draft in made if draft.has_all_it_names]
        takers = billing.operations.Takers([draft.budget_request for draft in made])
        tell_unaffordable(
            [(one.job.id, takers.refusals[one.attempt_id]) for one in made if one.attempt_id in takers.refusals]
        )
        made = [draft for draft in made if draft.attempt_id not in takers.refusals]
        refusals = quotas.operations.take_holds([draft.hold_request for draft in made])
        granted = [draft for draft in made if refusals[draft.attempt_id] is None]
        if granted:
            takers.write([draft.budget_request for draft in granted])
            _create(granted)
        tell_refused([(draft.job.id, refusal) for draft in made if (refusal := refusals[draft.attempt_id])])
    return len(granted)


class _Draft:
    """A placement that is about to become an attempt."""

    def __init__(self, job: QueuedJob, placement: Placement, lookup: _Lookup, stock: Stock) -> None:
        self.job = job
        self.placement = placement
        self.lookup = lookup
        self.attempt_id = new_id()
        self.number = job.attempts_made + 1
        self._stock = stock
        self._request = lookup.request(placement)

    @cached_property
    def _supplies(self) -> list[Supplies] | None:
        """What the pods of each set get besides nodes, as it is now; None if its tenant may no longer have all of it."""
        return self._stock.supplies(self.job, self._spec, self.placement.cluster_id)

    @cached_property
    def _spec(self) -> Mapping[str, Any]:
        """With the pods of this run."""
        return spec_of_run(json.decode(self.job.spec), [one.count for one in self._request.pod_sets])

    @property
    def has_all_it_names(self) -> bool:
        """Whether its storages, networks and secrets still exist; some may have been removed while the engine decided."""
        return self._supplies is not None

    @property
    def hold_request(self) -> HoldRequest:
        """What the attempt takes from the quotas on its tenant's path."""
        return self.lookup.hold_of(self.attempt_id, self.job, self.placement)

    @cached_property
    def budget_request(self) -> BudgetRequest:
        """What the attempt uses of the budgets on its tenant's path at most."""
        return BudgetRequest(
            self.attempt_id, self.job.tenant_id, self.job.tenant_path, self.lookup.commitment(self.placement)
        )

    def attempt(self) -> dict[str, object]:
        """The attempt's row."""
        job, placement = self.job, self.placement
        first = placement.pod_sets[0]
        return {
            "id": self.attempt_id,
            "job_id": job.id,
            "number": self.number,
            "cluster_id": placement.cluster_id,
            "flavor": first.flavor,
            "domain": "/".join(first.domain),
            "unit_price": placement.unit_price,
            "currency": placement.currency,
            "estimate": self.lookup.estimate(placement),
            "pace": placement.pace,
            "namespace": names.namespace_of(job.tenant_path, job.tenant_id),
            "spec_hash": spec_hash_of(job.spec),
        }

    def objects(self) -> list[dict[str, object]]:
        """The rows of the objects, one per pod set, named after the attempt."""
        pod_sets = zip(self._request.pod_sets, self.placement.pod_sets, strict=True)
        return [self._object(index, asked, placed) for index, (asked, placed) in enumerate(pod_sets)]

    def _object(self, position: int, asked: PodSetRequest, placed: PodSetPlacement) -> dict[str, object]:
        assert self._supplies is not None
        flavor = self.lookup.flavors[self.placement.cluster_id, placed.flavor]
        hosts = flavor.slice_hosts if asked.gpu else 1
        asked_for = self._request.topology
        topology = within_slice(asked_for, hosts)
        return {
            "attempt_id": self.attempt_id,
            "position": position,
            "name": names.object_name(self.attempt_id, position),
            "flavor": placed.flavor,
            "capacity_type": flavor.capacity_type,
            "pods": asked.count,
            "completions": self._spec["completions"],
            "gpu_units": units_per_pod(asked.gpu, flavor) or 0,
            "cpu_millicores": asked.cpu_millicores,
            "memory_mib": asked.memory_mib,
            "resources": dict(asked.resources),
            "assumed_nodes": placed.nodes,
            "domain_selectors": self.lookup.domain_selectors(self.placement.cluster_id, topology, placed),
            "topology_label": self.lookup.topology_label(self.placement.cluster_id, asked_for, placed),
            "stretches": self._stretches(asked, placed),
            **self._supplies[position]._asdict(),
        }

    def event(self) -> dict[str, object]:
        """The row of the event in the job's timeline."""
        return {"job_id": self.job.id, "attempt_id": self.attempt_id, "message": self._sentence()}

    def _sentence(self) -> str:
        placement, risk = self.placement, self.placement.risk
        message = f"Attempt {self.number} on {placement.cluster}, flavor {placement.pod_sets[0].flavor}"
        message += f", with {size_text(self._request)}" if self._request.elastic else ""
        told = [] if risk is None else [risk_text(risk)]
        if risk is not None and risk.hourly_cost is not None and placement.hourly_cost is not None:
            an_hour = f"{_money(placement.hourly_cost)} {placement.currency} an hour"
            told.append(f"{an_hour}, {_money(risk.hourly_cost)} an hour of work done")
        if placement.egress is not None and placement.egress.moves:
            told.append(egress_text(placement.egress.moves, placement.currency))
        if placement.pull is not None:
            told.append(pull_text(placement.pull))
        if placement.emitted is not None:
            told.append(emissions_text(placement.emitted.grams))
        return f"{message} ({'; '.join(told)})." if told else f"{message}."

    def _stretches(self, asked: PodSetRequest, placed: PodSetPlacement) -> list[Stretch]:
        """The order of the pods, only if all run at the same time: the node of a later pod cannot be predicted."""
        found = self.lookup.stretches(self.placement.cluster_id, placed) if asked.count > 1 else []
        return found if found and self._spec["completions"] in (None, asked.count) else []


def _create(drafts: Sequence[_Draft]) -> None:
    transitions.place(
        [draft.attempt() for draft in drafts],
        [row for draft in drafts for row in draft.objects()],
        [draft.event() for draft in drafts],
    )


def _money(amount: Decimal) -> str:
    return f"{amount:.4f}"
