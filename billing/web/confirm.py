"""The page on which an address agrees to get alerts: public, since its reader needs no account.

The secret follows the `#` of the address, as that of the one-time links of people (`tenancy.web.links`): it is in no access log, and programs that
open links in mail to check them get the same page for all, which changes nothing.
"""

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from billing.models import AddressConfirmation, AlertHook
from billing.operations.confirmations import confirm_address, open_confirmation
from foundation.pages import Form, show, typed
from foundation.problems import NotFound, RateLimited
from tenancy.operations import WINDOW, return_try, take_try

MOST_LINK_LENGTH = 500
MISSES_OF_AN_ADDRESS = 20
"""Invalid links per quarter of an hour."""


@dataclass(frozen=True, slots=True)
class ConfirmPage:
    """`found` is set once the reader has sent the secret of a working link, `confirmed` once they agreed."""

    form: Form
    secret: str = ""
    found: AddressConfirmation | None = None
    confirmed: AlertHook | None = None


@require_http_methods(["GET", "HEAD", "POST"])
@sensitive_post_parameters("link")
@csrf_protect
@never_cache
def confirm(request: HttpRequest) -> HttpResponse:
    """A POST with the secret shows what it confirms; one with the step `confirm` confirms it."""
    if request.method != "POST":
        return _show(request, ConfirmPage(Form()))
    values = typed(request)
    secret = values.get("link", "")[:MOST_LINK_LENGTH].rpartition("#")[2].strip()
    try:
        found = _found(request, secret)
        if values.get("step") == "confirm":
            return _show(request, ConfirmPage(Form(), confirmed=confirm_address(secret)))
    except (NotFound, RateLimited) as problem:
        return _show(request, ConfirmPage(Form(problem=problem.detail)), status=problem.status)
    return _show(request, ConfirmPage(Form(), secret, found))


def _found(request: HttpRequest, secret: str) -> AddressConfirmation:
    """What the link confirms. Secrets are 256 random bits, so counting failures by address only limits noise."""
    budget = f"confirm|{request.META.get('REMOTE_ADDR', '')}"
    if not take_try({budget: MISSES_OF_AN_ADDRESS}):
        raise RateLimited(
            f"Too many invalid links were sent from your address. Wait {WINDOW.seconds // 60} minutes.",
            retry_after_seconds=WINDOW.seconds,
        )
    found = open_confirmation(secret)
    return_try([budget])
    return found


def _show(request: HttpRequest, page: ConfirmPage, *, status: int = 200) -> HttpResponse:
    return show(request, "billing/confirm.html", page, status=status)
