"""What the ledger posts for a day: usage, corrections, and nothing twice."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from uuid import UUID

from billing.engine.corrected import Correction
from billing.engine.ledger import (
    DayKey,
    Entry,
    Line,
    PriceBook,
    RatedSegment,
    Standing,
    corrected_cost,
    money,
    postings,
    reversal_of,
    units,
)
from billing.engine.rating import Load, PriceSpan

NOON = datetime(2026, 11, 10, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
HOUR_OF_A_GPU = 1000 * 3_600_000
"""In thousandths times milliseconds."""
ORGANISATION, TENANT, CLUSTER = (UUID(int=number) for number in (1, 2, 3))
KEY = DayKey(ORGANISATION, TENANT, "acme/ml", CLUSTER, "h100", date(2026, 11, 10))
PRICE = PriceSpan(UUID(int=4), Decimal("2.5"), "USD", datetime(2026, 1, 1, tzinfo=UTC))


def segment(cost="2.5", currency="USD", *, gpus=1, hours=1, flavor="h100", cpu_flavor="", cpu=0):
    load = Load("gpu", gpus, cpu, NOON)
    return RatedSegment(load, "on_demand", flavor, cpu_flavor, NOON, NOON + hours * HOUR, Decimal(cost), currency)


def correction(number, amount, currency="USD", start=NOON, hours=1):
    return Correction(number, replace(PRICE, unit_price=Decimal(amount), currency=currency, valid_from=start,
                                      valid_until=start + hours * HOUR))  # fmt: skip


def books(*corrections, flavor="h100"):
    return {(flavor, "on_demand"): PriceBook((PRICE,), corrections)}


def posted(entries, standing=()):
    """The journal with these entries: one that is reversed counts no more, nor does its reversal."""
    known = [*(one.entry for one in standing), *entries]
    reversed_keys = {one.reverses for one in known if one.reverses}
    return [Standing(one, not one.reverses and one.key not in reversed_keys) for one in known]


def expenses(entries):
    return [
        (one.kind, line.currency, line.amount) for one in entries for line in one.lines if line.account.startswith("t")
    ]


def test_usage_debits_the_tenant_and_credits_the_cluster():
    (entry,) = postings(KEY, [segment(), segment("5", gpus=2), segment("3", "EUR"), segment("0", "")], {}, [])
    assert (entry.kind, entry.day, entry.organisation_id, entry.charge_day) == ("usage", KEY, ORGANISATION, KEY.day)
    assert (entry.reverses, entry.correction) == ("", None)
    path = sha256(b"acme/ml").hexdigest()[:12]
    assert entry.key == f"usage/2026-11-10/{CLUSTER}/{TENANT}/h100/{path}/4"
    assert entry.lines == (
        Line(f"tenant_expense:{TENANT}", "EUR", Decimal(3), HOUR_OF_A_GPU),
        Line(f"cluster_pool:{CLUSTER}", "EUR", Decimal(-3)),
        Line(f"tenant_expense:{TENANT}", "USD", Decimal("7.5"), 3 * HOUR_OF_A_GPU),
        Line(f"cluster_pool:{CLUSTER}", "USD", Decimal("-7.5")),
    )


def test_only_what_is_missing_is_posted():
    first = postings(KEY, [segment()], {}, [])
    assert postings(KEY, [segment()], {}, posted(first)) == ()
    assert postings(KEY, [], {}, []) == ()
    assert postings(KEY, [segment("0")], {}, []) == ()
    late = postings(KEY, [segment(), segment("5", "EUR")], {}, posted(first))
    assert expenses(late) == [("usage", "EUR", Decimal(5))]


def test_what_arrives_later_is_posted_with_its_own_quantity_only():
    first = postings(KEY, [segment()], books(), [])
    [second] = postings(KEY, [segment(), segment(hours=2, cost="5")], books(), posted(first))
    assert [(line.amount, line.quantity) for line in second.lines] == [
        (Decimal(5), 2 * HOUR_OF_A_GPU),
        (Decimal(-5), None),
    ]


def test_a_correction_reverses_what_counts_and_enters_the_corrected_sum():
    usage = postings(KEY, [segment()], books(), [])
    again = postings(KEY, [segment()], books(correction(7, 4)), posted(usage))
    assert [one.kind for one in again] == ["reversal", "reentry"]
    assert again[0] == reversal_of(usage[0], 7)
    assert [line.quantity for line in usage[0].lines] == [HOUR_OF_A_GPU, None]
    assert [line.quantity for line in again[0].lines] == [-HOUR_OF_A_GPU, None]
    assert expenses(again) == [("reversal", "USD", Decimal("-2.5")), ("reentry", "USD", Decimal(4))]
    assert (again[1].key.split("/")[-1], again[1].correction) == ("1c7", 7)
    journal = posted(again, posted(usage))
    assert postings(KEY, [segment()], books(correction(7, 4)), journal) == ()

    # A second one reverses only what counts now: the corrected sum.
    third = postings(KEY, [segment()], books(correction(7, 4), correction(8, 6)), journal)
    assert expenses(third) == [("reversal", "USD", Decimal(-4)), ("reentry", "USD", Decimal(6))]
    assert third[0].reverses == again[1].key
    assert third[1].correction == 8


def test_a_correction_that_changes_no_sum_posts_nothing():
    usage = postings(KEY, [segment()], books(), [])
    assert postings(KEY, [segment()], books(correction(7, "2.5")), posted(usage)) == ()
    assert postings(KEY, [segment()], books(correction(7, 4, start=NOON - HOUR)), posted(usage)) == ()


def test_usage_that_arrives_after_its_correction_is_posted_as_observed_and_corrected():
    both = postings(KEY, [segment(), segment()], books(correction(7, 4)), [])
    assert expenses(both) == [
        ("usage", "USD", Decimal(5)),
        ("reversal", "USD", Decimal(-5)),
        ("reentry", "USD", Decimal(8)),
    ]


def test_a_correction_may_change_the_currency_or_cost_nothing():
    usage = postings(KEY, [segment(hours=2, cost="5")], books(), [])
    euros = postings(KEY, [segment(hours=2, cost="5")], books(correction(7, 4, "EUR")), posted(usage))
    assert expenses(euros) == [
        ("reversal", "USD", Decimal(-5)), ("reentry", "EUR", Decimal(4)), ("reentry", "USD", Decimal("2.5")),
    ]  # fmt: skip
    free = postings(KEY, [segment()], books(correction(7, 0)), posted(postings(KEY, [segment()], books(), [])))
    assert expenses(free) == [("reversal", "USD", Decimal("-2.5"))]


def test_only_the_price_of_one_flavor_has_to_be_corrected():
    given = {**books(correction(7, 4)), ("cpu", "on_demand"): PriceBook((PRICE,))}
    assert corrected_cost(segment(), given) == ({"USD": 4 * 10**12}, {"USD": HOUR_OF_A_GPU})
    usage = postings(KEY, [segment()], {}, [])
    assert len(postings(KEY, [segment()], given, posted(usage))) == 2
    # A guest pays the corrected price of cores; unpriced time costs nothing.
    guest = segment(gpus=0, cpu=2000, flavor="a100", cpu_flavor="h100")
    assert corrected_cost(guest, given)[0] == {"USD": 8 * 10**12}
    assert corrected_cost(segment(flavor="a100"), given) == ({}, {})
    assert corrected_cost(replace(segment(), capacity_type="spot"), given) == ({}, {})


def test_the_canonical_text_has_every_field_and_its_lines_in_order():
    bare = Entry(
        "k", "adjustment", ORGANISATION, KEY.day, (Line("b", "USD", Decimal(1)), Line("a", "USD", -Decimal(1)))
    )
    head = ["k", "adjustment", str(ORGANISATION), "", "", "", "", "2026-11-10", "", "", ""]
    assert bare.text == "\t".join(head) + "\na\tUSD\t-1.000000000000\nb\tUSD\t1.000000000000"
    assert bare.digest == sha256(bare.text.encode()).hexdigest()
    full = replace(bare, day=KEY, reverses="r", correction=5, reason="why", lines=bare.lines[:1])
    head = ["k", "adjustment", str(ORGANISATION), str(TENANT), "acme/ml", str(CLUSTER), "h100", "2026-11-10", "r", "5",
            "why"]  # fmt: skip
    assert full.text == "\t".join(head) + "\nb\tUSD\t1.000000000000"


def test_money_is_counted_in_units_without_loss():
    for text in ("0", "1", "-2.5", "0.000000000001", "123456789.123456789012"):
        assert money(units(Decimal(text))) == Decimal(text)
    assert units(Decimal("1.5")) == 1_500_000_000_000


def test_what_a_late_report_takes_back_is_an_entry_of_the_difference_under_its_own_key():
    first = postings(KEY, [segment(hours=2, cost="5"), segment()], books(), [])
    standing = posted(first)
    shorter = [segment(), segment()]
    back = postings(KEY, shorter, books(), standing, 1)
    assert expenses(back) == [("usage", "USD", Decimal("-2.5"))]
    assert back[0].lines[0].quantity == -HOUR_OF_A_GPU
    assert (first[0].key.rsplit("/", 1)[1], back[0].key.rsplit("/", 1)[1]) == ("2", "2r1")
    assert postings(KEY, shorter, books(), posted(back, standing), 1) == ()


def test_what_is_taken_back_of_a_corrected_day_is_reversed_and_entered_again():
    standing = posted(postings(KEY, [segment(hours=2, cost="5")], books(correction(3, "1", hours=2)), []))
    entries = postings(KEY, [segment()], books(correction(3, "1", hours=2)), standing, 1)
    assert expenses(entries) == [
        ("usage", "USD", Decimal("-2.5")), ("reversal", "USD", Decimal(-2)), ("reversal", "USD", Decimal("2.5")),
        ("reentry", "USD", Decimal(1)),
    ]  # fmt: skip
    assert entries[-1].key.rsplit("/", 1)[1] == "1r1c3"
