"""The images that nodes of a cluster should have: its pre-pull policies, their progress, and the forms that change them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from clusters.models import Cluster
from clusters.queries import cluster_by_id
from federation.engine import names
from federation.models.prepulls import MOST_AT_ONCE, MOST_IMAGES
from federation.operations import (
    change_prepull_policy,
    make_prepull_policy,
    remove_prepull_policy,
    retry_prepulls,
)
from federation.operations.prepull_policies import PolicyChanges, WantedPolicy
from federation.queries.prepulls import PolicyView, manages, policy_by_id, view_of, visible_policies
from foundation.pages import Form, check_parameters, show, typed
from foundation.problems import FieldError, Invalid, NotFound, Problem
from tenancy.queries import Actor
from tenancy.web import action, page

MOST_SHOWN = 20
"""Nodes without an image, of one policy."""
CONTROLS = {name: name for name in ("name", "images", "tenant", "flavor", "pull_secret", "at_once")}
DEFAULTS = {"at_once": "2"}
Work = Callable[[Actor, UUID, UUID], object]


@dataclass(frozen=True, slots=True)
class PrepullsPage:
    cluster: Cluster
    policies: tuple[PolicyView, ...]
    may_manage: bool
    form: Form = field(default_factory=lambda: Form(values=DEFAULTS))


@page
def prepulls(request: HttpRequest, actor: Actor, cluster_id: UUID) -> HttpResponse:
    """The policies of a cluster."""
    check_parameters(request, ())
    return show(request, "federation/prepulls.html", _page(actor, cluster_id))


@action
def declare(request: HttpRequest, actor: Actor, cluster_id: UUID) -> HttpResponse:
    """Makes a policy."""
    values = typed(request)
    try:
        made = make_prepull_policy(actor, cluster_id, _read(values))
    except NotFound:
        raise
    except Problem as problem:
        form = Form.refused(values, problem, CONTROLS)
        return show(request, "federation/prepulls.html", _page(actor, cluster_id, form), status=problem.status)
    messages.success(
        request, f"Nodes pull the images of {made.name}, first one of them, then {made.at_once} at a time."
    )
    return redirect("prepulls", cluster_id)


@action
def act(request: HttpRequest, actor: Actor, cluster_id: UUID, policy_id: UUID, verb: str) -> HttpResponse:
    """Pauses, resumes, retries or removes a policy."""
    if verb not in ACTIONS:
        raise NotFound
    work, told = ACTIONS[verb]
    name = policy_by_id(actor, cluster_id, policy_id).name
    work(actor, cluster_id, policy_id)
    messages.success(request, told.format(name))
    return redirect("prepulls", cluster_id)


def _pause(actor: Actor, cluster_id: UUID, policy_id: UUID) -> object:
    return change_prepull_policy(actor, cluster_id, policy_id, PolicyChanges(is_paused=True))


def _resume(actor: Actor, cluster_id: UUID, policy_id: UUID) -> object:
    return change_prepull_policy(actor, cluster_id, policy_id, PolicyChanges(is_paused=False))


ACTIONS: Mapping[str, tuple[Work, str]] = {
    "pause": (_pause, "{} is paused. Pulls under way are stopped."),
    "resume": (_resume, "{} pulls again."),
    "retry": (retry_prepulls, "{} pulls again what had failed."),
    "remove": (remove_prepull_policy, "{} is removed. Nodes keep the images until they need the disk."),
}


def _page(actor: Actor, cluster_id: UUID, form: Form | None = None) -> PrepullsPage:
    cluster = cluster_by_id(actor, cluster_id)
    policies = visible_policies(actor, cluster_id).order_by("name")
    views = tuple(view_of(policy, most=MOST_SHOWN) for policy in policies)
    may_manage = manages(actor, cluster)
    return PrepullsPage(cluster, views, may_manage) if form is None else PrepullsPage(cluster, views, may_manage, form)


def _read(values: Mapping[str, str]) -> WantedPolicy:
    """The policy in the form, or Invalid with every wrong field that the operation does not check."""
    errors = []
    images = tuple(values.get("images", "").split())
    if not 1 <= len(images) <= MOST_IMAGES:
        errors.append(FieldError("images", "out_of_range", f"one per line, at most {MOST_IMAGES}"))
    name = values.get("name", "").strip()
    if not names.dns_label(name):
        errors.append(FieldError("name", "bad_format", "lower-case letters, digits and '-', at most 63"))
    at_once = values.get("at_once", "").strip()
    is_number = at_once.isascii() and at_once.isdigit() and len(at_once) <= len(str(MOST_AT_ONCE))
    if not is_number or not 1 <= int(at_once) <= MOST_AT_ONCE:
        errors.append(FieldError("at_once", "out_of_range", f"a number from 1 to {MOST_AT_ONCE}"))
    pull_secret = values.get("pull_secret", "").strip()
    if pull_secret and not names.dns_label(pull_secret):
        errors.append(FieldError("pull_secret", "bad_format", "the name of a secret"))
    if errors:
        raise Invalid(errors=errors)
    return WantedPolicy(
        name=name,
        images=images,
        tenant=values.get("tenant", "").strip(),
        flavor=values.get("flavor", "").strip(),
        pull_secret=pull_secret,
        at_once=int(at_once),
    )
