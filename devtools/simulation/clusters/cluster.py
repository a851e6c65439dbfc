"""A simulated cluster in memory: its API, its controllers and its kubelets, in simulated time.

It is slower and less reliable than `clusters.drivers.simulated`: controllers need time, pods take time to stop, nodes
die. What really ran on its nodes is kept apart from what its API server shows: the judges read the first.
"""

import copy
import random
from collections.abc import Callable, Mapping
from typing import Any, Literal

from clusters.drivers import AlreadyExists, NotThere, Refused, Stale
from clusters.drivers.simulated.objects import merged
from devtools.simulation.core.scheduler import MICROSECONDS, Scheduler

from .objects import Job, Key, Node, Pod, Run, accepts, gpus_of
from .services import Services

RUN_SECONDS = "sim.switchyard.dev/run-seconds"
EXIT_CODE = "sim.switchyard.dev/exit-code"
ENDING = "sim.switchyard.dev/ending"
GRACE_SECONDS = 30.0
Kind = Literal["node", "pod", "job"]


class Cluster:
    """One cluster. Its methods take no time; the driver adds time and faults."""

    def __init__(
        self, name: str, identity: str, nodes: list[Node], scheduler: Scheduler, chance: random.Random
    ) -> None:
        self.name = name
        self.identity = identity
        self.nodes = {node.name: node for node in nodes}
        self.namespaces: set[str] = {"default", "kube-system"}
        self.secrets: set[tuple[str, str]] = set()
        self.jobs: dict[Key, Job] = {}
        self.pods: dict[str, Pod] = {}
        self.services = Services(self.new_uid)
        self.runs: list[Run] = []
        self.running: dict[str, Run] = {}
        self.ahead_us = 0
        self.strangers: list[Key] = []
        """Jobs that are none of the gateway's business."""
        self.takers: dict[Key, str] = {}
        """The uids of suspended Jobs that strangers made with names of ours."""
        self.names_taken: set[Key] = set()
        """Names that they ever took."""
        self.looks: dict[str, list[tuple[int, bool]]] = {}
        """When a Job was shown to the gateway on request, by uid, and whether it was suspended then as it was created."""
        self.taken_away: set[str] = set()
        """Attempts of which a stranger, or a backup, took an object away: there may be no trace of how they ended."""
        self.copies: set[str] = set()
        """Jobs by uid that strangers copied from ours, labels included: what they run is none of the gateway's business."""
        self.orphans: set[str] = set()
        """Suspended Jobs by uid that strangers planted with our label."""
        self.overdue: set[str] = set()
        """Attempts of which a Job passed its deadline: it fails, even if its programs end well while they are stopped."""
        self.was_restored = self.has_kueue = False
        self.may_have_run: set[str] = set()
        """Jobs by uid of which pods existed before the cluster was put back."""
        self.image_fails = 0.0
        """How probable it is that a pod's image cannot be pulled."""
        self.on_change: list[Callable[[str, Kind, Any], None]] = []
        self.tell: Callable[[str], None] = lambda _: None
        self.is_committed: Callable[[str], bool] = lambda _: True
        self._scheduler, self._chance = scheduler, chance

    # -- the API ----------------------------------------------------------------------------------------------------

    def now_us(self) -> int:
        """Its own clock."""
        return self._scheduler.now_us + self.ahead_us

    def create_job(self, manifest: Mapping[str, Any]) -> str:
        """Creates the Job; returns its uid."""
        metadata, spec = manifest["metadata"], manifest["spec"]
        key = (metadata["namespace"], metadata["name"])
        if metadata["namespace"] not in self.namespaces:
            raise NotThere(f'namespaces "{key[0]}" not found', status=404)
        if key in self.jobs:
            raise AlreadyExists(f'jobs.batch "{key[1]}" already exists', status=409)
        parallelism = int(spec.get("parallelism", 1))
        deadline = spec.get("activeDeadlineSeconds")
        job = Job(
            *key,
            self.new_uid(),
            dict(metadata.get("labels", {})),
            copy.deepcopy(dict(spec["template"])),
            suspended=bool(spec.get("suspend", False)),
            completions=int(spec.get("completions", parallelism)),
            parallelism=parallelism,
            deadline_seconds=None if deadline is None else float(deadline),
        )
        self.jobs[key] = job
        self._changed("changed", "job", job)
        self.tell(f"Job {job.name} is created")
        if not job.suspended:
            self._begin(job)
        return job.uid

    def create_service(self, manifest: Mapping[str, Any]) -> None:
        """Creates the Service. If all its owners are gone already, the garbage collector removes it."""
        if manifest["metadata"]["namespace"] not in self.namespaces:
            raise NotThere("the namespace is not found", status=404)
        self.services.create(manifest)
        self._after((0.0, 2.0), self._collect)

    def job(self, namespace: str, name: str) -> Job:
        """The Job of that name, or NotThere."""
        job = self.jobs.get((namespace, name))
        if job is None:
            raise NotThere(f'jobs.batch "{name}" not found', status=404)
        return job

    def show_job(self, namespace: str, name: str) -> Job:
        """The same, and notes that it was shown."""
        job = self.job(namespace, name)
        self.looks.setdefault(job.uid, []).append((self._scheduler.now_us, job.is_as_created))
        return job

    def release_job(self, namespace: str, name: str, uid: str, patch: Mapping[str, Any]) -> None:
        """Unsuspends the Job with this uid, as it was created."""
        job = self._with_uid(namespace, name, uid)
        job.require_as_created()
        template = merged(job.template, patch)
        if not job.suspended and template != job.template:
            raise Refused("spec.template: field is immutable", status=422)
        if job.suspended:
            job.suspended, job.template, job.generation = False, template, job.generation + 1
            self.tell(f"Job {job.name} is released")
            self._begin(job)
            self._changed("changed", "job", job)

    def delete_job(self, namespace: str, name: str, uid: str) -> None:
        """Deletes the Job with this uid in the foreground: it is gone when its pods are."""
        job = self._with_uid(namespace, name, uid)
        if not job.is_terminating:
            job.is_terminating = True
            self.tell(f"Job {job.name} is being deleted")
            self._changed("changed", "job", job)
            self._after((0.0, 1.0), lambda: self._terminate_pods(job))

    def open_gate(self, namespace: str, name: str, uid: str, gate: str) -> None:
        """Removes the scheduling gate of the pod with this uid."""
        pod = next((pod for pod in self.pods.values() if (pod.namespace, pod.name) == (namespace, name)), None)
        if pod is None:
            raise NotThere(f'pods "{name}" not found', status=404)
        if pod.uid != uid:
            raise Stale(f"the object {name} has another uid", status=409)
        pod.gates.discard(gate)
        self._changed("changed", "pod", pod)
        self._schedule()

    def log_of(self, namespace: str, name: str) -> str:
        """What a pod wrote; NotThere if it is gone."""
        pod = next((pod for pod in self.pods.values() if (pod.namespace, pod.name) == (namespace, name)), None)
        if pod is None:
            raise NotThere(f'pods "{name}" not found', status=404)
        return f"step 1\nended with exit code {pod.code}\n" if pod.is_ended else "step 1\n"

    def pods_of(self, job: Job) -> list[Pod]:
        """Its pods."""
        return [pod for pod in self.pods.values() if pod.job_uid == job.uid]

    def all(self, kind: Kind) -> list[Any]:
        """All objects of the kind."""
        found: Mapping[str, Mapping[Any, Any]] = {"node": self.nodes, "pod": self.pods, "job": self.jobs}
        return list(found[kind].values())

    # -- controllers ------------------------------------------------------------------------------------------------

    def _begin(self, job: Job) -> None:
        job.started_us = self.now_us()
        self._after((0.0, 2.0), lambda: self._control(job))
        if job.deadline_seconds is not None:
            self._after((job.deadline_seconds, job.deadline_seconds), lambda: self._pass_deadline(job))

    def _is_current(self, job: Job) -> bool:
        return self.jobs.get(job.key) is job

    def _control(self, job: Job) -> None:
        """The Job controller's step: counts the pods that have ended and creates those that should run."""
        if not self._is_current(job) or job.suspended or job.is_terminating or job.outcome:
            return
        pods = self._counted(job)
        if job.failed:
            said = "DisruptionTarget" if any(pod.disruption for pod in pods) else "limit"
            self._conclude(job, "failed", "BackoffLimitExceeded", f"Job has reached the specified backoff {said}")
            return
        if len(job.succeeded) >= job.completions:
            self._conclude(job, "succeeded", "CompletionsReached", "Reached expected number of succeeded pods")
            return
        active = {pod.index for pod in pods if not pod.is_ended}
        missing = [index for index in range(job.completions) if index not in active | job.succeeded]
        for index in missing[: max(job.parallelism - len(active), 0)]:
            self._make_pod(job, index)
        self._changed("changed", "job", job)
        self._schedule()

    def _counted(self, job: Job) -> list[Pod]:
        """Its pods, after those that have ended are counted."""
        pods = self.pods_of(job)
        job.succeeded |= {pod.index for pod in pods if pod.phase == "Succeeded" and not pod.is_let_go}
        job.failed = max(job.failed, sum(pod.phase == "Failed" and not pod.is_let_go for pod in pods))
        return pods

    def _make_pod(self, job: Job, index: int) -> None:
        annotations = job.template["metadata"].get("annotations", {})
        uid = self.new_uid()
        labels = {**job.template["metadata"].get("labels", {}), "batch.kubernetes.io/job-completion-index": str(index)}
        pod = Pod(
            job.namespace, f"{job.name}-{index}-{uid[-5:]}", uid, labels, job.uid, index, job.template["spec"],
            float(annotations.get(RUN_SECONDS, "1")), int(annotations.get(EXIT_CODE, "0")),
            gates={gate["name"] for gate in job.template["spec"].get("schedulingGates", ())},
            ending=annotations.get(ENDING, ""),
        )  # fmt: skip
        self.pods[uid] = pod
        self._changed("changed", "pod", pod)

    def _pass_deadline(self, job: Job) -> None:
        if self._is_current(job) and not job.outcome and not job.is_terminating and not job.suspended:
            self.overdue.add(job.labels.get("switchyard.dev/attempt", ""))
            self._conclude(job, "failed", "DeadlineExceeded", "Job was active longer than specified deadline")

    def _conclude(self, job: Job, outcome: Literal["succeeded", "failed"], reason: str, message: str) -> None:
        """Stops the pods that are left; the Job has ended when they have, and are counted."""
        if not self._is_open(job):
            return
        left = [pod for pod in self._counted(job) if not pod.is_ended]
        for pod in left:
            if not pod.is_terminating:
                self._stop_pod(pod)
        if left:
            self._after((0.5, 2.0), lambda: self._conclude(job, outcome, reason, message))
            return
        job.outcome, job.reason, job.message, job.finished_us = outcome, reason, message, self.now_us()
        self.tell(f"Job {job.name} has {outcome}")
        self._changed("changed", "job", job)

    def _is_open(self, job: Job) -> bool:
        return self._is_current(job) and not job.outcome and not job.is_terminating

    def _terminate_pods(self, job: Job) -> None:
        """The garbage collector's step."""
        if not self._is_current(job):
            return
        pods = self.pods_of(job)
        for pod in pods:
            if pod.is_ended or not pod.node:
                self._remove(pod)
            elif not pod.is_terminating:
                self._stop_pod(pod)
        if any(pod.uid in self.pods for pod in pods):
            self._after((0.5, 2.0), lambda: self._terminate_pods(job))
            return
        del self.jobs[job.key]
        self._after((0.0, 2.0), self._collect)
        self.tell(f"Job {job.name} is gone")
        self._changed("deleted", "job", job)

    def _collect(self) -> None:
        self.services.collect({job.uid for job in self.jobs.values()})

    # -- the scheduler and the kubelets -------------------------------------------------------------------------------

    def _schedule(self) -> None:
        for pod in list(self.pods.values()):
            if not pod.node and not pod.gates and not pod.is_ended and not pod.is_terminating:
                node = next((node for node in self.nodes.values() if self._fits(pod, node)), None)
                if node is None:
                    if not pod.reason:
                        pod.reason = "Unschedulable: 0/9 nodes are available: 9 Insufficient nvidia.com/gpu."
                        self._changed("changed", "pod", pod)
                    continue
                pod.node, pod.reason = node.name, ""
                self._changed("changed", "pod", pod)
                self._after((0.1, 3.0), lambda pod=pod: self._start(pod))  # type: ignore[misc]

    def _fits(self, pod: Pod, node: Node) -> bool:
        terms = (
            pod.spec.get("affinity", {})
            .get("nodeAffinity", {})
            .get("requiredDuringSchedulingIgnoredDuringExecution", {})
        )
        if not node.is_open or not accepts(terms.get("nodeSelectorTerms"), node):
            return False
        others = [one for one in self.pods.values() if one.node == node.name and not one.is_ended]
        return gpus_of(pod) + sum(map(gpus_of, others)) <= node.gpus

    def _start(self, pod: Pod) -> None:
        is_pending = self.pods.get(pod.uid) is pod and pod.phase == "Pending" and not pod.is_terminating
        if not is_pending or not self.nodes[pod.node].is_ready or pod.uid in self.running:
            return
        if self._chance.random() < self.image_fails:
            pod.reason = "ErrImagePull: the image does not exist"
            self._changed("changed", "pod", pod)
            return
        pod.phase, pod.reason, pod.started_us = "Running", "", self.now_us()
        labels = pod.labels
        attempt_id = labels.get("switchyard.dev/attempt", "")
        job_id = "" if pod.job_uid in self.copies else labels.get("switchyard.dev/job", "")
        run = Run(
            self.name, pod.uid, pod.job_uid, job_id, attempt_id, pod.index,
            gpus_of(pod), pod.node, self._scheduler.now_us, is_residue=pod.job_uid in self.may_have_run,
            is_late=any(job.uid == pod.job_uid and job.is_terminating for job in self.jobs.values()),
        )  # fmt: skip
        if pod.job_uid not in self.copies:  # a stranger's Job with our labels has no Service of ours
            self.services.note_start(pod)
        run.was_committed = bool(attempt_id) and self.is_committed(attempt_id)
        self.runs.append(run)
        self.running[pod.uid] = run
        self.tell(f"pod {pod.name} runs")
        self._begin_program(pod)

    def _begin_program(self, pod: Pod) -> None:
        self._changed("changed", "pod", pod)
        self._after((pod.run_seconds, pod.run_seconds), lambda: self._end_of_program(pod.uid, pod.exit_code))

    def _end_of_program(self, uid: str, code: int) -> None:
        pod = self.pods.get(uid)
        if uid not in self.running or pod is None:
            return
        self._finish(pod, code, "")

    def _finish(self, pod: Pod, code: int | None, reason: str) -> None:
        self._stop_run(pod, code)
        pod.phase = "Succeeded" if code == 0 else "Failed"
        pod.reason, pod.code = reason, code
        pod.finished_us = self.now_us()
        for run in self.runs:
            if run.pod_uid == pod.uid:
                run.shown_us = self._scheduler.now_us
        self.tell(f"pod {pod.name} ends with {code}")
        self._changed("changed", "pod", pod)
        job = next((job for job in self.jobs.values() if job.uid == pod.job_uid), None)
        if job is not None:
            self._after((0.0, 2.0), lambda: self._control(job))
        self._schedule()

    def _stop_run(self, pod: Pod, code: int | None) -> None:
        run = self.running.pop(pod.uid, None)
        if run is not None:
            run.to_us, run.code = self._scheduler.now_us, code

    def _stop_pod(self, pod: Pod) -> None:
        """Asks the kubelet to stop it; the program may take its time."""
        pod.is_terminating = True
        self._changed("changed", "pod", pod)
        seconds = self._chance.choice((0.1, 2.0, GRACE_SECONDS)) if pod.uid in self.running else 0.1
        self._after((seconds, seconds), lambda: self._stopped(pod.uid))

    def _stopped(self, uid: str) -> None:
        pod = self.pods.get(uid)
        if pod is None or not pod.is_terminating:
            return
        if not self.nodes[pod.node].is_ready if pod.node else False:
            return  # no kubelet confirms it; `_note_lost` does
        if not pod.is_ended:
            self._finish(pod, 143 if pod.started_us else None, "")
        self._after((0.0, 2.0), lambda: self._remove_if_terminating(uid))

    def _remove_if_terminating(self, uid: str) -> None:
        pod = self.pods.get(uid)
        job = next((job for job in self.jobs.values() if pod is not None and job.uid == pod.job_uid), None)
        if pod is None or not pod.is_ended:
            return
        if job is not None and not (job.outcome or job.is_terminating or pod.is_let_go):
            # The Job controller's finalizer: the pod stays until it is counted.
            self._control(job)
            self._after((0.5, 2.0), lambda: self._remove_if_terminating(uid))
            return
        self._remove(pod)

    def _remove(self, pod: Pod) -> None:
        if self.pods.pop(pod.uid, None) is not None:
            self._stop_run(pod, None)
            self._changed("deleted", "pod", pod)
            self._schedule()

    # -- helpers ----------------------------------------------------------------------------------------------------

    def new_uid(self) -> str:
        """A uid from the seed."""
        text = f"{self._chance.getrandbits(128):032x}"
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:]}"

    def _with_uid(self, namespace: str, name: str, uid: str) -> Job:
        job = self.job(namespace, name)
        if job.uid != uid:
            raise Stale(f"the object {name} has another uid", status=409)
        return job

    def _after(self, bounds: tuple[float, float], act: Callable[[], object]) -> None:
        seconds = self._chance.uniform(*bounds)
        self._scheduler.at(self._scheduler.now_us + round(seconds * MICROSECONDS), lambda: (act(), None)[1])

    def _changed(self, what: str, kind: Kind, thing: Any) -> None:
        for listener in self.on_change:
            listener(what, kind, thing)
