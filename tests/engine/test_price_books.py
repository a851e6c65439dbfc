"""Price books: what a file reads as, what it changes, and that a second time there is nothing to change."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise, zip_longest
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.corrected import Correction, correction_id
from billing.engine.price_book import NEVER, BookPrice, Values, book_of, changes, differences, ended_book, wanted_book
from billing.engine.price_file import RateName, price_file_text, read_price_file
from billing.engine.rating import PriceSpan
from foundation.plain_yaml import Mark
from foundation.reading import Refused
from tests.laws import examples

HEAD = "apiVersion: switchyard/v1\nkind: PriceBook\n"
NOW = datetime(2026, 6, 15, tzinfo=UTC)
RATE = RateName("north", "h100", "spot")
LINE = "{cluster: north, flavor: h100, capacity_type: spot, from: 2026-01-01, currency: USD, unit_price: 2.50}"


def day(number):
    return NOW + timedelta(days=number)


def cost(amount, often=None):
    return Values(Decimal(amount), "USD", None, None, None if often is None else Decimal(often))


def book(*prices):
    """A book of (day from, day until, amount)."""
    return tuple(
        BookPrice(
            day(start), None if until is None else day(until), cost(*([amount] if isinstance(amount, str) else amount))
        )
        for start, until, amount in prices
    )


def file_of(*lines):
    return HEAD + "prices:\n" + "".join(f"  - {line}\n" for line in lines)


def faults(text):
    with pytest.raises(Refused) as refused:
        read_price_file(text)
    return [(fault.field, fault.code, fault.detail.partition(":")[0]) for fault in refused.value.faults]


def test_a_file_reads_as_prices_with_their_places():
    found = read_price_file(
        HEAD + "reason: contract 7\nprices:\n"
        "  - {cluster: north, flavor: h100, capacity_type: spot, from: 2026-01-01, until: '2026-02-01T01:00:00+01:00', currency: USD,\n"
        "     unit_price: 2.50, cpu_price: '0.01', memory_price: 3, interruptions_per_hour: 0.05, owner: acme}\n"
    )
    price = BookPrice(
        datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC),
        Values(Decimal("2.50"), "USD", Decimal("0.01"), Decimal(3), Decimal("0.05")),
    )  # fmt: skip
    assert found.reason == "contract 7"
    [one] = found.prices
    assert (one.rate, one.price) == (RateName("north", "h100", "spot", "acme"), price)
    assert (one.mark, one.field) == (Mark(5, 5), "prices[0]")


@pytest.mark.parametrize(
    ("old", "new", "field", "code"),
    [
        ("north", "''", "", ""),
        ("cluster: north, ", "", "cluster", "required"),
        ("flavor: h100, ", "", "flavor", "required"),
        ("capacity_type: spot, ", "", "capacity_type", "required"),
        ("spot", "idle", "capacity_type", "unknown_value"),
        ("from: 2026-01-01, ", "", "from", "required"),
        ("currency: USD, ", "", "currency", "required"),
        (", unit_price: 2.50", "", "unit_price", "required"),
        ("2.50", "-1", "unit_price", "not_money"),
        ("2.50", "NaN", "unit_price", "not_money"),
        ("2.50", "Infinity", "unit_price", "not_money"),
        ("2.50", "1e3", "unit_price", "not_money"),
        ("2.50", "0.0000001", "unit_price", "not_money"),
        ("2.50", "1000000000", "unit_price", "not_money"),
        ("2.50", "true", "unit_price", "not_money"),
        ("2.50", "[]", "unit_price", "not_money"),
        ("2.50", "2.50, cpu_price: x", "cpu_price", "not_money"),
        ("2.50", "2.50, memory_price: -0.1", "memory_price", "not_money"),
        ("2.50", "2.50, interruptions_per_hour: 101", "interruptions_per_hour", "out_of_range"),
        ("2.50", "2.50, discount: 5", "discount", "unknown_field"),
        ("2026-01-01", "2026-02-30", "from", "bad_format"),
        ("2026-01-01", "2026-01-01T00:00:00", "from", "bad_format"),
        ("2026-01-01", "2026-01-01T00:00:00.0001Z", "from", "out_of_range"),
        ("2026-01-01", "1969-12-31", "from", "out_of_range"),
        ("2026-01-01", "3000-01-01", "from", "out_of_range"),
        ("2026-01-01", "20260101", "from", "wrong_type"),
        ("2026-01-01", "2026-01-01, until: 2026-01-01", "until", "empty_period"),
        ("USD", "usd", "currency", "bad_format"),
        ("USD", "EURO", "currency", "too_long"),
        ("h100", '"h\\e100"', "flavor", "out_of_range"),
        ("h100", '"h\\0100"', "flavor", "bad_characters"),
        ("h100", f'"{"h" * 121}"', "flavor", "too_long"),
    ],
)  # fmt: skip
def test_a_fault_names_its_field_and_its_line(old, new, field, code):
    text = file_of(LINE.replace("north", "south"), LINE.replace(old, new))
    if not code:
        assert read_price_file(text).prices[1].rate.cluster == ""
        return
    [(where, what, place)] = faults(text)
    assert (where, what) == (f"prices[1].{field}", code)
    assert place.startswith("line 5, column ")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "wrong_type"),
        ("kind: PriceBook\nprices: []", "required"),
        (HEAD.replace("PriceBook", "TenantTree"), "unknown_value"),
        (HEAD + "prices: {}", "wrong_type"),
        (HEAD + "prices: [1]", "wrong_type"),
        (HEAD + "price: []", "unknown_field"),
        (HEAD + 'reason: "two\\nlines"', "bad_format"),
        (HEAD + "prices: &a [*a]", "yaml_alias"),
        (HEAD + "prices: !!python/object:os.system []", "yaml_tag"),
        (HEAD + "prices: [", "bad_yaml"),
        (HEAD + "prices: []\nprices: []", "given_twice"),
    ],
)  # fmt: skip
def test_what_is_no_price_book_is_refused(text, code):
    assert faults(text)[0][1] == code


def test_a_rate_has_one_price_at_a_time():
    until = LINE.replace("from: 2026-01-01", "from: 2025-01-01, until: 2026-01-02")
    assert faults(file_of(LINE, LINE)) == [("prices[1].from", "given_twice", "line 5, column 57")]
    assert faults(file_of(LINE, until)) == [("prices[0].from", "two_at_once", "line 4, column 57")]
    assert len(read_price_file(file_of(LINE, LINE.replace("spot", "on_demand"))).prices) == 2


def test_a_price_that_a_file_does_not_have_stays_unless_it_is_announced_and_pruned():
    present = book((-30, -10, "1"), (-10, 10, "2"), (10, 20, "3"), (20, None, "4"))
    file = book((10, None, "5"))
    assert wanted_book(present, file, NOW, prune=False) == book(
        (-30, -10, "1"), (-10, 10, "2"), (10, 20, "5"), (20, None, "4")
    )
    assert wanted_book(present, file, NOW, prune=True) == book((-30, -10, "1"), (-10, 10, "2"), (10, None, "5"))
    assert ended_book(present, NOW) == book((-30, -10, "1"), (-10, 0, "2"))


@pytest.mark.parametrize(
    ("file", "prune", "expected"),
    [
        ([(-10, None, "2")], False, []),
        ([(-30, None, "1"), (-10, None, "2"), (10, None, "3")], True, []),
        ([(-10, None, "7")], False, [("change", -10)]),
        ([(-20, None, "7")], False, [("create", -20)]),
        ([(5, None, "7")], False, [("create", 5)]),
        ([(-10, 5, "2")], False, [("end", -10)]),
        ([(10, 30, "3")], False, [("end", 10)]),
        ([(-10, None, "2")], True, [("withdraw", 10), ("change", -10)]),
        ([(10, None, "8"), (20, None, "9")], False, [("change", 10), ("create", 20)]),
        ([(-10, 0, "7"), (0, None, "2")], False, [("change", -10)]),
    ],
)  # fmt: skip
def test_the_changes_of_a_file(file, prune, expected):
    present = book((-30, -10, "1"), (-10, 10, "2"), (10, None, "3"))
    wanted = wanted_book(present, book(*file), NOW, prune=prune)
    found = changes(present, wanted, differences(present, wanted, NOW))
    assert sorted((one.action, one.start) for one in found) == sorted(
        (action, day(start)) for action, start in expected
    )


def test_interruptions_count_from_now_on_only():
    present = book((-10, None, ("2", "0.1")))
    wanted = wanted_book(present, book((-10, None, ("2", "0.2"))), NOW, prune=False)
    [moved] = differences(present, wanted, NOW)
    assert (moved.start, moved.until, moved.values) == (NOW, None, cost("2", "0.2"))
    span = PriceSpan(uuid4(), Decimal(2), "USD", day(-10), NOW)
    after = PriceSpan(uuid4(), Decimal(2), "USD", NOW)
    assert book_of([(span, Decimal("0.1")), (after, Decimal("0.2"))], [], day(1)) == wanted


def test_a_correction_stands_in_the_book_like_a_price():
    price = PriceSpan(uuid4(), Decimal(2), "USD", day(-30))
    fix = PriceSpan(correction_id(1), Decimal(1), "USD", day(-20), day(-10))
    same = PriceSpan(correction_id(2), Decimal(2), "USD", day(-9), day(-8))
    found = book_of([(price, Decimal("0.1"))], [Correction(1, fix), Correction(2, same)], NOW)
    assert [(one.start, one.until, one.values.unit_price) for one in found] == [
        (day(-30), day(-20), 2), (day(-20), day(-10), 1), (day(-10), None, 2),
    ]  # fmt: skip
    assert found[2].values.interruptions_per_hour == Decimal("0.1"), "of the price, not of the correction"


days = st.integers(-6, 6)
prices = st.lists(
    st.tuples(
        days, st.one_of(st.none(), st.integers(1, 3)), st.sampled_from(["1", "2"]), st.sampled_from([None, "0.1"])
    ),
    max_size=4,
)


def books(drawn):
    """The drawn prices without overlaps."""
    starts = {start: (length, cost(amount, often)) for start, length, amount, often in drawn}
    found = []
    for start, after in zip_longest(sorted(starts), sorted(starts)[1:]):
        length, values = starts[start]
        ends = [each for each in (after, None if length is None else start + length) if each is not None]
        found.append(BookPrice(day(start), day(min(ends)) if ends else None, values))
    return tuple(found)


def moved_to(present, moved):
    """The rows after the differences were carried out: each in its own span, whatever adjoins."""
    found = []
    for one in present:
        cuts = sorted(
            {
                one.start,
                one.end,
                *(at for each in moved for at in (each.start, each.until or NEVER) if one.start < at < one.end),
            }
        )
        for start, until in pairwise(cuts):
            if not any(each.start <= start < (each.until or NEVER) for each in moved):
                found.append((start, until, one.values))
    found += [(each.start, each.until or NEVER, each.values) for each in moved if each.values is not None]
    spans = [
        (
            PriceSpan(uuid4(), v.unit_price, v.currency, start, None if until == NEVER else until),
            v.interruptions_per_hour,
        )
        for start, until, v in sorted(found, key=lambda each: each[0])
    ]
    return book_of(spans, [], NOW)


@examples(400)
@given(prices, prices, st.booleans())
def test_after_a_file_was_applied_it_changes_nothing_and_neither_does_an_export(drawn, filed, prune):
    present = moved_to((), differences((), books(drawn), NOW))
    file = books(filed)
    wanted = wanted_book(present, file, NOW, prune=prune)
    moved = differences(present, wanted, NOW)
    then = moved_to(present, moved)
    assert differences(then, wanted_book(then, file, NOW, prune=prune), NOW) == ()
    assert bool(moved) == bool(changes(present, wanted, moved)), "each difference is shown, and nothing else"
    exported = read_price_file(price_file_text((RATE, one) for one in then))
    again = [one.price for one in exported.prices]
    assert differences(then, wanted_book(then, again, NOW, prune=True), NOW) == ()
    assert all(one.mark.line > 2 for one in exported.prices)


@examples(60)
@given(st.text(max_size=20), st.text(max_size=20), st.decimals(0, 10**9 - 1, places=6))
def test_hostile_names_read_back_as_they_are(flavor, cluster, amount):
    name = RateName(cluster or "c", flavor or "f", "spot")
    if not (name.cluster + name.flavor).isprintable():
        return
    text = price_file_text([(name, BookPrice(NOW, None, Values(amount, "USD")))])
    [found] = read_price_file(text).prices
    assert (found.rate, found.price.values.unit_price) == (name, amount)
