"""Cursor paging, stable under inserts. A cursor is valid only for the list and the viewer that it came from."""

import base64
import hashlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec
from django.conf import settings
from django.core import signing
from django.db.models import Model, Q, QuerySet
from django.http import QueryDict

from .problems import FieldError, Invalid

DEFAULT_LIMIT = 50
MAX_LIMIT = 500
PAGE_WORDS = ("limit", "cursor", "order")
MAX_VALUE_LENGTH = 2000


def read_query(query: QueryDict, allowed: Collection[str]) -> dict[str, str]:
    """The query's parameters; Invalid for one that is undeclared, given twice, or contains control characters."""
    errors = []
    for name, values in query.lists():
        if name not in allowed:
            errors.append(
                FieldError(name[:100], "unknown_filter", f"this list has: {', '.join(sorted(allowed)) or 'none'}")
            )
        elif len(values) > 1:
            errors.append(FieldError(name, "given_twice", "give this parameter once"))
        elif len(values[0]) > MAX_VALUE_LENGTH or not values[0].isprintable():
            errors.append(FieldError(name, "out_of_range", "too long, or not printable text"))
    if errors:
        raise Invalid(errors=errors)
    return {name: str(value) for name, value in query.items()}


def page_of(
    rows: QuerySet[Any],
    query: Mapping[str, str],
    *,
    orders: Mapping[str, str],
    scope: str,
    render: Callable[[Any], Any],
) -> dict[str, Any]:
    """`{"items": […], "next": cursor or None}` of `rows`.

    `orders` maps the values of `?order=` to a unique field (`-` for newest first); the first is the default. `scope`
    names list, filters and viewer: a cursor from elsewhere is refused.
    """
    limit = _limit(query.get("limit"))
    word = query.get("order") or next(iter(orders))
    if word not in orders:
        raise Invalid.field("order", "unknown_order", f"order by one of: {', '.join(orders)}")
    field = orders[word]
    column, descending = field.lstrip("-"), field.startswith("-")
    bound = _open_cursor(query.get("cursor"), f"{scope}|{word}")
    if bound is not None:
        rows = rows.filter(Q(**{f"{column}__{'lt' if descending else 'gt'}": bound}))
    found = list(rows.order_by(field)[: limit + 1])
    following = found[limit - 1] if len(found) > limit else None
    return {
        "items": [render(row) for row in found[:limit]],
        "next": None if following is None else _seal_cursor(_value(following, column), f"{scope}|{word}"),
    }


def _limit(raw: str | None) -> int:
    if raw is None:
        return DEFAULT_LIMIT
    if not (raw.isascii() and raw.isdigit() and 1 <= int(raw[:10]) <= MAX_LIMIT):
        raise Invalid.field("limit", "out_of_range", f"limit must be a whole number from 1 to {MAX_LIMIT}")
    return int(raw)


def _value(row: Model | Mapping[str, Any], column: str) -> str:
    return str(row[column] if isinstance(row, Mapping) else getattr(row, column))


def _signer(scope: str) -> signing.Signer:
    return signing.Signer(key=settings.SECRET_KEY, salt=f"cursor|{hashlib.sha256(scope.encode()).hexdigest()}", sep=".")


def _seal_cursor(value: str, scope: str) -> str:
    packed = base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")
    return _signer(scope).sign(packed)


def _open_cursor(cursor: str | None, scope: str) -> str | None:
    if not cursor:
        return None
    try:
        packed = _signer(scope).unsign(cursor)
        return msgspec.json.decode(base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4)), type=str)
    except (signing.BadSignature, ValueError, msgspec.DecodeError):
        raise Invalid.field(
            "cursor", "bad_cursor", "this cursor does not belong to this list; start without one"
        ) from None
