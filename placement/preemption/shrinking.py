"""The smaller places of elastic jobs that are stopped for a more urgent one: what is left where they run is kept for them.

An elastic job that is stopped goes on with fewer pods if these fit beside the urgent one, on the cluster where it ran. Such a place
is kept for it like that of the urgent one, so that no job behind it in the queue takes it while it stops. The places share no
node: nodes are kept by name, not by the pods that go there.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from uuid import UUID

from placement.cycle.cycle import Cycle
from placement.cycle.scopes import Choice, Scopes
from placement.fleet.fleet_state import FleetState
from placement.values.decisions import Placement
from placement.values.model import JobRequest, Snapshot
from placement.values.preemption import KeptPlace, RunningJob
from placement.values.sizes import largest, pods_of, running_size

from .trial import Trial


def smaller_places(
    snapshot: Snapshot, cycle: Cycle, trial: Trial, seat: tuple[Placement, Choice], stopped: Sequence[RunningJob]
) -> dict[UUID, KeptPlace]:
    """By attempt, the place that is kept for each of the `stopped` jobs that has one beside that of the trial's job, its seat. The
    most urgent one first.
    """
    requests = {job.id: job for job in snapshot.shrinking}
    found: dict[UUID, KeptPlace] = {}
    taken = {(seat[0].cluster_id, name) for pod_set in seat[0].pod_sets for name in pod_set.nodes}
    with ExitStack() as stack:
        stack.enter_context(trial.returned(stopped))
        _take(trial, trial.job, seat[1], stack)
        for run in sorted(stopped, key=lambda one: (-one.priority, one.attempt_id)):
            request = _with_fewer(requests.get(run.job_id), run)
            own = None if request is None else Trial(snapshot, cycle, request)
            number = None if own is None else own.number_of(run)
            if own is None or number is None or not own.candidates(number):
                continue
            state = own.state_after([number], stopped_on(own, number, stopped))
            _close(state, number, {name for cluster_id, name in taken if cluster_id == run.cluster_id})
            best = largest(own.job, partial(cycle.seat, scopes=Scopes(snapshot, state)))
            if best is None:
                continue
            sized, (placed, choice) = best
            nodes = tuple(sorted({name for pod_set in placed.pod_sets for name in pod_set.nodes}))
            found[run.attempt_id] = KeptPlace(nodes, placed.amounts, pods_of(sized))
            taken |= {(run.cluster_id, name) for name in nodes}
            _take(trial, own.job, choice, stack)
    return found


def stopped_on(trial: Trial, cluster: int, stopped: Sequence[RunningJob]) -> list[RunningJob]:
    """Those of the jobs that run on the cluster."""
    return [run for run in stopped if trial.number_of(run) == cluster]


def _with_fewer(request: JobRequest | None, run: RunningJob) -> JobRequest | None:
    """The request of an elastic job for fewer pods than it has, where it runs; None if it has its fewest."""
    if request is None or request.elastic is None:
        return None
    most = pods_of(running_size(request, run)) - 1
    if most < request.elastic.fewest:
        return None
    return replace(
        request,
        elastic=replace(request.elastic, most=most),
        constraints=replace(request.constraints, clusters=(run.cluster,)),
        shape=f"{request.shape} kept on {run.cluster}" if request.shape else "",
    )


def _take(trial: Trial, job: JobRequest, choice: Choice, stack: ExitStack) -> None:
    """Takes the quota of a place until all places are found."""
    reservation = job.constraints.reservation
    trial.book.take(choice.limits, choice.terms.amounts, reservation)
    stack.callback(trial.book.give_back, choice.limits, choice.terms.amounts, reservation)


def _close(state: FleetState, cluster: int, names: set[str]) -> None:
    """Closes nodes of a cluster in the pools of a copied state."""
    for pool in range(*state.fleet.first_pool_of_cluster[cluster : cluster + 2]):
        nodes = [node for node, name in enumerate(state.fleet.pools[pool].node_names) if name in names]
        if nodes:
            state.close(pool, nodes)
