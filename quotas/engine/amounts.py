"""Amounts of a resource: text as users and Kubernetes write it, stored as integers in base units.

Base units: `gpu` and `gpu:MODEL` in milli-GPU, `cpu` in millicores, `memory` in MiB, `jobs` in jobs. Amounts are never
rounded.
"""

import re

from clusters.engine.quantities import Implausible, parse

JOBS = "jobs"
"""The number of jobs that hold anything: each counts as one, however large it is."""
RESOURCE = re.compile(r"gpu|gpu:[A-Za-z0-9][A-Za-z0-9._-]{0,62}|cpu|memory|jobs")
KINDS = "one of gpu, gpu:MODEL, cpu, memory, jobs"
COUNT = re.compile(r"[0-9]+(\.[0-9]+)?[mk]?")
MEBIBYTE = 1024**2
MILLI = 1000
EXAMPLES = ("8, 0.5 or 500m", "256Gi")
MAX_AMOUNT = 10**15
"""The largest amount in base units: larger than any fleet, and well within 64 bits."""


class BadAmount(ValueError):
    """The text is not an amount of this resource. `code` is stable; the message is for users."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def is_resource(name: str) -> bool:
    """Whether `name` is a resource that can be limited."""
    return RESOURCE.fullmatch(name) is not None


def parse_amount(resource: str, text: str) -> int:
    """The amount in base units of `resource`, exactly. Raises BadAmount.

    >>> parse_amount("gpu", "0.5"), parse_amount("cpu", "1500m"), parse_amount("memory", "256Gi")
    (500, 1500, 262144)
    """
    try:
        value = parse(text)
    except Implausible as error:
        raise BadAmount("not_a_quantity", str(error)) from None
    if value < 0 or (resource != "memory" and not COUNT.fullmatch(text)):
        raise BadAmount("not_a_quantity", f"write {resource} as a quantity such as {EXAMPLES[resource == 'memory']}")
    amount = value if resource == JOBS else value / MEBIBYTE if resource == "memory" else value * MILLI
    if amount > MAX_AMOUNT:
        raise BadAmount("out_of_range", f"{text} is too large")
    if amount.denominator != 1:
        unit = {"memory": "whole mebibytes (Mi)", JOBS: "whole jobs"}.get(resource, "thousandths")
        raise BadAmount("too_fine", f"{resource} is counted in {unit}; {text} is not a whole number of them")
    return int(amount)


def format_amount(resource: str, amount: int) -> str:
    """The shortest exact quantity: the inverse of `parse_amount`.

    >>> format_amount("gpu", 500), format_amount("cpu", 1500), format_amount("memory", 262144)
    ('0.5', '1500m', '256Gi')
    """
    if resource == "memory":
        for suffix, size in (("Pi", 1024**3), ("Ti", 1024**2), ("Gi", 1024)):
            if amount and amount % size == 0:
                return f"{amount // size}{suffix}"
        return f"{amount}Mi"
    if resource == JOBS:
        return str(amount)
    whole, milli = divmod(amount, MILLI)
    if milli == 0:
        return str(whole)
    return f"{amount}m" if resource == "cpu" else f"{whole}.{milli:03d}".rstrip("0")
