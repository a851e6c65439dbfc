"""Failure rules: what a rule matches, and what follows if it matches. The first that matches decides.

The order is: the job's own rules, then those of its tenant and of each tenant above it up to the root, then ours
(`defaults`). So the nearer rule wins, and ours decide where no other matches.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from .facts import PodFacts, Seen
from .patterns import first_found, lines_of

MOST_RULES = 20
MOST_CONDITIONS = 20
MOST_RETRIES_OF_RULE = 100
MOST_SECONDS = 24 * 3600
THOUSANDTHS = 1000
LEAST_KEPT_SECONDS, MOST_KEPT_SECONDS = 10, 600
"""How long a place may be kept for a retry, beyond its back-off."""
MOST_SECONDS_HERE = 600
"""The longest back-off of a retry whose place is kept."""


class FailureClass(StrEnum):
    """What failed."""

    PROGRAM = "program"
    OUT_OF_MEMORY = "out_of_memory"
    NODE = "node"
    DEVICE = "device"
    NETWORK = "network"
    IMAGE = "image"
    STORAGE = "storage"
    PREEMPTED = "preempted"
    INFRASTRUCTURE = "infrastructure"
    DEADLINE = "deadline"
    UNKNOWN = "unknown"


NOT_OURS = frozenset({FailureClass.INFRASTRUCTURE, FailureClass.NODE, FailureClass.DEVICE})
"""Failures that the job did not cause: usage reports show their GPU-hours apart."""


class Step(StrEnum):
    """What follows a failed attempt."""

    STOP = "stop"
    AGAIN = "again"
    AGAIN_ELSEWHERE = "again_elsewhere"
    MORE_MEMORY = "more_memory"
    AGAIN_HERE = "again_here"


@dataclass(frozen=True, slots=True)
class When:
    """What a rule matches. Each condition that is set must hold, all of them of the same pod; of the values of one
    condition, one must hold. Without conditions, a rule matches every failure.
    """

    exit_codes: tuple[tuple[int, int], ...] = ()
    """Each from the first to the last, both included."""
    signals: tuple[int, ...] = ()
    seen: tuple[Seen, ...] = ()
    pod_sets: tuple[str, ...] = ()
    """Names of pod sets; `*` matches anything."""
    node_taints: tuple[str, ...] = ()
    """Patterns over the taints of the pod's node (`patterns`)."""
    messages: tuple[str, ...] = ()
    """Patterns over what the cluster says of the pod, and over its termination message."""
    log: tuple[str, ...] = ()
    """Patterns over the last lines of the pod's log."""

    def matches(self, pod: PodFacts, log: str | None) -> bool:
        """Whether all conditions hold of the pod. A log that is not known matches no pattern."""
        return self.may_match(pod) and (not self.log or (log is not None and bool(self.found_in(log))))

    def may_match(self, pod: PodFacts) -> bool:
        """Whether all conditions but those of the log hold."""
        code = pod.exit_code
        return (
            (not self.exit_codes or (code is not None and any(a <= code <= b for a, b in self.exit_codes)))
            and (not self.signals or pod.killed_by in self.signals)
            and (not self.seen or not pod.seen.isdisjoint(self.seen))
            and (not self.pod_sets or any(fnmatchcase(pod.pod_set, name) for name in self.pod_sets))
            and (not self.node_taints or bool(first_found(self.node_taints, [one.lower() for one in pod.taints])))
            and (not self.messages or bool(first_found(self.messages, lines_of(pod.told))))
        )

    def found_in(self, log: str) -> str:
        """The first pattern that the log has; empty if it has none."""
        return first_found(self.log, lines_of(log))


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `retries` None means as many as the job's `retries` allow for the cause (`engine.retries`)."""

    name: str
    when: When = field(default_factory=When)
    failure_class: FailureClass | None = None
    """None: as our own rules classify it."""
    text: str = ""
    """What to say to people; empty: what our own rules say."""
    step: Step = Step.STOP
    retries: int | None = None
    backoff_seconds: int = 0
    """The wait before the first retry; it doubles with each one."""
    most_backoff_seconds: int = MOST_SECONDS
    avoid: str = ""
    """`node` or `cluster`: what the next attempt avoids."""
    avoid_seconds: int = 0
    memory_milli: int = 0
    """The factor by which memory grows, in thousandths."""
    keep_seconds: int = 0
    """How long the place of the failed attempt is kept for the next one, beyond the back-off."""
    most_memory_bytes: int = 0
    """The most memory that a pod gets; 0: as much as the clusters and the quota allow."""

    def wait_seconds(self, retry: int) -> int:
        """The seconds before the `retry`-th retry."""
        return min(self.backoff_seconds << min(retry - 1, 20), self.most_backoff_seconds)

    @property
    def longest_kept_seconds(self) -> int:
        """The longest time that a place is kept after the end of an attempt, whichever retry it is."""
        return self.most_backoff_seconds + self.keep_seconds if self.step == Step.AGAIN_HERE else 0

    def grown(self, memory_bytes: int) -> int:
        """The memory of the next attempt, in whole MiB; not more than now if it may not grow."""
        wanted = -(-memory_bytes * self.memory_milli // (THOUSANDTHS << 20)) << 20
        return max(memory_bytes, min(wanted, self.most_memory_bytes) if self.most_memory_bytes else wanted)


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of one owner: `Job`, a tenant's path, or `Default`."""

    owner: str
    rules: Sequence[Rule]

    def key(self, rule: Rule) -> str:
        """The rule by its owner and name: retries are counted by it."""
        return f"{self.owner}: {rule.name}"
