"""How many examples a law gets, and which of a walk's seeds are laws."""

import os
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

HAS_ALL = bool(os.environ.get("ALL_EXAMPLES"))
"""`make test-long` sets it."""
SHARE, FEWEST, USUAL = 3, 10, 100


def share_of(most: int) -> int:
    """All with ALL_EXAMPLES, else a third: in `make test` a law finds what is wrong in many examples, in `make test-long` what is
    wrong in few.
    """
    return most if HAS_ALL else max(min(most, FEWEST), most // SHARE)


def examples(most: int, *, suppressed: Collection[HealthCheck] = ()) -> settings:
    """The settings of a law with this number of examples in `make test-long`."""
    return settings(max_examples=share_of(most), suppress_health_check=suppressed)


def third_of(cases: Sequence[Any]) -> Sequence[Any]:
    """All with ALL_EXAMPLES, else every third: for walks that take a second or more for each role or state."""
    return cases if HAS_ALL else cases[::SHARE]


def seeds(numbers: Sequence[int], *, quick: int = 1) -> list[Any]:
    """Parameters of a walk that takes longer than half a second: the first few are quick tests, the others laws."""
    return [*numbers[:quick], *(pytest.param(number, marks=pytest.mark.law) for number in numbers[quick:])]


@lru_cache(maxsize=None, typed=True)
def among(*values: Any) -> st.SearchStrategy[Any]:
    """One of these values. It is made once for the same ones: Hypothesis examines each new strategy, and where each draw made its own,
    that was a third of what a law cost. What else a draw needs is a constant of its module for the same reason.
    """
    return st.sampled_from(values)
