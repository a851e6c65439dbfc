"""The user's own account: the password, and the end of other sessions."""

from dataclasses import dataclass

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.password_validation import password_validators_help_texts
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters

from foundation.pages import Form, show, typed
from foundation.problems import Invalid, Problem, RateLimited
from tenancy.models import Tenant, User
from tenancy.operations import WINDOW, change_password, end_sessions
from tenancy.queries import Actor, organisations_of

from .doors import action, page
from .lists import live_tokens_of
from .lockout import begin_try, password_look


@dataclass(frozen=True, slots=True)
class AccountPage:
    user: User
    organisations: tuple[Tenant, ...]
    tokens: int
    rules: tuple[str, ...]
    form: Form


@sensitive_post_parameters("old_password", "new_password", "new_password_again")
@never_cache
@page
def account(request: HttpRequest, actor: Actor) -> HttpResponse:
    """The user's details; posting changes the password, which ends every other session and every token."""
    if request.method != "POST":
        return _show(request, actor, Form())
    values = typed(request)
    try:
        revoked = _change(request, actor, values)
    except Problem as problem:
        names = ("old_password", "new_password", "new_password_again")
        return _show(request, actor, Form.refused({}, problem, {name: name for name in names}), status=problem.status)
    _keep_this_session(request)
    messages.success(request, f"Your password is changed. Every other session has ended, and {_counted(revoked)}.")
    return redirect("account")


@action
def end_own_sessions(request: HttpRequest, actor: Actor) -> HttpResponse:
    """Signs the viewer out everywhere else."""
    assert actor.user_id is not None
    revoked = end_sessions(actor, actor.user_id, with_tokens=bool(request.POST.get("tokens")))
    _keep_this_session(request)
    messages.success(request, f"You are signed out everywhere else, and {_counted(revoked)}.")
    return redirect("account")


def _change(request: HttpRequest, actor: Actor, values: dict[str, str]) -> int:
    """Someone with a stolen session cannot guess the password faster here than at the sign-in."""
    if values.get("new_password", "") != values.get("new_password_again", ""):
        raise Invalid.field("new_password_again", "passwords_differ", "the passwords do not match")
    taken = begin_try(request, actor.name)
    if taken is None:
        raise RateLimited("Too many wrong passwords. Try again later.", retry_after_seconds=WINDOW.seconds)
    try:
        with password_look(taken):
            revoked = change_password(actor, old=values.get("old_password", ""), new=values.get("new_password", ""))
    except Problem as problem:
        if not any(error.code == "wrong_password" for error in problem.errors):
            taken.undo()
        raise
    taken.succeed()
    return revoked


def _keep_this_session(request: HttpRequest) -> None:
    assert isinstance(request.user, User)
    update_session_auth_hash(request, User.objects.get(id=request.user.id))


def _counted(revoked: int) -> str:
    return {0: "there was no API token to revoke", 1: "one API token is revoked"}.get(
        revoked, f"{revoked} API tokens are revoked"
    )


def _show(request: HttpRequest, actor: Actor, form: Form, *, status: int = 200) -> HttpResponse:
    assert isinstance(request.user, User)
    shown = AccountPage(
        user=request.user,
        organisations=tuple(organisations_of(actor, request.user)),
        tokens=live_tokens_of(request.user),
        rules=tuple(password_validators_help_texts()),
        form=form,
    )
    return show(request, "tenancy/account.html", shown, status=status)
