"""Whether an attempt of which a part runs can still become whole: others may have taken the room of its other pods.

A pod that has a node is not judged here, whatever it waits for there. A pod without one is given `PATIENCE` from when it was first
seen, so that a pod that replaces another has its own. A place for which no pod was seen proves nothing: it only is a reason to
ask the cluster.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from placement.values.reason_codes import ReasonCode

PATIENCE = timedelta(minutes=15)
"""As long as an attempt has to start."""
SHOWN_AFTER = timedelta(seconds=20)
"""What waits for less time is not shown: it is on its way."""
IN_PART = frozenset({ReasonCode.STARTED_IN_PART, ReasonCode.BLOCKED_IN_PART})
"""Why an attempt of which a part runs is recalled."""
_ENDED = frozenset({"Succeeded", "Failed"})
_SCHEDULER = re.compile(r"0/[0-9]+ nodes are available: (.+?)\.( |$)")
_ROOM = re.compile(
    r"[0-9]+ (Insufficient (?!ephemeral-storage$)\S+|Too many pods|cannot allocate all claims"
    r"|node\(s\) (had untolerated taint.*|were unschedulable|didn't match Pod's node affinity/selector))"
)
"""What a scheduler names if a node that placement counted on is full, closed or gone. The gateway itself writes the node selectors of
pods. Local disk and volumes are not here: placement does not count them, so jobs can ask for what no node has.
"""


class Pod(Protocol):
    """A pod as a driver reports it."""

    @property
    def uid(self) -> str: ...
    @property
    def index(self) -> int | None: ...
    @property
    def node(self) -> str: ...
    @property
    def phase(self) -> str: ...
    @property
    def started_at(self) -> datetime | None: ...
    @property
    def is_terminating(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Size:
    """What an object was given: `pods` at the same time, with pods of `indices` indices in all. With `fewest` pods it is whole."""

    pods: int
    fewest: int
    indices: int

    @property
    def is_queue(self) -> bool:
        """Whether its pods work off more indices than it has places: they do not wait for each other."""
        return self.indices > self.pods

    def needed(self, ended: int) -> int:
        """The pods that must run now, when the pods of `ended` indices have ended."""
        if self.is_queue:
            return min(1, max(0, self.indices - ended))
        return max(0, self.fewest - ended)


@dataclass(frozen=True, slots=True)
class Wait:
    """A pod without a node, as the gateway knows it: since when, and the cluster's words."""

    uid: str
    since: datetime
    words: str = ""


@dataclass(frozen=True, slots=True)
class Absence:
    """An index for which no pod is known to exist, since then."""

    index: int
    since: datetime


@dataclass(frozen=True, slots=True)
class Part:
    """The pods of one object as the gateway knows them. `placed` have a node, and `running` of them have started."""

    position: int
    size: Size
    running: int = 0
    placed: int = 0
    ended: int = 0
    waits: tuple[Wait, ...] = ()
    absent: tuple[Absence, ...] = ()

    @property
    def since(self) -> list[datetime]:
        """Since when pods wait or are absent."""
        return [*(one.since for one in self.waits), *(one.since for one in self.absent)]

    def is_overdue(self, now: datetime) -> bool:
        """Whether too few pods are left that have a node or may get one soon."""
        recent = sum(since > now - PATIENCE for since in self.since)
        return self.placed + recent < self.size.needed(self.ended)

    def overdue(self, now: datetime) -> "Overdue":
        """What has been known to wait or to be absent for too long."""
        uids = frozenset(one.uid for one in self.waits if one.since <= now - PATIENCE)
        indices = frozenset(one.index for one in self.absent if one.since <= now - PATIENCE)
        return Overdue(self.position, self.size, uids, indices)


@dataclass(frozen=True, slots=True)
class Overdue:
    """What has to be confirmed by the cluster: pods that have had no node, and indices that have had no pod, for too long."""

    position: int
    size: Size
    uids: frozenset[str]
    indices: frozenset[int]

    def is_confirmed(self, pods: Collection[Pod], parallelism: int) -> bool:
        """Whether these pods, all that the object has now, cannot make it whole. A pod that the gateway did not know to wait has its
        own patience, and so has one that replaces a pod that is being removed. `parallelism`: what the object asks for
        now; another may have reduced it.
        """
        present = [pod for pod in pods if pod.phase not in _ENDED]
        going = {pod.index for pod in present if pod.is_terminating}
        staying = [pod for pod in present if not pod.is_terminating]
        hopeful = {pod.index for pod in staying if pod.node or pod.started_at is not None or pod.uid not in self.uids}
        taken = going | {pod.index for pod in staying}
        ended = {pod.index for pod in pods if pod.phase in _ENDED} - taken
        hopeful |= going - {pod.index for pod in staying}
        if not self.size.is_queue:
            hopeful |= set(range(self.size.pods)) - taken - ended - self.indices
        return len(hopeful) < min(self.size.needed(len(ended)), parallelism)


def is_overdue(parts: Iterable[Part], now: datetime) -> bool:
    """Whether the attempt with these objects is not whole, and has waited for too long."""
    return any(part.is_overdue(now) for part in parts)


def why_in_part(parts: Iterable[Part], now: datetime) -> ReasonCode:
    """Why these objects did not become whole: the cluster says of each pod that has waited for too long that it lacks room which
    placement had counted, or there is another cause. A cluster that does not say why proves nothing.
    """
    found = [(part, part.overdue(now)) for part in parts]
    waits = [one for part, overdue in found for one in part.waits if one.uid in overdue.uids]
    is_taken = bool(waits) and not any(overdue.indices for _, overdue in found)
    is_taken = is_taken and all(lacks_only_room(one.words) for one in waits)
    return ReasonCode.STARTED_IN_PART if is_taken else ReasonCode.BLOCKED_IN_PART


def lacks_only_room(words: str) -> bool:
    """Whether a cluster's words for a pod without a node name nothing but a lack of room that placement counts. Words that were cut
    off before their end do not.
    """
    said = _SCHEDULER.search(words)
    return said is not None and all(_ROOM.fullmatch(one) for one in re.split(r", (?=[0-9]+ )", said[1]))


def told(parts: Sequence[Part], now: datetime) -> str:
    """What runs and what waits, for its user; empty if nothing has waited for long enough to be shown."""
    if not any(since <= now - SHOWN_AFTER for part in parts for since in part.since):
        return ""
    return _words(parts, runs="run", wait=("waits", "wait"), absent="not seen")


def told_of_end(parts: Sequence[Part]) -> str:
    """What ran and what waited, for the end of the attempt."""
    minutes = int(PATIENCE.total_seconds() // 60)
    waited = f"waited for {minutes} minutes"
    return _words(parts, runs="ran", wait=(waited, waited), absent=f"not seen for {minutes} minutes")


def _words(parts: Sequence[Part], *, runs: str, wait: tuple[str, str], absent: str) -> str:
    running, pods = sum(part.running for part in parts), sum(part.size.pods for part in parts)
    waits, missing = [one for part in parts for one in part.waits], sum(len(part.absent) for part in parts)
    said = [f"{running} of {pods} pods {runs}"]
    if waits:
        reason = next((one.words for one in waits if one.words), "no node yet")
        count = len(waits)
        said.append(f"{count} {wait[count > 1]}: {reason}")
    if missing:
        said.insert(1, f"{missing} {'was' if missing == 1 else 'were'} {absent}")
    return "; ".join(said)
