"""The line at the head of every page while nothing is dispatched."""

from django.http import HttpRequest

from federation.queries.standstill import open_standstill


def standstill(request: HttpRequest) -> dict[str, object]:
    """For templates: why the installation stands still, for those who are signed in."""
    user = getattr(request, "user", None)
    return {"standstill": open_standstill() if user is not None and user.is_authenticated else None}
