"""Priority classes: the list, and for operators of the installation the form that sets or removes one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from federation.engine.intake.priority_classes import ROLE_NAMES, WantedGrant, gpus_text
from federation.models import PriorityClass
from federation.operations import put_class, remove_class
from federation.operations.priority_classes import ACT
from federation.queries.priority_classes import as_wanted, class_by_id, visible_classes
from foundation.pages import Form, show, typed
from foundation.problems import FieldError, Invalid, Problem
from quotas.engine.amounts import format_amount
from quotas.queries import visible_class_limits
from tenancy.queries import Actor, require_operator
from tenancy.web import action, page

from .jobs import Options
from .typing_in import whole_number

ANY = "*"
NAMED_ALIKE = (
    "name",
    "value",
    "description",
    "is_default",
    "preempts",
    "shield_seconds",
    "most_running",
    "most_gpus",
    "grants",
)
CONTROLS = {name: name for name in NAMED_ALIKE} | {"is_open": "open_to"}
PREEMPTS_OPTIONS: Options = (("never", "never"), ("lower", "yes, those of lower priority"))
OPEN_OPTIONS: Options = (("", "only those below"), ("all", "everyone who may submit jobs"))
DEFAULT_OPTIONS: Options = (("", "no"), ("yes", "yes"))
GRANT_WORDS = "one grant per line: a role or *, then a tenant's path or *"


@dataclass(frozen=True, slots=True)
class ClassLine:
    """A class with the sentences about who may use it."""

    id: UUID
    name: str
    value: int
    description: str
    is_default: bool
    preempts: str
    shield_seconds: int
    limits: tuple[str, ...]
    users: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClassesPage:
    classes: tuple[ClassLine, ...]
    may_edit: bool


@dataclass(frozen=True, slots=True)
class ClassPage:
    """`row` is the class that the form changes; None for a new one."""

    form: Form
    row: PriorityClass | None
    roles: str = ", ".join(ROLE_NAMES)
    open_options: Options = OPEN_OPTIONS
    default_options: Options = DEFAULT_OPTIONS
    preempts_options: Options = PREEMPTS_OPTIONS


@page
def priority_classes(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The classes that the actor may see, the most urgent first."""
    rows = visible_classes(actor).order_by("-value", "name")
    of_tenants = _limits_of_tenants(actor)
    lines = tuple(_line(row, of_tenants.get(row.name, ())) for row in rows)
    shown = ClassesPage(lines, may_edit=actor.runs_the_installation)
    return show(request, "federation/priority_classes.html", shown)


@page
def create(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The form for a new class."""
    return _edit(request, actor, None)


@page
def edit(request: HttpRequest, actor: Actor, class_id: UUID) -> HttpResponse:
    """The form that changes a class."""
    return _edit(request, actor, class_by_id(actor, class_id))


@action
def remove(request: HttpRequest, actor: Actor, class_id: UUID) -> HttpResponse:
    """Removes a class, then redirects to the list."""
    remove_class(actor, class_id)
    messages.success(request, "The priority class is removed.")
    return redirect("priority-classes")


def _edit(request: HttpRequest, actor: Actor, row: PriorityClass | None) -> HttpResponse:
    require_operator(actor, ACT)
    if request.method != "POST":
        return show(request, "federation/priority_class.html", ClassPage(Form(values=_values(row)), row))
    values = typed(request)
    try:
        stored, is_new = put_class(actor, _body(values, row))
    except Problem as problem:
        form = Form.refused(values, problem, CONTROLS)
        return show(request, "federation/priority_class.html", ClassPage(form, row), status=problem.status)
    verb = "created" if is_new else "set"
    messages.success(request, f"The priority class {stored.name} is {verb}. Submitted jobs keep their priority.")
    return redirect("priority-classes")


def _line(row: PriorityClass, of_tenants: Sequence[str]) -> ClassLine:
    users = ("everyone who may submit jobs",) if row.is_open else tuple(map(_users, as_wanted(row).grants))
    shown = row.preempts, row.shield_seconds, (*_limits(row), *of_tenants)
    return ClassLine(row.id, row.name, row.value, row.description, row.is_default, *shown, users=users)


def _limits(row: PriorityClass) -> Iterator[str]:
    """`at most 4 jobs at the same time, 3 now`."""
    held = (("job", row.most_running, row.running), ("GPU", row.most_gpus, row.gpus))
    for word, most, now in held:
        if most is not None and now is not None:
            amount, used = (str(one) if word == "job" else gpus_text(one) for one in (most, now))
            yield f"at most {amount} {word if amount == '1' else f'{word}s'} at the same time, {used} now"


def _limits_of_tenants(actor: Actor) -> Mapping[str, Sequence[str]]:
    """By class, `in acme/research: at most 4 jobs at the same time, 3 now`; of the tenants that the actor sees."""
    found: dict[str, list[str]] = {}
    for limit in visible_class_limits(actor).order_by("tenant__path", "resource").annotate(path=F("tenant__path")):
        most, now = (format_amount(limit.resource, amount) for amount in (limit.most, limit.held))
        told = f"in {limit.path}: at most {most} {limit.resource} at the same time, {now} now"
        found.setdefault(limit.class_name, []).append(told)
    return found


def _users(grant: WantedGrant) -> str:
    who = f"role {grant.role}" if grant.role else "everyone who may submit jobs"
    return f"{who} in {grant.tenant_path}" if grant.tenant_path else who


def _values(row: PriorityClass | None) -> dict[str, str]:
    if row is None:
        return {}
    lines = (f"{grant.role or ANY} {grant.tenant_path or ANY}" for grant in as_wanted(row).grants)
    return {
        "name": row.name,
        "value": str(row.value),
        "description": row.description,
        "open_to": "all" if row.is_open else "",
        "is_default": "yes" if row.is_default else "",
        "preempts": row.preempts,
        "shield_seconds": str(row.shield_seconds),
        "most_running": "" if row.most_running is None else str(row.most_running),
        "most_gpus": gpus_text(row.most_gpus) or "",
        "grants": "\n".join(lines),
    }


def _body(values: Mapping[str, str], row: PriorityClass | None) -> dict[str, Any]:
    return {
        "name": row.name if row else values.get("name", "").strip(),
        "value": _value(values.get("value", "").strip()),
        "description": values.get("description", "").strip(),
        "is_open": values.get("open_to") == "all",
        "is_default": values.get("is_default") == "yes" or (False if row and row.is_default else None),
        "preempts": values.get("preempts") or None,
        "shield_seconds": _value(shield) if (shield := values.get("shield_seconds", "").strip()) else None,
        "most_running": _value(most) if (most := values.get("most_running", "").strip()) else None,
        "most_gpus": values.get("most_gpus", "").strip() or None,
        "grants": _grants(values.get("grants", "").splitlines()),
    }


def _value(text: str) -> int | str:
    number = whole_number(text.removeprefix("-"))
    return -number if text.startswith("-") and isinstance(number, int) else number


def _grants(lines: Sequence[str]) -> list[dict[str, str | None]]:
    found: list[dict[str, str | None]] = []
    for line in filter(None, (line.split() for line in lines)):
        if len(line) != 2:  # noqa: PLR2004 - a role and a path
            raise Invalid(errors=[FieldError("grants", "bad_format", GRANT_WORDS)])
        role, path = (None if word == ANY else word for word in line)
        found.append({"role": role, "tenant": path})
    return found
