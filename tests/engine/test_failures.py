"""Failure rules: what they match, what follows, and the laws that hold whatever rules and facts there are."""

import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.engine.failures import patterns
from federation.engine.failures.brake import LEAST_FAILURES, WINDOW, is_pulled
from federation.engine.failures.defaults import DEFAULTS
from federation.engine.failures.diagnoses import (
    MOST_RETRIES_OF_JOB,
    Diagnosis,
    History,
    NeedsLog,
    judge,
    judge_without_logs,
    next_step_text,
)
from federation.engine.failures.facts import Facts, PodFacts, Seen
from federation.engine.failures.rules import FailureClass, Rule, RuleSet, Step, When
from federation.engine.retries import Cause

GI = 2**30
ONCE = History(allowed=1)


def crashed(code: int = 1, **more: Any) -> PodFacts:
    return replace(PodFacts(name="p0", pod_set="main", node="n1", exit_code=code), **more)


def facts(*pods: PodFacts, cause: str = Cause.PROGRAM, **more) -> Facts:
    return Facts(cause, pods or (crashed(),), **more)


def decided(found: Facts, *rules: Rule, history: History = ONCE) -> Diagnosis:
    diagnosis = judge([RuleSet("Job", rules)], found, history)
    assert isinstance(diagnosis, Diagnosis)
    return diagnosis


@pytest.mark.parametrize(
    ("found", "failure_class", "rule"),
    [
        (facts(crashed(3)), "program", "program"),
        (facts(crashed(137, ending="OOMKilled", memory="8Gi")), "out_of_memory", "out_of_memory"),
        (facts(crashed(143, disruption="PreemptionByScheduler"), cause=Cause.PREEMPTED), "preempted", "preempted"),
        (facts(crashed(143, disruption="EvictionByEvictionAPI"), cause=Cause.SPOT), "preempted", "spot"),
        (facts(crashed(143, disruption="DeletionByPodGC"), cause=Cause.NODE_LOST), "node", "node_lost"),
        (
            facts(crashed(143, reason="Evicted", disruption="TerminationByKubelet"), cause=Cause.INFRASTRUCTURE),
            "node",
            "evicted",
        ),
        (
            facts(
                crashed(143, reason="Evicted", disruption="TerminationByKubelet",
                        message="The node was low on resource: ephemeral-storage."),
                cause=Cause.INFRASTRUCTURE,
            ),
            "storage",
            "storage",
        ),
        # the pod's own use, not its node's lack: else what it ran would be credited as infrastructure's
        (
            facts(crashed(137, reason="Evicted", message="Pod ephemeral local storage usage exceeds the total limit of containers 64Gi. ")),
            "storage",
            "storage",
        ),
        (facts(cause=Cause.INFRASTRUCTURE, told=["DisruptionTarget"]), "infrastructure", "infrastructure"),
        (facts(crashed(taints=("nvidia.com/gpu-xid=79:NoSchedule",))), "device", "device"),
        (facts(PodFacts("p0", reason="ErrImagePull: no"), cause="", cannot_start=True), "image", "image"),
        (
            facts(PodFacts("p0", reason="CreateContainerError: volume is not mounted"), cause="", cannot_start=True),
            "storage",
            "storage",
        ),
        (facts(crashed(), is_late=True), "deadline", "deadline"),
        (Facts(Cause.PROGRAM), "unknown", "unknown"),
    ],
)  # fmt: skip
def test_each_failure_has_its_class_by_our_own_rules(found: Facts, failure_class: str, rule: str):
    diagnosis = decided(found)
    assert (diagnosis.failure_class, diagnosis.rule) == (failure_class, f"Default: {rule}")


def test_the_first_rule_that_matches_decides_the_jobs_before_its_tenants_and_the_nearest_tenants_first():
    stop = Rule("x", When(exit_codes=((3, 3),)))
    again = Rule("x", When(exit_codes=((1, 9),)), step=Step.AGAIN, retries=2)
    sets = [RuleSet("Job", [stop]), RuleSet("acme/team", [again]), RuleSet("acme", [Rule("all")])]
    assert judge_without_logs(sets, facts(crashed(3)), ONCE).rule == "Job: x"
    assert judge_without_logs(sets, facts(crashed(4)), ONCE).rule == "acme/team: x"
    assert judge_without_logs(sets, facts(crashed(77)), ONCE).rule == "acme: all"
    assert judge_without_logs(sets[:2], facts(crashed(77)), ONCE).rule == "Default: program"


def test_all_conditions_must_hold_of_the_same_pod():
    rule = Rule("x", When(exit_codes=((3, 3),), pod_sets=("worker-*",)))
    one = crashed(3, pod_set="driver")
    other = crashed(4, name="p1", pod_set="worker-a")
    assert decided(facts(one, other), rule).rule == "Default: program"
    assert decided(facts(one, crashed(3, name="p1", pod_set="worker-a")), rule).pod == "p1"


def test_a_signal_counts_whether_the_runtime_reports_it_or_only_its_exit_code():
    rule = Rule("x", When(signals=(11,)))
    for pod in (crashed(139), crashed(1, signal=11)):
        assert decided(facts(pod), rule).rule == "Job: x"
    assert decided(facts(crashed(11)), rule).rule == "Default: program"


def test_the_peers_of_a_disrupted_pod_match_no_rule():
    rule = Rule("x", When(exit_codes=((1, 1),)))
    pods = crashed(1, name="peer"), crashed(143, name="gone", disruption="DeletionByPodGC")
    assert decided(facts(*pods, cause=Cause.NODE_LOST), rule).pod == "gone"


def test_a_rule_over_the_log_waits_for_it_only_if_nothing_before_it_matches_and_all_else_of_it_does():
    log = Rule(
        "nccl", When(exit_codes=((1, 1),), log=("@nccl_timeout",)), FailureClass.NETWORK, step=Step.AGAIN, retries=2
    )
    first = Rule("first", When(exit_codes=((5, 5),)))
    assert judge([RuleSet("Job", [first, log])], facts(crashed(1)), ONCE) == NeedsLog(("p0",))
    assert decided(facts(crashed(5)), first, log).rule == "Job: first"
    assert decided(facts(crashed(6)), first, log).rule == "Default: program"
    told = facts(crashed(1), logs={"p0": "ok\n[E] NCCL operation timed out after 1800000 ms\n"})
    assert (decided(told, log).failure_class, decided(told, log).step) == ("network", "again")
    assert judge_without_logs([RuleSet("Job", [log])], facts(crashed(1)), ONCE).rule == "Default: program"


def test_retries_end_with_the_rules_own_number_and_waits_double_up_to_their_bound():
    rule = Rule("x", step=Step.AGAIN, retries=3, backoff_seconds=30, most_backoff_seconds=70)
    found = [decided(facts(), rule, history=History({"Job: x": used})) for used in range(5)]
    assert [(one.step, one.retry, one.wait_seconds) for one in found] == [
        ("again", 1, 30), ("again", 2, 60), ("again", 3, 70), ("stop", 3, 0), ("stop", 4, 0),
    ]  # fmt: skip
    assert next_step_text(found[1]) == "The job starts again, retry 2 of 3, after 1 min."
    assert next_step_text(found[3]) == "The job is not retried: 3 of 3 retries are used."


def test_a_job_that_reaches_its_deadline_is_not_retried_whatever_a_rule_says():
    rule = Rule("x", When(seen=(Seen.DEADLINE,)), text="Too slow", step=Step.AGAIN, retries=9)
    assert decided(facts(is_late=True), rule).step == Step.STOP


def test_the_text_says_what_was_seen_and_the_next_step_where_it_starts_again():
    rule = Rule("x", text="Bad GPU.", step=Step.AGAIN_ELSEWHERE, retries=3, avoid="node", avoid_seconds=60)
    diagnosis = decided(facts(crashed(134, message="SIGABRT")), rule, history=History({"Job: x": 1}))
    assert diagnosis.text == "Bad GPU (pod p0, exit code 134, signal 6, SIGABRT)."
    assert next_step_text(diagnosis) == "The job starts again on another node, retry 2 of 3."
    assert (diagnosis.avoid, diagnosis.node) == ("node", "n1")
    elsewhere = replace(diagnosis, avoid="cluster")
    assert next_step_text(elsewhere) == "The job starts again on another cluster, or here later, retry 2 of 3."
    larger = next_step_text(replace(diagnosis, step=Step.MORE_MEMORY), {"main": 3 * 2**30, "side": 2**29})
    assert larger == "The job starts again with 3Gi of memory for main and 512Mi of memory for side, retry 2 of 3."
    assert next_step_text(diagnosis.stopped("no node is larger")) == "The job is not retried: no node is larger."


def test_what_could_not_start_is_described_by_why_and_not_by_how_its_pod_was_cleared_away():
    cleared = crashed(137, ending="ContainerStatusUnknown", message="The container could not be located.")
    why = 'ImagePullBackOff: failed to pull image "a:1": not found'
    started = facts(cleared, cause="", told=[why], cannot_start=True)
    assert decided(started).text == f"Its container could not be started (pod p0, {why})."
    assert "ContainerStatusUnknown" in decided(replace(started, cannot_start=False)).text


def test_memory_grows_by_its_factor_up_to_its_most_in_whole_mebibytes():
    rule = Rule("x", step=Step.MORE_MEMORY, memory_milli=1500, most_memory_bytes=10 * GI)
    assert rule.grown(4 * GI) == 6 * GI
    assert rule.grown(8 * GI) == 10 * GI
    assert rule.grown(10 * GI) == 10 * GI
    assert rule.grown(11 * GI) == 11 * GI
    assert rule.grown(3 * 2**20 + 1) % 2**20 == 0


# -- laws -------------------------------------------------------------------------------------------------------------

codes = st.integers(1, 255)
whens = st.builds(
    When,
    exit_codes=st.lists(codes.map(lambda code: (code, min(code + 9, 255))), max_size=2).map(tuple),
    signals=st.lists(st.integers(1, 64), max_size=2).map(tuple),
    seen=st.lists(st.sampled_from(list(Seen)), max_size=2).map(tuple),
    pod_sets=st.sampled_from([(), ("main",), ("w*",)]),
    log=st.sampled_from([(), ("@gpu_xid",), ("fatal*error",)]),
)
rules = st.builds(
    Rule,
    name=st.sampled_from(["a", "b", "c"]),
    when=whens,
    failure_class=st.sampled_from([None, *FailureClass]),
    step=st.sampled_from(list(Step)),
    retries=st.integers(1, 100),
    backoff_seconds=st.integers(0, 86_400),
    most_backoff_seconds=st.integers(0, 86_400),
    memory_milli=st.integers(1100, 8000),
)
sets = st.lists(st.builds(RuleSet, st.sampled_from(["Job", "acme", "acme/t"]), st.lists(rules, max_size=4)), max_size=3)
pods = st.builds(
    PodFacts,
    name=st.sampled_from(["p0", "p1"]),
    pod_set=st.sampled_from(["main", "worker"]),
    node=st.sampled_from(["n1", ""]),
    exit_code=st.none() | codes,
    ending=st.sampled_from(["", "OOMKilled", "Error"]),
    reason=st.sampled_from(["", "Evicted"]),
    disruption=st.sampled_from(["", "DeletionByPodGC"]),
    message=st.text(max_size=400),
)
found = st.builds(
    Facts,
    cause=st.sampled_from([*Cause, ""]),
    pods=st.lists(pods, max_size=3),
    told=st.lists(st.text(max_size=300), max_size=2),
    is_late=st.booleans(),
    cannot_start=st.booleans(),
    logs=st.none() | st.dictionaries(st.sampled_from(["p0", "p1"]), st.sampled_from(["", "Fatal: an ERROR", "x"])),
)
histories = st.builds(
    History,
    st.dictionaries(st.sampled_from(["Job: a", "acme: b", "acme/t: c"]), st.integers(0, 120)),
    st.integers(0, 100),
    st.integers(0, 120),
)


@pytest.mark.law
@given(sets, found, histories)
def test_a_failure_always_has_one_diagnosis_within_its_caps(rule_sets, seen, history):
    diagnosis = judge_without_logs(rule_sets, seen, history)
    assert diagnosis == judge_without_logs(rule_sets, seen, history)
    assert len(diagnosis.text) <= 500
    if diagnosis.goes_on:
        assert 1 <= diagnosis.retry <= diagnosis.most
        assert not seen.is_late
        used = history.by_rule.get(diagnosis.rule, 0)
        assert diagnosis.rule.startswith("Default: ") or used + 1 == diagnosis.retry
        assert diagnosis.rule.startswith("Default: ") or sum(history.by_rule.values()) < MOST_RETRIES_OF_JOB
    assert 0 <= diagnosis.wait_seconds <= 86_400


@pytest.mark.law
@given(sets, rules, found, histories)
def test_a_rule_behind_the_one_that_decides_changes_nothing(rule_sets, more, seen, history):
    diagnosis = judge_without_logs(rule_sets, seen, history)
    behind = judge_without_logs([*rule_sets, RuleSet("last", [more])], seen, history)
    if diagnosis.rule.startswith("Default: "):
        assert behind.rule in {diagnosis.rule, f"last: {more.name}"}
    else:
        assert behind == diagnosis


@pytest.mark.law
@given(found, histories)
def test_without_own_rules_the_defaults_decide(seen, history):
    names = {f"Default: {rule.name}" for rule in DEFAULTS.rules}
    assert judge_without_logs([], seen, history).rule in names
    assert not isinstance(judge([], seen, history), NeedsLog)


@pytest.mark.law
@given(st.lists(st.booleans(), max_size=80), st.booleans())
def test_the_brake_needs_many_failures_and_is_released_without_any(failed, was_pulled):
    pulled = is_pulled(failed, was_pulled=was_pulled)
    if not any(failed[:WINDOW]):
        assert not pulled
    if pulled and not was_pulled:
        assert sum(failed[:WINDOW]) >= LEAST_FAILURES


@pytest.mark.parametrize(
    ("failures", "attempts", "is_begun", "is_kept"),
    [
        (0, 0, False, False), (0, 20, False, False), (1, 1, False, True), (9, 9, False, True), (10, 10, True, True),
        (10, 20, True, True), (10, 21, False, True), (12, 48, False, False), (13, 50, False, True), (24, 50, False, True),
        (25, 50, True, True), (1, 4, False, False),
    ],
)  # fmt: skip
def test_the_brake_is_pulled_at_half_of_ten_or_more_and_released_at_a_quarter(failures, attempts, is_begun, is_kept):
    failed = [True] * failures + [False] * (attempts - failures)
    assert is_pulled(failed, was_pulled=False) == is_begun
    assert is_pulled(failed, was_pulled=True) == is_kept
    # Older attempts than the window do not count.
    if attempts == WINDOW:
        assert is_pulled([*failed, *[True] * 50], was_pulled=False) == is_begun


# -- patterns ---------------------------------------------------------------------------------------------------------


def test_stars_stand_for_anything_in_order_and_case_does_not_matter():
    lines = patterns.lines_of("first\nNCCL WARN something: Timeout(ms)=1800\nlast")
    assert patterns.first_found(["nccl*TIMEOUT"], lines)
    assert not patterns.first_found(["timeout*nccl"], lines)
    assert not patterns.first_found(["first*last"], lines)
    assert patterns.first_found(["a.b"], ["xa.bx"])
    assert not patterns.first_found(["a.b"], ["xacbx"])


@pytest.mark.parametrize("name", patterns.PRESETS)
def test_each_preset_finds_a_text_that_it_has(name: str):
    text = patterns.PRESETS[name][0].replace("*", " ... ")
    assert patterns.first_found([name], patterns.lines_of(f"[rank3] {text.upper()} at line 3"))
    assert not patterns.first_found([name], patterns.lines_of("all is well"))


@pytest.mark.parametrize("pattern", ["", "*", "**a", "ab", "@none", "x" * 201, "a\nb\x1b[2Jc"])
def test_what_matches_too_much_or_is_no_text_is_no_pattern(pattern: str):
    assert patterns.fault_of(pattern)


def test_no_log_and_no_pattern_can_stall_us():
    lines = patterns.lines_of("\n".join(["a" * 2000] * 33))
    began = time.process_time()
    assert not patterns.first_found(["*".join(["a" * 20] * 9) + "*b"] * 20, lines)
    assert time.process_time() - began < 1


def test_lines_are_cut():
    assert [len(line) for line in patterns.lines_of("x" * 10_000)] == [patterns.LONGEST_LINE]


def test_a_failure_without_any_pod_names_none():
    diagnosis = decided(Facts(Cause.PROGRAM))
    assert (diagnosis.pod, diagnosis.node, diagnosis.pod_set) == ("", "", "")


def test_the_limit_of_memory_is_in_the_text_if_it_is_known():
    without = decided(facts(crashed(137, ending="OOMKilled"))).text
    assert without == "It used more memory than its limit (pod p0, exit code 137, signal 9)."
    assert decided(facts(crashed(137, ending="OOMKilled", memory="8Gi"))).text == f"{without[:-2]}, limit 8Gi)."


@pytest.mark.parametrize(
    ("now_mib", "factor", "most_mib", "then_mib"),
    [(1024, 2000, 0, 2048), (1024, 1500, 0, 1536), (1000, 1100, 0, 1100), (1023, 1100, 0, 1126), (1024, 2000, 1536, 1536),
     (1024, 2000, 1000, 1024), (1024, 0, 0, 1024)],
)  # fmt: skip
def test_memory_grows_by_a_factor_to_whole_mebibytes_up_to_the_most(now_mib, factor, most_mib, then_mib):
    rule = Rule("r", memory_milli=factor, most_memory_bytes=most_mib << 20)
    assert rule.grown(now_mib << 20) == then_mib << 20
    assert Rule("r", memory_milli=2000).grown((1 << 20) + 1) == 3 << 20, "part of a mebibyte counts as a whole one"


def test_the_wait_doubles_with_each_retry_up_to_the_most():
    rule = Rule("r", backoff_seconds=10, most_backoff_seconds=60)
    assert [rule.wait_seconds(retry) for retry in (1, 2, 3, 4, 50)] == [10, 20, 40, 60, 60]
    assert Rule("r", backoff_seconds=1, most_backoff_seconds=10**9).wait_seconds(100) == 2**20


@pytest.mark.parametrize(
    ("when", "pod", "matches"),
    [
        (When(exit_codes=((3, 5),)), crashed(3), True),
        (When(exit_codes=((3, 5),)), crashed(5), True),
        (When(exit_codes=((3, 5),)), crashed(2), False),
        (When(exit_codes=((3, 5),)), crashed(6), False),
        (When(exit_codes=((3, 5), (9, 9))), crashed(9), True),
        (When(signals=(9,)), crashed(137), True),
        (When(signals=(9,)), crashed(143), False),
        (When(pod_sets=("ma*",)), crashed(), True),
        (When(pod_sets=("other", "main")), crashed(), True),
        (When(pod_sets=("other",)), crashed(), False),
        (When(exit_codes=((1, 1),), pod_sets=("other",)), crashed(), False),
        (When(messages=("lost",)), crashed(message="device LOST"), True),
        (When(messages=("lost",)), crashed(message="fine"), False),
        (When(log=("lost",)), crashed(), False),
    ],
)
def test_all_conditions_of_a_rule_must_hold_and_any_value_of_each(when, pod, matches):
    assert when.matches(pod, None) is matches
    assert when.matches(pod, "the node was lost") is (matches or bool(when.log))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"step": Step.STOP, "retry": 0, "most": 0}, "The job is not retried."),
        ({"step": Step.STOP, "retry": 3, "most": 3}, "The job is not retried: 3 of 3 retries are used."),
        ({"step": Step.STOP, "obstacle": "the quota is too small"}, "The job is not retried: the quota is too small."),
        ({}, "The job starts again, retry 1 of 3."),
        ({"wait_seconds": 60}, "The job starts again, retry 1 of 3, after 1 min."),
        ({"step": Step.AGAIN_ELSEWHERE, "avoid": "node"}, "The job starts again on another node, retry 1 of 3."),
        (
            {"step": Step.AGAIN_ELSEWHERE, "avoid": "cluster"},
            "The job starts again on another cluster, or here later, retry 1 of 3.",
        ),
        ({"step": Step.MORE_MEMORY}, "The job starts again, retry 1 of 3."),
    ],
)
def test_the_next_step_is_said_with_what_changes(changes, text):
    said = {"step": Step.AGAIN, "retry": 1, "most": 3} | changes
    diagnosis = Diagnosis(FailureClass.PROGRAM, FailureClass.PROGRAM, "text", "rule", **said)
    assert next_step_text(diagnosis) == text
    assert diagnosis.goes_on == (said["step"] != Step.STOP)


def test_a_step_that_is_impossible_leaves_the_retry_unused():
    given = Diagnosis(FailureClass.NODE, FailureClass.NODE, "t", "r", Step.MORE_MEMORY, 2, 3, 60, growth=Rule("r"))
    found = given.stopped("x" * 300)
    assert (found.step, found.retry, found.most, found.wait_seconds, found.growth) == (Step.STOP, 1, 3, 0, None)
    assert found.obstacle == "x" * 200
    assert (given.is_ours, replace(given, own_class=FailureClass.PROGRAM).is_ours) == (True, False)


HERE = Rule("here", step=Step.AGAIN_HERE, retries=3, backoff_seconds=30, most_backoff_seconds=60, keep_seconds=90)


def test_a_rule_keeps_the_place_for_its_seconds_beyond_the_back_off():
    found = decided(facts(), HERE)
    assert (found.step, found.wait_seconds, found.keep_seconds, found.avoid) == (Step.AGAIN_HERE, 30, 90, "")
    assert next_step_text(found) == (
        "The job starts again in its place, if that can be kept, retry 1 of 3, after 30 s, for 1 min 30 s at most."
    )
    assert decided(facts(), HERE, history=History(by_rule={"Job: here": 3})).keep_seconds == 0


@pytest.mark.parametrize(
    ("bad", "cause"),
    [
        (crashed(143, disruption="DeletionByPodGC", node="n2"), Cause.NODE_LOST),
        (crashed(143, disruption="PreemptionByScheduler", node="n2"), Cause.PREEMPTED),
        (crashed(143, disruption="EvictionByEvictionAPI", node="n2"), Cause.SPOT),
        (crashed(1, taints=("gpu-xid=79:NoSchedule",), node="n2"), Cause.PROGRAM),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_a_place_that_is_the_cause_is_not_kept_whichever_pod_shows_it(bad, cause, is_first):
    pods = (bad, crashed(3)) if is_first else (crashed(3), bad)
    found = decided(facts(*pods, cause=cause), HERE)
    assert (found.step, found.avoid, found.avoid_seconds, found.node) == (Step.AGAIN_ELSEWHERE, "node", 3600, "n2")
    assert (found.keep_seconds, found.retry, found.most, found.rule) == (0, 1, 3, "Job: here")
    assert "on another node, not in its place, which is the cause" in next_step_text(found)


@pytest.mark.parametrize(
    ("rules", "pods", "seconds"),
    [
        ((replace(HERE, when=When(log=("lost",))),), (crashed(3),), 150),
        ((Rule("log", When(log=("lost",))), HERE), (crashed(3),), 150),
        ((Rule("log", When(log=("lost",))), replace(HERE, when=When(exit_codes=((4, 4),)))), (crashed(3),), 0),
        ((Rule("log", When(log=("lost",))), Rule("again", step=Step.AGAIN, retries=3)), (crashed(3),), 0),
        ((replace(HERE, when=When(log=("lost",))),), (crashed(3, taints=("gpu-xid=79:NoSchedule",)),), 0),
    ],
)
def test_while_a_log_is_read_the_place_is_kept_as_long_as_a_rule_that_may_match_keeps_it(rules, pods, seconds):
    found = judge([RuleSet("Job", rules)], facts(*pods), ONCE)
    assert isinstance(found, NeedsLog)
    assert found.kept_seconds == seconds
