"""The best that any scheduler could do with a small snapshot, found by a constraint solver that knows the whole queue at once.

It must keep what the engine must keep: a job whole and in one cluster, each of its pod sets on one flavor and if it says so
inside one domain; no node and no quota limit overbooked. Flavors are whole GPUs, or nodes without any.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from placement.values.model import FleetCluster, FleetNode, JobRequest, PodSetRequest, Snapshot

from .checker import POSITION

MOST_EFFORT = 2.0
"""In the solver's own units, which are about seconds but the same on every machine."""


def constraint_solver() -> Any:
    """The module `cp_model`. Its import takes more than a second of a core: a run without oracles does without."""
    from ortools.sat.python import cp_model  # noqa: PLC0415 - see above

    return cp_model


@dataclass
class _Model:
    """A solver's model, with what each choice takes of each node and limit."""

    solver: Any = field(default_factory=lambda: constraint_solver().CpModel())
    taken: dict[tuple[str, ...], list[Any]] = field(default_factory=lambda: defaultdict(list))
    quota: dict[int, list[Any]] = field(default_factory=lambda: defaultdict(list))
    placed: list[Any] = field(default_factory=list)
    """By job."""
    gpus: list[Any] = field(default_factory=list)
    cents: list[Any] = field(default_factory=list)


def most_gpus(snapshot: Snapshot) -> int:
    """How many GPUs could be given away at most, whatever the order of the queue."""
    model = _model_of(snapshot)
    model.solver.maximize(sum(model.gpus))
    return _solved(model)


def let_in_order(snapshot: Snapshot) -> tuple[JobRequest, ...]:
    """The jobs that run if each in its turn is let in whenever it can run beside all that were let in before it, wherever
    those would have to be. What no scheduler that obeys the queue's order can do better for the jobs at its head.
    """
    let_in: tuple[JobRequest, ...] = ()
    for job in snapshot.queue:
        if least_cents(replace(snapshot, queue=(*let_in, job))) >= 0:
            let_in = (*let_in, job)
    return let_in


def least_cents(snapshot: Snapshot) -> int:
    """What it costs an hour at least to run the whole queue at once, in cents; -1 if it cannot all run."""
    model = _model_of(snapshot)
    for placed in model.placed:
        model.solver.add(placed == 1)
    model.solver.minimize(sum(model.cents))
    return _solved(model)


def _solved(model: _Model) -> int:
    """What nobody can do better than: the best there is, or the bound proven on it by then."""
    cp_model = constraint_solver()
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.max_deterministic_time = MOST_EFFORT
    status = solver.solve(model.solver)
    if status == cp_model.INFEASIBLE:
        return -1
    assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE), solver.status_name(status)
    return round(solver.best_objective_bound)


def _model_of(snapshot: Snapshot) -> _Model:
    model = _Model()
    for job in snapshot.queue:
        here = []
        for cluster in snapshot.clusters:
            if (job.tenant_path + "/").startswith(cluster.owner_path + "/"):
                chosen = model.solver.new_bool_var("")
                here.append(chosen)
                for pod_set in job.pod_sets:
                    _offer(model, snapshot, job, pod_set, cluster, chosen)
        placed = model.solver.new_bool_var("")
        model.solver.add(sum(here) == placed)
        model.placed.append(placed)
    _bound(model, snapshot)
    return model


def _offer(
    model: _Model, snapshot: Snapshot, job: JobRequest, pods: PodSetRequest, cluster: FleetCluster, chosen: Any
) -> None:
    """The pod set's choices if its job runs on this cluster: a flavor, and a domain if it must keep to one."""
    gpus = pods.gpu.count if pods.gpu else 0
    options = []
    for flavor in cluster.flavors.values():
        if pods.gpu and not (flavor.gpu_model and (not pods.gpu.models or flavor.gpu_model in pods.gpu.models)):
            continue
        domains: dict[tuple[str, ...], list[FleetNode]] = defaultdict(list)
        for node in cluster.nodes:
            if flavor.name in node.total:
                domains[_domain(job, node)].append(node)
        for nodes in domains.values():
            option = model.solver.new_bool_var("")
            options.append(option)
            _stand(model, pods, [(cluster.name, node.name, flavor.name) for node in nodes], option)
            model.gpus.append(gpus * pods.count * option)
            model.cents.append(int((flavor.unit_price or 0) * 100) * gpus * pods.count * option)
            amounts = {"gpu": gpus * 1000, f"gpu:{flavor.gpu_model}": gpus * 1000, "cpu": pods.cpu_millicores}
            for index, limit in enumerate(snapshot.limits):
                if (job.tenant_path + "/").startswith(limit.tenant_path + "/"):
                    model.quota[index].append(amounts.get(limit.resource, 0) * pods.count * option)
    model.solver.add(sum(options) == chosen)


def _stand(model: _Model, pods: PodSetRequest, places: Sequence[tuple[str, str, str]], option: Any) -> None:
    """All pods on these nodes (each with its cluster and flavor), if the option is taken."""
    counts = []
    for cluster, node, flavor in places:
        count = model.solver.new_int_var(0, pods.count, "")
        counts.append(count)
        model.taken[cluster, node, flavor].append((pods.gpu.count if pods.gpu else 0) * count)
        model.taken[cluster, node, "cpu"].append(pods.cpu_millicores * count)
        model.taken[cluster, node, "memory"].append(pods.memory_mib * count)
        model.taken[cluster, node, "pods"].append(count)
    model.solver.add(sum(counts) == pods.count * option)


def _domain(job: JobRequest, node: FleetNode) -> tuple[str, ...]:
    if job.topology.mode == "preferred" or job.topology.level == "cluster":
        return ()
    return (node.name,) if job.topology.level == "node" else node.domain[: POSITION[job.topology.level]]


def _bound(model: _Model, snapshot: Snapshot) -> None:
    for cluster in snapshot.clusters:
        for node in cluster.nodes:
            free = {"cpu": node.free_cpu_millicores, "memory": node.free_memory_mib, "pods": node.free_pods}
            for resource, amount in (free | dict(node.free)).items():
                model.solver.add(sum(model.taken[cluster.name, node.name, resource]) <= amount)
    for index, limit in enumerate(snapshot.limits):
        model.solver.add(sum(model.quota[index]) <= limit.cap - limit.held)
