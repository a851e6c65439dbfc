"""Signing in and out. A wrong email, a wrong password and too many attempts all get the same response."""

from dataclasses import dataclass

from django.contrib.auth import authenticate, login, logout
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, resolve_url
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST

from foundation.pages import Form, show, typed
from foundation.problems import Overloaded
from tenancy.models import User
from tenancy.operations import WINDOW, note_stranger_refused, record_audit
from tenancy.queries import actor_for

from .lockout import Try, begin_try, password_look, remember_device

MAX_EMAIL_LENGTH = 254
MAX_PASSWORD_LENGTH = 1000
REFUSAL = (
    "Email or password is wrong, or there were too many attempts. "
    f"After five failed attempts, wait {WINDOW.seconds // 60} minutes."
)
BUSY = "Many people are signing in right now. Try again in a moment."


@dataclass(frozen=True, slots=True)
class SignInPage:
    form: Form
    next: str


@sensitive_post_parameters("password")
@csrf_protect
@never_cache
def sign_in(request: HttpRequest) -> HttpResponse:
    """The sign-in form; on success it redirects to the visitor's previous page, if that is ours."""
    onward = _onward(request, request.POST.get("next") or request.GET.get("next") or "")
    if request.user.is_authenticated:
        return redirect(onward)
    if request.method != "POST":
        return show(request, "tenancy/sign_in.html", SignInPage(Form(), onward))
    values = typed(request)
    form = Form(values={"email": values.get("email", "")[:MAX_EMAIL_LENGTH]}, problem=REFUSAL)
    try:
        admitted = admit(request, values.get("email", ""), values.get("password", ""))
    except Overloaded as busy:
        page = SignInPage(Form(values=form.values, problem=BUSY), onward)
        answer = show(request, "tenancy/sign_in.html", page, status=busy.status)
        answer["Retry-After"] = str(busy.retry_after_seconds)
        return answer
    if admitted is None:
        return show(request, "tenancy/sign_in.html", SignInPage(form, onward), status=401)
    user, taken = admitted
    login(request, user)
    answer = redirect(onward)
    remember_device(answer, taken)
    return answer


@require_POST
@never_cache
def sign_out(request: HttpRequest) -> HttpResponse:
    """Ends the session."""
    if isinstance(request.user, User):
        with transaction.atomic():
            record_audit(actor_for(request.user), "session.end", object_kind="user", object_id=request.user.id)
    logout(request)
    return redirect("login")


def admit(request: HttpRequest, email: str, password: str) -> tuple[User, Try] | None:
    """The user and the attempt it took, or None after counting the failure. If a budget is exhausted, no password is
    checked.
    """
    email = email.strip().lower()
    if len(email) > MAX_EMAIL_LENGTH or len(password) > MAX_PASSWORD_LENGTH:
        _note_refusal(email[:MAX_EMAIL_LENGTH], "too_many_failures")
        return None
    taken = begin_try(request, email)
    if taken is None:
        _note_refusal(email, "too_many_failures")
        return None
    try:
        with password_look(taken):
            user = authenticate(request, username=email, password=password)
    except Overloaded:
        taken.undo()
        raise
    if not isinstance(user, User):
        _note_refusal(email, "wrong_credentials")
        return None
    taken.succeed()
    with transaction.atomic():
        record_audit(actor_for(user), "session.start", object_kind="user", object_id=user.id)
    return user, taken


def _onward(request: HttpRequest, wanted: str) -> str:
    if wanted and url_has_allowed_host_and_scheme(wanted, {request.get_host()}, require_https=request.is_secure()):
        return wanted
    return resolve_url("home")


def _note_refusal(email: str, why: str) -> None:
    """Records the failure; text that is not like an address may be a password typed into the wrong field."""
    detail = {"email": email if "@" in email else "", "why": why}
    note_stranger_refused("session.start", object_kind="user", detail=detail)
