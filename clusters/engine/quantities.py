"""Kubernetes quantities read exactly, as integers in our base units. No value is ever rounded through a float.

A cluster's offer is rounded down and a pod's request is rounded up, so that rounding never promises too much. Grammar:
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

_LONGEST_TEXT = 64
_LARGEST_EXPONENT = 30
_FORM = re.compile(
    r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([eE][+-]?[0-9]{1,3})|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?"
)
_SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", start=1)},
}
_LARGEST_FIRST = (
    *((f"{letter}i", 1024**power) for power, letter in ((5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "K"))),
    *((letter, 1000**power) for power, letter in ((3, "G"), (2, "M"), (1, "k"))),
)
"""Without larger decimal suffixes: 1024 divides every multiple of a trillion."""


class Implausible(ValueError):
    """Not a quantity, negative, or larger than any host: the error's text says which, and is safe to show."""


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of a quantity: `size` in Kubernetes' own base unit, `most` the largest plausible count."""

    name: str
    size: Fraction
    most: int


MILLICORES = Unit("millicores", Fraction(1, 1000), 10**9)
MEBIBYTES = Unit("MiB", Fraction(1024**2), 10**10)
PLAIN = Unit("units", Fraction(1), 10**6)


@lru_cache(maxsize=16384)
def parse(text: str) -> Fraction:
    """The exact value of `text`, negative ones included. Raises Implausible if it is not a Kubernetes quantity."""
    found = _FORM.fullmatch(text) if len(text) <= _LONGEST_TEXT else None
    if found is None:
        raise Implausible(f"{text[:_LONGEST_TEXT]!r} is not a quantity")
    sign, number, exponent, suffix = found.groups()
    value = Fraction(number if not number.endswith(".") else number[:-1])
    if exponent:
        power = int(exponent[1:])
        if abs(power) > _LARGEST_EXPONENT:
            raise Implausible(f"{text!r} has an exponent beyond ±{_LARGEST_EXPONENT}")
        value *= Fraction(10) ** power
    value *= _SUFFIXES[suffix or ""]
    return -value if sign == "-" else value


@lru_cache(maxsize=16384)
def offered(text: str, unit: Unit) -> int:
    """The number of whole units that a cluster offers, rounded down. Raises Implausible."""
    return _believable(text, unit).__floor__()


@lru_cache(maxsize=16384)
def asked(text: str, unit: Unit) -> int:
    """The number of whole units that a pod requests, rounded up. Raises Implausible."""
    return _believable(text, unit).__ceil__()


def written(value: Fraction) -> str:
    """`value` as a quantity that `parse` reads back exactly; values finer than a billionth are rounded up to one."""
    for suffix, size in (("", Fraction(1)), ("m", _SUFFIXES["m"]), ("u", _SUFFIXES["u"])):
        count = value / size
        if count.denominator == 1:
            return f"{count.numerator}{suffix}"
    return f"{(value / _SUFFIXES['n']).__ceil__()}n"


def bytes_text(size_bytes: int) -> str:
    """Canonical: the largest binary suffix that divides the size, else the largest decimal one, else plain bytes."""
    for suffix, unit in _LARGEST_FIRST:
        if size_bytes and size_bytes % unit == 0:
            return f"{size_bytes // unit}{suffix}"
    return str(size_bytes)


def _believable(text: str, unit: Unit) -> Fraction:
    count = parse(text) / unit.size
    if count < 0:
        raise Implausible(f"{text!r} is negative")
    if count > unit.most:
        raise Implausible(f"{text!r} is more than {unit.most} {unit.name}")
    return count
