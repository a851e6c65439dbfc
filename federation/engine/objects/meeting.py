"""How the pods of a gang find each other: names that are stable, and variables that have them.

A headless Service gives each pod a name, `{hostname}.{service}`; the hostname is that of an indexed Job, `{job}-{index}`.
So every name is known before any pod exists. Ranks count all pods of the gang, pod set after pod set, each in the order
of its indices, in which pods over several domains are placed too (`ranks`).

The list of names is an annotation of the pod template, which the kubelet writes into a file: it needs no further object.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any
from uuid import UUID

from federation.engine import names

from .volumes import Volumes

MASTER_PORT = 29_500
"""PyTorch's own default."""
HOSTS_ANNOTATION = "switchyard.dev/hosts"
HOSTS_FOLDER, HOSTS_FILE = "/etc/switchyard", "hosts"
HOSTS_VOLUME = "hosts"
MOST_HOSTS_BYTES = 64 * 1024
"""Kubernetes accepts annotations of 256 KiB in total. Every pod has its own copy, so their sum grows with the square of
the number of pods: about 700 pods have 45 MiB at this limit.
"""
INDEX_ANNOTATION = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


@dataclass(frozen=True, slots=True)
class Meeting:
    """The names of a gang's pods: its Service, and each of its Jobs with its number of pods."""

    service: str
    namespace: str
    jobs: tuple[tuple[str, int], ...]

    @property
    def size(self) -> int:
        """The number of pods."""
        return sum(count for _, count in self.jobs)

    def first_rank(self, position: int) -> int:
        """The rank of the first pod of the pod set at `position`."""
        return list(accumulate((count for _, count in self.jobs), initial=0))[position]

    def hosts(self) -> Iterator[str]:
        """The pods' names by rank. They can be resolved in the whole cluster, whatever its domain is called."""
        domain = f"{self.service}.{self.namespace}.svc"
        return (f"{job}-{index}.{domain}" for job, count in self.jobs for index in range(count))

    @property
    def hosts_text(self) -> str:
        """A line for each pod, by rank; empty if that is more than pods should carry."""
        shortest = self.size * (len(self.jobs[0][0]) + len(self.service) + len(self.namespace))
        text = "".join(f"{host}\n" for host in self.hosts()) if shortest <= MOST_HOSTS_BYTES else ""
        return text if len(text) <= MOST_HOSTS_BYTES else ""

    def annotations(self) -> dict[str, str]:
        """What the pod template carries."""
        return {HOSTS_ANNOTATION: text} if (text := self.hosts_text) else {}

    def volumes(self) -> Volumes:
        """The file with the names."""
        if not self.hosts_text:
            return Volumes()
        field = {"fieldPath": f"metadata.annotations['{HOSTS_ANNOTATION}']"}
        volume = {"name": HOSTS_VOLUME, "downwardAPI": {"items": [{"path": HOSTS_FILE, "fieldRef": field}]}}
        return Volumes((volume,), ({"name": HOSTS_VOLUME, "mountPath": HOSTS_FOLDER, "readOnly": True},))

    def environment(self, position: int) -> list[dict[str, Any]]:
        """The variables of the pods of one pod set."""
        first, count = self.first_rank(position), self.jobs[position][1]
        plain = {
            "MASTER_ADDR": next(self.hosts()),
            "MASTER_PORT": str(MASTER_PORT),
            "WORLD_SIZE": str(self.size),
            "SWITCHYARD_FIRST_RANK": str(first),
        }
        if self.hosts_text:
            plain["SWITCHYARD_HOSTS_FILE"] = f"{HOSTS_FOLDER}/{HOSTS_FILE}"
        return [*({"name": name, "value": value} for name, value in plain.items()), *_node_rank(first, count)]


def _node_rank(first: int, count: int) -> list[dict[str, Any]]:
    """The pods' rank. All pods of a Job have one template, and Kubernetes adds no numbers in it: the rank is a constant
    or the index. Other pods have no such variable, rather than a wrong one.
    """
    if count == 1:
        return [{"name": "NODE_RANK", "value": str(first)}]
    if first == 0:
        return [{"name": "NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": INDEX_ANNOTATION}}}]
    return []


def meeting_of(stored: Mapping[str, Any], attempt_id: UUID, namespace: str) -> Meeting | None:
    """The meeting of a stored spec's pods. None for a single pod, unless other runs of its job may have more, and for a job
    with more completions than pods: it is a queue of tasks, whose pods do not all run at the same time.
    """
    counts: Sequence[int] = [pod_set["count"] for pod_set in stored["pod_sets"]]
    if sum(counts) <= 1 and not stored.get("elastic"):
        return None
    if (stored["completions"] or counts[0]) > counts[0]:
        return None
    jobs = tuple((names.object_name(attempt_id, position), count) for position, count in enumerate(counts))
    return Meeting(jobs[0][0], namespace, jobs)


def gang_service(
    namespace: str, attempt_id: UUID, labels: Mapping[str, str], owners: Mapping[str, str]
) -> dict[str, Any]:
    """The headless Service of one attempt's pods. Deleted with the last of `owners` (its Jobs, name → uid).

    Pods have their names as soon as they have an address, before they are ready: they meet in order to become ready.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names.object_name(attempt_id, 0),
            "namespace": namespace,
            "labels": dict(labels),
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid} for name, uid in owners.items()
            ],
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.LABEL_ATTEMPT: str(attempt_id)},
        },
    }
