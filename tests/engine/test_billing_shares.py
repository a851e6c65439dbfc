from decimal import Decimal
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from billing.engine.shares import shown_parts

parts = st.lists(st.fractions(0, 10**6), max_size=30)


def test_thirds_of_a_hundred_are_shown_so_that_they_add_up():
    shown, total = shown_parts([Fraction(100, 3)] * 3, 2)
    assert (list(map(str, shown)), str(total)) == (["33.34", "33.33", "33.33"], "100.00")


@given(parts, st.integers(0, 9))
def test_the_parts_shown_add_up_to_the_total_shown(exact, places):
    shown, total = shown_parts(exact, places)
    assert sum(shown, Decimal(0)) == total
    assert abs(Fraction(total) - sum(exact, Fraction(0))) <= Fraction(1, 2 * 10**places)


@given(parts, st.integers(0, 9))
def test_no_part_moves_by_a_whole_last_place(exact, places):
    shown, _ = shown_parts(exact, places)
    assert all(abs(Fraction(a) - b) < Fraction(1, 10**places) for a, b in zip(shown, exact, strict=True))


@given(parts, st.integers(0, 9))
def test_a_part_of_zero_stays_zero_and_changes_nothing_else(exact, places):
    shown, total = shown_parts(exact, places)
    with_zero, same_total = shown_parts([*exact, Fraction(0)], places)
    assert (with_zero, same_total) == ((*shown, Decimal(0).scaleb(-places)), total)
