"""An external check: compares the API servers' own audit logs with what the gateway reports.

It never asks the gateway what happened on a cluster. It reads every change to every Job and Pod from the API servers'
records. From these it checks that nothing was lost, nothing ran twice, each pod ran where the gateway says, and usage
is exact.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

JOB_LABEL = "switchyard.dev/job"
ATTEMPT_LABEL = "switchyard.dev/attempt"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
LONGEST_UNWATCHED_MS = 180_000
"""The allowed error of a pod's bill if the gateway itself reports that its start or end was not observed."""
ENDED_STATES = {"succeeded", "failed", "cancelled"}
IN_PART = frozenset({"started_in_part", "blocked_in_part"})
STOPPED = IN_PART | {"suspended", "migrated", "preempted_for_job", "maintenance_began", "limit_lowered"}
"""Reasons with which the gateway ends an attempt whose job goes on."""
HTTP_OK = range(200, 300)


@dataclass(slots=True)
class SeenObject:
    """A Job object that existed."""

    cluster: str
    uid: str
    name: str
    job_id: str
    attempt_id: str
    was_released: bool = False


@dataclass(slots=True)
class SeenPod:
    """A pod that existed; times are those of its last status."""

    cluster: str
    uid: str
    job_id: str
    object_uid: str
    index: str
    gpus: int
    node: str = ""
    ran: bool = False
    was_disrupted: bool = False
    """The cluster reports that the pod was removed from its node."""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    first_finished_at: datetime | None = None
    """KWOK under load may end a pod once more, with another time: both are the cluster's records."""

    @property
    def milliseconds(self) -> int:
        """How long it ran, by the cluster's own times; 0 if its end was never observed."""
        return self._until(self.finished_at)

    @property
    def least_milliseconds(self) -> int:
        """The same by the first end that the cluster reported."""
        return self._until(self.first_finished_at)

    def _until(self, at: datetime | None) -> int:
        return round((at - self.started_at).total_seconds() * 1000) if self.started_at and at else 0


@dataclass(slots=True)
class Witness:
    """All records of the API servers, by uid."""

    objects: dict[str, SeenObject] = field(default_factory=dict)
    pods: dict[str, SeenPod] = field(default_factory=dict)

    def pods_of(self) -> Mapping[str, list[SeenPod]]:
        """Pods by the gateway's job id."""
        found: dict[str, list[SeenPod]] = defaultdict(list)
        for pod in self.pods.values():
            found[pod.job_id].append(pod)
        return found

    def attempt_of(self, pod: SeenPod) -> str:
        """The attempt of the pod, from its Job's label."""
        return self.objects[pod.object_uid].attempt_id

    def without(self, job_ids: Collection[str]) -> "Witness":
        """The same records, without these jobs."""
        return Witness(
            {uid: seen for uid, seen in self.objects.items() if seen.job_id not in job_ids},
            {uid: seen for uid, seen in self.pods.items() if seen.job_id not in job_ids},
        )


@dataclass(slots=True)
class Verdict:
    """The errors, as sentences; empty lists mean that the gateway reported correctly and kept its guarantees."""

    lost: list[str] = field(default_factory=list)
    ran_twice: list[str] = field(default_factory=list)
    misplaced: list[str] = field(default_factory=list)
    misbilled: list[str] = field(default_factory=list)
    estimated: list[str] = field(default_factory=list)
    """Not errors: bills that are marked as estimates and are not exact."""
    doubled: list[str] = field(default_factory=list)
    """Not an error of the gateway: a cluster's Job controller created two pods of one index, which Kubernetes allows if
    its API server fails. The gateway requested one and bills one.
    """

    unseen: list[str] = field(default_factory=list)
    """Not errors: what ran and was removed by others before the gateway could look."""
    removed: Collection[str] = ()
    """Jobs of which others removed an object. A pod of them that the gateway neither reports nor bills left no trace with it."""

    @property
    def is_clean(self) -> bool:
        """Whether there is no error."""
        return not (self.lost or self.ran_twice or self.misplaced or self.misbilled)


def read_witness(audit_logs: Mapping[str, Path]) -> Witness:
    """The audit logs, by cluster name, as one set of records."""
    witness = Witness()
    for cluster, path in audit_logs.items():
        for event in _changes(path):
            _take(witness, cluster, event)
    return witness


def _changes(path: Path) -> Iterator[Mapping[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            if not line.endswith("\n"):
                return  # a killed API server may leave half a line
            event = json.loads(line)
            if event.get("responseStatus", {}).get("code", 0) in HTTP_OK and "responseObject" in event:
                yield event


def _take(witness: Witness, cluster: str, event: Mapping[str, Any]) -> None:
    seen = event["responseObject"]
    labels = seen.get("metadata", {}).get("labels", {})
    if JOB_LABEL not in labels or event.get("requestURI", "").find("dryRun") >= 0:
        return
    if seen.get("kind") == "Job":
        _take_job(witness, cluster, seen, labels)
    elif seen.get("kind") == "Pod":
        _take_pod(witness, cluster, seen, labels)


def _take_job(witness: Witness, cluster: str, seen: Mapping[str, Any], labels: Mapping[str, str]) -> None:
    meta = seen["metadata"]
    known = witness.objects.setdefault(
        meta["uid"], SeenObject(cluster, meta["uid"], meta["name"], labels[JOB_LABEL], labels.get(ATTEMPT_LABEL, ""))
    )
    known.was_released |= not seen["spec"].get("suspend", False)


def _take_pod(witness: Witness, cluster: str, seen: Mapping[str, Any], labels: Mapping[str, str]) -> None:
    meta, status = seen["metadata"], seen.get("status", {})
    owner = next((ref["uid"] for ref in meta.get("ownerReferences", []) if ref["kind"] == "Job"), "")
    pod = witness.pods.setdefault(
        meta["uid"],
        SeenPod(cluster, meta["uid"], labels[JOB_LABEL], owner, labels.get(INDEX_LABEL, ""), _devices(seen["spec"])),
    )
    pod.node = seen["spec"].get("nodeName", pod.node)
    pod.ran |= status.get("phase") in {"Running", "Succeeded", "Failed"} and "startTime" in status
    pod.started_at = _instant(status.get("startTime")) or pod.started_at
    ends = [
        s["state"]["terminated"]["finishedAt"]
        for s in status.get("containerStatuses", [])
        if "terminated" in s.get("state", {})
    ]
    conditions = status.get("conditions", [])
    pod.was_disrupted |= any((c["type"], c["status"]) == ("DisruptionTarget", "True") for c in conditions)
    if not ends:
        # The containers' states are not available: the pod had ended when its conditions were last reported.
        ends = [c["lastTransitionTime"] for c in conditions if c.get("lastTransitionTime")]
    if ends and status.get("phase") in {"Succeeded", "Failed"}:
        pod.finished_at = max(filter(None, map(_instant, ends)), default=None)
        pod.first_finished_at = pod.first_finished_at or pod.finished_at


def _devices(spec: Mapping[str, Any]) -> int:
    requests = (c.get("resources", {}).get("limits", {}) for c in spec["containers"])
    return sum(int(amount) for each in requests for name, amount in each.items() if "/" in name)


def _instant(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def judge(
    acked: Iterable[str],
    told: Mapping[str, Mapping[str, Any]],
    witness: Witness,
    removed: Collection[str] = (),
) -> Verdict:
    """`acked`: job ids that were accepted; `told`: each job as the gateway shows it, with `attempts` as a list."""
    verdict = Verdict(removed=removed)
    pods_of = witness.pods_of()
    for job_id in acked:
        job = told.get(job_id)
        if job is None:
            verdict.lost.append(f"{job_id}: accepted, but now unknown")
        else:
            _judge_job(verdict, job, pods_of.get(job_id, []), witness)
    for job_id in pods_of.keys() - set(told):
        verdict.misplaced.append(f"{job_id}: ran, but the gateway has no such job")
    return verdict


def _judge_job(verdict: Verdict, job: Mapping[str, Any], pods: Sequence[SeenPod], witness: Witness) -> None:
    ran = [pod for pod in pods if pod.ran]
    objects = {pod.object_uid for pod in ran}
    name = f"{job['id']} ({job.get('name', '')}, {job['state']})"
    if job["state"] not in ENDED_STATES:
        verdict.lost.append(f"{name}: has not ended: {job.get('reason')}")
    if job["state"] == "succeeded" and not ran:
        verdict.lost.append(f"{name}: reported as succeeded, but none of its pods ever ran")
    runs: dict[tuple[str, str], list[SeenPod]] = defaultdict(list)
    for pod in sorted(ran, key=lambda pod: (pod.started_at is None, pod.started_at)):
        runs[_set_of(pod, job), pod.index].append(pod)
    if any(_is_doubled(first, then) for each in runs.values() for first, then in pairwise(each)):
        verdict.doubled.append(f"{name}: the Job controller made two pods of one index")
    if any(not _may_follow(first, then, job, ran, witness) for each in runs.values() for first, then in pairwise(each)):
        verdict.ran_twice.append(f"{name}: a pod ran more than once, in objects {sorted(objects)}")
    claimed = {
        (attempt["cluster"], o["uid"])
        for attempt in job["attempts"]
        for o in attempt["objects"]
        if attempt["started_at"]
    }
    unreported = verdict.unseen if job["id"] in verdict.removed else verdict.misplaced
    for pod in ran:
        if (pod.cluster, pod.object_uid) not in claimed:
            unreported.append(f"{name}: pod {pod.uid} ran on {pod.cluster}, which the gateway does not report")


def _may_follow(
    first: SeenPod, then: SeenPod, job: Mapping[str, Any], ran: Sequence[SeenPod], witness: Witness
) -> bool:
    """Whether a pod may have replaced another: that attempt was interrupted (or its failure is to be retried), and none
    of its pods still ran. A pod that the Job controller created next to it replaced none.
    """
    if _is_doubled(first, then):
        return True
    former = [pod for pod in ran if witness.attempt_of(pod) == witness.attempt_of(first)]
    if witness.attempt_of(then) == witness.attempt_of(first) or then.started_at is None:
        return False
    may_go_on = any(pod.was_disrupted for pod in former) or _was_stopped(witness.attempt_of(first), job)
    if not may_go_on and not (job["spec"].get("retries") or {}).get("program"):
        return False
    return all(pod.finished_at is not None and pod.finished_at <= then.started_at for pod in former)


def _was_stopped(attempt_id: str, job: Mapping[str, Any]) -> bool:
    """Whether the gateway stopped the attempt so that the job goes on later or elsewhere: nothing disrupts its pods then."""
    return any(one.get("id") == attempt_id and one.get("end_reason") in STOPPED for one in job["attempts"])


def _is_doubled(first: SeenPod, then: SeenPod) -> bool:
    """Whether one Job had both at the same time."""
    if first.object_uid != then.object_uid or then.started_at is None:
        return False
    return first.finished_at is None or then.started_at < first.finished_at


def _set_of(pod: SeenPod, job: Mapping[str, Any]) -> str:
    """The pod set of a pod: the position of its object within its attempt."""
    for attempt in job["attempts"]:
        for position, remote in enumerate(attempt["objects"]):
            if remote["uid"] == pod.object_uid:
                return str(position)
    # The gateway does not report it. In a job with one pod set, it can only be that one.
    return "0" if all(len(attempt["objects"]) <= 1 for attempt in job["attempts"]) else pod.object_uid


def judge_usage(
    verdict: Verdict,
    billed_milliseconds: Mapping[str, int],
    witness: Witness,
    is_estimated: Callable[[str], bool] = frozenset().__contains__,
    slack_ms: Callable[[SeenPod], int] = lambda _: 0,
) -> None:
    """Compares billed GPU-milliseconds by job id with the sum of the pods' own times.

    `is_estimated` returns whether the gateway marks its bill of a job as an estimate. Such a bill may be too high,
    within `LONGEST_UNWATCHED_MS` per pod, and never too low. `slack_ms` returns by how much the time of a pod may be
    wrong in both directions, because its cluster's clock was wrong while it ran.
    """
    for job_id, pods in witness.pods_of().items():
        least, ran = _billable(pods)
        billed = billed_milliseconds.get(job_id, 0)
        if not least <= billed <= ran:
            most = ran + LONGEST_UNWATCHED_MS * sum(pod.gpus for pod in pods)
            slack = sum(slack_ms(pod) * pod.gpus for pod in pods)
            is_beside_a_wrong_clock = least - slack <= billed <= ran + slack
            is_fair = is_beside_a_wrong_clock or (least - slack <= billed <= most + slack and is_estimated(job_id))
            is_unseen = billed == 0 and job_id in verdict.removed
            sentences = verdict.unseen if is_unseen else verdict.estimated if is_fair else verdict.misbilled
            sentences.append(f"{job_id}: pods ran {ran} GPU-ms, billed {billed} GPU-ms")


def _billable(pods: Sequence[SeenPod]) -> tuple[int, int]:
    """The minimum and maximum GPU-milliseconds. Of pods that one Job had of one index at the same time, any
    one counts.
    """
    least = most = 0
    of_index: dict[tuple[str, str], list[SeenPod]] = defaultdict(list)
    for pod in sorted((pod for pod in pods if pod.started_at), key=lambda pod: (pod.started_at, pod.uid)):
        of_index[pod.object_uid, pod.index].append(pod)
    for each in of_index.values():
        for together in _at_once(each):
            least += min(one.least_milliseconds * one.gpus for one in together)
            most += max(one.milliseconds * one.gpus for one in together)
    return least, most


def _at_once(pods: Sequence[SeenPod]) -> list[list[SeenPod]]:
    """Pods of one index in the order of their starts, grouped if they ran at the same time."""
    found: list[list[SeenPod]] = []
    for pod in pods:
        if found and any(_is_doubled(one, pod) for one in found[-1]):
            found[-1].append(pod)
        else:
            found.append([pod])
    return found
