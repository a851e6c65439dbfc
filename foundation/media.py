"""The only format of the HTTP interface: JSON, parsed strictly and written plainly."""

from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from django.utils.http import parse_header_parameters
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer

from . import strict_json
from .plain_json import encode
from .problem_json import PROBLEM_MEDIA_TYPE
from .problems import MalformedBody, PayloadTooLarge, UnsupportedMediaType


class JSONRenderer(BaseRenderer):
    """JSON in UTF-8. Money and other decimals are strings; there are no floats where a quantity is meant."""

    media_type = "application/json"
    format = "json"
    charset = None

    def render(self, data: Any, *_: Any, **__: Any) -> bytes:
        return b"" if data is None else encode(data)


class ProblemRenderer(JSONRenderer):
    """The same, announced as a problem."""

    media_type = PROBLEM_MEDIA_TYPE


class StrictJSONParser(BaseParser):
    """Reads a JSON body strictly and within its limit (a view may set `max_body_bytes`)."""

    media_type = "application/json"

    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        view = (parser_context or {}).get("view")
        _check_media_type(media_type or "")
        limit = getattr(view, "max_body_bytes", settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
        text = stream.read(limit + 1)
        if len(text) > limit:
            raise PayloadTooLarge(f"The body may have at most {limit} bytes.")
        if view is not None and hasattr(view, "raw_body"):
            view.raw_body = text
        try:
            return strict_json.loads(text)
        except strict_json.MalformedJSON as error:
            raise MalformedBody(f"The body could not be read: {error}.") from None


def _check_media_type(media_type: str) -> None:
    """Refuses wildcards, which the framework would accept, and every charset except UTF-8."""
    kind, parameters = parse_header_parameters(media_type)
    if kind != StrictJSONParser.media_type:
        raise UnsupportedMediaType
    if parameters.get("charset", "utf-8").lower() not in {"utf-8", "utf8"}:
        raise UnsupportedMediaType("JSON is UTF-8; do not send another charset.")
