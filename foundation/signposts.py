"""Files at fixed paths that programs look for: rules for crawlers, and the contact for vulnerabilities (RFC 9116)."""

from datetime import timedelta

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from .clock import now
from .plain_json import instant

TEXT = "text/plain; charset=utf-8"
CONTACT_DAYS = 180


@require_safe
def robots(_: HttpRequest) -> HttpResponse:
    """Asks search engines to index nothing here."""
    return HttpResponse("User-agent: *\nDisallow: /\n", content_type=TEXT)


@require_safe
def security_contact(_: HttpRequest) -> HttpResponse:
    """The contact for vulnerabilities; 404 if the operator set none."""
    if not settings.SECURITY_CONTACT:
        raise Http404
    until = (now() + timedelta(days=CONTACT_DAYS)).replace(hour=0, minute=0, second=0, microsecond=0)
    lines = [f"Contact: {settings.SECURITY_CONTACT}", f"Expires: {instant(until)}", "Preferred-Languages: en"]
    return HttpResponse("".join(f"{line}\n" for line in lines), content_type=TEXT)
