"""Failure rules as users write them: what is refused, by its path, and what is stored is read as it was meant."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.engine.failures.facts import Seen
from federation.engine.failures.patterns import PRESETS
from federation.engine.failures.rules import MOST_RULES, FailureClass, Step
from federation.engine.intake.failure_rules import read_tenants_rules, rules_json, rules_of
from federation.engine.intake.normal_form import shape_of, spec_json
from federation.engine.intake.reading import Refused
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec

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
