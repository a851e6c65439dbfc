"""Checks for every page: the user is signed in and the address has only known parameters. An operation's refusal
becomes a page with its message.
"""

from collections.abc import Callable, Collection
from functools import wraps
from typing import Any, Concatenate, ParamSpec, overload

from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from foundation.pages import check_parameters, is_poll, show_problem
from foundation.problems import Problem
from tenancy.queries import Actor

from .actors import actor_of

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, Actor, P], HttpResponse]


@overload
def page(view: View[P]) -> Callable[..., HttpResponse]: ...
@overload
def page(*, takes: Collection[str]) -> Callable[[View[P]], Callable[..., HttpResponse]]: ...
def page(view: View[P] | None = None, *, takes: Collection[str] = ()) -> Callable[..., Any]:
    """A page that users read and, if it has a form, post to. The view gets the actor.

    `takes` names the parameters of its address, with the API's names where it has the same; any other is refused.
    """

    def with_door(view: View[P]) -> Callable[..., HttpResponse]:
        return _door(view, ["GET", "HEAD", "POST"], takes)

    return with_door if view is None else with_door(view)


def action(view: View[P]) -> Callable[..., HttpResponse]:
    """A view that only accepts POST."""
    return _door(view, ["POST"])


def _door(view: View[P], methods: list[str], takes: Collection[str] = ()) -> Callable[..., HttpResponse]:
    @wraps(view)
    def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not request.user.is_authenticated:
            return _to_sign_in(request)
        try:
            check_parameters(request, takes)
            return view(request, actor_of(request), *args, **kwargs)
        except Problem as problem:
            return show_problem(request, problem)

    guarded: Callable[..., HttpResponse] = require_http_methods(methods)(answer)
    return guarded


def _to_sign_in(request: HttpRequest) -> HttpResponse:
    """Redirects to the sign-in page and back; a poll whose session ended reloads its page, which then redirects."""
    if is_poll(request):
        return HttpResponse(status=401, headers={"HX-Refresh": "true"})
    return redirect_to_login(request.get_full_path() if request.method == "GET" else "/")
