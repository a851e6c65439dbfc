"""A simulated cluster to which something happens: nodes die, pods are evicted, its control plane is put back."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from federation.engine.names import LABEL_ATTEMPT, LABEL_JOB, LABEL_PREPARATION
from federation.engine.objects.stage_jobs import STAGE_IN

from .cluster import Cluster
from .fabric import Fabric
from .objects import Job, Key, Pod, Run, gpus_of, secrets_of

LONGEST_SECONDS = 600.0
"""A program that runs longer runs until somebody stops it."""
SOON_SECONDS = (2.0, 15.0)
"""How long programs still run when they are in a hurry."""
PULLED_AGAIN_SECONDS = (60.0, 300.0)
"""When a kubelet tries a pod's image again: its back-off grows to five minutes. All pods of dead nodes are given up before."""

LOST = "lost"
DOOMED_SECONDS = (1.0, 8.0)
"""How long programs run on a node that makes them fail."""
INIT_SECONDS = (0.0, 20.0)
"""How long init steps run, all together."""
INIT_FAILS, INIT_CODE = 0.25, 4
"""How often one of them fails, and with which exit code."""


COPY_SECONDS, COPY_FAILS, COPY_CODES = (2.0, 40.0), 0.2, (1, 3, 4)
"""How long the copy of a dataset takes, how often it fails, and with which exit codes."""
COPYING = f"switchyard-stage 0 {2**40}\nswitchyard-stage {2**30} {2**40}\n"
COPIED = f"{COPYING}switchyard-staged {2**40} {'ab' * 32}\n"


class FrailCluster(Cluster):
    """What nature, operators of the cluster and other controllers do to it."""

    is_in_a_hurry = False
    """Whether programs soon end: nothing new happens while they run."""
    on_run: Callable[[str, int], None] = staticmethod(lambda _job_uid, _more: None)
    """Called with a Job's uid when one more of its pods runs, or one less."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.gates: dict[str, list[tuple[int, str, bool]]] = {}
        """What was answered about the gates of an attempt's pods: when, the pod's uid, and whether the gate was opened. A
        right that lacks for a while is no answer.
        """
        self.reclaimed: set[str] = set()
        """Jobs by uid that Kueue suspended: their first pods are removed."""
        self.overruled: list[str] = []
        """Those that the gateway released meanwhile."""
        self.unsupplied: set[str] = set()
        """Attempts of which a pod started although a Secret that it names did not exist."""
        self.unstarted: list[Run] = []
        """Pods that ended before they started, as if each had run since its Job began: who sees only the Job's number of failed
        pods cannot know that they did not.
        """
        self.pulled: set[tuple[str, str, str]] = set()
        """The images that were pulled to nodes, with the cluster's name."""
        self.copied: set[str] = set()
        """Jobs by uid whose program copied a dataset to its end."""
        self.killers: dict[str, str] = {}
        """Nodes on which programs fail soon, by name: as the program itself, for a device, or because the node is lost."""
        self.shown: set[str] = set()
        """Pods by uid that the gateway was shown after they started."""
        self.fabric = Fabric()

    def note_gate(self, pod_uid: str, *, is_open: bool) -> None:
        """The gate of this pod is opened, or a webhook refuses to open it."""
        if pod_uid in self.pods:
            attempt_id = self.pods[pod_uid].labels.get(LABEL_ATTEMPT, "")
            self.gates.setdefault(attempt_id, []).append((self._scheduler.now_us, pod_uid, is_open))

    def open_gate(self, namespace: str, name: str, uid: str, gate: str) -> None:
        """Removes the gate, and notes that."""
        super().open_gate(namespace, name, uid, gate)
        self.note_gate(uid, is_open=True)

    def take_name(self, namespace: str, name: str) -> None:
        """A stranger makes a suspended Job of this name, in place of one of ours that has not run."""
        key, ours = (namespace, name), self.jobs.get((namespace, name))
        is_theirs = key in self.takers or key in self.strangers
        if namespace not in self.namespaces or is_theirs or (ours is not None and not ours.suspended):
            return
        if ours is not None:
            self.taken_away.add(ours.labels.get(LABEL_ATTEMPT, ""))
            del self.jobs[key]
            self._changed("deleted", "job", ours)
        template: dict[str, Any] = {"metadata": {}, "spec": {"containers": [{}]}}
        theirs = Job(
            *key, self.new_uid(), {}, template, suspended=True, completions=1, parallelism=1, deadline_seconds=None
        )
        self.jobs[key] = theirs
        self.takers[key] = theirs.uid
        self.names_taken.add(key)
        self.tell(f"a stranger makes a Job {name}")
        self._changed("changed", "job", theirs)

    def take_service_name(self, metadata: Mapping[str, Any]) -> None:
        """A stranger makes a Service of this name, if there is none."""
        namespace, name = metadata["namespace"], metadata["name"]
        if namespace in self.namespaces and self.services.take_name(namespace, name):
            self.tell(f"a stranger makes a Service {name}")

    def lie_about(self, uid: str) -> str:
        """The uid of another Job with labels of ours, if there is one. How their attempts end is the lie's doing."""
        others = [job for job in self.jobs.values() if job.uid != uid and job.labels.get(LABEL_ATTEMPT)]
        if not others:
            return uid
        told = others[-1]
        for job in self.jobs.values():
            if job.uid in (uid, told.uid):
                self.taken_away.add(job.labels.get(LABEL_ATTEMPT, ""))
        self.tell(f"answers with the uid of {told.name}")
        return told.uid

    def _note_disruption(self, pod: Pod) -> None:
        run = self.running.get(pod.uid)
        if run is not None:
            run.is_disrupted = True

    def hurry(self) -> None:
        """Programs end soon from now on, except those that run until somebody stops them."""
        self.is_in_a_hurry = True
        for uid in self.running:
            pod = self.pods.get(uid)
            if pod is not None and pod.run_seconds < LONGEST_SECONDS:
                self._after(SOON_SECONDS, lambda pod=pod: self._end_of_program(pod.uid, pod.exit_code))  # type: ignore[misc]

    def _start(self, pod: Pod) -> None:
        if LABEL_PREPARATION in pod.labels:
            prepare = self._copy if pod.labels[LABEL_PREPARATION] == STAGE_IN else self._pull
            prepare(pod)
            return
        if self._waits_for_network(pod):
            self._after(SOON_SECONDS, lambda: self._start(pod))
            return
        if self.is_in_a_hurry and pod.run_seconds < LONGEST_SECONDS:
            pod.run_seconds = min(pod.run_seconds, SOON_SECONDS[1])
        if pod.node in self.killers:
            self._doom(pod)
        super()._start(pod)

    def _waits_for_network(self, pod: Pod) -> bool:
        """Whether a definition is missing that the pod needs: its sandbox cannot be made, and its kubelet tries again."""
        is_pending = self.pods.get(pod.uid) is pod and pod.phase == "Pending" and not pod.is_terminating
        job = self._job_of(pod)
        if not is_pending or job is None or not self.fabric.lacks(job):
            return False
        if not pod.reason:
            pod.reason = "ContainerCreating: a network-attachment-definition is not found"
            self._changed("changed", "pod", pod)
        return True

    def _job_of(self, pod: Pod) -> Job | None:
        return next((job for job in self.jobs.values() if job.uid == pod.job_uid), None)

    def _pull(self, pod: Pod) -> None:
        """Its kubelet pulls the image, and cannot start the command that the image lacks."""
        if self.pods.get(pod.uid) is not pod or pod.is_ended or pod.is_terminating or not self.nodes[pod.node].is_ready:
            return
        if self._chance.random() < self.image_fails:
            pod.reason = "ErrImagePull: the image does not exist"
        else:
            self.pulled.add((self.name, pod.spec["containers"][0]["image"], pod.node))
            pod.reason = "CreateContainerError: exec: no such file or directory"
        self._changed("changed", "pod", pod)

    def _copy(self, pod: Pod) -> None:
        """The program of a stage-in begins. No attempt runs with it."""
        is_current = self.pods.get(pod.uid) is pod and pod.phase == "Pending" and not pod.is_terminating
        if not is_current or not self.nodes[pod.node].is_ready:
            return
        if self._chance.random() < self.image_fails:
            pod.reason = "ErrImagePull: the image does not exist"
        else:
            pod.phase, pod.reason, pod.started_us = "Running", "", self.now_us()
            self.tell(f"pod {pod.name} copies a dataset")
            code = 0 if self.is_in_a_hurry or self._chance.random() >= COPY_FAILS else self._chance.choice(COPY_CODES)
            self._after(SOON_SECONDS if self.is_in_a_hurry else COPY_SECONDS, lambda: self._end_of_copy(pod.uid, code))
        self._changed("changed", "pod", pod)

    def _end_of_copy(self, uid: str, code: int) -> None:
        pod = self.pods.get(uid)
        if pod is None or pod.phase != "Running" or pod.is_terminating or not self.nodes[pod.node].is_ready:
            return
        if code == 0:
            self.copied.add(pod.job_uid)
        self._finish(pod, code, "")

    def log_of(self, namespace: str, name: str) -> str:
        """As its program writes it."""
        written = super().log_of(namespace, name)
        pod = next(pod for pod in self.pods.values() if (pod.namespace, pod.name) == (namespace, name))
        if pod.labels.get(LABEL_PREPARATION) != STAGE_IN:
            return written
        return COPIED if pod.code == 0 else COPYING

    def _doom(self, pod: Pod) -> None:
        """Its node makes it fail soon."""
        if self.killers[pod.node] == LOST:
            pod.run_seconds = max(pod.run_seconds, 2 * DOOMED_SECONDS[1])
            self._after(DOOMED_SECONDS, lambda: self.evict(pod, "DeletionByTaintManager"))
        else:
            pod.run_seconds, pod.exit_code, pod.ending = self._chance.uniform(*DOOMED_SECONDS), 1, "Error"

    def _finish(self, pod: Pod, code: int | None, reason: str) -> None:
        if pod.started_us is None:
            self._note_unstarted(pod)
        super()._finish(pod, code, reason)

    def _note_unstarted(self, pod: Pod) -> None:
        job = self._job_of(pod)
        if LABEL_PREPARATION in pod.labels:
            return
        if job is not None and job.started_us is not None and job.uid not in self.copies:
            now = self._scheduler.now_us
            from_us = now - (self.now_us() - job.started_us)
            ids = pod.uid, job.uid, pod.labels.get(LABEL_JOB, ""), pod.labels.get(LABEL_ATTEMPT, "")
            self.unstarted.append(Run(self.name, *ids, pod.index, gpus_of(pod), pod.node, from_us, now))

    def _stop_run(self, pod: Pod, code: int | None) -> None:
        was_running = pod.uid in self.running
        super()._stop_run(pod, code)
        if was_running:
            self.on_run(pod.job_uid, -1)

    def _begin_program(self, pod: Pod) -> None:
        self.on_run(pod.job_uid, +1)
        # A stranger's copy may name Secrets that the gateway never came to create.
        is_ours = pod.job_uid not in self.copies
        job = self._job_of(pod)
        # A stranger's Job may have the name of one of ours.
        if is_ours and job is not None and LABEL_ATTEMPT in pod.labels:
            self.fabric.note_start(job)
        if is_ours and any((pod.namespace, name) not in self.secrets for name in secrets_of(pod)):
            self.unsupplied.add(pod.labels.get(LABEL_ATTEMPT, ""))
        if not pod.init_steps:
            super()._begin_program(pod)
            return
        pod.phase, pod.reason = "Pending", f"Initializing: init step 1 of {pod.init_steps} runs"
        self._changed("changed", "pod", pod)
        self._after(INIT_SECONDS, lambda: self._end_of_init(pod.uid))

    def _end_of_init(self, uid: str) -> None:
        """Its init steps have run, or the last of them fails."""
        pod = self.pods.get(uid)
        if pod is None or uid not in self.running or pod.is_ended:
            return
        if self._chance.random() < INIT_FAILS:
            pod.init_step, pod.ending = pod.init_steps, "Error"
            self._finish(pod, INIT_CODE, "")
            return
        pod.phase, pod.reason = "Running", ""
        super()._begin_program(pod)

    def mend(self) -> None:
        """No node makes programs fail any more, and images can be pulled: kubelets start the pods that wait for theirs."""
        self.killers.clear()
        self.image_fails = 0.0
        for pod in self.pods.values():
            if pod.node and pod.phase == "Pending":
                self._after(PULLED_AGAIN_SECONDS, lambda pod=pod: self._start(pod))  # type: ignore[misc]

    def _note_lost(self, uid: str) -> None:
        """The control plane gives a pod on a dead node up, also after it was put back: the node is still dead then."""
        pod = self.pods.get(uid)
        if pod is not None and not pod.is_ended:
            pod.disruption, pod.is_terminating = "DeletionByTaintManager", True
            self._finish(pod, None, "")
            self._after((0.0, 2.0), lambda: self._remove_if_terminating(pod.uid))

    def delete_in_background(self, job: Job) -> None:
        """Deletes the Job as `kubectl delete` does: it is gone before its pods are, which the garbage collector stops."""
        self.tell(f"Job {job.name} is gone, and its pods are not yet")
        del self.jobs[job.key]
        self._changed("deleted", "job", job)
        for pod in self.pods_of(job):
            self._after((0.0, 2.0), lambda pod=pod: self._stop_left(pod))  # type: ignore[misc]
        self._after((0.0, 2.0), self._collect)

    def _stop_left(self, pod: Pod) -> None:
        """Stops a pod whose Job is gone."""
        if self.pods.get(pod.uid) is not pod or pod.is_terminating:
            return
        if pod.is_ended or not pod.node:
            self._remove(pod)
        else:
            self._stop_pod(pod)

    def evict(self, pod: Pod, reason: str) -> None:
        """Something removes the pod from its node."""
        if not pod.is_ended and not pod.is_terminating:
            self.tell(f"pod {pod.name} is evicted ({reason})")
            pod.disruption = reason
            self._note_disruption(pod)
            self._stop_pod(pod)

    def kill_node(self, name: str) -> None:
        """The node disappears with everything on it; the control plane notices later."""
        node = self.nodes[name]
        node.is_ready = False
        self.tell(f"node {name} dies")
        for pod in [pod for pod in self.pods.values() if pod.node == name and not pod.is_ended]:
            self._note_disruption(pod)
            self._stop_run(pod, None)
            self._after((5.0, 40.0), lambda uid=pod.uid: self._note_lost(uid))  # type: ignore[misc]
        self._after((1.0, 5.0), lambda: self._changed("changed", "node", node))

    def announce_end(self, name: str, taint: str) -> None:
        """The provider will take the node away soon: it gets no more pods."""
        self.tell(f"node {name} is about to go away ({taint})")
        self.nodes[name].taints = [{"key": taint, "value": "", "effect": "NoSchedule"}]
        self._changed("changed", "node", self.nodes[name])

    def report_device(self, name: str, taint: dict[str, str]) -> None:
        """The node says that a device failed, and gets pods all the same."""
        self.nodes[name].taints = [taint]
        self._changed("changed", "node", self.nodes[name])

    def repair_node(self, name: str) -> None:
        """The node is back, empty, or stays after all."""
        self.nodes[name].is_ready, self.nodes[name].taints = True, []
        self._changed("changed", "node", self.nodes[name])
        self._schedule()

    def snapshot(self) -> Any:
        """The state of its API server now."""
        return copy.deepcopy((self.namespaces, self.jobs, self.pods, self.services.known))

    def restore(self, snapshot: Any) -> None:
        """Its API server is put back to an earlier state. Kubelets stop what it does not know."""
        self.tell("is put back to an earlier state")
        self.was_restored = True
        self.may_have_run |= {run.job_uid for run in self.runs}
        self.taken_away |= {run.attempt_id for run in self.runs}
        was = {pod.uid: pod for pod in self.pods.values()}
        before = self.jobs
        self.namespaces, self.jobs, self.pods, services = copy.deepcopy(snapshot)
        self.services.put_back(services)
        self.taken_away |= {job.labels.get(LABEL_ATTEMPT, "") for key, job in before.items() if key not in self.jobs}
        uids = set(self.takers.values())
        self.takers = {key: job.uid for key, job in self.jobs.items() if job.uid in uids}
        self.strangers = [key for key in self.strangers if key in self.jobs]
        for uid in list(self.running):
            if uid not in self.pods:
                self._stop_run(was[uid], 137)
        for pod in list(self.pods.values()):
            now = was.get(pod.uid)
            if now is not None:
                self.pods[pod.uid] = replace(now)  # the kubelet reports its state again
            elif pod.uid not in self.running and pod.node and not pod.is_ended:
                self._finish(pod, 137, "Error")
        for job in list(self.jobs.values()):
            if job.is_terminating:
                self._after((0.0, 1.0), lambda job=job: self._terminate_pods(job))  # type: ignore[misc]
            elif job.waits_for_kueue:
                self._after((5.0, 60.0), lambda key=job.key: self.resume(key))  # type: ignore[misc]
            elif not job.suspended and not job.outcome:
                self._after((0.0, 2.0), lambda job=job: self._control(job))  # type: ignore[misc]
        self._changed("restored", "job", None)

    def suspend(self, job: Job) -> None:
        """Kueue takes the Job's quota away: the Job controller lets its pods go and deletes them, and it waits for `resume`."""
        self.tell(f"Job {job.name} is suspended by Kueue")
        self.reclaimed.add(job.uid)
        job.turn(suspended=True)
        for pod in [pod for pod in self.pods_of(job) if not (pod.is_ended or pod.is_terminating)]:
            pod.is_let_go = True
            self._note_disruption(pod)
            (self._stop_pod if pod.node else self._remove)(pod)
        self._changed("changed", "job", job)

    def resume(self, key: Key) -> None:
        """Kueue admits the Job again, when its pods are gone."""
        job = self.jobs.get(key)
        if job is None or not self._is_open(job) or not (job.suspended and job.waits_for_kueue):
            return
        if any(not pod.is_ended for pod in self.pods_of(job)):
            self._after((1.0, 2.0), lambda: self.resume(key))
            return
        self.tell(f"Job {job.name} is resumed by Kueue")
        job.turn(suspended=False)
        self._changed("changed", "job", job)
        self._begin(job)

    def rename_product(self, product: str) -> None:
        """The device plugin gives the nodes' devices another name."""
        self.tell(f"has nodes with {product} now")
        for node in self.nodes.values():
            node.product = product
            self._changed("changed", "node", node)
        self._schedule()
