"""How clusters' own schedulers pick nodes, pod by pod, after the gateway has chosen the cluster.

    spread     kube-scheduler's LeastAllocated: most CPU and memory left, in whole percents of the node
    bestfit    least CPU and GPU left, as the BestFit of Weng et al. (USENIX ATC 2023)
    pack       least GPU left, then least CPU

Ties go to the first node. A cluster that gets hints fills the hinted nodes first, by the same order among them, as
kube-scheduler does with preferred node affinity. A gang is placed whole or not at all.
"""

from collections.abc import Callable, Collection, Mapping

import numpy as np

from placement.fleet.pools import Floats, Ints

from .values import WHOLE, Member, TraceJob
from .world import Shelves

NEVER = -np.inf
HINTED = 1e12
"""More than any score."""
LARGE_CPU, LARGE_GPU = 128_000, 8 * WHOLE
"""The reference of BestFit's leftovers: the largest node of the published traces."""


def settle(
    shelves: Shelves,
    job: TraceJob,
    nodes: slice,
    member: Member,
    allowed: Collection[int] | None = None,
    hinted: Collection[int] = (),
) -> list[int] | None:
    """The node of each pod, or None if the gang does not fit. `allowed` and `hinted` are numbers of nodes."""  # fmt: skip
    room = shelves.room(job, nodes)
    first = nodes.start
    if allowed is not None:
        inside = np.zeros(len(room), dtype=np.bool_)
        inside[[node - first for node in allowed]] = True
        room = np.where(inside, room, 0)
    if int(room.sum()) < job.pods:
        return None
    bonus = np.zeros(len(room))
    bonus[[node - first for node in hinted]] = HINTED
    return [first + place for place in _fill(shelves, job, nodes, room, bonus, SCORES[member])]


Score = Callable[[Shelves, TraceJob, slice, Ints], Floats]


def _fill(shelves: Shelves, job: TraceJob, nodes: slice, room: Ints, bonus: Floats, score: Score) -> list[int]:
    taken = np.zeros(len(room), dtype=np.int64)
    values = np.where(room > 0, score(shelves, job, nodes, taken) + bonus, NEVER)
    chosen = []
    for _ in range(job.pods):
        place = int(values.argmax())
        chosen.append(place)
        taken[place] += 1
        one = slice(nodes.start + place, nodes.start + place + 1)
        again = score(shelves, job, one, taken[place : place + 1])[0] + bonus[place]
        values[place] = again if taken[place] < room[place] else NEVER
    return chosen


def spread_score(shelves: Shelves, job: TraceJob, nodes: slice, taken: Ints) -> Floats:
    """LeastAllocated over CPU and memory, 0 to 100, with one more pod beside `taken` others."""
    layout, more = shelves.layout, taken + 1
    cpu = (shelves.cpu[nodes] - more * job.cpu_millicores) * 100 // np.maximum(layout.cpu[nodes], 1)
    memory = (shelves.memory[nodes] - more * job.memory_mib) * 100 // np.maximum(layout.memory[nodes], 1)
    score: Floats = ((cpu + memory) // 2).astype(np.float64)
    return score


def bestfit_score(shelves: Shelves, job: TraceJob, nodes: slice, taken: Ints) -> Floats:
    """BestFit, before it is scaled to 0 to 100 over the nodes that fit."""
    more = taken + 1
    cpu_left = (shelves.cpu[nodes] - more * job.cpu_millicores) / LARGE_CPU
    gpu_left = (shelves.devices[nodes].sum(axis=1) - more * job.gpus * job.gpu_milli) / LARGE_GPU
    score: Floats = np.trunc(100 * (1 - cpu_left / 2 - gpu_left / 2))
    return score


def pack_score(shelves: Shelves, job: TraceJob, nodes: slice, taken: Ints) -> Floats:
    """The fuller in GPUs first, then in cores."""
    idle = shelves.devices[nodes].sum(axis=1) - taken * job.gpus * job.gpu_milli
    score: Floats = -(idle * 1e6 + (shelves.cpu[nodes] - taken * job.cpu_millicores) / 1e3)
    return score


SCORES: Mapping[str, Score] = {"spread": spread_score, "bestfit": bestfit_score, "pack": pack_score}
