"""Two contents under one key: what an offered adjustment must look like, and what puts it in the place of the posted one."""

from dataclasses import replace
from datetime import date
from decimal import Decimal
from uuid import UUID

import pytest

from billing.engine.conflicts import NotReadable, adjustment_of, replacement
from billing.engine.ledger import Entry, Line

CONFLICT = UUID(int=9)
POSTED = Entry(
    "adjust/1", "adjustment", UUID(int=1), date(2026, 3, 1),
    (Line("adjustments", "EUR", Decimal("-12.5")), Line("receivable", "EUR", Decimal("12.5"))), reason="a credit",
)  # fmt: skip
OFFERED = replace(
    POSTED, lines=(Line("adjustments", "EUR", Decimal(-9)), Line("receivable", "EUR", Decimal(9))), reason="less"
)


def test_the_posted_content_is_reversed_and_the_offered_one_gets_a_new_key():
    reversal, resolved = replacement(CONFLICT, POSTED, OFFERED.text)
    assert (reversal.kind, reversal.reverses) == ("reversal", "adjust/1")
    assert [line.amount for line in reversal.lines] == [Decimal("12.5"), Decimal("-12.5")]
    assert resolved.text == replace(OFFERED, key=f"resolved/{CONFLICT}").text


@pytest.mark.parametrize(
    "other",
    [replace(OFFERED, key="adjust/2"), replace(OFFERED, organisation_id=UUID(int=2)), replace(OFFERED, kind="day")],
)
def test_only_an_adjustment_of_the_same_key_and_organisation_replaces_one(other):
    with pytest.raises(NotReadable):
        replacement(CONFLICT, POSTED, other.text)
    with pytest.raises(NotReadable):
        replacement(CONFLICT, other, OFFERED.text)


def test_an_adjustment_is_read_from_its_canonical_text_only():
    text = OFFERED.text
    assert adjustment_of(text).text == text
    head, first, second = text.split("\n")
    not_canonical = [
        "", head.rpartition("\t")[0], f"{head}\tmore\n{first}\n{second}", f"{head}\n{second}\n{first}", f"{text}\n",
        text.replace("2026-03-01", "2026-3-1"), text.replace("2026-03-01", "2026-02-30"), text.replace("9.0", "nine"),
        text.replace("\t9.000000000000", "\t9"), text.replace("\tadjustment\t", "\tday\t"), f"{head}\n{first}\tx\n{second}",
    ]  # fmt: skip
    for wrong in not_canonical:
        assert wrong != text
        with pytest.raises(NotReadable):
            adjustment_of(wrong)
