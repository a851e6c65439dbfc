"""What a caller can do about a request that did not succeed depends on which of these it was."""

from typing import Any


class SwitchyardError(Exception):
    """Every error of this client. Its text is one sentence for people."""


class NotConfigured(SwitchyardError):
    """No address or no token is known."""


class Unreachable(SwitchyardError):
    """The gateway gave no usable answer, however often it was asked. A write may have been applied all the same: repeat
    it with the same idempotency key.
    """


class TimedOut(SwitchyardError):
    """The job has not ended in the time that the caller allowed. It goes on."""


class Problem(SwitchyardError):
    """A refusal of the gateway, as RFC 9457 describes it. The same request is refused again.

    `status` is the HTTP status, `code` one of the codes of the reference, `errors` a list of `{"field", "code", "detail"}`.
    """

    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status = status
        self.code = str(body.get("code") or "unknown")
        self.detail = str(body.get("detail") or body.get("title") or f"The gateway answers with status {status}.")
        errors = body.get("errors")
        self.errors = [error for error in errors if isinstance(error, dict)] if isinstance(errors, list) else []
        self.request_id = str(body.get("request_id") or "")
        super().__init__(self.detail)
