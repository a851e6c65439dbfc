"""Reads untrusted JSON objects field by field and collects all faults, each with its path.

After a fault, a reader continues with a harmless default value, so that one response names every field at fault.
Details never repeat the values that were sent, because they may be secrets.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

MAX_FAULTS = 100
_INSTANT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_./-]{1,80}")


@dataclass(frozen=True, slots=True)
class Fault:
    """One field at fault: its path such as `pod_sets[0].count`, a stable code, and a text for users."""

    field: str
    code: str
    detail: str


class Refused(ValueError):
    """The input is not acceptable; `faults` says why, field by field."""

    def __init__(self, faults: Collection[Fault]) -> None:
        super().__init__("; ".join(f"{fault.field}: {fault.detail}" for fault in faults))
        self.faults = tuple(faults)


class Faults:
    """Collects faults, at most 100."""

    __slots__ = ("found",)

    def __init__(self) -> None:
        self.found: list[Fault] = []

    def add(self, field: str, code: str, detail: str) -> None:
        if len(self.found) < MAX_FAULTS:
            self.found.append(Fault(field, code, detail))

    def refuse_if_any(self) -> None:
        """Raises Refused with all faults, if there are any."""
        if self.found:
            raise Refused(self.found)


def child(path: str, key: str) -> str:
    """The path of a key below `path`; unusual keys are escaped and cut, so a path is always short printable ASCII."""
    shown = key if _PLAIN_KEY.fullmatch(key) else ascii(key[:40])
    return f"{path}.{shown}" if path else shown


class Fields:
    """The fields of one JSON object, read by name; each field that is not in `known` is a fault."""

    __slots__ = ("faults", "path", "values")

    def __init__(
        self, value: object, path: str, faults: Faults, known: frozenset[str], why_not: Mapping[str, str] | None = None
    ) -> None:
        self.path, self.faults = path, faults
        self.values: dict[str, Any] = value if isinstance(value, dict) else {}
        if not isinstance(value, dict):
            faults.add(path, "wrong_type", "must be an object")
            self.faults = Faults()  # so that its fields are not reported as missing too
        elif not known.issuperset(self.values):
            for key in self.values:
                if key not in known:
                    hint = (why_not or {}).get(key)
                    code = "unknown_field" if hint is None else "not_allowed"
                    faults.add(child(path, key), code, hint or "there is no such field")

    def at(self, name: str) -> str:
        """The path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def fault(self, name: str, code: str, detail: str) -> None:
        """Adds a fault of a field."""
        self.faults.add(self.at(name), code, detail)

    def text(self, name: str, *, default: str | None = None, most_bytes: int = 1024) -> str:
        """A string free of NUL and lone surrogates; required unless there is a default (null counts as absent)."""
        value = self.values.get(name)
        if value is None:
            if default is None:
                self.fault(name, "required", "this field is required")
            return default or ""
        fault = text_fault(value, most_bytes)
        if fault is not None:
            self.fault(name, *fault)
            return default or ""
        return str(value)

    def quantity(self, name: str, *, most_bytes: int = 32) -> str:
        """An amount as Kubernetes accepts it, a string or a bare number: `"500m"`, `4`, `0.5`. Required."""
        value = self.values.get(name)
        if type(value) is int or (type(value) is float and isfinite(value)):
            text = f"{Decimal(repr(value)):f}"
            if len(text) <= most_bytes:
                return text
            self.fault(name, "too_long", f"must be at most {most_bytes} digits")
            return ""
        return self.text(name, most_bytes=most_bytes)

    def checked(self, name: str, is_good: Callable[[str], object], detail: str, *, most_bytes: int = 1024) -> str:
        """A required string that a grammar accepts."""
        before = len(self.faults.found)
        value = self.text(name, most_bytes=most_bytes)
        if len(self.faults.found) == before and not is_good(value):
            self.fault(name, "bad_format", detail)
        return value

    def choice(self, name: str, options: Collection[str], default: str) -> str:
        """One of the given options."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, str) or value not in options:
            self.fault(name, "unknown_value", f"one of: {', '.join(options)}")
            return default
        return value

    def whole(
        self, name: str, least: int, most: int, default: int | None = None, *, required: bool = False
    ) -> int | None:
        """A whole number within bounds: never a boolean, a float or a string of digits."""
        value = self.values.get(name)
        if value is None:
            if required:
                self.fault(name, "required", "this field is required")
                return least
            return default
        if type(value) is not int:
            self.fault(name, "wrong_type", "must be a whole number")
            return least
        if not least <= value <= most:
            self.fault(name, "out_of_range", f"must be between {least} and {most}")
            return least
        return value

    def flag(self, name: str, *, default: bool) -> bool:
        """True or false; null counts as absent."""
        value = self.values.get(name)
        if value is None:
            return default
        if type(value) is not bool:
            self.fault(name, "wrong_type", "must be true or false")
            return default
        return value

    def instant(self, name: str, *, required: bool = False) -> datetime | None:
        """A time in the format of RFC 3339, always with its offset from UTC."""
        before = len(self.faults.found)
        text = self.text(name, default=None if required else "", most_bytes=40)
        if len(self.faults.found) > before or self.values.get(name) is None:
            return None
        try:
            if _INSTANT.fullmatch(text):
                return datetime.fromisoformat(text).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
        self.fault(name, "bad_format", "a time with its offset from UTC, such as 2026-01-31T12:00:00Z")
        return None

    def array(self, name: str, *, most: int, least: int = 0) -> list[Any]:
        """A list with a bounded number of items; absent and null are empty."""
        value = self.values.get(name)
        if value is None:
            value = []
        if not isinstance(value, list):
            self.fault(name, "wrong_type", "must be a list")
            return []
        if not least <= len(value) <= most:
            code = "required" if not value else "too_many" if len(value) > most else "too_few"
            self.fault(name, code, f"must have {least} to {most} items" if least else f"must have at most {most} items")
            return []
        return value

    def texts(self, name: str, *, most: int, most_bytes: int = 1024) -> tuple[str, ...]:
        """A list of strings."""
        values = self.array(name, most=most)
        for index, value in enumerate(values):
            fault = text_fault(value, most_bytes)
            if fault is not None:
                self.fault(f"{name}[{index}]", *fault)
                return ()
        return tuple(values)

    def names(self, name: str, is_good: Callable[[str], object], detail: str, *, most: int = 100) -> tuple[str, ...]:
        """A list of different strings that a grammar accepts, sorted (their order does not matter)."""
        values = self.texts(name, most=most, most_bytes=253)
        for index, value in enumerate(values):
            if not is_good(value):
                self.fault(f"{name}[{index}]", "bad_format", detail)
        return tuple(sorted(set(values)))

    def mapping(self, name: str) -> dict[str, Any]:
        """An object with free keys; absent and null are empty."""
        value = self.values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.fault(name, "wrong_type", "must be an object")
            return {}
        return value


def text_fault(value: object, most_bytes: int) -> tuple[str, str] | None:
    """The fault of a value that should be a string, as code and detail; None without a fault."""
    if type(value) is not str:
        return "wrong_type", "must be a string"
    if len(value) > most_bytes:
        return "too_long", f"must be at most {most_bytes} bytes"
    if value.isascii():
        return ("bad_characters", "contains a NUL character") if "\x00" in value else None
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return "bad_characters", "contains half a surrogate pair"
    if size > most_bytes:
        return "too_long", f"must be at most {most_bytes} bytes"
    return ("bad_characters", "contains a NUL character") if "\x00" in value else None
