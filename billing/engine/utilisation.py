"""What the GPUs of metered pods did in an hour, from the numbers of a cluster's Prometheus. Nothing of it is part of a charge.

A pod is measured as far as its GPUs report: of a pod with eight GPUs of which four report, half of its time is measured.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from clusters.engine.telemetry import MINUTES_AN_HOUR, Device, Metric, Number, Over, PodName

AN_HOUR = timedelta(hours=1)
SECONDS_A_MINUTE = 60
PERCENT = 100
PLACES = 6
WATT_PLACES = 3
SLICE = "mig:"
WHOLE = "whole"
ASKED_FROM = timedelta(minutes=20)
"""After the end of an hour: usage is metered until then."""
ASKED_FOR = timedelta(days=1)
"""After the end of an hour, it is asked for no more."""
FIRST_PAUSE = timedelta(minutes=15)
GROWTH = (1, 4, 16, 64)
"""By how much the pause is longer after each ask."""
MISSED_SECONDS = 120
"""Of a pod's hour that may be unmeasured, without asking again: its first minutes have no samples."""

Numbers: TypeAlias = Mapping[tuple[Metric, Over], Sequence[Number]]


@dataclass(frozen=True, slots=True)
class MeteredPod:
    """A meter's part of an hour: `seconds` of it with `units` GPUs or MIG slices, by `sharing` as the meter has it. `seen_seconds`
    are measured already.
    """

    meter_id: int
    pod: PodName
    units: int
    sharing: str
    seconds: int
    seen_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Utilised:
    """What the GPUs of a meter did in an hour: ratios from 0 to 1, MiB, watts per GPU. `coverage_seconds` of it were seen.

    None: not reported. `utilisation` is the share of time in which a GPU ran anything, or for MIG slices, of which DCGM does not
    report that, the share of active streaming multiprocessors.
    """

    meter_id: int
    coverage_seconds: int
    utilisation: float
    sm_active: float | None
    tensor_active: float | None
    peak_memory_mib: int | None
    power_watts: float | None


@dataclass(frozen=True, slots=True)
class Hour:
    """The rows of an hour. `unusable`: the number of GPUs that reported for a pod that does not have them."""

    rows: tuple[Utilised, ...]
    unusable: int


def is_measurable(pod: MeteredPod) -> bool:
    """Whether what a GPU reports is the pod's alone. Shares of one GPU report what all of them did together."""
    return pod.units > 0 and (pod.sharing in {"", WHOLE} or pod.sharing.startswith(SLICE))


def hour_of(pods: Sequence[MeteredPod], numbers: Numbers) -> Hour:
    """The rows of an hour, by meter. If several meters have one pod's name in the hour, no number is known to be of one of them: none has a row."""
    names = Counter(pod.pod for pod in pods)
    own = [pod for pod in pods if is_measurable(pod)]
    by_pod: dict[PodName, dict[tuple[Metric, Over], dict[Device, float]]] = defaultdict(lambda: defaultdict(dict))
    for question, found in numbers.items():
        for number in found:
            by_pod[number.pod][question][number.device] = number.value
    rows, unusable = [], 0
    for pod in sorted(own, key=lambda one: one.meter_id):
        if names[pod.pod] > 1:
            continue
        row, ignored = _row(pod, by_pod.get(pod.pod, {}))
        unusable += ignored
        if row is not None:
            rows.append(row)
    return Hour(tuple(rows), unusable)


def _row(pod: MeteredPod, found: Mapping[tuple[Metric, Over], Mapping[Device, float]]) -> tuple[Utilised | None, int]:
    is_slice = pod.sharing.startswith(SLICE)
    main = Metric.SM_ACTIVE if is_slice else Metric.UTILISATION
    means, counts = found.get((main, Over.MEAN), {}), found.get((main, Over.COUNT), {})
    known = sorted(device for device in means if counts.get(device, 0) > 0)
    fitting = [device for device in known if bool(device.slice) == is_slice]
    devices = fitting[: pod.units]
    ignored = len(known) - len(devices)
    seconds = {
        device: min(int(min(counts[device], MINUTES_AN_HOUR) * SECONDS_A_MINUTE), pod.seconds) for device in devices
    }
    coverage = sum(seconds.values()) // pod.units
    if coverage == 0:
        return None, ignored
    scale = 1 if is_slice else PERCENT
    weighted = sum(means[device] * seconds[device] for device in devices) / sum(seconds.values()) / scale
    peaks = [value for device, value in found.get((Metric.MEMORY_USED, Over.PEAK), {}).items() if device in seconds]
    row = Utilised(
        meter_id=pod.meter_id,
        coverage_seconds=coverage,
        utilisation=round(min(weighted, 1.0), PLACES),
        sm_active=_mean(found.get((Metric.SM_ACTIVE, Over.MEAN), {}), seconds, PLACES),
        tensor_active=_mean(found.get((Metric.TENSOR_ACTIVE, Over.MEAN), {}), seconds, PLACES),
        peak_memory_mib=round(max(peaks)) if peaks else None,
        power_watts=None if is_slice else _mean(found.get((Metric.POWER, Over.MEAN), {}), seconds, WATT_PLACES),
    )
    return row, ignored


def _mean(values: Mapping[Device, float], seconds: Mapping[Device, int], places: int) -> float | None:
    """Of the devices, weighted by how long each was seen; None if none of them reports it."""
    weights = {device: seconds[device] for device in values if device in seconds}
    whole = sum(weights.values())
    if not whole:
        return None
    return round(sum(values[device] * weight for device, weight in sorted(weights.items())) / whole, places)


def next_ask(hour: datetime, asks: int, at: datetime) -> datetime | None:
    """When an hour is asked for again after this number of asks, for pods that were metered late or not measured; None: no more."""
    following = at + FIRST_PAUSE * GROWTH[min(max(asks, 1), len(GROWTH)) - 1]
    last = hour + AN_HOUR + ASKED_FOR
    if at >= last:
        return None
    return min(following, last)


def pods_to_ask_for(pods: Iterable[MeteredPod]) -> list[PodName]:
    """Those that can be measured, and are not as far as they ran."""
    return sorted({
        pod.pod for pod in pods if is_measurable(pod) and pod.seen_seconds < max(pod.seconds - MISSED_SECONDS, 1)
    })  # fmt: skip
