"""Which reported pods count: those of objects that we made, where we made them, and never more than we requested.

An object has a place for each pod that may run at the same time. A pod takes the place of its index, and no two pods
have the same place at the same time. If a Job has more indices than places, a pod takes any free place.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from clusters.engine.clocks import Era, on_our_clock

from .intake.spec import MAX_INIT_STEPS
from .names import LABEL_ATTEMPT, LABEL_INSTALL, LABEL_JOB, LABEL_SPEC_HASH

TOLERANCE = timedelta(seconds=2)
"""The tolerance for times outside our own bounds: Kubernetes writes whole seconds, and clocks differ a little."""
LATE_NEWS = timedelta(minutes=1)
"""How old a sighting of a running pod may be when it is recorded. If the reported end is earlier than the last sighting
of the running pod by more than this, the last sighting counts as the end.
"""
LATE_PODS = timedelta(days=7)
"""An ended pod that was never seen counts for this long after its attempt was settled; a running pod always counts."""
MOST_RUNS = 100
"""The most pods that one index may have had: when Kueue reclaims quota, a Job's pods are created again."""
PHASES = frozenset({"Pending", "Running", "Succeeded", "Failed", "Unknown"})
LONGEST_REASON = 300
LONGEST_DISRUPTION = 60
"""Also of the reason why a container ended."""
MOST_SIGNAL = 64
_UID = re.compile(r"[!-~]{1,64}").fullmatch
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?").fullmatch
_MOST_EXIT_CODE = 2**31 - 1

MALFORMED = "malformed"
UNKNOWN_OWNER = "unknown_owner"
WRONG_PLACE = "wrong_namespace"
WRONG_LABELS = "wrong_labels"
NOT_RELEASED = "not_released"
TOO_LATE = "too_late"
NO_SUCH_INDEX = "no_such_index"
PLACE_TAKEN = "place_taken"
TOO_MANY_RUNS = "too_many_runs"
ALREADY_ANOTHERS = "already_anothers"
WRONG_JOB = "wrong_job"
TOLD: Mapping[str, str] = {
    MALFORMED: "pods with a name, uid or node that is not valid in Kubernetes",
    UNKNOWN_OWNER: "pods with Switchyard's labels that none of its Jobs on that cluster controls",
    WRONG_PLACE: "pods outside their Job's namespace",
    WRONG_LABELS: "pods with other labels than their Job",
    NOT_RELEASED: "pods of Jobs that were not released",
    TOO_LATE: "ended pods, first seen long after their attempt was settled",
    NO_SUCH_INDEX: "pods with an index that their Job does not have",
    PLACE_TAKEN: "pods whose index is taken, or beyond the number that can run at the same time",
    TOO_MANY_RUNS: "pods of an index that has had too many pods",
    ALREADY_ANOTHERS: "pods that had another index before",
    WRONG_JOB: "ended Jobs with the uid of a Switchyard Job and another name or namespace",
}
"""The subject of reports that do not count, by fault."""


class Pod(Protocol):
    """A pod as a driver reports it."""

    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def node(self) -> str: ...
    @property
    def phase(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def started_at(self) -> datetime | None: ...
    @property
    def finished_at(self) -> datetime | None: ...
    @property
    def exit_code(self) -> int | None: ...
    @property
    def owner(self) -> str: ...
    @property
    def index(self) -> int | None: ...
    @property
    def disruption(self) -> str: ...
    @property
    def ending(self) -> str: ...
    @property
    def signal(self) -> int | None: ...
    @property
    def message(self) -> str: ...
    @property
    def init_step(self) -> int | None: ...


class Spell(Protocol):
    """The period in which something ran, as its cluster reports it."""

    @property
    def started_at(self) -> datetime | None: ...
    @property
    def finished_at(self) -> datetime | None: ...


class EndedJob(Spell, Protocol):
    """A Job that has ended, as a driver reports it."""

    @property
    def ended_pods(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """An object of ours as we requested it: `indices` pods in total, `places` of them at the same time."""

    object_id: int
    attempt_id: UUID
    job_id: UUID
    position: int
    namespace: str
    name: str
    spec_hash: str
    places: int
    indices: int
    committed_at: datetime | None
    settled_at: datetime | None = None
    is_lost: bool = False
    reopened_at: datetime | None = None
    clock: tuple[Era, ...] = ()

    @property
    def was_settled(self) -> bool:
        """Whether usage of the attempt has been settled, also if it was opened again."""
        return self.settled_at is not None or self.reopened_at is not None


@dataclass(frozen=True, slots=True)
class Run:
    """A pod that counts, or counted. `until_at` is the end of its sightings, None while it runs; `running_at` is the
    last time it was seen running, and `since_at` its start, if it is known to have started.
    """

    uid: str
    index: int
    place: int | None
    until_at: datetime | None
    running_at: datetime | None = None
    is_gone: bool = False
    since_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Sighting:
    """What is recorded of a pod that counts. `is_estimated`: its times are not those that the cluster reported.
    `is_back`: it was considered gone, and runs.
    """

    uid: str
    name: str
    node: str
    phase: str
    reason: str
    index: int
    place: int
    started_at: datetime | None
    finished_at: datetime | None
    exit_code: int | None
    is_estimated: bool
    is_new: bool
    is_back: bool = False
    disruption: str = ""
    ending: str = ""
    signal: int | None = None
    message: str = ""
    init_step: int | None = None


def is_uid(text: str) -> bool:
    """Whether this can be an object's uid; anything else must not be looked up."""
    return _UID(text) is not None


def fault_of(pod: Pod, asked: Asked | None, install: str) -> str:
    """Why the pod does not belong to that object, independently of other pods; empty if it does."""
    if asked is None:
        return UNKNOWN_OWNER
    if _NAME(pod.name) is None or _UID(pod.uid) is None or (pod.node and _NAME(pod.node) is None):
        return MALFORMED
    if pod.namespace != asked.namespace:
        return WRONG_PLACE
    labels = pod.labels
    if (
        labels.get(LABEL_ATTEMPT) != str(asked.attempt_id)
        or labels.get(LABEL_JOB) != str(asked.job_id)
        or labels.get(LABEL_SPEC_HASH) != asked.spec_hash
        or labels.get(LABEL_INSTALL) != install
    ):
        return WRONG_LABELS
    if pod.index is None or not 0 <= pod.index < asked.indices:
        return NO_SUCH_INDEX
    return "" if asked.committed_at else NOT_RELEASED


def admit(
    asked: Asked, pods: Sequence[Pod], runs: Sequence[Run], now: datetime, gone: Collection[str] = ()
) -> tuple[list[Sighting], list[str]]:
    """What is recorded of an object's pods (none of which has a fault), and why the others do not count.

    `runs` are the known runs of the pods' indices, or of all indices if there are more indices than places. `gone` are
    the uids of pods for which this is the last state.
    """
    known = {run.uid: run for run in runs}
    so_far = list(runs)
    counted: list[Sighting] = []
    refused: list[str] = []
    for pod in sorted(pods, key=lambda pod: (pod.uid not in known, _order(pod))):
        run = known.get(pod.uid)
        if run is not None:
            if run.index != pod.index:
                refused.append(ALREADY_ANOTHERS)
                continue
            is_back = pod.uid not in gone and _is_back(pod, run, so_far)
            free_since = None if run.place is None else _free_since(_before(run, so_far), run.index, run.place)
            seen = _witnessed(run, _sighting(asked, pod, run.place or 0, free_since, now, is_new=False))
            seen = replace(seen, is_back=is_back)
            counted.append(seen)
            until_at = None if is_back else run.until_at or _held_until(seen, now)
            now_known = replace(run, until_at=until_at, since_at=run.since_at or seen.started_at)
            so_far = [now_known if each is run else each for each in so_far]
            continue
        verdict = _place_for(asked, pod, so_far, now)
        if isinstance(verdict, str):
            refused.append(verdict)
            continue
        free_since = _free_since(so_far, sighting_index(pod), verdict)
        sighting = _sighting(asked, pod, verdict, free_since, now, is_new=True)
        counted.append(sighting)
        until_at = _held_until(sighting, now)
        so_far.append(Run(pod.uid, sighting.index, verdict, until_at, since_at=sighting.started_at))
    return counted, refused


def _held_until(seen: Sighting, now: datetime) -> datetime | None:
    """Until when a pod whose end is recorded now has its place: its cluster's clock may be a little ahead."""
    return None if seen.finished_at is None else max(now, seen.finished_at)


def sighting_index(pod: Pod) -> int:
    """The index of a pod that has one."""
    assert pod.index is not None
    return pod.index


def _order(pod: Pod) -> tuple[bool, float, str]:
    """Pods that have ended first, then by their start: a successor comes after the one it replaces."""
    at = pod.started_at
    return pod.finished_at is None, at.timestamp() if at is not None else float("inf"), pod.uid


def _is_back(pod: Pod, run: Run, runs: Sequence[Run]) -> bool:
    """Whether a pod that was missing in a list exists after all, and no other pod took its place: a uid is never
    reused.
    """
    if not run.is_gone or run.until_at is None or pod.phase != "Running" or pod.finished_at is not None:
        return False
    others = (each for each in runs if each is not run and each.place == run.place)
    return all(each.until_at is not None and each.until_at <= run.until_at for each in others)


def _witnessed(run: Run, seen: Sighting) -> Sighting:
    """The sighting, corrected: a pod that we saw running did not end long before that, whatever its cluster's clock
    says.
    """
    if seen.finished_at is None or run.running_at is None or seen.finished_at >= run.running_at - LATE_NEWS:
        return seen
    return replace(seen, finished_at=run.running_at, is_estimated=True)


def _place_for(asked: Asked, pod: Pod, runs: Sequence[Run], now: datetime) -> int | str:
    """The place that a new pod takes, or why it gets none."""
    if asked.settled_at is not None and pod.finished_at is not None and now - asked.settled_at > LATE_PODS:
        return TOO_LATE
    index = sighting_index(pod)
    of_index = [run for run in runs if run.index == index]
    if len(of_index) >= MOST_RUNS:
        return TOO_MANY_RUNS
    if any(run.until_at is None for run in of_index):
        return PLACE_TAKEN
    if asked.indices <= asked.places:
        return index
    taken = {run.place for run in runs if run.until_at is None}
    return next((place for place in range(asked.places) if place not in taken), PLACE_TAKEN)


def _before(run: Run, runs: Sequence[Run]) -> list[Run]:
    """The other runs that were there before this known one, which may have waited then and started since. Once it was
    gone, others may have taken its place.
    """
    return [each for each in runs if each.uid != run.uid and (run.until_at is None or _was_there(each, run.until_at))]


def _was_there(run: Run, at: datetime) -> bool:
    """Whether the run had started before this time, or was already gone without a start."""
    if run.since_at is not None:
        return run.since_at < at
    return run.until_at is not None and run.until_at <= at


def _free_since(runs: Sequence[Run], index: int, place: int) -> datetime | None:
    """When both the last pod there and the last pod of that index were seen to have ended."""
    return max(
        (run.until_at for run in runs if run.until_at and (run.place == place or run.index == index)), default=None
    )


def _sighting(
    asked: Asked, pod: Pod, place: int, free_since: datetime | None, now: datetime, *, is_new: bool
) -> Sighting:
    started_at, finished_at, is_estimated = believable(asked, free_since, pod, now)
    return Sighting(
        uid=pod.uid,
        name=pod.name,
        node=pod.node,
        phase=pod.phase if pod.phase in PHASES else "Unknown",
        reason=_line(pod.reason),
        index=sighting_index(pod),
        place=place,
        started_at=started_at,
        finished_at=finished_at,
        exit_code=pod.exit_code if pod.exit_code is not None and abs(pod.exit_code) <= _MOST_EXIT_CODE else None,
        is_estimated=is_estimated,
        is_new=is_new,
        disruption=_line(pod.disruption)[:LONGEST_DISRUPTION],
        ending=_line(pod.ending)[:LONGEST_DISRUPTION],
        signal=pod.signal if pod.signal is not None and 0 < pod.signal <= MOST_SIGNAL else None,
        message=_line(pod.message),
        init_step=None if finished_at is None else _step(pod.init_step),
    )


def tally(asked: Asked, job: EndedJob, now: datetime) -> tuple[datetime, datetime, int]:
    """When an ended Job started and ended, on our clock and within our own bounds, and the number of its ended pods."""
    began_at, over_at, _ = believable(asked, None, job, now)
    began_at = began_at or asked.committed_at or now
    return began_at, max(began_at, over_at or now), max(0, min(job.ended_pods, asked.indices))


def believable(
    asked: Asked, free_since: datetime | None, pod: Spell, now: datetime
) -> tuple[datetime | None, datetime | None, bool]:
    """The pod's times on our clock, clamped to between our release and now, and whether they differ from the reported
    ones.

    A cluster with a wrong clock, or with false reports, can bill neither the past nor the future. A replacement counts
    from the time at which the earlier pod was seen to have ended, because its place was metered until then. If that was
    seen late, its own start is an estimate.
    """
    latest = now + TOLERANCE
    earliest = (asked.committed_at or now) - TOLERANCE
    begun = None if pod.started_at is None else on_our_clock(asked.clock, pod.started_at, now)[0]
    started_at = None if begun is None else min(max(begun, earliest), latest)
    is_estimated = started_at != pod.started_at
    if started_at is not None and free_since is not None:
        is_estimated |= free_since - started_at > TOLERANCE
        started_at = max(started_at, free_since)
    if pod.finished_at is None:
        return started_at, None, is_estimated
    ended = on_our_clock(asked.clock, pod.finished_at, now)[0]
    finished_at = max(min(ended, latest), started_at or earliest)
    return started_at, finished_at, is_estimated or finished_at != pod.finished_at


def reported_end(asked: Asked, pod: Spell, now: datetime) -> datetime | None:
    """When the pod ended, on our clock; None if it is not known, or was reported to be before our release or its start, or ahead
    of us: then it is an estimate.
    """
    _, finished_at, _ = believable(asked, None, pod, now)
    if pod.finished_at is None or finished_at is None:
        return None
    is_bounded = on_our_clock(asked.clock, pod.finished_at, now)[0] != finished_at
    return None if is_bounded else finished_at


def _step(number: int | None) -> int | None:
    return number if number is not None and 0 < number <= MAX_INIT_STEPS else None


def _line(text: str) -> str:
    cut = text[:LONGEST_REASON]
    return cut if cut.isprintable() else "".join(letter if letter.isprintable() else " " for letter in cut)
