"""From what is seen of a failed attempt to what follows: the first rule that matches decides, within its retries."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from placement.values.quantities import duration_text, memory_text

from .defaults import DEFAULTS
from .facts import Facts, PodFacts, with_seen
from .rules import NOT_OURS, FailureClass, Rule, RuleSet, Step

MOST_RETRIES_OF_JOB = 100
"""The most retries of one job by the rules of itself and its tenants together, whatever they say."""
LONGEST_TEXT = 500
LONGEST_DETAIL = 200
AVOIDED_SECONDS = 3600
"""How long a node is avoided whose fault it is that a place is not kept."""


@dataclass(frozen=True, slots=True)
class NeedsLog:
    """The diagnosis depends on the ends of these pods' logs."""

    pods: tuple[str, ...]
    kept_seconds: int = 0
    """How long the attempt's place may be kept after its end, if a rule that may match keeps it."""


@dataclass(frozen=True, slots=True)
class History:
    """The job's earlier retries, by rule (`RuleSet.key`). `allowed` is the number that its `retries` allow for the cause
    of this failure, and `used` how many of those it has had.
    """

    by_rule: Mapping[str, int] = field(default_factory=dict)
    allowed: int = 0
    used: int = 0


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What failed, and what follows. `retry` is the number of the next retry by this rule, of at most `most`."""

    failure_class: FailureClass
    own_class: FailureClass
    """The class by our own rules: what a job or a tenant calls its failures counts only for itself."""
    text: str
    rule: str
    step: Step
    retry: int = 0
    most: int = 0
    wait_seconds: int = 0
    avoid: str = ""
    avoid_seconds: int = 0
    keep_seconds: int = 0
    """How long the attempt's place is kept for the retry, beyond the wait; 0: it is not."""
    pod: str = ""
    node: str = ""
    pod_set: str = ""
    growth: Rule | None = None
    """The rule by which memory grows, if the step is more_memory."""
    is_place_bad: bool = False
    """Whether the rule would keep the place, but the cause is there."""
    obstacle: str = ""
    """Why the job is not retried although its rule has retries left."""

    @property
    def is_ours(self) -> bool:
        """Whether the job did not cause it, as far as the cluster shows."""
        return self.own_class in NOT_OURS

    @property
    def goes_on(self) -> bool:
        """Whether the job is retried."""
        return self.step != Step.STOP

    def stopped(self, obstacle: str) -> "Diagnosis":
        """The diagnosis if its step is impossible."""
        return replace(
            self,
            step=Step.STOP,
            retry=self.retry - 1,
            wait_seconds=0,
            growth=None,
            keep_seconds=0,
            obstacle=obstacle[:LONGEST_DETAIL],
        )


def judge(rule_sets: Sequence[RuleSet], facts: Facts, history: History) -> Diagnosis | NeedsLog:
    """The diagnosis by the first rule that matches; NeedsLog if a rule before it could match what a log says.

    Total: our own rules match everything. Deterministic: nothing else is read.
    """
    pods = with_seen(facts)
    for owner, rule in _all(rule_sets):
        if rule.when.log and facts.logs is None:
            wanted = tuple(pod.name for pod in pods if pod.name and rule.when.may_match(pod))
            if wanted:
                return NeedsLog(wanted, _may_keep(rule_sets, pods))
            continue
        pod = next((pod for pod in pods if rule.when.matches(pod, (facts.logs or {}).get(pod.name))), None)
        if pod is not None:
            found = _diagnosis(owner, rule, pod, facts, history)
            return _elsewhere_if_place_is_bad(found, pods) if found.step == Step.AGAIN_HERE else found
    raise AssertionError("our own rules match everything")


def judge_without_logs(rule_sets: Sequence[RuleSet], facts: Facts, history: History) -> Diagnosis:
    """The diagnosis if logs cannot be read: rules that need them do not match."""
    found = judge(rule_sets, replace(facts, logs=facts.logs or {}), history)
    assert isinstance(found, Diagnosis)
    return found


def _all(rule_sets: Sequence[RuleSet]) -> Iterator[tuple[RuleSet, Rule]]:
    return ((owner, rule) for owner in (*rule_sets, DEFAULTS) for rule in owner.rules)


def _may_keep(rule_sets: Sequence[RuleSet], pods: Sequence[PodFacts]) -> int:
    """The longest time for which a rule that may match keeps the place; 0 if none does."""
    if _bad_place(pods) is not None:
        return 0
    rules = [rule for owner in rule_sets for rule in owner.rules if rule.step == Step.AGAIN_HERE]
    matching = [rule for rule in rules if any(rule.when.may_match(pod) for pod in pods)]
    return max((rule.longest_kept_seconds for rule in matching), default=0)


def _bad_place(pods: Sequence[PodFacts]) -> PodFacts | None:
    """A pod for which our own rule leads elsewhere: its node is the cause, or its place is taken."""
    return next((pod for pod in pods if _classified([pod]).step == Step.AGAIN_ELSEWHERE), None)


def _classified(pods: Sequence[PodFacts]) -> Rule:
    """Our own rule for this."""
    return next(rule for rule in DEFAULTS.rules if any(rule.when.matches(pod, None) for pod in pods))


def _diagnosis(owner: RuleSet, rule: Rule, pod: PodFacts, facts: Facts, history: History) -> Diagnosis:
    ours = _classified([pod])
    failure_class = rule.failure_class or ours.failure_class
    assert failure_class is not None
    key = owner.key(rule)
    most, used = (
        (history.allowed, history.used) if rule.retries is None else (rule.retries, history.by_rule.get(key, 0))
    )
    is_beyond = owner is not DEFAULTS and sum(history.by_rule.values()) >= MOST_RETRIES_OF_JOB
    goes_on = rule.step != Step.STOP and used < most and not is_beyond and not facts.is_late
    found = Diagnosis(
        failure_class=failure_class,
        own_class=ours.failure_class or failure_class,
        text=_text(rule.text or ours.text, pod, rule, facts),
        rule=key,
        step=rule.step if goes_on else Step.STOP,
        retry=used + 1 if goes_on else used,
        most=0 if rule.step == Step.STOP else most,
        pod=pod.name,
        node=pod.node,
        pod_set=pod.pod_set,
    )
    return _retried(found, rule) if goes_on else found


def _retried(found: Diagnosis, rule: Rule) -> Diagnosis:
    is_elsewhere = rule.step == Step.AGAIN_ELSEWHERE
    return replace(
        found,
        wait_seconds=rule.wait_seconds(found.retry),
        avoid=rule.avoid if is_elsewhere else "",
        avoid_seconds=rule.avoid_seconds if is_elsewhere else 0,
        keep_seconds=rule.keep_seconds if rule.step == Step.AGAIN_HERE else 0,
        growth=rule if rule.step == Step.MORE_MEMORY else None,
    )


def _elsewhere_if_place_is_bad(found: Diagnosis, pods: Sequence[PodFacts]) -> Diagnosis:
    """The diagnosis; if our own rule for one of the pods leads elsewhere, with that step."""
    bad = _bad_place(pods)
    if bad is None:
        return found
    node = bad.node or found.node
    return replace(
        found,
        step=Step.AGAIN_ELSEWHERE,
        keep_seconds=0,
        is_place_bad=True,
        avoid="node",
        avoid_seconds=AVOIDED_SECONDS,
        node=node,
    )


def _text(said: str, pod: PodFacts, rule: Rule, facts: Facts) -> str:
    """What is said to people: what the rule says, then what was seen."""
    log = (facts.logs or {}).get(pod.name, "") if rule.when.log else ""
    why = " ".join(facts.told)[:LONGEST_DETAIL]
    never_ran = facts.cannot_start and why  # what is seen of such a pod is how it was cleared away
    parts = [
        f"pod {pod.name}" if pod.name else "",
        *([] if never_ran else _own_end(pod)),
        f"its log has {rule.when.found_in(log)}" if log else "",
        why if never_ran or not pod.name else "",
    ]
    detail = ", ".join(part for part in parts if part)
    return f"{said.rstrip('.')} ({detail})."[:LONGEST_TEXT] if detail else f"{said.rstrip('.')}."[:LONGEST_TEXT]


def _own_end(pod: PodFacts) -> list[str]:
    return [
        f"{_failed_step(pod)}exit code {pod.exit_code}" if pod.exit_code else "",
        f"signal {pod.killed_by}" if pod.killed_by else "",
        f"limit {pod.memory}" if pod.ending == "OOMKilled" and pod.memory else "",
        pod.ending if pod.ending not in ("", "Error", "OOMKilled") else "",
        pod.reason or pod.disruption,
        pod.message[:LONGEST_DETAIL],
    ]


def _failed_step(pod: PodFacts) -> str:
    return "" if pod.init_step is None else f"init step {pod.init_step} failed with "


def next_step_text(diagnosis: Diagnosis, memory: Mapping[str, int] | None = None) -> str:
    """The next step for people, such as `The job starts again on another node, retry 2 of 3.`"""
    if diagnosis.obstacle:
        return f"The job is not retried: {diagnosis.obstacle}."
    if not diagnosis.goes_on:
        if diagnosis.most:
            return f"The job is not retried: {diagnosis.retry} of {diagnosis.most} retries are used."
        return "The job is not retried."
    how = ""
    if diagnosis.step == Step.AGAIN_ELSEWHERE:
        how = " on another node" if diagnosis.avoid == "node" else " on another cluster, or here later"
    if diagnosis.is_place_bad:
        how += ", not in its place, which is the cause"
    if diagnosis.step == Step.AGAIN_HERE:
        how = " in its place, if that can be kept"
    if diagnosis.step == Step.MORE_MEMORY and memory:
        how = " with " + " and ".join(f"{memory_text(amount)} of memory for {name}" for name, amount in memory.items())
    wait = f", after {duration_text(diagnosis.wait_seconds)}" if diagnosis.wait_seconds else ""
    if diagnosis.keep_seconds:
        wait += f", for {duration_text(diagnosis.keep_seconds)} at most"
    return f"The job starts again{how}, retry {diagnosis.retry} of {diagnosis.most}{wait}."
