"""Quantities in untrusted JSON, within bounds."""

from collections.abc import Callable

from placement.values.quantities import NotAQuantity

from .reading import Fields


def read_amount(
    fields: Fields, name: str, parse: Callable[[str], int], shown: Callable[[int], str], least: int, most: int
) -> int:
    """A required quantity within bounds, in the base unit of `parse`."""
    before = len(fields.faults.found)
    text = fields.quantity(name)
    if len(fields.faults.found) > before:
        return least
    try:
        amount = parse(text)
    except NotAQuantity as error:
        fields.fault(name, "bad_quantity", str(error))
        return least
    if not least <= amount <= most:
        fields.fault(name, "out_of_range", f"must be between {shown(least)} and {shown(most)}")
    return amount
