"""Recommendations to partition GPUs of a cluster otherwise (`placement.answers.repartition`): their input, and as users see them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from uuid import UUID

from django.db import connection

import clusters.queries
from billing.queries.slice_use import mean_units
from clusters.engine.mig import fewest_gpus, profiles_of
from clusters.models import Cluster, Node
from clusters.queries import ClusterView, NodeView
from clusters.queries.visible import cluster_by_id, require_at_owner
from federation.models import Job
from federation.queries.offered import cluster_of
from federation.queries.queue import requests_again
from foundation.clock import database_now
from placement.answers.repartition import WHOLE, Key, Proposal, Sliceable, Waiting, proposals
from placement.fleet.budgets import USUAL_SECONDS
from placement.fleet.eligibility import as_of, exclusion
from placement.fleet.fleet import sees
from placement.values.gpu_names import models_meant
from placement.values.model import JobRequest
from tenancy.queries import Actor

MOST_JOBS = 500
"""Of those that wait for slices, the most urgent first."""
RECENT_DAYS = 7
OPEN_STATES = ("ready", "degraded")
_WAITING = """
SELECT id FROM federation_job
 WHERE state = 'queued' AND jsonb_path_exists(spec, '$.pod_sets[*].gpu.mig') ORDER BY priority DESC, id LIMIT %s
"""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A node to partition otherwise, with the jobs that would start."""

    proposal: Proposal
    jobs: tuple[Job, ...]

    @property
    def now(self) -> str:
        """Its slices today, in words."""
        slices = self.proposal.node.slices
        return ", ".join(f"{units} {_word(name)}" for name, units in sorted(slices.items()) if units)

    @property
    def then(self) -> tuple[str, ...]:
        """The slices of its GPUs, in words, those that are alike as one."""
        alike = Counter(", ".join(f"{units} {name}" for name, units in mix) for mix in self.proposal.mixes)
        return tuple(f"{gpus} GPU{'s' * (gpus > 1)}: {mix or 'no slices'}" for mix, gpus in alike.items())


def _word(name: str) -> str:
    return "without slices" if name == WHOLE else name


def recommendations(actor: Actor, cluster_id: UUID) -> tuple[Cluster, tuple[Recommendation, ...]]:
    """What is recommended for a cluster. NotFound for a cluster that the actor may not see, NotAllowedHere for one that the actor does
    not manage: names of nodes and of others' jobs are in it.
    """
    cluster = cluster_by_id(actor, cluster_id)
    require_at_owner(actor, cluster)
    fleet = clusters.queries.fleet()
    waiting = _waiting(fleet)
    if not waiting:
        return cluster, ()
    nodes = _nodes(fleet)
    found = [one for one in proposals(waiting, nodes, _recent(nodes)) if one.node.cluster_id == cluster_id]
    jobs = Job.objects.select_related("tenant").in_bulk([job_id for one in found for job_id in one.job_ids])
    return cluster, tuple(Recommendation(one, tuple(jobs[id_] for id_ in one.job_ids if id_ in jobs)) for one in found)


def _waiting(fleet: Sequence[ClusterView]) -> list[Waiting]:
    """The queued jobs that need slices, in the order of the queue, without those of more than one pod set."""
    with connection.cursor() as cursor:
        cursor.execute(_WAITING, [MOST_JOBS])
        ids = [job_id for (job_id,) in cursor.fetchall()]
    if not ids:
        return []
    now = database_now()
    found = (_job(as_of(request, now), fleet) for request in requests_again(now, ids))
    return [one for one in found if one is not None]


def _job(request: JobRequest, fleet: Sequence[ClusterView]) -> Waiting | None:
    [first, *more] = request.pod_sets
    if more or first.gpu is None or not first.gpu.mig:
        return None
    known = {flavor.gpu_model for view in fleet for flavor in view.flavors.values()}
    models = {model for name in first.gpu.models for model in models_meant(name, known)}
    if first.gpu.models and not models:
        return None
    return Waiting(
        job_id=request.id,
        profile=first.gpu.mig,
        models=frozenset(models),
        slices_per_pod=first.gpu.count,
        pods=first.count,
        lasts=timedelta(seconds=request.estimated_seconds or request.deadline_seconds or USUAL_SECONDS),
        clusters=frozenset(view.id for view in fleet if _may_run(request, view)),
    )


def _may_run(request: JobRequest, view: ClusterView) -> bool:
    if view.state not in OPEN_STATES or not sees(request.tenant_path, view.owner_path):
        return False
    return not exclusion(request.constraints, cluster_of(view, {}))


def _nodes(fleet: Iterable[ClusterView]) -> list[Sliceable]:
    """The nodes whose GPUs are of one model that can have slices, and are whole or have MIG slices."""
    used = {
        (cluster_id, name): devices
        for cluster_id, name, devices in Node.objects.values_list("cluster_id", "name", "used_devices")
    }
    found = [
        _node(view, node, used.get((view.id, node.name), {}))
        for view in fleet
        if view.state in OPEN_STATES
        for node in view.nodes
    ]
    return [one for one in found if one is not None]


def _node(view: ClusterView, node: NodeView, used: Mapping[str, int]) -> Sliceable | None:
    flavors = [(view.flavors[name], units) for name, units in node.devices.items() if units and name in view.flavors]
    models = {flavor.gpu_model for flavor, _ in flavors}
    if len(models) != 1 or not profiles_of(model := models.pop()):
        return None
    slices: dict[str, int] = {}
    in_use: dict[str, int] = {}
    for flavor, units in flavors:
        kind, _, profile = flavor.sharing.partition(":")
        if kind not in (WHOLE, "mig") or flavor.unplaceable:
            return None
        slices[profile or WHOLE] = slices.get(profile or WHOLE, 0) + units
        in_use[profile or WHOLE] = in_use.get(profile or WHOLE, 0) + used.get(flavor.resource_name, 0)
    sliced = fewest_gpus(model, {name: units for name, units in slices.items() if name != WHOLE})
    if sliced is None:
        return None
    return Sliceable(view.id, node.name, model, slices.get(WHOLE, 0) + sliced, slices, in_use, node.is_usable)


def _recent(nodes: Iterable[Sliceable]) -> dict[Key, int]:
    """The slices that remain: as many as were in use on average in the last days, and as are in use now."""
    now: dict[Key, int] = {}
    for node in nodes:
        for name, units in node.used.items():
            now[node.cluster_id, node.model, name] = now.get((node.cluster_id, node.model, name), 0) + units
    today = database_now().date()
    for kind, mean in mean_units(today - timedelta(days=RECENT_DAYS), today).items():
        sharing, _, profile = kind.sharing.partition(":")
        if sharing in (WHOLE, "mig"):
            key = kind.cluster_id, kind.gpu_model, profile or WHOLE
            now[key] = max(now.get(key, 0), ceil(mean))
    return now
