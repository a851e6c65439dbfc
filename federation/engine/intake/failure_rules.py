"""Failure rules, read from untrusted JSON, and as JSON again. `read_rules(rules_json(rules)) == rules`."""

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from federation.engine import names
from federation.engine.failures import patterns
from federation.engine.failures.facts import MOST_SIGNAL, Seen
from federation.engine.failures.rules import (
    LEAST_KEPT_SECONDS,
    MOST_CONDITIONS,
    MOST_KEPT_SECONDS,
    MOST_RETRIES_OF_RULE,
    MOST_RULES,
    MOST_SECONDS,
    MOST_SECONDS_HERE,
    THOUSANDTHS,
    FailureClass,
    Rule,
    Step,
    When,
)
from placement.values.quantities import NotAQuantity, memory_text, whole_bytes

from .reading import Faults, Fields
from .spec import MAX_MEMORY_BYTES, MIN_MEMORY_BYTES, Rules

RULE_FIELDS = frozenset(
    ["name", "when", "class", "text", "then", "retries", "backoff", "avoid", "memory", "keep_seconds"]
)
WHEN_FIELDS = frozenset(["exit_codes", "signals", "seen", "pod_sets", "node_taints", "messages", "log"])
BACKOFF_FIELDS = frozenset(["seconds", "most_seconds"])
AVOID_FIELDS = frozenset(["what", "seconds"])
MEMORY_FIELDS = frozenset(["factor", "most"])
USUAL_RETRIES_OF_RULE = 3
USUAL_AVOID_SECONDS = 3600
USUAL_FACTOR_MILLI = 2000
USUAL_KEPT_SECONDS = 120
LEAST_FACTOR, MOST_FACTOR = Decimal("1.1"), Decimal(8)
MOST_TEXT_BYTES = 300
MOST_CODE = 255
AVOIDABLE = ("node", "cluster")
_CODES = re.compile(r"([0-9]{1,3})(?:-([0-9]{1,3}))?")
_POD_SET = re.compile(r"[a-z0-9*]([a-z0-9*-]{0,61}[a-z0-9*])?")
_FACTOR = re.compile(r"[0-9](\.[0-9]{1,3})?")
_CLASSES = [one.value for one in FailureClass]
_STEPS = [one.value for one in Step]
_SEEN = [one.value for one in Seen]


def read_rules(fields: Fields, _rules: Rules | None = None, *, name: str = "failure_rules") -> tuple[Rule, ...]:
    """The rules of a list, in its order; each has its own name."""
    found: list[Rule] = []
    for index, value in enumerate(fields.array(name, most=MOST_RULES)):
        given = Fields(value, f"{fields.at(name)}[{index}]", fields.faults, RULE_FIELDS)
        rule = _read_rule(given)
        if any(one.name == rule.name for one in found):
            given.fault("name", "duplicate", "another rule has this name")
        found.append(rule)
    return tuple(found)


def read_tenants_rules(value: object) -> tuple[Rule, ...]:
    """The rules in a JSON object `{"rules": […]}`. Raises Refused with every field at fault."""
    faults = Faults()
    found = read_rules(Fields(value, "", faults, frozenset(["rules"])), name="rules")
    faults.refuse_if_any()
    return found


def _read_rule(given: Fields) -> Rule:
    step = Step(given.choice("then", _STEPS, Step.STOP.value))
    failure_class = given.choice("class", _CLASSES, "")
    is_again = step != Step.STOP
    for name, own in (("avoid", Step.AGAIN_ELSEWHERE), ("memory", Step.MORE_MEMORY), ("keep_seconds", Step.AGAIN_HERE)):
        if given.values.get(name) is not None and step != own:
            given.fault(name, "not_allowed", f"only with `then`: {own}")
    for name in ("retries", "backoff"):
        if given.values.get(name) is not None and not is_again:
            given.fault(name, "not_allowed", "a rule that stops the job has no retries")
    backoff, most_backoff = _read_backoff(given, MOST_SECONDS_HERE if step == Step.AGAIN_HERE else MOST_SECONDS)
    avoid, avoid_seconds = _read_avoid(given) if step == Step.AGAIN_ELSEWHERE else ("", 0)
    factor, most_memory = _read_memory(given) if step == Step.MORE_MEMORY else (0, 0)
    return Rule(
        name=given.checked("name", names.dns_label, "a DNS label such as nccl-timeout", most_bytes=63),
        when=_read_when(given),
        failure_class=FailureClass(failure_class) if failure_class else None,
        text=_read_text(given),
        step=step,
        retries=given.whole("retries", 1, MOST_RETRIES_OF_RULE, USUAL_RETRIES_OF_RULE) if is_again else 0,
        backoff_seconds=backoff if is_again else 0,
        most_backoff_seconds=most_backoff if is_again else 0,
        avoid=avoid,
        avoid_seconds=avoid_seconds,
        memory_milli=factor,
        keep_seconds=_read_kept_seconds(given) if step == Step.AGAIN_HERE else 0,
        most_memory_bytes=most_memory,
    )


def _read_text(given: Fields) -> str:
    text = given.text("text", default="", most_bytes=MOST_TEXT_BYTES)
    if not text.isprintable():
        given.fault("text", "bad_characters", "printable characters of one line")
        return ""
    return text


def _read_when(given: Fields) -> When:
    value = given.values.get("when")
    own = Fields({} if value is None else value, given.at("when"), given.faults, WHEN_FIELDS)
    return When(
        exit_codes=_read_codes(own),
        signals=_read_signals(own),
        seen=tuple(Seen(one) for one in own.names("seen", _SEEN.__contains__, f"one of: {', '.join(_SEEN)}")
                   if one in _SEEN),
        pod_sets=own.names("pod_sets", _POD_SET.fullmatch, "a pod set's name; '*' matches anything", most=MOST_CONDITIONS),
        node_taints=_read_patterns(own, "node_taints"),
        messages=_read_patterns(own, "messages"),
        log=_read_patterns(own, "log"),
    )  # fmt: skip


def _read_codes(own: Fields) -> tuple[tuple[int, int], ...]:
    found = []
    for index, value in enumerate(own.array("exit_codes", most=MOST_CONDITIONS)):
        text = str(value) if type(value) is int else value
        match = _CODES.fullmatch(text) if isinstance(text, str) else None
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not match or not 1 <= first <= last <= MOST_CODE:
            own.fault(f"exit_codes[{index}]", "bad_format", 'a code from 1 to 255, or a range such as "129-159"')
            continue
        found.append((first, last))
    return tuple(sorted(set(found)))


def _read_signals(own: Fields) -> tuple[int, ...]:
    found = []
    for index, value in enumerate(own.array("signals", most=MOST_CONDITIONS)):
        if type(value) is not int or not 1 <= value <= MOST_SIGNAL:
            own.fault(f"signals[{index}]", "out_of_range", f"a number from 1 to {MOST_SIGNAL}")
            continue
        found.append(value)
    return tuple(sorted(set(found)))


def _read_patterns(own: Fields, name: str) -> tuple[str, ...]:
    found = own.texts(name, most=MOST_CONDITIONS, most_bytes=4 * patterns.MOST_PATTERN)
    for index, one in enumerate(found):
        if fault := patterns.fault_of(one):
            own.fault(f"{name}[{index}]", "bad_format", fault)
    return found


def _read_backoff(given: Fields, longest: int) -> tuple[int, int]:
    if given.values.get("backoff") is None:
        return 0, longest
    own = Fields(given.values["backoff"], given.at("backoff"), given.faults, BACKOFF_FIELDS)
    seconds = own.whole("seconds", 0, longest, 0) or 0
    most = own.whole("most_seconds", 0, longest, longest)
    if most is not None and most < seconds:
        own.fault("most_seconds", "out_of_range", "at least `seconds`")
    return seconds, longest if most is None else most


def _read_kept_seconds(given: Fields) -> int:
    found = given.whole("keep_seconds", LEAST_KEPT_SECONDS, MOST_KEPT_SECONDS, USUAL_KEPT_SECONDS)
    return found or USUAL_KEPT_SECONDS


def _read_avoid(given: Fields) -> tuple[str, int]:
    if given.values.get("avoid") is None:
        return "node", USUAL_AVOID_SECONDS
    own = Fields(given.values["avoid"], given.at("avoid"), given.faults, AVOID_FIELDS)
    seconds = own.whole("seconds", 1, MOST_SECONDS, USUAL_AVOID_SECONDS)
    return own.choice("what", AVOIDABLE, "node"), seconds or USUAL_AVOID_SECONDS


def _read_memory(given: Fields) -> tuple[int, int]:
    if given.values.get("memory") is None:
        return USUAL_FACTOR_MILLI, 0
    own = Fields(given.values["memory"], given.at("memory"), given.faults, MEMORY_FIELDS)
    text = own.text("factor", default="2", most_bytes=8)
    factor = Decimal(text) if _FACTOR.fullmatch(text) else Decimal(0)
    if not LEAST_FACTOR <= factor <= MOST_FACTOR:
        own.fault("factor", "out_of_range", f'a number as text from "{LEAST_FACTOR}" to "{MOST_FACTOR}"')
        factor = MOST_FACTOR
    return int(factor * THOUSANDTHS), _read_most_memory(own)


def _read_most_memory(own: Fields) -> int:
    if own.values.get("most") is None:
        return 0
    text = own.quantity("most")
    try:
        most = whole_bytes(text) if text else MIN_MEMORY_BYTES
    except NotAQuantity as error:
        own.fault("most", "bad_format", str(error))
        return MIN_MEMORY_BYTES
    if not MIN_MEMORY_BYTES <= most <= MAX_MEMORY_BYTES:
        own.fault("most", "out_of_range", "between 1Mi and 64Ti")
        return MIN_MEMORY_BYTES
    return most


def rules_json(rules: Sequence[Rule]) -> list[dict[str, Any]]:
    """The rules with every field that says something."""
    return [_rule_json(rule) for rule in rules]


def _rule_json(rule: Rule) -> dict[str, Any]:
    found: dict[str, Any] = {"name": rule.name, "when": _when_json(rule.when), "then": rule.step.value}
    if rule.failure_class:
        found["class"] = rule.failure_class.value
    if rule.text:
        found["text"] = rule.text
    if rule.step == Step.STOP:
        return found
    found["retries"] = rule.retries
    found["backoff"] = {"seconds": rule.backoff_seconds, "most_seconds": rule.most_backoff_seconds}
    if rule.step == Step.AGAIN_ELSEWHERE:
        found["avoid"] = {"what": rule.avoid, "seconds": rule.avoid_seconds}
    if rule.step == Step.AGAIN_HERE:
        found["keep_seconds"] = rule.keep_seconds
    if rule.step == Step.MORE_MEMORY:
        most = memory_text(rule.most_memory_bytes) if rule.most_memory_bytes else None
        found["memory"] = {"factor": f"{Decimal(rule.memory_milli) / THOUSANDTHS:f}", "most": most}
    return found


def _when_json(when: When) -> dict[str, Any]:
    found: dict[str, Any] = {
        "exit_codes": [first if first == last else f"{first}-{last}" for first, last in when.exit_codes],
        "signals": list(when.signals),
        "seen": [one.value for one in when.seen],
        "pod_sets": list(when.pod_sets),
        "node_taints": list(when.node_taints),
        "messages": list(when.messages),
        "log": list(when.log),
    }
    return {name: values for name, values in found.items() if values}


def rules_of(stored: Sequence[dict[str, Any]]) -> tuple[Rule, ...]:
    """Stored rules (in their normal form) as values."""
    return read_rules(Fields({"failure_rules": list(stored)}, "", Faults(), frozenset(["failure_rules"])))
