"""Logs that are read by their ends are printed whole, in order and once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchyard.logs import Tail

LINES = st.lists(st.integers(0, 10**6).map(str), unique=True, max_size=60)


@given(LINES, st.integers(1, 20), st.lists(st.integers(0, 30), max_size=20))
def test_lines_are_printed_in_order_and_once_and_what_was_overtaken_is_reported(lines, window, steps):
    text, tail, printed, end = "".join(f"{line}\n" for line in lines), Tail(), [], 0
    for step in [*steps, len(text)]:
        end = min(len(text), end + step)
        read = "".join(text[:end].splitlines(keepends=True)[-window:])
        whole = read.split("\n")[:-1]
        new, has_gap = tail.new_lines(read, is_cut=False, is_whole=False)
        following = lines[lines.index(printed[-1]) + 1 :] if printed else whole
        assert not has_gap or not set(whole) & set(printed)
        assert has_gap or list(new) == following[: len(new)], "nothing is missing without a report"
        printed.extend(new)
        assert not whole or printed[-1] == whole[-1], "nothing that can be printed waits"
    assert printed == [line for line in lines if line in set(printed)]


@pytest.mark.parametrize(
    ("reads", "printed"),
    [
        ([("a\nb", False), ("a\nbc\n", False)], ["a", "bc"]),
        ([("a\nb", False), ("a\nb", True)], ["a", "b"]),
        ([("a\na\n", False), ("a\na\na\n", False)], ["a", "a", "a"]),
        ([("", False), ("a\n", False), ("", True)], ["a"]),
        ([("\n\n", False), ("\n\n\n", True)], ["", "", ""]),
    ],
)
def test_a_line_is_printed_when_it_is_whole(reads, printed):
    tail, out = Tail(), []
    for text, is_whole in reads:
        out.extend(tail.new_lines(text, is_cut=False, is_whole=is_whole)[0])
    assert out == printed


def test_the_part_of_a_line_at_a_cut_is_left_out():
    tail = Tail()
    assert tail.new_lines("half\nb\nc\n", is_cut=True, is_whole=False) == (["b", "c"], False)
    assert tail.new_lines("alf\nc\nd\n", is_cut=True, is_whole=False) == (["d"], False)


def test_lines_that_were_overtaken_are_reported():
    tail = Tail()
    tail.new_lines("a\nb\n", is_cut=False, is_whole=False)
    assert tail.new_lines("x\ny\n", is_cut=False, is_whole=False) == (["x", "y"], True)
