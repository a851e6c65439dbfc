"""Files at fixed places that programs look for: what crawlers may read, and whom to tell about a hole (RFC 9116)."""

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
    """Nothing here is for search engines."""
    return HttpResponse("User-agent: *\nDisallow: /\n", content_type=TEXT)


@require_safe
def security_contact(_: HttpRequest) -> HttpResponse:
    """Whom to tell about a hole; 404 where the operator named nobody."""
    if not settings.SECURITY_CONTACT:
        raise Http404
    until = (now() + timedelta(days=CONTACT_DAYS)).replace(hour=0, minute=0, second=0, microsecond=0)
    lines = [f"Contact: {settings.SECURITY_CONTACT}", f"Expires: {instant(until)}", "Preferred-Languages: en"]
    return HttpResponse("".join(f"{line}\n" for line in lines), content_type=TEXT)
