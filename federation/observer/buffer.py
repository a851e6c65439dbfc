"""A cluster's reports that are not recorded yet: the newest state of each object, and the objects that are gone."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from clusters.drivers import ClaimSeen, JobSeen, NodeSeen, PodSeen, SliceSeen, WatchEvent
from clusters.engine.weights import ENTRY, KNOWN_UID, OBJECT
from federation.engine.claimed import device_names
from federation.engine.names import LABEL_INSTALL, LABEL_PREPARATION
from federation.operations import Observations

Seen = TypeVar("Seen", NodeSeen, PodSeen, SliceSeen, ClaimSeen)


class Buffer:
    """Merges watch events of our attempts' Jobs and pods. Its size is bounded by the number of live
    objects, not of events.
    """

    def __init__(self, install: str) -> None:
        self._install = install
        self._jobs: dict[str, JobSeen] = {}
        self._pods: dict[str, PodSeen] = {}
        self._gone_jobs: set[str] = set()
        self._gone_pods: set[str] = set()
        self._vanished_pods: set[str] = set()
        """Those of the gone pods whose deletion was not seen: a new list lacks them."""
        self._claimed: dict[str, dict[str, frozenset[str]]] = defaultdict(dict)
        """The devices of each pod by its claims, while these exist: each report of the pod has them, so that neither has to come first."""
        self._pod_of_claim: dict[str, str] = {}
        self._device_count = 0
        self._devices: dict[str, frozenset[str]] = {}
        """Devices of pods that are not recorded yet."""
        self._known_jobs: set[str] = set()
        self._known_pods: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._jobs or self._pods or self._gone_jobs or self._gone_pods or self._devices)

    @property
    def weight(self) -> int:
        """The estimated size of the contents, in bytes."""
        of_jobs = len(self._known_jobs) + len(self._gone_jobs)
        of_pods = len(self._known_pods) + len(self._gone_pods) + len(self._vanished_pods)
        of_claims = len(self._pod_of_claim) + len(self._devices)
        return (
            KNOWN_UID * (of_jobs + of_pods)
            + 2 * OBJECT * (len(self._jobs) + len(self._pods) + of_claims)
            + ENTRY * self._device_count
        )

    def add_jobs(self, event: WatchEvent) -> None:
        """Adds one event of `watch_jobs`."""
        jobs = [job for job in event.objects if isinstance(job, JobSeen) and LABEL_PREPARATION not in job.labels]
        uids = {job.uid for job in jobs}
        if event.kind == "deleted":
            self._forget(uids, self._known_jobs, self._jobs, self._gone_jobs)
            return
        if event.kind == "listed":
            # Absence from a list is not evidence: every new list wakes reconciliation, which requests each by uid.
            self._known_jobs.clear()
        self._known_jobs |= uids
        # Until a Job has ended, its fields are only those that we sent.
        self._jobs.update((job.uid, job) for job in jobs if job.outcome)

    def add_pods(self, event: WatchEvent) -> None:
        """Adds one event of `watch_pods`; ignores foreign pods."""
        pods = [pod for pod in event.objects if isinstance(pod, PodSeen) and self._is_ours(pod)]
        uids = {pod.uid for pod in pods}
        if event.kind != "deleted":
            if event.kind == "listed":
                self._vanished_pods |= self._known_pods - uids
                self._forget(self._known_pods - uids, self._known_pods, {}, self._gone_pods)
            self._known_pods |= uids
            self._pods.update((pod.uid, pod) for pod in pods)
            return
        # The last state of a deleted pod still shows how it ended, so it is kept beside the report that it is gone.
        self._pods.update((pod.uid, pod) for pod in pods)
        self._forget(uids, self._known_pods, {}, self._gone_pods)

    def add_claims(self, event: WatchEvent) -> None:
        """Adds one event of `watch_claims`; ignores foreign claims. A pod keeps what a claim gave it when the claim is gone."""
        claims = [one for one in event.objects if isinstance(one, ClaimSeen)]
        if event.kind == "listed":
            present = {claim.uid for claim in claims}
            for uid in [uid for uid in self._pod_of_claim if uid not in present]:
                self._drop_claim(uid)
        for claim in claims:
            if event.kind == "deleted":
                self._drop_claim(claim.uid)
            elif claim.pod and claim.labels.get(LABEL_INSTALL) == self._install:
                self._put_claim(claim.uid, claim.pod, device_names(claim.devices))

    def _put_claim(self, uid: str, pod: str, devices: frozenset[str]) -> None:
        if not devices or self._claimed.get(pod, {}).get(uid) == devices:
            return
        self._drop_claim(uid)
        self._claimed[pod][uid] = devices
        self._pod_of_claim[uid] = pod
        self._device_count += len(devices)
        self._devices[pod] = self._devices.get(pod, frozenset()) | devices

    def _drop_claim(self, uid: str) -> None:
        pod = self._pod_of_claim.pop(uid, None)
        if pod is not None:
            self._device_count -= len(self._claimed[pod].pop(uid))
            if not self._claimed[pod]:
                del self._claimed[pod]

    def _devices_of(self, pods: Iterable[str]) -> Mapping[str, Sequence[str]]:
        """The devices that are not recorded yet, and those of these pods."""
        found = dict(self._devices)
        for pod in pods:
            if pod in self._claimed:
                found[pod] = found.get(pod, frozenset()).union(*self._claimed[pod].values())
        return {pod: sorted(devices) for pod, devices in found.items()}

    def _is_ours(self, pod: PodSeen) -> bool:
        """Whether it is the pod of an attempt: what prepares nodes is read by who asked for it."""
        return pod.labels.get(LABEL_INSTALL) == self._install and LABEL_PREPARATION not in pod.labels

    @staticmethod
    def _forget(uids: Iterable[str], known: set[str], pending: "dict[str, JobSeen]", gone: set[str]) -> None:
        for uid in list(uids):
            known.discard(uid)
            pending.pop(uid, None)
            gone.add(uid)

    def take(self) -> Observations:
        """Removes and returns the contents."""
        taken = Observations(
            jobs=list(self._jobs.values()),
            pods=list(self._pods.values()),
            gone_jobs=sorted(self._gone_jobs),
            gone_pods=sorted(self._gone_pods),
            vanished_pods=sorted(self._vanished_pods),
            devices=self._devices_of(self._pods),
        )
        self._jobs, self._pods, self._devices = {}, {}, {}
        self._gone_jobs, self._gone_pods, self._vanished_pods = set(), set(), set()
        return taken

    def give_back(self, taken: Observations) -> None:
        """Puts back what could not be recorded, without overwriting newer reports."""
        self._jobs = {job.uid: job for job in taken.jobs} | self._jobs
        self._pods = {pod.uid: pod for pod in taken.pods} | self._pods
        self._gone_jobs.update(taken.gone_jobs)
        self._gone_pods.update(taken.gone_pods)
        self._vanished_pods.update(taken.vanished_pods)
        for pod, devices in taken.devices.items():
            self._devices[pod] = self._devices.get(pod, frozenset()).union(devices)


def only(kind: type[Seen], objects: Sequence[Any]) -> list[Seen]:
    """Those of the objects that are of this kind."""
    return [item for item in objects if isinstance(item, kind)]
