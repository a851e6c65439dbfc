"""Which images are pulled to which nodes next, and what became of a pull. Pure decisions.

An image that no pull of its policy has brought to the cluster yet is pulled to one node at a time, because a wrong name or a
missing secret would fail on all of them. After failures there are growing pauses; then it waits for a user.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, Protocol

from .sightings import Pod

DEADLINE = timedelta(minutes=30)
"""Of one pull, from when it was begun."""
PATIENCE = timedelta(seconds=60)
"""The wait before a registry's error ends a pull: the kubelet retries."""
UNSCHEDULED = timedelta(minutes=5)
"""The wait for a node that does not take the pod."""
FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=1), timedelta(hours=1)
MOST_FAILURES = 6
"""Of an image in a row, on any nodes; then its pulls stop."""
MOST_NODE_FAILURES = 3
"""Of an image on one node in a row; then that node is left alone."""
FIRST_REPEAT, LONGEST_REPEAT = timedelta(hours=1), timedelta(days=1)
"""The wait before an image is pulled again to a node that does not list it: a kubelet lists only its largest images, and
removes images when its disk is full.
"""
LONGEST_MESSAGE = 300
_REGISTRY = (
    "ErrImagePull",
    "ImagePullBackOff",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
)
_PATIENCE_WITH = {
    "InvalidImageName": timedelta(),
    "ErrImageNeverPull": timedelta(),
    **dict.fromkeys(_REGISTRY, PATIENCE),
    "Unschedulable": UNSCHEDULED,
}
"""By what a pod waits for: how long it may."""
_AFTER_THE_PULL = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
"""The kubelet creates a container only when it has the image."""
_UNSEEN_END = "ContainerStatusUnknown"


class Outcome(StrEnum):
    """How a pull ended."""

    PULLED = "pulled"
    FAILED = "failed"


class Past(NamedTuple):
    """What is known of the pulls of one image to one node. `failures` are those since it last succeeded there."""

    is_live: bool = False
    outcome: str = ""
    failures: int = 0
    pulls: int = 0
    ended_at: datetime | None = None
    pulled_at: datetime | None = None
    message: str = ""


NOTHING = Past()


class State(StrEnum):
    """An image on a node."""

    PRESENT = "present"
    PULLED = "pulled"
    PULLING = "pulling"
    WAITING = "waiting"
    FAILED = "failed"
    UNUSABLE = "unusable"


@dataclass(frozen=True, slots=True)
class Line:
    """An image on a node as users see it. `next_at` is when it is pulled again at the earliest; None: when its turn comes, or,
    if it `needs_user`, after a retry by a user.
    """

    image: str
    node: str
    state: State
    message: str = ""
    next_at: datetime | None = None
    needs_user: bool = False


class Brake(NamedTuple):
    """Why an image's pulls pause (`until`) or have stopped (`until` is None)."""

    failures: int
    until: datetime | None
    message: str

    @property
    def is_stopped(self) -> bool:
        """Whether only a user can continue it."""
        return self.until is None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A policy with all that its next pulls depend on. `nodes` are by name why they cannot be used, empty if they can;
    `present` the nodes that list an image. `past` is by image and node. `why_not` is why nothing may be pulled now. Which nodes
    have an `unread` image is not known yet.
    """

    images: Sequence[str]
    nodes: Mapping[str, str]
    present: Mapping[str, frozenset[str]]
    past: Mapping[tuple[str, str], Past]
    at_once: int
    why_not: str = ""
    unread: frozenset[str] = frozenset()


def pause_after(failures: int) -> timedelta:
    """The pause after this number of failures in a row."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * (1 << min(failures - 1, 10)))


def repeat_after(pulls: int) -> timedelta:
    """The wait after this number of pulls to a node that does not list the image."""
    return min(LONGEST_REPEAT, FIRST_REPEAT * (1 << min(max(pulls - 1, 0), 10)))


def brake_of(past: Iterable[Past]) -> Brake | None:
    """The brake of one image, from its pulls to all nodes; None if it has none."""
    known = list(past)
    last = max((one.pulled_at for one in known if one.pulled_at), default=None)
    failed = [
        (one.ended_at, one)
        for one in known
        if one.outcome == Outcome.FAILED and one.failures and one.ended_at and (last is None or one.ended_at > last)
    ]
    if not failed:
        return None
    at, newest = max(failed, key=lambda pair: pair[0])
    failures = sum(one.failures for _, one in failed)
    return Brake(failures, None if failures >= MOST_FAILURES else at + pause_after(failures), newest.message)


def decide(wanted: Wanted, now: datetime) -> list[tuple[str, str]]:
    """The images and nodes to begin pulls for now, the images in turns."""
    if wanted.why_not:
        return []
    free = wanted.at_once - sum(one.is_live for one in wanted.past.values())
    read = [image for image in wanted.images if image not in wanted.unread]
    queues = [queue for image in read if (queue := _next_nodes(wanted, image, now))]
    turns = [(turn, number) for number, queue in enumerate(queues) for turn in range(len(queue))]
    return [queues[number][turn] for turn, number in sorted(turns)[: max(0, free)]]


def _next_nodes(wanted: Wanted, image: str, now: datetime) -> list[tuple[str, str]]:
    past = _of_image(wanted, image)
    brake = brake_of(past.values())
    if brake and (brake.until is None or brake.until > now):
        return []
    due = [line.node for line in _lines(wanted, image) if _is_due(line, now)]
    due.sort(key=lambda node: (past.get(node, NOTHING).failures, node))
    if brake or not any(one.pulled_at for one in past.values()):
        due = [] if any(one.is_live for one in past.values()) else due[:1]
    return [(image, node) for node in due]


def _is_due(line: Line, now: datetime) -> bool:
    is_open = line.state in (State.WAITING, State.FAILED, State.PULLED) and not line.needs_user
    return is_open and (line.next_at is None or line.next_at <= now)


def _of_image(wanted: Wanted, image: str) -> dict[str, Past]:
    return {node: one for (name, node), one in wanted.past.items() if name == image}


def lines_of(wanted: Wanted) -> list[Line]:
    """Every image on every node, images in the policy's order, nodes by name."""
    return [line for image in wanted.images for line in _lines(wanted, image)]


def _lines(wanted: Wanted, image: str) -> list[Line]:
    present = wanted.present.get(image, frozenset())
    return [
        _line(image, node, why_not, wanted.past.get((image, node), NOTHING), is_present=node in present)
        for node, why_not in sorted(wanted.nodes.items())
    ]


def _line(image: str, node: str, why_not: str, past: Past, *, is_present: bool) -> Line:
    if past.is_live:
        return Line(image, node, State.PULLING, past.message)
    if is_present:
        return Line(image, node, State.PRESENT)
    if why_not:
        return Line(image, node, State.UNUSABLE, why_not)
    if past.failures and past.ended_at:
        needs_user = past.failures >= MOST_NODE_FAILURES
        next_at = None if needs_user else past.ended_at + pause_after(past.failures)
        return Line(image, node, State.FAILED, past.message, next_at, needs_user)
    if past.pulled_at:
        return Line(image, node, State.PULLED, "", past.pulled_at + repeat_after(past.pulls))
    return Line(image, node, State.WAITING)


class SeenJob(Protocol):
    """A Job as a driver reports it."""

    @property
    def outcome(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def message(self) -> str: ...


class Verdict(NamedTuple):
    """The outcome of a pull, empty while it goes on, and its message."""

    outcome: str
    message: str = ""


def verdict(node: str, pods: Sequence[Pod], job: SeenJob | None, lasted: timedelta) -> Verdict:
    """What the pod and the Job of a pull say of it. `job` is None if the cluster has no such object any more.

    The pod's command does not exist in the image, so that nothing of the image runs: that its container could not be started
    shows that the node has the image.
    """
    found = [_of_pod(node, pod, lasted) for pod in pods]
    ended = next((one for one in found if one.outcome == Outcome.PULLED), None)
    ended = ended or next((one for one in found if one.outcome), None)
    if ended:
        return ended
    waits_for = next((one.message for one in found if one.message), "")
    if job is None:
        return Verdict(Outcome.FAILED, "Its object was deleted on the cluster.")
    if job.outcome == "succeeded":
        return Verdict(Outcome.PULLED)
    if job.outcome == "failed":
        return Verdict(Outcome.FAILED, _text(waits_for or f"{job.reason}: {job.message}"))
    if lasted > DEADLINE:
        return too_late(waits_for)
    return Verdict("", _text(waits_for))


def too_late(waits_for: str) -> Verdict:
    """The verdict on a pull that has taken too long."""
    minutes = int(DEADLINE.total_seconds() // 60)
    return Verdict(Outcome.FAILED, _text(f"It did not end within {minutes} minutes. {waits_for}".strip()))


def _of_pod(node: str, pod: Pod, lasted: timedelta) -> Verdict:
    if pod.node not in ("", node):
        return Verdict(Outcome.FAILED, _text(f"The cluster ran it on {pod.node}."))
    if pod.phase == "Failed":
        was_pulled = pod.exit_code is not None and pod.node and pod.ending != _UNSEEN_END
        told = pod.message or pod.reason or "Its pod failed."
        return Verdict(Outcome.PULLED) if was_pulled else Verdict(Outcome.FAILED, _text(told))
    reason = pod.reason.partition(":")[0]
    if pod.phase in ("Running", "Succeeded") or (reason in _AFTER_THE_PULL and pod.node):
        return Verdict(Outcome.PULLED)
    limit = _PATIENCE_WITH.get(reason)
    return Verdict(Outcome.FAILED if limit is not None and lasted >= limit else "", _text(pod.reason))


def _text(words: str) -> str:
    return words[:LONGEST_MESSAGE]


@dataclass(frozen=True, slots=True)
class ImageProgress:
    """An image of a policy: the number of nodes by state, and its brake."""

    image: str
    nodes: Mapping[State, int]
    brake: Brake | None

    @property
    def usable(self) -> int:
        """The number of nodes that can have it."""
        return sum(count for state, count in self.nodes.items() if state != State.UNUSABLE)

    @property
    def there(self) -> int:
        """The number of usable nodes that have it."""
        return self.nodes.get(State.PRESENT, 0) + self.nodes.get(State.PULLED, 0)


def progress_of(wanted: Wanted) -> list[ImageProgress]:
    """The progress of each image."""
    counts: dict[str, dict[State, int]] = {image: defaultdict(int) for image in wanted.images}
    for line in lines_of(wanted):
        counts[line.image][line.state] += 1
    return [
        ImageProgress(image, dict(found), brake_of(_of_image(wanted, image).values()))
        for image, found in counts.items()
    ]
