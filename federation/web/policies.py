"""A tenant's placement policy: its own rules, those above it, and the result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from clusters.queries import visible_clusters
from federation.engine.intake.policy_reading import policy_json
from federation.operations import put_policy, remove_policy
from federation.queries.policies import PolicyView, policy_of
from federation.queries.priority_classes import classes_known_at
from foundation.pages import Form, show, typed
from foundation.problems import FieldError, Invalid, Problem
from placement.values.consolidation import CONSOLIDATION
from placement.values.model import TenantPolicy
from placement.values.strategies import STRATEGY_NAMES
from tenancy.queries import Actor
from tenancy.web import action, page

from .jobs import MOST_OPTIONS, Options
from .typing_in import words_of

LISTS = ("strategies", "clusters", "regions", "capacity_types", "flavors")
MAY_MOVE = {
    "never": "none",
    "willing": "that save their work, if their users allow moves",
    "resumable": "that save their work",
    "any": "also those that start again from their beginning",
}
CONTROLS = {name: name for name in ("default_strategy", "default_priority_class", "consolidation", *LISTS, "weights")}
CONSOLIDATION_OPTIONS: Options = (("", "inherited"), *((name, MAY_MOVE[name]) for name in CONSOLIDATION))
STRATEGY_OPTIONS: Options = (("", "inherited"), *((name, name) for name in STRATEGY_NAMES))


@dataclass(frozen=True, slots=True)
class PolicyPage:
    """`said` are the rules of the policies above: (tenant's path, lines); `default_strategy` and `strategies` are the
    result.
    """

    tenant_id: UUID
    tenant_path: str
    form: Form
    has_own: bool
    may_edit: bool
    said: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
    own: tuple[tuple[str, str], ...]
    default_strategy: str
    default_priority_class: str
    consolidation: str
    strategies: str
    clusters: Options
    classes: Options
    strategy_options: Options = STRATEGY_OPTIONS
    consolidation_options: Options = CONSOLIDATION_OPTIONS


@page
def policy(request: HttpRequest, actor: Actor, tenant_id: UUID) -> HttpResponse:
    """The policy, and for those who manage the tenant the form that sets it."""
    view = policy_of(actor, tenant_id)
    if request.method != "POST":
        return _form(request, actor, view, Form(values=_values(view.own)))
    values = typed(request)
    try:
        put_policy(actor, tenant_id, _body(values))
    except Problem as problem:
        return _form(request, actor, view, Form.refused(values, problem, CONTROLS), status=problem.status)
    messages.success(request, f"The policy of {view.tenant.path} is set. The next scheduling round uses it.")
    return redirect("policy", tenant_id)


@action
def remove(request: HttpRequest, actor: Actor, tenant_id: UUID) -> HttpResponse:
    """Removes the tenant's own policy."""
    remove_policy(actor, tenant_id)
    messages.success(request, "The tenant's own policy is removed.")
    return redirect("policy", tenant_id)


def _form(request: HttpRequest, actor: Actor, view: PolicyView, form: Form, *, status: int = 200) -> HttpResponse:
    allowed = [name for name in STRATEGY_NAMES if not view.effective.strategy_fault(name)]
    names = visible_clusters(actor).order_by("name").values_list("name", flat=True)[:MOST_OPTIONS]
    shown = PolicyPage(
        tenant_id=view.tenant.id,
        tenant_path=view.tenant.path,
        form=form,
        has_own=view.own is not None,
        may_edit=view.may_edit,
        said=tuple((one.tenant_path, _lines(one)) for one in view.above),
        own=() if view.own is None else _lines(view.own),
        default_strategy=view.effective.default_strategy,
        strategies=", ".join(allowed) or "none",
        clusters=tuple((name, "") for name in names),
        classes=(("", "inherited"), *((name, name) for name in classes_known_at(actor, view.tenant))),
        default_priority_class=view.effective.default_priority_class or "default of the installation",
        consolidation=MAY_MOVE[view.effective.consolidation],
    )
    return show(request, "federation/policy.html", shown, status=status)


def _lines(policy: TenantPolicy) -> tuple[tuple[str, str], ...]:
    """A policy's rules, by name."""
    shown = {name: ", ".join(getattr(policy, name)) for name in LISTS}
    weights = "; ".join(_weights_text(policy).splitlines())
    defaults = {
        "default strategy": policy.default_strategy,
        "default priority class": policy.default_priority_class,
        "moves for larger jobs": MAY_MOVE.get(policy.consolidation, ""),
    }
    said = {**defaults, **shown, "weights": weights}
    return tuple((name.replace("_", " "), text) for name, text in said.items() if text)


def _values(own: TenantPolicy | None) -> dict[str, str]:
    if own is None:
        return {}
    lists = {name: ", ".join(getattr(own, name)) for name in LISTS}
    return {
        "default_strategy": own.default_strategy,
        "default_priority_class": own.default_priority_class,
        "consolidation": own.consolidation,
        **lists,
        "weights": _weights_text(own),
    }


def _weights_text(policy: TenantPolicy) -> str:
    weights: Mapping[str, Mapping[str, str]] = policy_json(policy)["weights"]
    return "\n".join(
        f"{strategy} " + " ".join(f"{term}={value}" for term, value in terms.items())
        for strategy, terms in weights.items()
    )


def _body(values: Mapping[str, str]) -> dict[str, Any]:
    body: dict[str, Any] = {name: words_of(values.get(name, "")) for name in LISTS}
    body["default_strategy"] = values.get("default_strategy") or None
    body["default_priority_class"] = values.get("default_priority_class") or None
    body["consolidation"] = values.get("consolidation") or None
    body["weights"] = _weights_of(values.get("weights", "").splitlines())
    return body


def _weights_of(lines: Sequence[str]) -> dict[str, dict[str, str]]:
    """`balanced price=1.5 free=0.2` by line."""
    found: dict[str, dict[str, str]] = {}
    for line in filter(None, (line.split() for line in lines)):
        terms = dict(part.partition("=")[::2] for part in line[1:])
        if not terms or line[0] in found:
            error = FieldError("weights", "bad_format", "one strategy per line, then term=number: balanced price=1.5")
            raise Invalid(errors=[error])
        found[line[0]] = terms
    return found
