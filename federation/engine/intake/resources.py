"""The resources that a pod requests besides CPU, memory and GPUs, in a spec: read from untrusted JSON, and written in the
normal form.
"""

from collections.abc import Collection, Mapping
from typing import Any

from clusters.engine.quantities import Implausible, asked, parse
from clusters.engine.resources import HUGE_PAGES_MIB, amount_text, unit_of

from .reading import Fields, child
from .spec import MAX_RESOURCE_AMOUNT, MAX_RESOURCES

Amounts = tuple[tuple[str, int], ...]


def read_resources(fields: Fields, allowed: Collection[str]) -> Amounts:
    """The amount per pod of each resource, by name: whole units, and MiB of huge pages."""
    given, path = fields.mapping("resources"), fields.at("resources")
    if len(given) > MAX_RESOURCES:
        fields.fault("resources", "too_many", f"must have at most {MAX_RESOURCES} resources")
        return ()
    amounts = Fields(given, path, fields.faults, frozenset(given))
    found: list[tuple[str, int]] = []
    for name in sorted(given):
        if name in allowed:
            found.append((name, _read_amount(amounts, name)))
        else:
            fields.faults.add(child(path, name), "not_allowed", _offer(allowed))
    return tuple(found)


def _offer(allowed: Collection[str]) -> str:
    if not allowed:
        return "jobs can request only cpu, memory and gpu: the administrators allow no other resources"
    return f"jobs can request only these resources besides cpu, memory and gpu: {', '.join(sorted(allowed))}"


def _read_amount(amounts: Fields, name: str) -> int:
    before = len(amounts.faults.found)
    text = amounts.quantity(name)
    if len(amounts.faults.found) > before:
        return 1
    page_mib = HUGE_PAGES_MIB.get(name)
    try:
        size = parse(text) / unit_of(name).size / (page_mib or 1)
        amount = asked(text, unit_of(name))
    except Implausible:
        size, amount = parse("0.5"), 0
    if size.denominator != 1 or not 1 <= amount <= MAX_RESOURCE_AMOUNT:
        grammar = (
            "a whole number"
            if page_mib is None
            else f"a size in whole pages, such as {amount_text(name, 2 * page_mib)}"
        )
        amounts.fault(
            name, "bad_quantity", f"{grammar}, at least one and at most {amount_text(name, MAX_RESOURCE_AMOUNT)}"
        )
        return 1
    return amount


def resources_json(amounts: Amounts) -> dict[str, Any]:
    """The normal form of what is set: specs that set nothing keep their bytes."""
    return {"resources": {name: _amount_json(name, amount) for name, amount in amounts}} if amounts else {}


def resource_amounts(pod_set: Mapping[str, Any]) -> Amounts:
    """The amounts in a stored pod set."""
    stored: Mapping[str, Any] = pod_set.get("resources", {})
    return tuple((name, asked(str(stored[name]), unit_of(name))) for name in sorted(stored))


def _amount_json(name: str, amount: int) -> int | str:
    return amount_text(name, amount) if name in HUGE_PAGES_MIB else amount
