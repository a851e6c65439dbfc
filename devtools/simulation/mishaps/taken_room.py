"""Strangers' pods take the room of a part of a gang just when it is released: the gateway had seen that room free. The rest of the
gang starts, and waits for pods that do not get a node before the strangers are gone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devtools.simulation.clusters.cluster import RUN_SECONDS
from devtools.simulation.clusters.frail_cluster import FrailCluster
from devtools.simulation.clusters.objects import GPU, Job, Pod, gpus_of
from devtools.simulation.core.backend.base import Stage
from devtools.simulation.core.scheduler import MICROSECONDS
from devtools.simulation.judges.ends import ENDED
from devtools.simulation.judges.promises import judging, taken_away
from devtools.simulation.requests.clients import Submission
from devtools.simulation.requests.moves import LONG_DEADLINE
from federation.engine.in_part import IN_PART
from federation.engine.names import LABEL_ATTEMPT

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

KIND = "room_taken"
SECONDS = (1600.0, 1900.0)
"""How long the strangers stay: into the healed world, and longer there than a gang may wait in part."""
PROGRAM_SECONDS = "1950"
"""How long the programs of such a gang run: they wait for their peers, so that no room becomes free."""
PATIENCE_US = 15 * 60 * MICROSECONDS
LONGEST_WAIT_US = 1300 * MICROSECONDS
"""How long a pod of what has started may have no node in the healed world: the gateway's patience, its rare routines, and the time that
pods take to stop.
"""


@dataclass(slots=True)
class Wait:
    """A pod of ours without a node: since when, and until when."""

    attempt_id: str
    job_uid: str
    from_us: int
    to_us: int | None = None


class Waits:
    """The pods of one cluster that waited for a node, by uid."""

    def __init__(self, cluster: FrailCluster, now_us: Callable[[], int]) -> None:
        self.known: dict[str, Wait] = {}
        self._cluster, self._now_us = cluster, now_us
        cluster.on_change.append(self._note)

    def _note(self, what: str, kind: str, pod: Pod) -> None:
        if kind != "pod" or not pod.labels.get(LABEL_ATTEMPT) or pod.job_uid in self._cluster.copies:
            return
        wait = self.known.get(pod.uid)
        if wait is None:
            wait = self.known[pod.uid] = Wait(pod.labels[LABEL_ATTEMPT], pod.job_uid, self._now_us())
        if wait.to_us is None and (pod.node or pod.is_ended or pod.is_terminating or what == "deleted"):
            wait.to_us = self._now_us()


def install(world: "World", _stage: Stage) -> None:
    """From now on this happens in this world, if it has this kind; waits are noted in each."""
    for name, cluster in world.clusters.items():
        world.waits[name] = Waits(cluster, lambda: world.scheduler.now_us)
        if KIND in world.faults.rates:
            _watch(world, name)


def _watch(world: "World", name: str) -> None:
    link = world.links[name]
    before, seen = link.on_write, set[str]()

    def on_write(what: str, uid: str) -> None:
        before(what, uid)
        cluster = world.clusters[name]
        job = next((job for job in cluster.jobs.values() if job.uid == uid), None)
        if what != "release_job" or job is None or link.cluster is not cluster or uid in cluster.copies:
            return
        attempt_id = job.labels.get(LABEL_ATTEMPT, "")
        if attempt_id in seen or _pods_of_attempt(cluster, attempt_id) < 2:
            return
        seen.add(attempt_id)
        if link.happens(KIND):
            _take(world, cluster, job)

    link.on_write = on_write


def _pods_of_attempt(cluster: FrailCluster, attempt_id: str) -> int:
    return sum(job.parallelism for job in cluster.jobs.values() if job.labels.get(LABEL_ATTEMPT, "") == attempt_id)


def _take(world: "World", cluster: FrailCluster, job: Job) -> None:
    """Leaves room for at least one pod, and not for all."""
    requests = job.template["spec"]["containers"][0].get("resources", {}).get("requests", {})
    gpus = int(requests.get(GPU, "0"))
    gang = [one for one in cluster.jobs.values() if one.labels.get(LABEL_ATTEMPT) == job.labels[LABEL_ATTEMPT]]
    if not gpus or any(one.completions > one.parallelism for one in gang):
        return
    for one in gang:
        one.template["metadata"].setdefault("annotations", {})[RUN_SECONDS] = PROGRAM_SECONDS
    pods = sum(one.parallelism for one in gang)
    left = 1 + world.faults.choose(range(pods - 1))
    taken = []
    for node in cluster.nodes.values():
        free = node.gpus - sum(
            gpus_of(pod) for pod in cluster.pods.values() if pod.node == node.name and not pod.is_ended
        )
        kept = min(left, free // gpus)
        left -= kept
        if free > kept * gpus:
            taken.append(_stranger(cluster, node.name, free - kept * gpus))
    world.tell("stranger", f"takes the room of a part of {job.name} on {cluster.name} with {len(taken)} pods")
    world.scheduler.after(world.faults.between(*SECONDS), lambda: _leave(cluster, taken))


def _leave(cluster: FrailCluster, pods: list[Pod]) -> None:
    for pod in pods:
        if cluster.pods.get(pod.uid) is pod:
            cluster._remove(pod)  # noqa: SLF001 - as its garbage collector


def _stranger(cluster: FrailCluster, node: str, gpus: int) -> Pod:
    uid = cluster.new_uid()
    spec = {"containers": [{"name": "main", "resources": {"requests": {GPU: str(gpus)}}}]}
    pod = Pod(
        "default", f"stranger-{uid[-5:]}", uid, {"app": "stranger"}, "", 0, spec, 0.0, 0, node=node, phase="Running"
    )
    pod.started_us = cluster.now_us()
    cluster.pods[uid] = pod
    for listener in cluster.on_change:
        listener("changed", "pod", pod)
    return pod


@judging
def promise_3_a_part_of_a_gang_does_not_wait_for_ever(world: "World") -> list[str]:
    """In the healed world, no pod of an attempt has no node for much longer than 15 minutes: elastic jobs and those that work off
    indices may go on with fewer.
    """
    if world.lost_commits.spans or not world.healed_us:
        return []
    others, now_us = taken_away(world), world.scheduler.now_us
    excused = others | {str(id_) for (id_,) in world.watch.rows(GOES_ON_WITH_FEWER)}
    return [
        f"a pod of attempt {wait.attempt_id} waited on {name} for {waited_us / MICROSECONDS:.0f} s after all was well"
        for name, waits in world.waits.items()
        if not world.clusters[name].was_restored and not world.links[name].is_destroyed
        for wait in waits.known.values()
        if wait.attempt_id not in excused
        if (waited_us := (wait.to_us or now_us) - max(wait.from_us, world.healed_us)) > LONGEST_WAIT_US
    ]


GOES_ON_WITH_FEWER = """
SELECT attempt.id FROM federation_attempt AS attempt JOIN federation_job AS job ON job.id = attempt.job_id
 WHERE job.spec ? 'elastic' OR EXISTS (
       SELECT FROM federation_remoteobject AS object WHERE object.attempt_id = attempt.id AND object.completions > object.pods)
"""


@judging
def promise_8_what_may_become_whole_is_not_recalled(world: "World") -> list[str]:
    """An attempt is recalled as started in part only if a pod of it had had no node for 15 minutes, and had none then."""
    if world.lost_commits.spans:
        return []
    others, found = taken_away(world), []
    waits = [wait for of_cluster in world.waits.values() for wait in of_cluster.known.values()]
    for id_, _, _, stop_reason, asked_us, _, number, job_id, _ in world.watch.rows(ENDED):
        if stop_reason not in IN_PART or str(id_) in others:
            continue
        own = [wait for wait in waits if wait.attempt_id == str(id_) and wait.from_us <= asked_us - PATIENCE_US]
        if not any(wait.to_us is None or wait.to_us >= asked_us for wait in own):
            found.append(f"attempt {number} of {job_id} was recalled for a part that did not wait for 15 minutes")
    return found


def patience_seconds(world: "World") -> float:
    """By how much longer everything may take."""
    return SECONDS[1] + float(PROGRAM_SECONDS) if world.faults.happened[KIND] else 0.0


def equip(found: list[Submission]) -> None:
    """Gives the jobs time to wait."""
    for one in found:
        one.body["deadline_seconds"] = LONG_DEADLINE
