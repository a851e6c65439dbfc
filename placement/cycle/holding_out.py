"""Jobs that wait for spot capacity while they have time.

A job that has a deadline, and asks to be moved where it costs less, is placed only on spot capacity as long as all of its work, after an
interruption, still fits before the deadline on other capacity (`ranking.deadlines`). So other capacity that is free does not
make it dear when spot capacity is away for an hour. This holds only where some cheaper spot capacity could serve it.
"""

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

from clusters.engine.health import OPEN_STATES
from placement.fleet.amounts import portion_of
from placement.fleet.eligibility import exclusion
from placement.fleet.fleet import sees
from placement.fleet.policies import PolicyBook
from placement.fleet.prices import hourly_cost
from placement.ranking.deadlines import haste_of
from placement.values.model import FleetFlavor, JobRequest, Snapshot
from placement.values.moving import SPOT

CHEAPER = Decimal("0.8")
"""Spot capacity is worth waiting for below this part of the price of other capacity."""


def patient(job: JobRequest, snapshot: Snapshot, policies: PolicyBook) -> JobRequest:
    """The job, kept to spot capacity while it has time to wait for that; jobs that are and are not differ in shape."""
    if job.finish_within_seconds is None or job.moves != "when_cheaper" or job.constraints.is_patient:
        return job
    types = job.constraints.capacity_types
    haste = haste_of(job, snapshot.runtimes, snapshot.now)
    if haste is None or (types and SPOT not in types) or haste.slack_after_loss(snapshot.now, 1.0, 1.0) < 0:
        return job
    prices = [*_prices(job, snapshot, policies)]
    spot = min((price for is_spot, price in prices if is_spot), default=None)
    other = min((price for is_spot, price in prices if not is_spot), default=None)
    if spot is None or (other is not None and spot > other * CHEAPER):
        return job
    constraints = replace(job.constraints, capacity_types=(SPOT,), is_patient=True)
    return replace(job, constraints=constraints, shape=f"{job.shape} waits for spot" if job.shape else "")


def _prices(job: JobRequest, snapshot: Snapshot, policies: PolicyBook) -> Iterator[tuple[bool, Decimal]]:
    """Of each flavor that could serve the whole job: whether it is spot, and what an hour costs there."""
    policy, types = policies.of(job.tenant_path), job.constraints.capacity_types
    for cluster in snapshot.clusters:
        if cluster.state not in OPEN_STATES or not sees(job.tenant_path, cluster.owner_path):
            continue
        if exclusion(job.constraints, cluster):
            continue
        used = {name for node in cluster.nodes if node.is_usable for name in node.total}
        for flavor in cluster.flavors.values():
            allowed = flavor.name in used and (not types or flavor.capacity_type in types)
            if allowed and not policy.flavor_fault(flavor) and _serves(flavor, job):
                cost = hourly_cost(job.pod_sets, (flavor,) * len(job.pod_sets))
                if cost is not None:
                    yield flavor.capacity_type == SPOT, cost


def _serves(flavor: FleetFlavor, job: JobRequest) -> bool:
    return all(portion_of(pod_set.gpu, flavor) is not None for pod_set in job.pod_sets)
