"""JSON parsed strictly: it refuses duplicate keys, NaN, overlong numbers and unlimited nesting instead of guessing."""

import json
import re
from typing import Any, NoReturn

MAX_DEPTH = 32
MAX_NUMBER_LENGTH = 64
_NOT_BRACKETS = bytes(set(range(256)) - set(b"{}[]"))
_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


class MalformedJSON(ValueError):
    """The text is not JSON that this product accepts; the message gives the sender the reason."""


def loads(text: bytes) -> Any:
    """The value, with every object's keys unique, strings free of NUL and lone surrogates, and depth at most 32."""
    try:
        decoded = text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedJSON(f"the body is not UTF-8 (byte {error.start})") from None
    if decoded.startswith("\ufeff"):
        raise MalformedJSON("the body starts with a byte order mark")
    _check_depth(text)
    try:
        value = json.loads(
            decoded,
            object_pairs_hook=_unique_keys,
            parse_constant=_no_constant,
            parse_float=_finite_float,
            parse_int=_bounded_int,
        )
    except json.JSONDecodeError as error:
        raise MalformedJSON(f"not valid JSON at line {error.lineno} column {error.colno}: {error.msg}") from None
    if "\\u" in decoded:
        _check_text(value)
    elif "\x00" in decoded:
        raise MalformedJSON("a string contains a NUL character")
    return value


def _check_depth(text: bytes) -> None:
    if text.count(b"{") + text.count(b"[") <= MAX_DEPTH:
        return
    depth = 0
    for byte in _STRINGS.sub(b"", text).translate(None, delete=_NOT_BRACKETS):
        if byte in b"{[":
            depth += 1
            if depth > MAX_DEPTH:
                raise MalformedJSON(f"nested deeper than {MAX_DEPTH} levels")
        else:
            depth -= 1


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise MalformedJSON(f"the key {key!r} appears twice in one object")
            seen.add(key)
    return result


def _no_constant(name: str) -> NoReturn:
    raise MalformedJSON(f"{name} is not a number in JSON")


def _finite_float(digits: str) -> float:
    value = float(digits) if len(digits) <= MAX_NUMBER_LENGTH else float("inf")
    if value in (float("inf"), float("-inf")):
        raise MalformedJSON("a number is too large or too long")
    return value


def _bounded_int(digits: str) -> int:
    if len(digits) > MAX_NUMBER_LENGTH:
        raise MalformedJSON("a number is too long")
    return int(digits)


def _check_text(value: Any) -> None:
    if isinstance(value, str):
        if "\x00" in value or any("\ud800" <= character <= "\udfff" for character in value):
            raise MalformedJSON("a string contains a NUL character or half a surrogate pair")
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(key)
            _check_text(item)
    elif isinstance(value, list):
        for item in value:
            _check_text(item)
