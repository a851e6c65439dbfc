"""Kubernetes quantities: exact, never promising too much, never fooled."""

from decimal import Context, localcontext
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clusters.engine.quantities import (
    MEBIBYTES,
    MILLICORES,
    PLAIN,
    Implausible,
    asked,
    bytes_text,
    offered,
    parse,
    written,
)

SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
numbers = st.one_of(
    st.integers(0, 10**12).map(str),
    st.decimals(0, 10**6, places=3, allow_nan=False, allow_infinity=False).map(str),
    st.integers(0, 999).map(lambda value: f".{value:03d}"),
    st.integers(0, 999).map(lambda value: f"{value}."),
)
quantities = st.one_of(
    st.builds("{}{}".format, numbers, st.sampled_from(SUFFIXES)),
    st.builds("{}e{}".format, st.integers(0, 9999), st.integers(-9, 18)),
    st.builds("{}E{}".format, st.integers(0, 9999), st.integers(-9, 18)),
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("1", 1),
        ("100m", Fraction(1, 10)),
        ("1.5", Fraction(3, 2)),
        ("1e3", 1000),
        ("1E3", 1000),
        ("12E", 12 * 10**18),
        ("1Ei", 2**60),
        ("128Gi", 128 * 2**30),
        ("+5", 5),
        ("-5", -5),
        ("5.", 5),
        (".5", Fraction(1, 2)),
        ("1n", Fraction(1, 10**9)),
        ("1".zfill(64), 1),
        ("1e30", 10**30),
        ("1e-30", Fraction(1, 10**30)),
    ],
)
def test_a_quantity_is_read_as_kubernetes_reads_it(text, value):
    assert parse(text) == value


@given(quantities)
@example("17267142309Ei")
def test_every_quantity_equals_what_the_official_client_reads(text):
    from kubernetes.utils.quantity import parse_quantity  # noqa: PLC0415 - with it comes the whole client, a third of a second

    ours = parse(text)
    if text[-1] == "E" and "e" not in text:
        return  # the official client takes no bare exa suffix for what it is in every release
    with localcontext(Context(prec=100)):  # the client rounds to the precision there is, by default 28 digits
        read = parse_quantity(text.rstrip(".") if text.endswith(".") else text.replace(".k", "k"))
    assert ours == Fraction(read)


@pytest.mark.parametrize(
    "text",
    ["", " ", "1 ", " 1", "much", "NaN", "inf", "-inf", "1e", "1ee3", "0x10", "1_000", "1,5", "1Kii", "1ki", "\uff11", "1e400", "1e31", "1e-31", "1".zfill(65), "--1", "1.2.3", "1\n", "1\x00"],
)  # fmt: skip
def test_what_is_no_quantity_is_refused_by_name(text):
    with pytest.raises(Implausible) as refusal:
        parse(text)
    assert "quantity" in str(refusal.value) or "exponent" in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("-1", MILLICORES),
        ("-1Mi", MEBIBYTES),
        ("1000001", MILLICORES),
        ("1000000000000", PLAIN),
        ("1000000000000", MILLICORES),
        ("10Ei", MEBIBYTES),
        ("NaN", PLAIN),
    ],
)
def test_negative_and_absurd_amounts_are_refused(text, unit):
    for read in (offered, asked):
        with pytest.raises(Implausible):
            read(text, unit)


@pytest.mark.parametrize(
    ("unit", "most", "more"),
    [
        (MILLICORES, "1000000", "1000000001m"),
        (MEBIBYTES, "10000000000Mi", "10000000001Mi"),
        (PLAIN, "1000000", "1000001"),
    ],
)
def test_the_largest_plausible_amount_of_each_unit_is_read(unit, most, more):
    assert offered(most, unit) == asked(most, unit) == unit.most
    assert offered("0", unit) == asked("0", unit) == 0
    for read in (offered, asked):
        with pytest.raises(Implausible, match=f"is more than {unit.most} {unit.name}"):
            read(more, unit)
        with pytest.raises(Implausible, match="is negative"):
            read("-1n", unit)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0"), (1, "1"), (1000, "1k"), (1024, "1Ki"), (1_000_000, "1M"), (2**20, "1Mi"), (3 * 2**30, "3Gi"),
        (10**9, "1G"), (2**40, "1Ti"), (10**12, "976562500Ki"), (2**50, "1Pi"), (2**60, "1024Pi"),
        (128_000, "125Ki"), (1500, "1500"),
    ],
)  # fmt: skip
def test_a_size_is_written_with_the_largest_suffix_that_divides_it(size_bytes, text):
    assert bytes_text(size_bytes) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(Fraction(2), "2"), (Fraction(1, 2), "500m"), (Fraction(1, 2000), "500u"), (Fraction(3, 2 * 10**9), "2n")],
)
def test_a_value_is_written_in_the_coarsest_unit_that_is_exact(value, text):
    assert written(value) == text


@given(quantities, st.sampled_from([MILLICORES, MEBIBYTES, PLAIN]))
def test_offers_are_rounded_down_and_requests_up(text, unit):
    try:
        least, most = offered(text, unit), asked(text, unit)
    except Implausible:
        return
    exact = parse(text) / unit.size
    assert least <= exact <= most
    assert most - least <= 1


@given(st.lists(quantities, min_size=1, max_size=8), st.sampled_from([MILLICORES, MEBIBYTES]))
def test_what_fits_by_our_numbers_fits_exactly(texts, unit):
    """If the rounded requests fit into the rounded offer, so do the exact ones."""
    try:
        offer = offered(texts[0], unit)
        requests = sum(asked(text, unit) for text in texts[1:])
    except Implausible:
        return
    if requests <= offer:
        assert sum((parse(text) for text in texts[1:]), Fraction(0)) <= parse(texts[0])


@given(st.fractions(min_value=0, max_value=10**9, max_denominator=10**9))
def test_a_written_quantity_reads_back_as_at_least_the_same(value):
    again = parse(written(value))
    assert value <= again < value + Fraction(1, 10**9)
    if (value * 10**6).denominator == 1:
        assert again == value
