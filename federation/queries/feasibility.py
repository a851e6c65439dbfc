"""Refuses jobs immediately that no cluster could hold even when empty, or that no limit would ever allow.

A yes is cached for a second by tenant and shape: if the fleet shrinks meanwhile, the job is queued and the cycle
explains why it waits. A no is never cached: it always refers to the current fleet and limits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import NamedTuple
from uuid import UUID

import billing.queries.budgets
import clusters.queries
import quotas.queries
from billing.engine.budgets import Commitment
from clusters.queries import ClusterView
from federation.queries.datasets import refuse_unknown_data
from federation.queries.networks import refuse_unknown_networks, with_networks
from federation.queries.offered import cluster_of, node_of, offered
from federation.queries.policies import policy_at
from federation.queries.reservations import reserved_on
from federation.queries.secrets import refuse_unknown_secrets
from federation.queries.snapshot import load_fleet
from federation.queries.storages import refuse_unknown_storages, with_storages
from foundation.caches import cached, cached_all
from foundation.clock import database_now
from foundation.problems import FieldError, NotFound, Problem
from placement.fleet.amounts import amounts_of, units_per_pod
from placement.fleet.budgets import commitment_of
from placement.fleet.eligibility import exclusion
from placement.fleet.fleet import FleetIndex, sees
from placement.fleet.policies import Policy
from placement.ranking.feasibility import never_fits
from placement.values.gpu_names import models_meant, nearest_models
from placement.values.model import FleetCluster, FleetFlavor, JobRequest

REMEMBER_SECONDS = 1.0
MOST_REMEMBERED = 10_000
MOST_OPTIONS_PER_CLUSTER = 64
MOST_NAMED = 5


class NeverFits(Problem):
    """No cluster of this tenant can run the job, even when empty."""

    status, code, title = 422, "never_fits", "The job fits nowhere"


class QuotaExceededForGood(Problem):
    """The job requests more than its tenant's quota allows in total."""

    status, code, title = 422, "quota_exceeded_for_good", "The job exceeds the quota"


class _Asked(NamedTuple):
    """A job that a tenant asks for, without what makes it one of several alike."""

    tenant_id: UUID
    request: JobRequest


class BudgetExceededForGood(Problem):
    """The job's worst case is more than a budget of its tenant allows in a whole period."""

    status, code, title = 422, "budget_exceeded_for_good", "The job exceeds the budget"


_NO_ID = UUID(int=0)
_index = FleetIndex()


def refuse_hopeless(request: JobRequest, tenant_id: UUID) -> None:
    """Returns if the job could ever run, or if that is unknown because there is no cluster yet.

    Raises NotFound for a cluster, a dataset, a storage, a network or a secret that it names and the tenant does not have (a foreign one looks the
    same), NeverFits with the reason on each cluster, QuotaExceededForGood with the limit or
    BudgetExceededForGood with the budget that refuses it.
    """
    _check_possible(_Asked(tenant_id, replace(request, id=_NO_ID, submitted_at=None, kind="")))


@cached(
    "tenant_id",
    "request.shape",
    "request.deadline_seconds",
    "request.class_name",
    most=MOST_REMEMBERED,
    seconds=REMEMBER_SECONDS,
)
def _check_possible(asked: _Asked) -> None:
    request = asked.request
    refuse_unknown_data(request)
    refuse_unknown_storages(request)
    refuse_unknown_networks(request)
    refuse_unknown_secrets(request)
    [request] = with_networks(with_storages([_on_its_cluster(request)]))
    fleet = clusters.queries.fleet()
    visible = [view for view in fleet if sees(request.tenant_path, view.owner_path)]
    _refuse_unknown_clusters(request, visible)
    policy = policy_at(request.tenant_path)
    if all(view.inventory_version for view in visible):
        # the capacity of a newly registered cluster is unknown until it is first observed
        _refuse_misfit(request, fleet, policy)
    _refuse_beyond_limits(request, visible, policy)
    refuse_beyond_budgets(request, policy)


def refuse_beyond_budgets(request: JobRequest, policy: Policy) -> None:
    """BudgetExceededForGood if the job would exceed a budget even in a period without any other work."""
    now = database_now()
    if not billing.queries.budgets.are_stopping_on(request.tenant_path):
        return
    options: list[Commitment] = []
    for cluster in load_fleet(now):
        if not sees(request.tenant_path, cluster.owner_path):
            continue
        flavors = [flavor for flavor in cluster.flavors.values() if not policy.flavor_fault(flavor)]
        is_out = exclusion(request.constraints, cluster) or policy.cluster_fault(cluster)
        found = [] if is_out else _combinations(request, flavors)
        if len(found) > MOST_OPTIONS_PER_CLUSTER:
            return
        options += [commitment_of(request, chosen, now) for chosen in found]
    refusal = billing.queries.budgets.refusal_for_good(request.tenant_path, options)
    if refusal is not None:
        errors = [FieldError("deadline_seconds", "budget_exceeded", refusal.message)]
        told = f"A new period would not help: {refusal.message}. A shorter deadline_seconds needs less."
        raise BudgetExceededForGood(told, errors=errors)


def _combinations(request: JobRequest, flavors: Sequence[FleetFlavor]) -> list[tuple[FleetFlavor, ...]]:
    """Each way to spread the pod sets over a cluster's flavors; at most one more than the maximum."""
    types = request.constraints.capacity_types
    allowed = [flavor for flavor in flavors if not types or flavor.capacity_type in types]
    choices = [
        [flavor for flavor in allowed if units_per_pod(pod_set.gpu, flavor) is not None] for pod_set in request.pod_sets
    ]
    return list(islice(product(*choices), MOST_OPTIONS_PER_CLUSTER + 1))


def refuse_unknown_clusters(request: JobRequest) -> None:
    """NotFound for a cluster named in the constraints that the tenant does not have."""
    _refuse_unknown_clusters(request, _visible(request))


def refuse_beyond_limits(request: JobRequest, policy: Policy) -> None:
    """QuotaExceededForGood if the job would exceed a limit even without any other work."""
    _refuse_beyond_limits(request, _visible(request), policy)


def wholes() -> list[FleetCluster]:
    """Every cluster with nothing running on it."""
    return _wholes(clusters.queries.fleet())


@cached_all("id")
def _wholes(views: Sequence[ClusterView]) -> list[FleetCluster]:
    return [cluster_of(view, _flavors(view), map(node_of, view.nodes)) for view in views]


def _flavors(view: ClusterView) -> dict[str, FleetFlavor]:
    return {name: offered(flavor) for name, flavor in view.flavors.items()}


def _visible(request: JobRequest) -> list[ClusterView]:
    return [view for view in clusters.queries.fleet() if sees(request.tenant_path, view.owner_path)]


def _refuse_unknown_clusters(request: JobRequest, views: Sequence[ClusterView]) -> None:
    known = {view.name for view in views}
    named = {"constraints.clusters": request.constraints.clusters}
    named |= {f"constraints.overflow[{n}].clusters": t.clusters for n, t in enumerate(request.constraints.overflow)}
    errors = [
        FieldError(f"{field}[{index}]", "not_found", "this tenant has no cluster of that name")
        for field, names in named.items()
        for index, name in enumerate(names)
        if name not in known
    ]
    if errors:
        raise NotFound("The constraints name a cluster that this tenant does not have.", errors=errors)


def _refuse_misfit(request: JobRequest, fleet: Sequence[ClusterView], policy: Policy) -> None:
    reasons = never_fits(request, _wholes(fleet), _index, policy)
    if reasons is not None:
        errors = [FieldError(f"clusters.{reason.cluster}", reason.code, reason.message) for reason in reasons]
        told = "; ".join(f"{reason.cluster}: {reason.message}" for reason in reasons[:10])
        unknown = _unknown_models(request, fleet) + _unknown_resources(request, fleet)
        hint = "".join(f"{error.detail} " for error in unknown)
        raise NeverFits(f"No cluster can run this job, even when empty. {hint}{told}", errors=[*unknown, *errors])


def _unknown_models(request: JobRequest, fleet: Sequence[ClusterView]) -> list[FieldError]:
    """The GPU models that the tenant's fleet does not have, each with the models of the most similar names."""
    known = {
        flavor.gpu_model
        for view in fleet
        if sees(request.tenant_path, view.owner_path)
        for flavor in view.flavors.values()
        if flavor.gpu_model
    }
    errors = []
    for number, pod_set in enumerate(request.pod_sets):
        for index, name in enumerate(pod_set.gpu.models if pod_set.gpu else ()):
            if not models_meant(name, known):
                nearest = " or ".join(nearest_models(name, known) or sorted(known)[:MOST_NAMED])
                hint = f"Did you mean {nearest}?" if nearest else "The fleet has no GPUs."
                field = f"pod_sets[{number}].gpu.models[{index}]"
                errors.append(FieldError(field, "unknown_model", f"No cluster has {name}. {hint}"))
    return errors


def _unknown_resources(request: JobRequest, fleet: Sequence[ClusterView]) -> list[FieldError]:
    """The other resources that the tenant's fleet does not have, each with those that it has."""
    views = [view for view in fleet if sees(request.tenant_path, view.owner_path)]
    known = sorted({name for view in views for node in view.nodes for name in node.resources})
    offer = f"The fleet has {', '.join(known[:MOST_NAMED])}." if known else "The fleet has no such resources."
    return [
        FieldError(f"pod_sets[{number}].resources.{name}", "unknown_resource", f"No cluster has {name}. {offer}")
        for number, pod_set in enumerate(request.pod_sets)
        for name, _ in pod_set.resources
        if name not in known
    ]


def quota_options(request: JobRequest, policy: Policy) -> list[tuple[str, Mapping[str, int]]]:
    """The job's hold for each cluster and each way to spread its pod sets there; empty if there are too many ways."""
    return _quota_options(request, _visible(request), policy)


def _refuse_beyond_limits(request: JobRequest, views: Sequence[ClusterView], policy: Policy) -> None:
    options = _quota_options(request, views, policy)
    refusals = quotas.queries.refusal_for_good(request.tenant_path, options, request.class_name) if options else None
    if refusals is not None:
        of_class = f"priority_class.{request.class_name}"
        distinct = {
            ".".join(filter(None, (one.tenant_path, of_class if one.is_of_class else "", one.resource))): one
            for one in refusals
        }
        errors = [FieldError(f"quota.{what}", "quota_exceeded", one.message) for what, one in distinct.items()]
        raise QuotaExceededForGood(f"The end of other jobs would not help: {errors[0].detail}.", errors=errors)


def _quota_options(
    request: JobRequest, views: Sequence[ClusterView], policy: Policy
) -> list[tuple[str, Mapping[str, int]]]:
    options: list[tuple[str, Mapping[str, int]]] = []
    for view in views:
        flavors = [flavor for flavor in _flavors(view).values() if not policy.flavor_fault(flavor)]
        offer = cluster_of(view, {flavor.name: flavor for flavor in flavors})
        is_out = exclusion(request.constraints, offer) or policy.cluster_fault(offer)
        found = [] if is_out else _options(request, flavors)
        if len(found) > MOST_OPTIONS_PER_CLUSTER:
            return []
        options += [(view.name, amounts) for amounts in found]
    return options


def _on_its_cluster(request: JobRequest) -> JobRequest:
    """The request narrowed to the cluster of the reservation that it names."""
    named = request.constraints.reservation
    if not named:
        return request
    return replace(request, constraints=replace(request.constraints, reserved_on=reserved_on(named)))


def _options(request: JobRequest, flavors: Sequence[FleetFlavor]) -> list[Mapping[str, int]]:
    """The job's hold for each way to spread its pod sets over a cluster's flavors; at most one more
    than the maximum.
    """
    types = request.constraints.capacity_types
    allowed = [flavor for flavor in flavors if not types or flavor.capacity_type in types]
    choices: list[list[FleetFlavor]] = []
    for pod_set in request.pod_sets:
        serving = {
            (f.gpu_model, f.sharing) if pod_set.gpu else (): f
            for f in allowed
            if units_per_pod(pod_set.gpu, f) is not None
        }
        choices.append(list(serving.values()))
    names = [pod_set.name for pod_set in request.pod_sets]
    combinations = islice(product(*choices), MOST_OPTIONS_PER_CLUSTER + 1)
    return [amounts_of(request, dict(zip(names, chosen, strict=True))) for chosen in combinations]
