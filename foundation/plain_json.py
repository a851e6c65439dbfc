"""JSON as every response of this product writes it: times with milliseconds and `Z`, decimals and ids as strings."""

import decimal
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec


def instant(at: datetime | None) -> str | None:
    """RFC 3339 in UTC with milliseconds and `Z`."""
    if at is None:
        return None
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def plain(value: Any) -> Any:
    """The value as dict, list, str, int, bool and None (floats remain). Most values are text, so that case
    comes first.
    """
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime):
        return instant(value)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    return str(value) if isinstance(value, uuid.UUID) else value


def encode(value: Any) -> bytes:
    """The value as UTF-8 JSON; NotImplementedError for what has no JSON form."""
    return msgspec.json.encode(plain(value), enc_hook=_refuse)


def _refuse(value: Any) -> Any:
    raise NotImplementedError(f"{type(value).__name__} has no JSON form here")
