"""One-time links: their form, and the page where one is used.

The secret follows the `#` of the address. Browsers send that part to no server and in no Referer, so it is in no access
log. The page's script moves it from there into a form. Opening a link, as programs that check links in mail do, is a
GET of a page that is the same for all; only the user's later POST uses it up.
"""

import os
from dataclasses import dataclass

from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.password_validation import password_validators_help_texts
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from foundation.pages import Form, show, typed
from foundation.problems import Conflict, Invalid, NotFound, Problem, RateLimited
from tenancy.models import OneTimeLink, User
from tenancy.operations import (
    WINDOW,
    accept_as_new,
    accept_invitation,
    note_stranger_refused,
    open_link,
    return_try,
    set_password_by_link,
    take_try,
)

from .lockout import remember_device
from .sign_in import REFUSAL, admit

MAX_LINK_LENGTH = 500
MISSES_OF_AN_ADDRESS = 20
"""Invalid links per quarter of an hour."""


@dataclass(frozen=True, slots=True)
class LinkPage:
    """`link` is set once the visitor has sent the secret of a working one."""

    form: Form
    rules: tuple[str, ...] = ()
    secret: str = ""
    link: OneTimeLink | None = None
    is_theirs: bool = False
    """Whether the visitor is signed in as the invited user."""


def link_to(address: str, secret: str) -> str:
    """The address to pass on, of the gateway at `address`."""
    return f"{address.rstrip('/')}{reverse('link')}#{secret}"


def own_address() -> str:
    """Where the gateway is reachable on this host."""
    return f"http://127.0.0.1:{os.environ.get('SWITCHYARD_PORT', '8000')}"


@require_http_methods(["GET", "HEAD", "POST"])
@sensitive_post_parameters("link", "password", "password_again", "old_password")
@csrf_protect
@never_cache
def link(request: HttpRequest) -> HttpResponse:
    """The page of every one-time link. A POST with the secret shows its purpose; one with the form's fields uses it."""
    if request.method != "POST":
        return show(request, "tenancy/link.html", LinkPage(Form()))
    values = typed(request)
    secret = values.get("link", "")[:MAX_LINK_LENGTH].rpartition("#")[2].strip()
    try:
        found = _found(request, secret)
        uses = {"password": _set_password, "new": _join_as_new, "account": _join_with_account, "join": _join}
        use = uses.get(values.get("step", ""))
        return use(request, secret, found, values) if use else _show(request, secret, found, Form())
    except (NotFound, RateLimited) as problem:
        return show(request, "tenancy/link.html", LinkPage(Form(problem=problem.detail)), status=problem.status)
    except Invalid as problem:
        form = Form.refused({}, problem, {"password": "password", "password_again": "password_again"})
        return _show(request, secret, found, form, status=problem.status)
    except Problem as problem:
        return _show(request, secret, found, Form(problem=problem.detail), status=problem.status)


def _found(request: HttpRequest, secret: str) -> OneTimeLink:
    """The link. Secrets are 256 random bits, so counting failures by address only limits noise."""
    budget = _budget_of(request)
    if not take_try({budget: MISSES_OF_AN_ADDRESS}):
        raise RateLimited(
            f"Too many invalid links were sent from your address. Wait {WINDOW.seconds // 60} minutes.",
            retry_after_seconds=WINDOW.seconds,
        )
    found = open_link(secret)
    return_try([budget])
    return found


def _budget_of(request: HttpRequest) -> str:
    return f"link|{request.META.get('REMOTE_ADDR', '')}"


def _show(request: HttpRequest, secret: str, found: OneTimeLink, form: Form, *, status: int = 200) -> HttpResponse:
    is_theirs = isinstance(request.user, User) and request.user.email == found.email
    page = LinkPage(form, tuple(password_validators_help_texts()), secret, found, is_theirs)
    return show(request, "tenancy/link.html", page, status=status)


def _new_password(values: dict[str, str]) -> str:
    if values.get("password", "") != values.get("password_again", ""):
        raise Invalid.field("password_again", "passwords_differ", "the passwords do not match")
    return values.get("password", "")


def _set_password(request: HttpRequest, secret: str, found: OneTimeLink, values: dict[str, str]) -> HttpResponse:
    set_password_by_link(secret, _new_password(values))
    is_first = found.purpose == OneTimeLink.Purpose.FIRST_SIGN_IN
    what_ended = "" if is_first else " Earlier sessions and API tokens no longer work."
    messages.success(request, f"Your password is set.{what_ended}")
    return redirect("login")


def _join_as_new(request: HttpRequest, secret: str, _: OneTimeLink, values: dict[str, str]) -> HttpResponse:
    try:
        accept_as_new(secret, _new_password(values))
    except Conflict:
        # The invitation's creator could use this to learn who has an account here: each attempt is in the trail and
        # counted.
        take_try({_budget_of(request): MISSES_OF_AN_ADDRESS})
        note_stranger_refused("invitation.accept", object_kind="link", detail={"why": "email_has_account"})
        raise
    messages.success(request, "Your account is ready. Sign in with your email and your new password.")
    return redirect("login")


def _join_with_account(request: HttpRequest, secret: str, found: OneTimeLink, values: dict[str, str]) -> HttpResponse:
    """Signs in with the invited email; an unknown email gets the same response as a wrong password."""
    admitted = admit(request, found.email, values.get("old_password", ""))
    if admitted is None:
        return _show(request, secret, found, Form(problem=REFUSAL), status=401)
    user, taken = admitted
    login(request, user)
    answer = _join(request, secret, found, values)
    remember_device(answer, taken)
    return answer


def _join(request: HttpRequest, secret: str, _: OneTimeLink, __: dict[str, str]) -> HttpResponse:
    if not isinstance(request.user, User):
        raise NotFound
    tenant = accept_invitation(request.user, secret)
    messages.success(request, f"You have joined {tenant.path}.")
    return redirect("tenant", tenant.id)
