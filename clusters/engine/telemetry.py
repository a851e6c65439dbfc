"""The questions that the gateway asks a cluster's Prometheus about GPUs, and how it reads the answers.

Only these questions exist. They name pods of the gateway by namespace and name, and whatever else an answer contains is left out.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from foundation import strict_json

PODS_PER_QUESTION = 100
MINUTES_AN_HOUR = 60
MOST_TEXT = 253
"""Of a label or a number."""
KEPT_LABELS = "namespace,pod,exported_namespace,exported_pod,UUID,gpu,GPU_I_ID"
"""They name the pod and its device. `Hostname` may name the exporter's pod, and changes when that restarts."""
DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class Metric(StrEnum):
    """What DCGM's exporter reports of a GPU, or of a MIG slice."""

    UTILISATION = "DCGM_FI_DEV_GPU_UTIL"
    SM_ACTIVE = "DCGM_FI_PROF_SM_ACTIVE"
    TENSOR_ACTIVE = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
    MEMORY_USED = "DCGM_FI_DEV_FB_USED"
    POWER = "DCGM_FI_DEV_POWER_USAGE"


class Over(StrEnum):
    """How the samples of an hour become one number: one a minute for the mean and the count, all of them for the peak."""

    MEAN = "avg_over_time"
    PEAK = "max_over_time"
    COUNT = "count_over_time"


QUESTIONS: tuple[tuple[Metric, Over], ...] = (
    (Metric.UTILISATION, Over.MEAN),
    (Metric.UTILISATION, Over.COUNT),
    (Metric.SM_ACTIVE, Over.MEAN),
    (Metric.SM_ACTIVE, Over.COUNT),
    (Metric.TENSOR_ACTIVE, Over.MEAN),
    (Metric.MEMORY_USED, Over.PEAK),
    (Metric.POWER, Over.MEAN),
)
MOST: Mapping[tuple[Metric, Over], float] = {
    (Metric.UTILISATION, Over.MEAN): 100,
    (Metric.UTILISATION, Over.COUNT): MINUTES_AN_HOUR + 1,
    (Metric.SM_ACTIVE, Over.MEAN): 1,
    (Metric.SM_ACTIVE, Over.COUNT): MINUTES_AN_HOUR + 1,
    (Metric.TENSOR_ACTIVE, Over.MEAN): 1,
    (Metric.MEMORY_USED, Over.PEAK): 4_194_304,
    (Metric.POWER, Over.MEAN): 100_000,
}
"""Percent, minutes (older versions count both ends of the hour), ratios, MiB and watts. A number beyond is no measurement."""


class PodName(NamedTuple):
    """A pod of the gateway on the cluster."""

    namespace: str
    name: str


class Device(NamedTuple):
    """A GPU of a pod's node, or a MIG slice of it (`slice` is empty for a whole GPU)."""

    gpu: str
    slice: str


class Number(NamedTuple):
    """What one device did for one pod."""

    pod: PodName
    device: Device
    value: float


class NoAnswer(ValueError):
    """The text is not an answer of Prometheus. The message contains nothing of it."""


@dataclass(frozen=True, slots=True)
class Read:
    """The numbers of an answer: those of the pods that were asked for, the number of series of others, and the number of those that
    are no measurement.
    """

    numbers: tuple[Number, ...]
    foreign: int = 0
    unusable: int = 0


def token_binding(cluster_id: UUID) -> str:
    """What the seal of a Prometheus' bearer token is bound to: moved to another cluster, it does not open."""
    return f"prometheus token|{cluster_id}"


def questions(pods: Sequence[PodName]) -> Iterator[tuple[Metric, Over, frozenset[PodName], str]]:
    """Each question about these pods, with the pods that it is about. A pod whose name Kubernetes would not allow is in none."""
    known = sorted({pod for pod in pods if DNS_NAME.fullmatch(pod.namespace) and DNS_NAME.fullmatch(pod.name)})
    for first in range(0, len(known), PODS_PER_QUESTION):
        some = known[first : first + PODS_PER_QUESTION]
        for metric, over in QUESTIONS:
            yield metric, over, frozenset(some), _query(metric, over, some)


def _query(metric: Metric, over: Over, pods: Sequence[PodName]) -> str:
    namespaces, names = _any(pod.namespace for pod in pods), _any(pod.name for pod in pods)
    return " or ".join(
        _of_devices(over, f'{metric}{{{prefix}namespace=~"{namespaces}",{prefix}pod=~"{names}"}}')
        for prefix in ("", "exported_")
    )


def _of_devices(over: Over, series: str) -> str:
    """One number for each device of a pod: a restarted exporter goes on in other series, and two jobs may scrape one exporter."""
    if over is Over.PEAK:
        return f"max by ({KEPT_LABELS}) ({over}({series}[{MINUTES_AN_HOUR}m]))"
    return f"{over}(max by ({KEPT_LABELS}) ({series})[{MINUTES_AN_HOUR}m:1m])"


def _any(names: Iterator[str]) -> str:
    """Matches exactly these names, as a regular expression within a PromQL string."""
    return "|".join(name.replace(".", "[.]") for name in sorted(set(names)))


def read_answer(body: bytes, metric: Metric, over: Over, asked: frozenset[PodName]) -> Read:
    """The numbers of an answer. Of several for one device and pod, the first by its labels counts. Raises NoAnswer."""
    found: dict[tuple[PodName, Device], float] = {}
    foreign = unusable = 0
    for labels, text in sorted(_series(body), key=lambda one: sorted(one[0].items())):
        pod, device = _pod_of(labels), _device_of(labels)
        if pod not in asked:
            foreign += 1
            continue
        value = _value(text, MOST[metric, over])
        if device is None or value is None or (pod, device) in found:
            unusable += 1
            continue
        found[pod, device] = value
    return Read(tuple(Number(pod, device, value) for (pod, device), value in found.items()), foreign, unusable)


def _series(body: bytes) -> list[tuple[dict[str, str], Any]]:
    try:
        answer = strict_json.loads(body)
    except ValueError:
        raise NoAnswer("the answer is not JSON") from None
    data = answer.get("data") if isinstance(answer, dict) and answer.get("status") == "success" else None
    rows = data.get("result") if isinstance(data, dict) and data.get("resultType") == "vector" else None
    if not isinstance(rows, list):
        raise NoAnswer("the answer is not a vector of Prometheus")
    return [_one_series(row) for row in rows]


def _one_series(row: Any) -> tuple[dict[str, str], Any]:
    labels = row.get("metric") if isinstance(row, dict) else None
    value = row.get("value") if isinstance(row, dict) else None
    if not isinstance(labels, dict) or not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004 - a time and a number
        raise NoAnswer("the answer is not a vector of Prometheus")
    return {name: text for name, text in labels.items() if isinstance(text, str)}, value[1]


def _pod_of(labels: Mapping[str, str]) -> PodName:
    """Of which pod it is. Prometheus keeps the labels of an exporter as `exported_…` if it sets the same ones itself."""
    if "exported_pod" in labels:
        return PodName(labels.get("exported_namespace", ""), labels["exported_pod"])
    return PodName(labels.get("namespace", ""), labels.get("pod", ""))


def _device_of(labels: Mapping[str, str]) -> Device | None:
    device = Device(labels.get("UUID", "") or labels.get("gpu", ""), labels.get("GPU_I_ID", ""))
    return device if device.gpu and all(len(text) <= MOST_TEXT for text in device) else None


def _value(text: Any, most: float) -> float | None:
    if not isinstance(text, str) or len(text) > MOST_TEXT:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value <= most else None
