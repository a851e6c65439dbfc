"""Parses the text controls of this room's forms: numbers, comma-separated words, one pair per line."""

from collections.abc import Mapping

from foundation.problems import FieldError, Invalid


def check_chosen(values: Mapping[str, str]) -> None:
    """Raises Invalid if no tenant is chosen, because an empty path would only look absent."""
    if not values.get("tenant", "").strip():
        raise Invalid.field("tenant", "required", "choose a tenant")


def whole_number(text: str) -> int | str:
    """The number in the text, or the unchanged text if it is not a number."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else text  # noqa: PLR2004 - far above any limit


def words_of(text: str) -> list[str]:
    """The words between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def pairs(text: str, field: str, errors: list[FieldError]) -> dict[str, str]:
    """`name=value` by line."""
    found: dict[str, str] = {}
    for line in filter(None, (line.strip() for line in text.splitlines())):
        name, sign, value = line.partition("=")
        if not (name and sign):
            errors.append(FieldError(field, "bad_format", "one name=value per line"))
            break
        found[name.strip()] = value.strip()
    return found
