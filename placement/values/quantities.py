"""Amounts that users request: Kubernetes quantities as exact integers, and back in one canonical form."""

from functools import lru_cache

from clusters.engine.quantities import Implausible, bytes_text, parse

BYTES_PER_MIB = 2**20


class NotAQuantity(ValueError):
    """The text is not a Kubernetes quantity, or not a whole number of the base unit."""


@lru_cache(maxsize=4096)
def millicores(text: str) -> int:
    """Thousandths of a CPU in `16`, `0.5` or `500m`."""
    return _whole(text, 1000, "a thousandth of a CPU")


@lru_cache(maxsize=4096)
def whole_bytes(text: str) -> int:
    """Bytes in `128Gi`, `1.5Gi` or `64M`."""
    return _whole(text, 1, "a byte")


def _whole(text: str, parts: int, unit: str) -> int:
    try:
        value = parse(text) * parts
    except Implausible:
        raise NotAQuantity("a Kubernetes quantity, such as 500m, 16 or 128Gi") from None
    if value.denominator != 1:
        raise NotAQuantity(f"finer than {unit}")
    return value.numerator


def mib_rounded_up(size_bytes: int) -> int:
    """A number of bytes in MiB, rounded up."""
    return -(-size_bytes // BYTES_PER_MIB)


@lru_cache(maxsize=4096)
def cpu_text(amount_millicores: int) -> str:
    """The canonical text: whole CPUs if possible, else millicores."""
    whole, rest = divmod(amount_millicores, 1000)
    return f"{amount_millicores}m" if rest else str(whole)


memory_text = lru_cache(maxsize=4096)(bytes_text)
"""The canonical text of a number of bytes."""


def duration_text(seconds: int) -> str:
    """A duration for users: 90 seconds are `1 min 30 s`."""
    parts = ((seconds // 3600, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0 s"
