"""Serves the OpenAPI description. It is the same for every caller while the process runs, and half a second of a core to make."""

from typing import Any, NamedTuple

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request

from .caches import Store

MOST_MEDIA_TYPES = 8
"""A caller may add parameters to a media type, such as an indent."""


class Description(NamedTuple):
    """An answer, as it is sent."""

    body: bytes
    content_type: str
    disposition: str


_kept: Store[str, Description] = Store(MOST_MEDIA_TYPES)


class DescriptionView(SpectacularAPIView):
    """Makes the description once for each media type. With parameters, such as `version`, it is made each time."""

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        """The description in the accepted media type."""
        if request.META.get("QUERY_STRING"):
            return self._made(request, *args, **kwargs)
        accepted = str(request.accepted_media_type)
        kept = _kept.get(accepted)
        if kept is None:
            made = self._made(request, *args, **kwargs)
            kept = Description(made.content, made["Content-Type"], made["Content-Disposition"])
            _kept.put(accepted, kept)
        return HttpResponse(
            kept.body, content_type=kept.content_type, headers={"Content-Disposition": kept.disposition}
        )

    def _made(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        made = super().get(request, *args, **kwargs)  # type: ignore[no-untyped-call]  # the library has no types here
        made.accepted_renderer = request.accepted_renderer
        made.accepted_media_type = request.accepted_media_type
        made.renderer_context = self.get_renderer_context()
        answer: HttpResponse = made.render()
        return answer
