"""Refusals as values: every expected failure of an operation is a Problem with a stable code (RFC 9457).

The outer layer translates a Problem once: `foundation.api` to problem+json, web views to a message.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FieldError:
    """One wrong field: `field` as a path such as `pod_sets[0].count`, `code` stable, `detail` for users."""

    field: str
    code: str
    detail: str


class Problem(Exception):
    """The request could not be carried out."""

    status = 400
    code = "problem"
    title = "Problem"

    def __init__(
        self,
        detail: str = "",
        *,
        code: str = "",
        errors: Sequence[FieldError] = (),
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(detail or self.__doc__ or self.title)
        self.detail = detail or (self.__doc__ or self.title)
        self.code = code or self.code
        self.errors = tuple(errors)
        self.retry_after_seconds = retry_after_seconds


class MalformedBody(Problem):
    """The body is not well-formed JSON that this API accepts."""

    status, code, title = 400, "malformed_body", "Malformed body"


class BadRequest(Problem):
    """The request is not well-formed HTTP/1.1."""

    status, code, title = 400, "bad_request", "Bad request"


class UnknownParameter(Problem):
    """The page does not take one of the parameters in its address."""

    status, code, title = 400, "unknown_parameter", "Unknown parameter"


class NotAuthenticated(Problem):
    """Send a token as `Authorization: Bearer swy_…`, or sign in."""

    status, code, title = 401, "not_authenticated", "Not authenticated"


class PermissionDenied(Problem):
    """You can see this object, but you do not have permission for this action."""

    status, code, title = 403, "permission_denied", "Permission denied"


class NotFound(Problem):
    """The object does not exist, or you do not have access to it."""

    status, code, title = 404, "not_found", "Not found"


class MethodNotAllowed(Problem):
    """The path does not support that method; `Allow` lists the methods that it supports."""

    status, code, title = 405, "method_not_allowed", "Method not allowed"


class NotAcceptable(Problem):
    """The path returns `application/json`; accept that or `*/*`."""

    status, code, title = 406, "not_acceptable", "Not acceptable"


class RequestTimeout(Problem):
    """The request did not arrive completely within the time limit."""

    status, code, title = 408, "request_timeout", "Request timeout"


class Conflict(Problem):
    """The object's state does not allow this."""

    status, code, title = 409, "conflict", "Conflict"


class PayloadTooLarge(Problem):
    """The body is larger than this API accepts."""

    status, code, title = 413, "payload_too_large", "Payload too large"


class UriTooLong(Problem):
    """The request line is longer than 8,190 bytes."""

    status, code, title = 414, "uri_too_long", "URI too long"


class UnsupportedMediaType(Problem):
    """Send JSON as `Content-Type: application/json`."""

    status, code, title = 415, "unsupported_media_type", "Unsupported media type"


class ExpectationNotMet(Problem):
    """`Expect` can only be `100-continue`."""

    status, code, title = 417, "expectation_failed", "Expectation failed"


class Invalid(Problem):
    """One or more fields are not valid."""

    status, code, title = 422, "validation_failed", "Validation failed"

    @classmethod
    def field(cls, field: str, code: str, detail: str) -> "Invalid":
        """The refusal of a single field."""
        return cls(detail, errors=[FieldError(field, code, detail)])


class RateLimited(Problem):
    """Too many requests; try again later."""

    status, code, title = 429, "rate_limited", "Rate limited"


class HeadersTooLarge(Problem):
    """The headers are more than 100, longer than 8,190 bytes each, or more than 64 KiB together."""

    status, code, title = 431, "headers_too_large", "Request header fields too large"


class InternalError(Problem):
    """An internal error occurred. It is logged with the request id."""

    status, code, title = 500, "internal_error", "Internal error"


class UnsupportedCoding(Problem):
    """`Transfer-Encoding` can only be `chunked`."""

    status, code, title = 501, "unsupported_coding", "Unsupported transfer coding"


class Overloaded(Problem):
    """The gateway is handling too many requests. No change was made. Try again."""

    status, code, title = 503, "overloaded", "Overloaded"


class Unavailable(Problem):
    """The gateway cannot reach its database. No change was made unless you received a success response. Try again."""

    status, code, title = 503, "unavailable", "Temporarily unavailable"
