"""Prices as they are corrected: what each time should have cost.

A correction replaces what a rate cost in its span; of two for the same time, the one with the higher number applies. The
rest of a price keeps its readings, so that no correction moves the cost of time that it does not cover.
`sql/price_corrections.sql` has the same rule in SQL (`billing_corrected`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from uuid import UUID

from .rating import PriceSpan


@dataclass(frozen=True, slots=True)
class Correction:
    """What a rate should have cost during `span`, which has an end."""

    number: int
    span: PriceSpan


def corrected_spans(prices: Iterable[PriceSpan], corrections: Iterable[Correction]) -> tuple[PriceSpan, ...]:
    """The prices of one rate, which do not overlap, with the corrections put in their place; by start."""
    spans = list(prices)
    for correction in sorted(corrections, key=lambda each: each.number):
        spans = [rest for span in spans for rest in _rest(span, correction.span)]
        spans.append(correction.span)
    return tuple(sorted(spans, key=lambda span: span.valid_from))


def correction_id(number: int) -> UUID:
    """An id for the span of a correction, which is of no price."""
    return UUID(int=number)


def _rest(span: PriceSpan, taken: PriceSpan) -> list[PriceSpan]:
    """The parts of a span before and after another."""
    assert taken.valid_until is not None
    since = span.counted_from or span.valid_from
    parts = []
    if span.valid_from < taken.valid_from:
        ends = taken.valid_from if span.valid_until is None else min(span.valid_until, taken.valid_from)
        parts.append(replace(span, valid_until=ends, counted_from=since))
    if span.valid_until is None or span.valid_until > taken.valid_until:
        begins = max(span.valid_from, taken.valid_until)
        parts.append(replace(span, valid_from=begins, counted_from=since))
    return parts
