"""Submits a job with a form, or with the JSON that the API accepts. Both give the same spec and the same refusals."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from federation.engine.intake.job_fields import Section
from federation.engine.intake.spec import CAPACITY_TYPES
from federation.models import Job
from federation.operations.submission import submit_job
from federation.queries.feasibility import NeverFits
from federation.queries.gpu_models import gpu_models
from federation.queries.pages import job_view, tenant_used_last
from federation.queries.priority_classes import rules_at
from federation.queries.reservations import filtered_reservations
from foundation import strict_json
from foundation.ids import new_id
from foundation.pages import Form, asked, show, typed
from foundation.problems import FieldError, Invalid, Problem
from placement.values.model import LEVELS
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, first_choice, tenant_by_path, tenant_choices, visible_tenants
from tenancy.web import page

from .advanced import (
    GPU_NEEDS,
    POD_SET,
    TIERS,
    Tier,
    advanced_of,
    beside_of,
    borrowed_of,
    gpu_needs_of,
    is_advanced,
    local_state_of,
    overflow_controls,
    overflow_of,
)
from .field_controls import CHOSEN_AT_FIRST, CONTROL_NAMES, SECTIONS, FieldControl, fields_of
from .jobs import MOST_OPTIONS, Options, cluster_options
from .offers import FITS_NOWHERE, Offers, offers_for, refused
from .typing_in import check_chosen, pairs, whole_number, words_of

POD = "pod_sets[0]"
CONTROL_OF = {
    "tenant": "tenant",
    "name": "name",
    f"{POD}.image": "image",
    f"{POD}.command": "command",
    f"{POD}.env": "env",
    f"{POD}.count": "count",
    "elastic.min_count": "min_count",
    f"{POD}.cpu": "cpu",
    f"{POD}.memory": "memory",
    f"{POD}.gpu": "kind",
    f"{POD}.gpu.count": "gpus",
    f"{POD}.gpu.fraction": "gpus",
    f"{POD}.gpu.models": "models",
    f"{POD}.gpu.mig": "mig",
    **{f"{POD}.{field}": control for field, control in POD_SET.items()},
    f"{POD}.scratch": "scratch",
    "secrets": "secrets",
    "storages": "mounts",
    "networks": "networks",
    "priority_class": "priority_class",
    "constraints.clusters": "clusters",
    "constraints.regions": "regions",
    "constraints.capacity_types": "capacity_type",
    **{f"constraints.{name}": name for name in GPU_NEEDS},
    "topology.level": "level",
    "topology.mode": "mode",
    "labels": "labels",
    "data": "data",
    "throughput": "throughput",
    "reports": "reports",
    "session": "session_port",
    "session.idle_seconds": "session_idle",
    "constraints.reservation": "reservation",
    "constraints.overflow": "overflow_0_clusters",
    **overflow_controls(),
    **CONTROL_NAMES,
}
DEFAULTS = {
    "count": "1",
    "kind": "whole",
    "gpus": "1",
    "cpu": "8",
    "memory": "32Gi",
    "level": "cluster",
    "mode": "preferred",
    "session_idle": "60",
    **CHOSEN_AT_FIRST,
}
KINDS: Options = (
    ("whole", "whole GPUs"),
    ("mig", "MIG slices"),
    ("fraction", "a share of one GPU"),
    ("none", "none, CPU only"),
)
CAPACITY_OPTIONS: Options = (("", "any"), *((name, name.replace("_", " ")) for name in CAPACITY_TYPES))
LEVEL_OPTIONS: Options = tuple((name, name) for name in LEVELS)
MODE_OPTIONS: Options = (("preferred", "preferred"), ("required", "required"))
REPORT_OPTIONS: Options = (("", "no"), ("yes", "yes"))


@dataclass(frozen=True, slots=True)
class SubmitPage:
    """With `key`, a form that is sent twice by accident makes one job. `offers` are for the form's
    values, on request.
    """

    form: Form
    by: str
    key: str
    tenants: Options
    models: Options
    clusters: Options
    reservations: Options
    priority_classes: Options
    """Those that the user may use in the chosen tenant; the first leaves the choice to the tenant's default."""
    shows_advanced: bool
    """Whether the part has input or a fault."""
    tiers: tuple[Tier, ...] = TIERS
    offers: Offers | None = None
    kinds: Options = KINDS
    placement_controls: tuple[FieldControl, ...] = SECTIONS[Section.PLACEMENT]
    time_controls: tuple[FieldControl, ...] = SECTIONS[Section.TIME]
    capacity_types: Options = CAPACITY_OPTIONS
    levels: Options = LEVEL_OPTIONS
    modes: Options = MODE_OPTIONS
    report_options: Options = ()
    """Empty if the installation takes no reports."""
    has_sessions: bool = False


@page(takes=("from", "by", "tenant"))
def submit(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The empty form (or the spec of an earlier job, to submit it again); on success the new job's page.

    With `show=offers` nothing is submitted: the response is the form, or its live part, with the offers for its values.
    """
    if request.method != "POST":
        return _blank(request, actor)
    values = typed(request)
    by = "json" if values.get("by") == "json" else "form"
    if values.get("show") == "offers":
        return _form(request, actor, by, Form(values=values), offers=_offers(actor, by, values))
    try:
        body = _body(by, values)
        raw = json.dumps(body, sort_keys=True).encode()
        answer = submit_job(actor, body, show=_created, key=values.get("key", "")[:64], raw=raw)
    except NeverFits as problem:
        form = Form(values=values, problem=f"{FITS_NOWHERE} See why below.")
        return _form(request, actor, by, form, status=problem.status, offers=refused(problem))
    except Problem as problem:
        form = Form.refused(values, problem, CONTROL_OF if by == "form" else {"spec": "spec"})
        return _form(request, actor, by, form, status=problem.status)
    messages.success(request, f"{answer.body['name']} is queued. This page shows its progress.")
    return redirect("job", answer.body["id"])


def spec_of_form(values: Mapping[str, str]) -> dict[str, Any]:
    """The job spec of the form's values. Invalid numbers remain text, so that the spec's reader reports them."""
    errors: list[FieldError] = []
    pod_set: dict[str, Any] = {
        "name": "main",
        "count": whole_number(values.get("count", "")),
        "image": values.get("image", "").strip(),
        "command": _command(values.get("command", ""), errors),
        "env": pairs(values.get("env", ""), f"{POD}.env", errors),
        "cpu": values.get("cpu", "").strip(),
        "memory": values.get("memory", "").strip(),
    }
    gpu = _gpu(values)
    if gpu is not None:
        pod_set["gpu"] = gpu
    pod_set |= borrowed_of(values, POD, errors) | local_state_of(values, POD, errors) | beside_of(values, POD, errors)
    spec: dict[str, Any] = {
        "tenant": values.get("tenant", ""),
        "name": values.get("name", "").strip(),
        "pod_sets": [pod_set],
        **fields_of(values),
        "constraints": _constraints(values),
        "topology": {"level": values.get("level") or "cluster", "mode": values.get("mode") or "preferred"},
        "labels": pairs(values.get("labels", ""), "labels", errors),
    }
    spec |= advanced_of(values, errors)
    if values.get("priority_class"):
        spec["priority_class"] = values["priority_class"]
    if values.get("reports"):
        spec["reports"] = True
    if fewest := values.get("min_count", "").strip():
        spec["elastic"] = {"min_count": whole_number(fewest)}
    if values.get("session_port", "").strip():
        idle = whole_number(values.get("session_idle", ""))
        seconds = idle * 60 if isinstance(idle, int) else idle
        spec["session"] = {"port": whole_number(values["session_port"]), "idle_seconds": seconds}
    if errors:
        raise Invalid(errors=errors)
    return spec


def _body(by: str, values: Mapping[str, str]) -> object:
    if by == "json":
        return _read_json(values.get("spec", ""))
    check_chosen(values)
    return spec_of_form(values)


def _offers(actor: Actor, by: str, values: Mapping[str, str]) -> Offers:
    try:
        body = _body(by, values)
    except Problem as problem:
        return refused(problem)
    return offers_for(actor, body)


def _blank(request: HttpRequest, actor: Actor) -> HttpResponse:
    earlier = request.GET.get("from", "")
    by = "json" if earlier or request.GET.get("by") == "json" else "form"
    values: dict[str, str] = dict(DEFAULTS)
    if earlier:
        values["spec"] = _spec_again(actor, earlier)
    elif by == "json":
        values["spec"] = json.dumps(
            spec_of_form({**DEFAULTS, "tenant": _tenant_to_begin_with(request, actor), "name": "my-job"}), indent=2
        )
    else:
        values["tenant"] = _tenant_to_begin_with(request, actor)
    return _form(request, actor, by, Form(values=values))


def _form(
    request: HttpRequest, actor: Actor, by: str, form: Form, *, status: int = 200, offers: Offers | None = None
) -> HttpResponse:
    shown = SubmitPage(
        form=form,
        by=by,
        key=form.values.get("key") or str(new_id()),
        tenants=tenant_choices(_tenant_paths(actor), form.values.get("tenant", "")),
        models=tuple((name, "") for name in gpu_models(actor)),
        clusters=cluster_options(actor),
        reservations=_reservation_options(actor),
        priority_classes=_class_options(actor, form.values.get("tenant", "")),
        shows_advanced=is_advanced(form),
        offers=offers,
        report_options=REPORT_OPTIONS if settings.PUBLIC_URL else (),
        has_sessions=settings.SESSION_ORIGIN is not None,
    )
    return show(
        request, "federation/submit.html", shown, live="federation/submit_poll.html" if offers else "", status=status
    )


def _created(job: Job) -> dict[str, Any]:
    return {"id": str(job.id), "name": job.name}


def _tenant_paths(actor: Actor) -> Sequence[str]:
    tenants = visible_tenants(actor, Permission.SUBMIT).order_by("path")
    return list(tenants.values_list("path", flat=True)[:MOST_OPTIONS])


def _reservation_options(actor: Actor) -> Options:
    """Names of the reservations that jobs may still name, with their clusters."""
    rows = filtered_reservations(actor, {"state": "scheduled,active"}).order_by("name")[:MOST_OPTIONS]
    return tuple((row.name, f"{row.tenant.path}, on {row.cluster.name}") for row in rows)


def _class_options(actor: Actor, tenant_path: str) -> Options:
    """Only the default without a tenant in which the actor may submit."""
    try:
        classes = rules_at(actor, tenant_by_path(actor, tenant_path, Permission.SUBMIT)).classes
    except Problem:
        return (("", "default"),)
    named = ((one.name, f"{one.name} ({one.value})") for one in classes.usable)
    return (("", f"default: {classes.default_name}"), *named)


def _tenant_to_begin_with(request: HttpRequest, actor: Actor) -> str:
    asked_for = asked(request).get("tenant", "")
    return first_choice(_tenant_paths(actor), asked=asked_for, last_used=tenant_used_last(actor))


def _spec_again(actor: Actor, job_id: str) -> str:
    """The spec of an earlier job with its tenant, as it would be submitted again; empty if the actor may not see it."""
    try:
        view = job_view(actor, UUID(job_id))
    except (Problem, ValueError):
        return ""
    return json.dumps({"tenant": view.line.tenant, **json.loads(view.spec_text)}, indent=2, ensure_ascii=False)


def _read_json(text: str) -> object:
    try:
        return strict_json.loads(text.encode())
    except strict_json.MalformedJSON as error:
        raise Invalid.field("spec", "malformed", f"This is not valid JSON: {error}.") from None


def _command(text: str, errors: list[FieldError]) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        errors.append(FieldError(f"{POD}.command", "bad_format", "a quotation mark is not closed"))
        return []


def _gpu(values: Mapping[str, str]) -> dict[str, Any] | None:
    kind, amount = values.get("kind", "whole"), values.get("gpus", "").strip()
    models = words_of(values.get("models", ""))
    match kind:
        case "none":
            return None
        case "fraction":
            return {"fraction": amount, "models": models}
        case "mig":
            return {"mig": values.get("mig", "").strip(), "count": whole_number(amount), "models": models}
        case _:
            return {"count": whole_number(amount), "models": models}


def _constraints(values: Mapping[str, str]) -> dict[str, Any]:
    capacity_type, tiers = values.get("capacity_type", ""), overflow_of(values)
    reservation = values.get("reservation", "").strip()
    return {
        "clusters": words_of(values.get("clusters", "")),
        "regions": words_of(values.get("regions", "")),
        "capacity_types": [capacity_type] if capacity_type else [],
        **({"overflow": tiers} if tiers else {}),
        **({"reservation": reservation} if reservation else {}),
        **gpu_needs_of(values),
    }
