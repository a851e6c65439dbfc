"""The failure rules that apply to a tenant, in their order, and the forms that change its own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from federation.engine.failures import patterns
from federation.engine.failures.defaults import DEFAULTS
from federation.engine.failures.facts import Seen
from federation.engine.failures.rules import MOST_SECONDS, MOST_SECONDS_HERE, FailureClass, Rule, Step
from federation.operations import put_failure_rules
from federation.queries.failures import RulesView, rules_at
from foundation.pages import Form, show, typed
from foundation.problems import Conflict, Invalid, NotFound, Problem
from foundation.templatetags.display import duration
from tenancy.engine.roles import Permission
from tenancy.queries import Actor
from tenancy.web import action, page

from .jobs import Options
from .typing_in import whole_number, words_of

BY_COMMAS = ("exit_codes", "signals", "seen", "pod_sets")
BY_LINES = ("node_taints", "messages", "log")
NESTED = {
    "backoff": {"backoff_seconds": "seconds", "backoff_most_seconds": "most_seconds"},
    "avoid": {"avoid_what": "what", "avoid_seconds": "seconds"},
    "memory": {"memory_factor": "factor", "memory_most": "most"},
}
TEXTS = frozenset({"avoid_what", "memory_factor", "memory_most"})
"""Controls whose values remain text."""
WHOLE = ("retries", "keep_seconds")
CONTROLS = {
    **{name: name for name in ("name", "then", "class", "text", *WHOLE)},
    **{f"when.{name}": name for name in (*BY_COMMAS, *BY_LINES)},
    **{f"{part}.{field}": control for part, fields in NESTED.items() for control, field in fields.items()},
    **{part: next(iter(fields)) for part, fields in NESTED.items()},
}
STEPS: Options = (
    (Step.STOP.value, "stop: the job fails"),
    (Step.AGAIN.value, "start again, anywhere"),
    (Step.AGAIN_ELSEWHERE.value, "start again elsewhere"),
    (Step.MORE_MEMORY.value, "start again with more memory"),
    (Step.AGAIN_HERE.value, "start again in the same place, which is kept"),
)
CLASSES: Options = (
    ("", "as the gateway classifies it"),
    *((one.value, one.value.replace("_", " ")) for one in FailureClass),
)
AVOIDABLE: Options = (("", "usual"), ("node", "the node"), ("cluster", "the cluster"))
SEEN_HINT = f"Separate with commas: {', '.join(one.value for one in Seen)}."
PATTERNS_HINT = f"One per line; * matches anything. Or a name: {', '.join(patterns.PRESETS)}."
NAMES = {"exit_codes": "exit code", "signals": "signal", "seen": "the cluster reports", "pod_sets": "pod set",
         "node_taints": "node taint", "messages": "message", "log": "log"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule as text; `when` are its conditions, (name, values)."""

    name: str
    when: tuple[tuple[str, str], ...]
    then: str
    shown_as: str


@dataclass(frozen=True, slots=True)
class RulesPage:
    """`version` is that of the own rules on the page."""

    tenant_id: UUID
    tenant_path: str
    may_edit: bool
    version: str
    own: tuple[RuleRow, ...]
    above: tuple[tuple[str, tuple[RuleRow, ...]], ...]
    defaults: tuple[RuleRow, ...]
    form: Form


@dataclass(frozen=True, slots=True)
class RulePage:
    """`name` is empty for a new rule."""

    tenant_id: UUID
    tenant_path: str
    name: str
    version: str
    form: Form
    steps: Options = STEPS
    classes: Options = CLASSES
    avoidable: Options = AVOIDABLE
    seen_hint: str = SEEN_HINT
    patterns_hint: str = PATTERNS_HINT


@page
def rules(request: HttpRequest, actor: Actor, tenant_id: UUID) -> HttpResponse:
    """The rules in the order in which they are tried."""
    return _show_rules(request, rules_at(actor, tenant_id), Form())


@page(takes=("name",))
def rule(request: HttpRequest, actor: Actor, tenant_id: UUID) -> HttpResponse:
    """The form of a rule, `name`, or of a new one, which becomes the last."""
    view = rules_at(actor, tenant_id, Permission.MANAGE_TENANTS)
    name = request.GET.get("name", "")
    if request.method != "POST":
        found = next((one for one in view.own if one["name"] == name), None)
        if name and found is None:
            raise NotFound
        return _show_rule(request, view, name, view.version, Form(values=_values(found or {})))
    values = typed(request)
    try:
        own, index = list(view.own), _index(view, name)
        own[index : index + 1] = [_body(values)]
        _put(actor, view, own, values, index)
    except Problem as problem:
        form = Form.refused(values, problem, CONTROLS)
        return _show_rule(request, view, name, values.get("version", ""), form, status=problem.status)
    messages.success(request, "The rule is saved. It judges each failure from now on.")
    return redirect("failure-rules", tenant_id)


@action
def change(request: HttpRequest, actor: Actor, tenant_id: UUID) -> HttpResponse:
    """Moves a rule up or down, or removes it."""
    view = rules_at(actor, tenant_id, Permission.MANAGE_TENANTS)
    values = typed(request)
    act, own = values.get("act", ""), list(view.own)
    try:
        index = _index(view, values.get("name", "") or "-")
        if act not in {"up", "down", "remove"}:
            raise Invalid.field("act", "unknown_value", "up, down or remove")
        moved = own.pop(index)
        if act != "remove":
            own.insert(max(index - 1, 0) if act == "up" else index + 1, moved)
        _put(actor, view, own, values, index)
    except Problem as problem:
        return _show_rules(request, view, Form.refused(values, problem, {}), status=problem.status)
    messages.success(request, "The rule is removed." if act == "remove" else "The order is changed.")
    return redirect("failure-rules", tenant_id)


def _put(actor: Actor, view: RulesView, own: Sequence[Any], values: Mapping[str, str], index: int) -> None:
    """Sets the rules if the form was made from the current ones. Errors name the fields of the rule at the index."""
    try:
        put_failure_rules(actor, view.tenant.id, {"rules": own}, version=values.get("version", "") or "none")
    except Invalid as problem:
        prefix = f"rules[{index}]."
        errors = [replace(error, field=error.field.removeprefix(prefix)) for error in problem.errors]
        raise Invalid(problem.detail, errors=errors) from None


def _index(view: RulesView, name: str) -> int:
    """Where the rule is, or behind the last for a new one. Raises Conflict if it was removed meanwhile."""
    if not name:
        return len(view.own)
    for index, one in enumerate(view.own):
        if one["name"] == name:
            return index
    raise Conflict("This rule was removed or renamed meanwhile.", code="state_conflict")


def _show_rules(request: HttpRequest, view: RulesView, form: Form, *, status: int = 200) -> HttpResponse:
    shown = RulesPage(
        tenant_id=view.tenant.id,
        tenant_path=view.tenant.path,
        may_edit=view.may_edit,
        version=view.version,
        own=tuple(map(_row, view.own)),
        above=tuple((path, tuple(map(_row, found))) for path, found in view.above),
        defaults=tuple(map(_default_row, DEFAULTS.rules)),
        form=form,
    )
    return show(request, "federation/failure_rules.html", shown, status=status)


def _show_rule(
    request: HttpRequest, view: RulesView, name: str, version: str, form: Form, *, status: int = 200
) -> HttpResponse:
    shown = RulePage(view.tenant.id, view.tenant.path, name, version, form)
    return show(request, "federation/failure_rule.html", shown, status=status)


def _row(stored: Mapping[str, Any]) -> RuleRow:
    when = tuple((NAMES[name], ", ".join(map(str, values))) for name, values in stored["when"].items())
    shown_as = ": ".join(filter(None, (stored.get("class", "").replace("_", " "), stored.get("text", ""))))
    return RuleRow(stored["name"], when, _then(stored), shown_as)


def _then(stored: Mapping[str, Any]) -> str:
    step = Step(stored["then"])
    if step == Step.STOP:
        return "the job fails"
    parts = ["starts again"]
    if step == Step.AGAIN_ELSEWHERE:
        parts = [f"starts again, avoids the {stored['avoid']['what']} for {duration(stored['avoid']['seconds'])}"]
    if step == Step.MORE_MEMORY:
        most = f", up to {stored['memory']['most']}" if stored["memory"]["most"] else ""
        parts = [f"starts again with {stored['memory']['factor']} times the memory{most}"]
    if step == Step.AGAIN_HERE:
        parts = [f"starts again in its place, which is kept for {duration(stored['keep_seconds'])}"]
    parts.append(f"at most {stored['retries']} times")
    if stored["backoff"]["seconds"]:
        parts.append(f"after {duration(stored['backoff']['seconds'])} and twice as long each time")
    return ", ".join(parts)


def _default_row(one: Rule) -> RuleRow:
    steps = {Step.STOP: "the job fails", Step.AGAIN: "starts again", Step.AGAIN_ELSEWHERE: "starts again elsewhere"}
    name = one.name.replace("_", " ")
    return RuleRow(
        name, (("", one.text),), steps[one.step], one.failure_class.value.replace("_", " ") if one.failure_class else ""
    )


def _values(stored: Mapping[str, Any]) -> dict[str, str]:
    """A stored rule as the controls show it; a wait that is none is not shown."""
    if not stored:
        return {"then": Step.AGAIN_ELSEWHERE.value}
    found = {name: str(stored.get(name, "")) for name in ("name", "then", "class", "text", *WHOLE)}
    when = stored["when"]
    found |= {name: ", ".join(map(str, when.get(name, ()))) for name in BY_COMMAS}
    found |= {name: "\n".join(when.get(name, ())) for name in BY_LINES}
    for part, fields in NESTED.items():
        given = stored.get(part) or {}
        if part == "backoff" and given.get("seconds") == 0 and given.get("most_seconds") == _usual_most(stored):
            continue
        found |= {control: "" if given.get(field) is None else str(given[field]) for control, field in fields.items()}
    return found


def _usual_most(stored: Mapping[str, Any]) -> int:
    return MOST_SECONDS_HERE if stored["then"] == Step.AGAIN_HERE else MOST_SECONDS


def _body(values: Mapping[str, str]) -> dict[str, Any]:
    """The rule as the API takes it; an empty control is left out."""
    given = {name: value.strip() for name, value in values.items() if value.strip()}
    body: dict[str, Any] = {name: given[name] for name in ("class", "text") if name in given}
    body |= {"name": given.get("name", ""), "then": given.get("then", "")}
    when: dict[str, Any] = {name: words_of(given[name]) for name in BY_COMMAS if name in given}
    if "signals" in when:
        when["signals"] = [whole_number(word) for word in when["signals"]]
    when |= {
        name: [line.strip() for line in given[name].splitlines() if line.strip()] for name in BY_LINES if name in given
    }
    body["when"] = when
    body |= {name: whole_number(given[name]) for name in WHOLE if name in given}
    for part, fields in NESTED.items():
        parts = {f: given[c] if c in TEXTS else whole_number(given[c]) for c, f in fields.items() if c in given}
        if parts:
            body[part] = parts
    return body
