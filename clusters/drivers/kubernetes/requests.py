"""A pod's requests, as the scheduler of Kubernetes counts them."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from clusters.engine.quantities import Implausible, parse, written

Requests = Mapping[str, str]


def effective_requests(containers: Sequence[Requests], init: Iterable[tuple[Requests, bool]]) -> dict[str, str]:
    """A pod's requests as the scheduler counts them: containers and sidecars together, or the largest start-up step.

    `init` is (requests, is a sidecar) in order. A sidecar keeps running, so each later step runs beside it.
    """
    sidecars: list[Requests] = []
    steps: list[dict[str, str]] = []
    for requests, is_sidecar in init:
        if is_sidecar:
            sidecars.append(requests)
        steps.append(summed([*sidecars] if is_sidecar else [*sidecars, requests]))
    return _largest([summed([*containers, *sidecars]), *steps])


def summed(parts: Sequence[Requests]) -> dict[str, str]:
    """The sum of each resource."""
    filled = [part for part in parts if part]
    if len(filled) <= 1:
        return dict(filled[0]) if filled else {}
    totals: dict[str, Fraction | str] = {}
    for part in filled:
        for resource, text in part.items():
            totals[resource] = _added(totals.get(resource, Fraction(0)), text)
    return {resource: value if isinstance(value, str) else written(value) for resource, value in totals.items()}


def _added(total: Fraction | str, text: str) -> Fraction | str:
    """Invalid text remains invalid, so that the reader of the sum sees it."""
    try:
        return total if isinstance(total, str) else total + parse(text)
    except Implausible:
        return text


def _largest(steps: Sequence[dict[str, str]]) -> dict[str, str]:
    if len(steps) == 1:
        return steps[0]
    most: dict[str, str] = {}
    for step in steps:
        for resource, text in step.items():
            if resource not in most or _exceeds(text, most[resource]):
                most[resource] = text
    return most


def _exceeds(text: str, other: str) -> bool:
    try:
        return parse(text) > parse(other)
    except Implausible:
        return True
