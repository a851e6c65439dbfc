"""Alert hooks: the list with the form that makes one, and one with what was delivered to it."""

from dataclasses import dataclass
from uuid import UUID

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from billing.engine.hooks import ANOMALY, CHAT, DOCUMENT, FORECAST, JSON, KINDS, MAIL, SPENT
from billing.models import AlertHook
from billing.operations import confirmations
from billing.operations import hooks as operations
from billing.queries.hooks import DeliveryLine, delivery_lines, hook_by_id, managed_hooks, managed_paths
from foundation.pages import Form, show, typed
from foundation.problems import Problem
from tenancy.queries import Actor, first_choice, tenant_choices
from tenancy.web import action, page

CONTROLS = {name: name for name in ("tenant", "name", "url", "address", "form", "kinds")}
FORMS = ((JSON, "JSON, with all figures"), (CHAT, "a chat’s: the text alone"), (MAIL, "mail to an address"))
EVERY = "all"
KINDS_SHOWN = (
    (EVERY, "all of these"),
    (SPENT, "thresholds of budgets that were reached"),
    (FORECAST, "thresholds of budgets that are expected to be reached"),
    (ANOMALY, "unusual spending"),
    (DOCUMENT, "invoices and other documents that are issued"),
)


@dataclass(frozen=True, slots=True)
class HooksPage:
    """`secret` is set only in the response to the request that made the hook."""

    hooks: tuple[AlertHook, ...]
    tenants: tuple[tuple[str, str], ...]
    form: Form
    secret: str = ""
    made: AlertHook | None = None
    kinds: tuple[tuple[str, str], ...] = KINDS_SHOWN
    forms: tuple[tuple[str, str], ...] = FORMS


@dataclass(frozen=True, slots=True)
class HookPage:
    hook: AlertHook
    deliveries: tuple[DeliveryLine, ...]


@sensitive_post_parameters("url")
@never_cache
@page(takes=())
def hooks(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The hooks that the user manages; making one shows its signing secret once."""
    if request.method != "POST":
        return _list(request, actor, Form())
    values = typed(request)
    chosen = values.get("kinds", "")
    wanted = operations.WantedHook(
        values.get("tenant", ""),
        values.get("name", "").strip(),
        values.get("url", "").strip(),
        KINDS if chosen == EVERY else (chosen,),
        values.get("form", ""),
        values.get("address", "").strip(),
    )
    try:
        made, secret = operations.create_hook(actor, wanted)
    except Problem as problem:
        # The path of a chat's URL is a password: the page does not repeat it.
        form = Form.refused({**values, "url": ""}, problem, CONTROLS)
        return _list(request, actor, form, status=problem.status)
    return _list(request, actor, Form(), made=made, secret=secret)


@page(takes=())
def hook(request: HttpRequest, actor: Actor, hook_id: UUID) -> HttpResponse:
    """One hook with its newest deliveries."""
    found = hook_by_id(actor, hook_id)
    return show(request, "billing/hook.html", HookPage(found, delivery_lines(found)), live="billing/hook_live.html")


@action
def send_test(request: HttpRequest, actor: Actor, hook_id: UUID) -> HttpResponse:
    """Sends a test, then redirects to the hook."""
    operations.send_test(actor, hook_id)
    messages.success(request, "The test is sent within seconds. Its outcome appears below.")
    return redirect("alert-hook", hook_id)


@action
def send_confirmation(request: HttpRequest, actor: Actor, hook_id: UUID) -> HttpResponse:
    """Mails a new link to the address, then redirects to the hook."""
    confirmations.send_confirmation(actor, hook_id)
    messages.success(request, "A new link is mailed within seconds. Earlier links do not work any more.")
    return redirect("alert-hook", hook_id)


@action
def pause(request: HttpRequest, actor: Actor, hook_id: UUID) -> HttpResponse:
    """Pauses a hook, then redirects to it."""
    operations.pause_hook(actor, hook_id)
    messages.success(request, "The hook is paused: nothing is posted to it.")
    return redirect("alert-hook", hook_id)


@action
def resume(request: HttpRequest, actor: Actor, hook_id: UUID) -> HttpResponse:
    """Resumes a hook, then redirects to it."""
    operations.resume_hook(actor, hook_id)
    messages.success(request, "The hook is resumed. Alerts that arise from now on are posted to it.")
    return redirect("alert-hook", hook_id)


@action
def again(request: HttpRequest, actor: Actor, hook_id: UUID, uid: UUID) -> HttpResponse:
    """Delivers again, then redirects to the hook."""
    operations.deliver_again(actor, hook_id, uid)
    messages.success(request, "The alert is sent again within seconds, with the same id.")
    return redirect("alert-hook", hook_id)


@action
def remove(request: HttpRequest, actor: Actor, hook_id: UUID) -> HttpResponse:
    """Deletes a hook, then redirects to the list."""
    operations.delete_hook(actor, hook_id)
    messages.success(request, "The hook is deleted.")
    return redirect("alert-hooks")


def _list(
    request: HttpRequest,
    actor: Actor,
    form: Form,
    *,
    status: int = 200,
    made: AlertHook | None = None,
    secret: str = "",
) -> HttpResponse:
    managed = managed_paths(actor)
    if not form.values:
        form = Form(values={"tenant": first_choice(managed), "form": JSON, "kinds": EVERY})
    shown = HooksPage(
        hooks=tuple(managed_hooks(actor).order_by("tenant__path", "name")),
        tenants=tenant_choices(managed, form.values.get("tenant", "")),
        form=form,
        made=made,
        secret=secret,
    )
    return show(request, "billing/hooks.html", shown, status=status)
