"""Our own rules: they decide where no rule of the job and no rule of its tenants matches, and classify for those that do
not say a class. Their retries are those that the job's `retries` allow for the cause.

They read no logs: a program can write anything into its log, so to trust it is up to the owner of a job or a tenant.
"""

from .facts import Seen
from .rules import FailureClass, Rule, RuleSet, Step, When

MOST_STARTS = 2
"""The retries after an attempt whose containers could not start: further clusters are tried, and then the job fails."""
OWNER = "Default"
"""No tenant has this name: names of tenants are in lower case."""


def _of(
    name: str, failure_class: FailureClass, text: str, *seen: Seen, step: Step = Step.AGAIN, retries: int | None = None
) -> Rule:
    return Rule(name, When(seen=seen), failure_class, text, step, retries)


ELSEWHERE = Step.AGAIN_ELSEWHERE
DEFAULTS = RuleSet(
    OWNER,
    (
        _of("deadline", FailureClass.DEADLINE, "It reached its deadline", Seen.DEADLINE, step=Step.STOP),
        _of("spot", FailureClass.PREEMPTED, "Its spot capacity was reclaimed", Seen.SPOT, step=ELSEWHERE),
        _of(
            "preempted",
            FailureClass.PREEMPTED,
            "A pod of higher priority or a drain of the node took its place",
            Seen.PREEMPTED,
            step=ELSEWHERE,
        ),
        _of("node_lost", FailureClass.NODE, "Its node is gone or was given up", Seen.NODE_LOST, step=ELSEWHERE),
        _of(
            "image",
            FailureClass.IMAGE,
            "Its container could not be started",
            Seen.IMAGE,
            step=ELSEWHERE,
        ),
        _of("out_of_memory", FailureClass.OUT_OF_MEMORY, "It used more memory than its limit", Seen.OUT_OF_MEMORY),
        _of("storage", FailureClass.STORAGE, "The cluster reports a failure of storage", Seen.STORAGE, step=ELSEWHERE),
        _of("evicted", FailureClass.NODE, "Its node had too little left to continue it", Seen.EVICTED, step=ELSEWHERE),
        _of(
            "infrastructure",
            FailureClass.INFRASTRUCTURE,
            "The cluster stopped it and does not report why",
            Seen.INFRASTRUCTURE,
            step=ELSEWHERE,
        ),
        Rule(
            "device",
            When(seen=(Seen.DEVICE,)),
            FailureClass.DEVICE,
            "Its node reports a failed device",
            ELSEWHERE,
            retries=2,
            backoff_seconds=10,
            avoid="node",
            avoid_seconds=3600,
        ),
        Rule("program", When(exit_codes=((1, 2**31 - 1),)), FailureClass.PROGRAM, "The program failed", Step.AGAIN),
        Rule("unknown", When(), FailureClass.UNKNOWN, "No pod reports why it failed", Step.AGAIN),
    ),
)
