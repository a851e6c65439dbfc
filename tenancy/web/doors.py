"""The door of every page: someone is signed in, its address says nothing that the page does not know, and what an
operation refuses becomes a page that says so.
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
    """A page that may be read and, if it carries a form, posted to. The view is given the actor.

    `takes` names the parameters of its address, as the API names them where it has the same; any other is refused.
    """

    def with_door(view: View[P]) -> Callable[..., HttpResponse]:
        return _door(view, ["GET", "HEAD", "POST"], takes)

    return with_door if view is None else with_door(view)


def action(view: View[P]) -> Callable[..., HttpResponse]:
    """Something that is only ever posted to."""
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
    """To the sign-in page and back; a poll whose session ended reloads its page, which then goes there."""
    if is_poll(request):
        return HttpResponse(status=401, headers={"HX-Refresh": "true"})
    return redirect_to_login(request.get_full_path() if request.method == "GET" else "/")
