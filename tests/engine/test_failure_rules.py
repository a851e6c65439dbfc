"""Failure rules as users write them: what is refused, by its path, and what is stored is read as it was meant."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.engine.failures.diagnoses import History, judge_without_logs
from federation.engine.failures.facts import Facts, PodFacts, Seen
from federation.engine.failures.patterns import PRESETS
from federation.engine.failures.rules import MOST_RULES, FailureClass, Rule, RuleSet, Step
from federation.engine.intake.failure_rules import read_tenants_rules, rules_json, rules_of
from federation.engine.intake.normal_form import shape_of, spec_json
from federation.engine.intake.reading import Refused
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.retries import Cause

SPEC = {"name": "train", "pod_sets": [{"name": "main", "image": "registry.example/a:1", "cpu": "1", "memory": "1Gi"}]}


def faults_of(*rules) -> dict[str, str]:
    with pytest.raises(Refused) as refused:
        read_tenants_rules({"rules": list(rules)})
    return {fault.field: fault.code for fault in refused.value.faults}


@pytest.mark.parametrize(
    ("rule", "field", "code"),
    [
        ({}, "name", "required"),
        ({"name": "Not A Label"}, "name", "bad_format"),
        ({"name": "x", "unless": {}}, "unless", "unknown_field"),
        ({"name": "x", "then": "explode"}, "then", "unknown_value"),
        ({"name": "x", "class": "bad_luck"}, "class", "unknown_value"),
        ({"name": "x", "retries": 3}, "retries", "not_allowed"),
        ({"name": "x", "then": "again", "retries": 0}, "retries", "out_of_range"),
        ({"name": "x", "then": "again", "retries": 101}, "retries", "out_of_range"),
        ({"name": "x", "then": "again", "retries": True}, "retries", "wrong_type"),
        ({"name": "x", "then": "again", "avoid": {}}, "avoid", "not_allowed"),
        ({"name": "x", "then": "again", "memory": {}}, "memory", "not_allowed"),
        ({"name": "x", "then": "again_elsewhere", "avoid": {"what": "region"}}, "avoid.what", "unknown_value"),
        ({"name": "x", "then": "again_elsewhere", "avoid": {"seconds": 10**9}}, "avoid.seconds", "out_of_range"),
        (
            {"name": "x", "then": "again", "backoff": {"seconds": 9, "most_seconds": 8}},
            "backoff.most_seconds",
            "out_of_range",
        ),
        ({"name": "x", "then": "more_memory", "memory": {"factor": "1.05"}}, "memory.factor", "out_of_range"),
        ({"name": "x", "then": "more_memory", "memory": {"factor": "1e9"}}, "memory.factor", "out_of_range"),
        ({"name": "x", "then": "more_memory", "memory": {"factor": "9"}}, "memory.factor", "out_of_range"),
        ({"name": "x", "then": "more_memory", "memory": {"most": "65Ti"}}, "memory.most", "out_of_range"),
        ({"name": "x", "then": "more_memory", "memory": {"most": "lots"}}, "memory.most", "bad_format"),
        ({"name": "x", "text": "a\nb"}, "text", "bad_characters"),
        ({"name": "x", "text": "a\u202eb"}, "text", "bad_characters"),
        ({"name": "x", "text": "x" * 301}, "text", "too_long"),
        ({"name": "x", "when": 7}, "when", "wrong_type"),
        ({"name": "x", "when": {"regex": "(a+)+$"}}, "when.regex", "unknown_field"),
        ({"name": "x", "when": {"exit_codes": [0]}}, "when.exit_codes[0]", "bad_format"),
        ({"name": "x", "when": {"exit_codes": ["9-3"]}}, "when.exit_codes[0]", "bad_format"),
        ({"name": "x", "when": {"exit_codes": [True]}}, "when.exit_codes[0]", "bad_format"),
        ({"name": "x", "when": {"exit_codes": list(range(1, 30))}}, "when.exit_codes", "too_many"),
        ({"name": "x", "when": {"signals": [0]}}, "when.signals[0]", "out_of_range"),
        ({"name": "x", "when": {"signals": ["9"]}}, "when.signals[0]", "out_of_range"),
        ({"name": "x", "when": {"seen": ["ghosts"]}}, "when.seen[0]", "bad_format"),
        ({"name": "x", "when": {"pod_sets": ["[a-z]"]}}, "when.pod_sets[0]", "bad_format"),
        ({"name": "x", "when": {"log": ["*"]}}, "when.log[0]", "bad_format"),
        ({"name": "x", "when": {"log": ["@nonsense"]}}, "when.log[0]", "bad_format"),
        ({"name": "x", "when": {"messages": ["\x00abc"]}}, "when.messages[0]", "bad_characters"),
    ],
)
def test_what_is_no_rule_is_refused_by_its_path(rule: dict, field: str, code: str):
    assert faults_of(rule) == {f"rules[0].{field}": code}


def test_every_code_and_signal_that_is_none_is_named():
    assert faults_of({"name": "x", "when": {"exit_codes": [0, 3, 256], "signals": [0, 9, 65]}}) == {
        "rules[0].when.exit_codes[0]": "bad_format",
        "rules[0].when.exit_codes[2]": "bad_format",
        "rules[0].when.signals[0]": "out_of_range",
        "rules[0].when.signals[2]": "out_of_range",
    }


def test_names_are_unique_and_rules_few():
    assert faults_of({"name": "x"}, {"name": "x"}) == {"rules[1].name": "duplicate"}
    assert faults_of(*({"name": f"r{n}"} for n in range(MOST_RULES + 1))) == {"rules": "too_many"}


given_rules = st.fixed_dictionaries(
    {"then": st.sampled_from([step.value for step in Step])},
    optional={
        "class": st.sampled_from([one.value for one in FailureClass]),
        "text": st.sampled_from(["", "It failed.", "Zu groß"]),
        "when": st.fixed_dictionaries(
            {},
            optional={
                "exit_codes": st.lists(st.integers(1, 255) | st.just("129-159"), max_size=4),
                "signals": st.lists(st.integers(1, 64), max_size=4),
                "seen": st.lists(st.sampled_from([one.value for one in Seen]), max_size=4),
                "pod_sets": st.just(["main", "worker-*"]),
                "node_taints": st.just(["gpu*unhealthy"]),
                "messages": st.just(["no space left"]),
                "log": st.lists(st.sampled_from([*PRESETS, "fatal*error"]), max_size=3),
            },
        ),
    },
)
more: dict[Step, st.SearchStrategy[dict[str, Any]]] = {
    Step.STOP: st.just({}),
    Step.AGAIN: st.fixed_dictionaries(
        {}, optional={"retries": st.integers(1, 100), "backoff": st.just({"seconds": 5})}
    ),
    Step.AGAIN_ELSEWHERE: st.fixed_dictionaries({}, optional={"avoid": st.just({"what": "cluster", "seconds": 60})}),
    Step.MORE_MEMORY: st.fixed_dictionaries({}, optional={"memory": st.just({"factor": "1.25", "most": "64Gi"})}),
    Step.AGAIN_HERE: st.fixed_dictionaries(
        {}, optional={"keep_seconds": st.integers(10, 600), "backoff": st.just({"seconds": 5})}
    ),
}
whole = given_rules.flatmap(lambda rule: more[Step(str(rule["then"]))].map(lambda extra: {**rule, **extra}))


@pytest.mark.law
@given(st.lists(whole, max_size=5))
def test_what_is_stored_is_read_as_it_was_meant(said):
    rules = read_tenants_rules({"rules": [{"name": f"r{number}", **rule} for number, rule in enumerate(said)]})
    assert rules_of(rules_json(rules)) == rules == read_tenants_rules({"rules": rules_json(rules)})


def test_a_jobs_rules_are_in_its_spec_and_not_in_its_shape():
    said = [{"name": "oom", "when": {"seen": ["out_of_memory"]}, "then": "more_memory"}]
    stored = spec_json(read_spec({**SPEC, "failure_rules": said}, Rules()))
    assert stored["failure_rules"][0]["memory"] == {"factor": "2", "most": None}
    assert read_spec(stored, Rules()) == read_spec({**SPEC, "failure_rules": said}, Rules())
    plain = spec_json(read_spec(SPEC, Rules()))
    assert "failure_rules" not in plain
    assert shape_of(stored) == shape_of(plain)


def read(**rule):
    (found,) = read_tenants_rules({"rules": [{"name": "x", **rule}]})
    return found


@pytest.mark.parametrize(
    ("field", "least", "most"),
    [
        ("when.exit_codes[0]", {"when": {"exit_codes": [1]}}, {"when": {"exit_codes": ["255"]}}),
        ("when.exit_codes[0]", {"when": {"exit_codes": ["1-255"]}}, {"when": {"exit_codes": ["7-7"]}}),
        ("when.signals[0]", {"when": {"signals": [1]}}, {"when": {"signals": [64]}}),
        ("retries", {"then": "again", "retries": 1}, {"then": "again", "retries": 100}),
        ("backoff.seconds", {"then": "again", "backoff": {"seconds": 0}}, {"then": "again", "backoff": {"seconds": 86_400}}),
        ("backoff", {"then": "again", "backoff": {"seconds": 8, "most_seconds": 8}},
         {"then": "again", "backoff": {"most_seconds": 86_400}}),
        ("avoid.seconds", {"then": "again_elsewhere", "avoid": {"seconds": 1}},
         {"then": "again_elsewhere", "avoid": {"seconds": 86_400}}),
        ("memory.factor", {"then": "more_memory", "memory": {"factor": "1.1"}},
         {"then": "more_memory", "memory": {"factor": "8"}}),
        ("memory.most", {"then": "more_memory", "memory": {"most": "1Mi"}},
         {"then": "more_memory", "memory": {"most": "64Ti"}}),
        ("keep_seconds", {"then": "again_here", "keep_seconds": 10}, {"then": "again_here", "keep_seconds": 600}),
        ("backoff", {"then": "again_here", "backoff": {"seconds": 600}}, {"then": "again_here", "backoff": {"most_seconds": 600}}),
        ("text", {"text": ""}, {"text": "x" * 300}),
        ("name", {"name": "a"}, {"name": "a" * 63}),
        ("when.exit_codes", {"when": {"exit_codes": []}}, {"when": {"exit_codes": list(range(1, 21))}}),
        ("when.signals", {"when": {"signals": []}}, {"when": {"signals": list(range(1, 21))}}),
    ],
)  # fmt: skip
def test_what_is_at_its_limit_is_a_rule(field, least, most):
    for rule in (least, most):
        assert read(**rule), field


@pytest.mark.parametrize(
    ("rule", "field", "code"),
    [
        ({"when": {"exit_codes": [256]}}, "when.exit_codes[0]", "bad_format"),
        ({"when": {"exit_codes": [3, "200-256"]}}, "when.exit_codes[1]", "bad_format"),
        ({"when": {"exit_codes": [3.0]}}, "when.exit_codes[0]", "bad_format"),
        ({"when": {"signals": [65]}}, "when.signals[0]", "out_of_range"),
        ({"when": {"signals": [9, True]}}, "when.signals[1]", "out_of_range"),
        ({"when": {"signals": list(range(1, 22))}}, "when.signals", "too_many"),
        ({"when": {"log": ["ab"]}}, "when.log[0]", "bad_format"),
        ({"when": {"node_taints": ["gpu", "*"]}}, "when.node_taints[1]", "bad_format"),
        ({"then": "stop", "backoff": {"seconds": 1}}, "backoff", "not_allowed"),
        ({"then": "stop", "memory": {}}, "memory", "not_allowed"),
        ({"then": "more_memory", "avoid": {}}, "avoid", "not_allowed"),
        ({"then": "again", "backoff": {"seconds": 86_401}}, "backoff.seconds", "out_of_range"),
        ({"then": "again", "backoff": {"seconds": -1}}, "backoff.seconds", "out_of_range"),
        ({"then": "again", "backoff": {"most_seconds": 86_401}}, "backoff.most_seconds", "out_of_range"),
        ({"then": "again", "backoff": {"hours": 1}}, "backoff.hours", "unknown_field"),
        ({"then": "again_elsewhere", "avoid": {"seconds": 0}}, "avoid.seconds", "out_of_range"),
        ({"then": "again_elsewhere", "avoid": {"node": "n1"}}, "avoid.node", "unknown_field"),
        ({"then": "more_memory", "memory": {"factor": "1.0"}}, "memory.factor", "out_of_range"),
        ({"then": "more_memory", "memory": {"factor": "8.001"}}, "memory.factor", "out_of_range"),
        ({"then": "more_memory", "memory": {"most": "1023Ki"}}, "memory.most", "out_of_range"),
        ({"then": "more_memory", "memory": {"least": "1Gi"}}, "memory.least", "unknown_field"),
        ({"then": "again_here", "keep_seconds": 9}, "keep_seconds", "out_of_range"),
        ({"then": "again_here", "keep_seconds": 601}, "keep_seconds", "out_of_range"),
        ({"then": "again_here", "keep_seconds": True}, "keep_seconds", "wrong_type"),
        ({"then": "again_here", "backoff": {"seconds": 601}}, "backoff.seconds", "out_of_range"),
        ({"then": "again_here", "backoff": {"most_seconds": 601}}, "backoff.most_seconds", "out_of_range"),
        ({"then": "again_here", "avoid": {}}, "avoid", "not_allowed"),
        ({"then": "again", "keep_seconds": 60}, "keep_seconds", "not_allowed"),
        ({"keep_seconds": 60}, "keep_seconds", "not_allowed"),
    ],
)
def test_what_goes_beyond_its_limit_is_refused_by_its_path(rule, field, code):
    assert faults_of({"name": "x", **rule}) == {f"rules[0].{field}": code}


def test_a_rule_is_read_with_all_that_it_says():
    rule = read(
        when={"exit_codes": ["129-159", 3, "3"], "signals": [9, 7, 9], "seen": ["device"], "pod_sets": ["worker-*"],
              "node_taints": ["gpu*bad"], "messages": ["no space"], "log": ["@nccl" if "nccl" in PRESETS else "nccl*lost"]},
        **{"class": "node"}, text="It broke.", then="again_elsewhere", retries=5,
        backoff={"seconds": 30, "most_seconds": 600}, avoid={"what": "cluster", "seconds": 60},
    )  # fmt: skip
    assert (rule.when.exit_codes, rule.when.signals) == (((3, 3), (129, 159)), (7, 9))
    assert (rule.when.seen, rule.when.pod_sets, rule.when.node_taints) == ((Seen.DEVICE,), ("worker-*",), ("gpu*bad",))
    assert (rule.when.messages, len(rule.when.log)) == (("no space",), 1)
    assert (rule.failure_class, rule.text, rule.step) == (FailureClass.NODE, "It broke.", Step.AGAIN_ELSEWHERE)
    assert (rule.retries, rule.backoff_seconds, rule.most_backoff_seconds) == (5, 30, 600)
    assert (rule.avoid, rule.avoid_seconds, rule.memory_milli, rule.most_memory_bytes) == ("cluster", 60, 0, 0)
    (stored,) = rules_json([rule])
    assert stored["when"]["exit_codes"] == [3, "129-159"]
    assert stored["avoid"] == {"what": "cluster", "seconds": 60}
    assert (stored["class"], stored["text"], stored["then"], stored["retries"]) == (
        "node",
        "It broke.",
        "again_elsewhere",
        5,
    )
    assert stored["backoff"] == {"seconds": 30, "most_seconds": 600}
    assert set(stored["when"]) == {"exit_codes", "signals", "seen", "pod_sets", "node_taints", "messages", "log"}
    assert rules_of([stored]) == (rule,)


def test_what_a_rule_leaves_out_has_its_usual_value():
    again, elsewhere, memory, stop = (read(then=step) for step in ("again", "again_elsewhere", "more_memory", "stop"))
    assert (again.retries, again.backoff_seconds, again.most_backoff_seconds) == (3, 0, 86_400)
    assert (again.avoid, again.avoid_seconds, again.memory_milli) == ("", 0, 0)
    assert (elsewhere.avoid, elsewhere.avoid_seconds) == ("node", 3600)
    assert read(then="again_elsewhere", avoid={"seconds": 60}).avoid == "node"
    assert read(then="again_elsewhere", avoid={"what": "node"}) == elsewhere
    assert read(then="again_elsewhere", avoid={"what": "cluster"}).avoid_seconds == 3600
    assert (memory.memory_milli, memory.most_memory_bytes) == (2000, 0)
    assert read(then="more_memory", memory={"most": "64Gi"}).most_memory_bytes == 64 * 2**30
    assert (read(then="more_memory", memory={"most": "64Gi"}).memory_milli) == 2000
    assert (stop.retries, stop.backoff_seconds, stop.most_backoff_seconds, stop.failure_class) == (0, 0, 0, None)
    assert read() == stop
    assert rules_json([stop]) == [{"name": "x", "when": {}, "then": "stop"}]
    assert rules_json([memory])[0]["memory"] == {"factor": "2", "most": None}
    assert "avoid" not in rules_json([again])[0]
    here = read(then="again_here")
    assert (here.keep_seconds, here.backoff_seconds, here.most_backoff_seconds, here.retries) == (120, 0, 600, 3)
    assert (here.longest_kept_seconds, again.longest_kept_seconds, again.keep_seconds) == (720, 0, 0)
    assert rules_json([here])[0]["keep_seconds"] == 120
    assert "keep_seconds" not in rules_json([again])[0]
    assert rules_json([read(then="more_memory", memory={"factor": "1.25", "most": "64Gi"})])[0]["memory"] == {
        "factor": "1.25", "most": "64Gi",
    }  # fmt: skip


@pytest.mark.parametrize("step", Step)
def test_what_a_rule_says_for_another_step_does_not_count(step):
    rule = Rule("x", step=step, retries=3, avoid="cluster", avoid_seconds=60, memory_milli=1500, keep_seconds=90)
    failed = Facts(Cause.PROGRAM, [PodFacts("p0", pod_set="main", node="n1", exit_code=1)])
    found = judge_without_logs([RuleSet("Job", [rule])], failed, History())
    assert (found.rule, found.step) == ("Job: x", step)
    assert (found.avoid, found.avoid_seconds) == (("cluster", 60) if step == Step.AGAIN_ELSEWHERE else ("", 0))
    assert found.keep_seconds == (90 if step == Step.AGAIN_HERE else 0)
    assert found.growth is (rule if step == Step.MORE_MEMORY else None)
