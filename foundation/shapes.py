"""Shapes of request bodies: strict where the framework is lenient, so that nothing a client sends is ignored or guessed."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ErrorDetail, ValidationError

from .plain_json import instant

MOST_LABELS = 64
LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")


class StrictShape(serializers.Serializer[Any]):
    """A body of known fields: an unknown or read-only one is refused by name. The refusal names every invalid field."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise ValidationError({"non_field_errors": [ErrorDetail("send a JSON object", "not_an_object")]})
        known = {name for name, field in self.fields.items() if not field.read_only}
        errors: dict[str, Any] = {
            str(name)[:100]: [ErrorDetail("there is no such field, or it cannot be set", "unknown_field")]
            for name in data
            if name not in known
        }
        try:
            values = super().to_internal_value(data)
        except ValidationError as error:
            errors |= dict(error.detail) if isinstance(error.detail, Mapping) else {"non_field_errors": error.detail}
        if errors:
            raise ValidationError(errors)
        return values


class Text(serializers.CharField):
    """A JSON string as it is: numbers are not turned into text, blanks are not trimmed, control characters are refused."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("trim_whitespace", False)
        options.setdefault("max_length", 200)
        super().__init__(**options)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        if not data.isprintable():
            raise ValidationError("control characters are not allowed here", "out_of_range")
        return super().to_internal_value(data)


class FileText(serializers.CharField):
    """The text of a file as a JSON string, of at most `max_length` characters."""

    def __init__(self, **options: Any) -> None:
        super().__init__(trim_whitespace=False, allow_blank=True, **options)

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class Flag(serializers.BooleanField):
    """A JSON true or false."""

    def to_internal_value(self, data: Any) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=data)
        return data


class Whole(serializers.IntegerField):
    """A JSON integer: not a string of digits, not 1.0, not true."""

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, bool) or not isinstance(data, int):
            self.fail("invalid")
        return super().to_internal_value(data)


class Instant(serializers.DateTimeField):
    """RFC 3339 with an offset; written in UTC with milliseconds and `Z`."""

    def to_internal_value(self, value: Any) -> datetime:
        try:
            at = datetime.fromisoformat(value) if isinstance(value, str) and "T" in value.upper() else None
            if at is not None and at.tzinfo is not None:
                return at.astimezone(UTC)
        except (ValueError, OverflowError):
            pass
        raise ValidationError("a time such as 2026-01-31T12:00:00Z, with its offset", "invalid")

    def to_representation(self, value: Any) -> str:
        return instant(value) or ""


class Labels(serializers.DictField):
    """Labels as Kubernetes takes them: at most 64, keys `[prefix/]name`, values up to 63 characters."""

    child = serializers.CharField(allow_blank=True)

    def to_internal_value(self, data: Any) -> dict[str, str]:
        if not isinstance(data, Mapping):
            raise ValidationError("an object of strings", "invalid")
        if len(data) > MOST_LABELS:
            raise ValidationError(f"at most {MOST_LABELS} labels", "too_many")
        for key, value in data.items():
            if not (isinstance(value, str) and LABEL_KEY.fullmatch(key) and LABEL_VALUE.fullmatch(value)):
                raise ValidationError(f"{key[:100]!r} or its value is not a Kubernetes label", "invalid_label")
        return dict(data)


class FieldErrorShape(serializers.Serializer[Any]):
    """One field at fault."""

    field = serializers.CharField(help_text="Such as pod_sets[0].count; empty for the body as a whole.")
    code = serializers.CharField()
    detail = serializers.CharField()


class ProblemShape(serializers.Serializer[Any]):
    """Why a request was refused (RFC 9457, application/problem+json)."""

    type = serializers.URLField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    code = serializers.CharField(help_text="Stable; see docs/reference/errors.md.")
    detail = serializers.CharField()
    request_id = serializers.CharField()
    errors = FieldErrorShape(many=True)  # type: ignore[assignment]  # the stubs know DRF's own `errors`
