"""Rounds of two checkouts are compared pair by pair, not as two averages of a host that changes its speed."""

from benchmarks.beside import compared


def test_a_host_that_slows_down_changes_no_ratio() -> None:
    theirs = [{"jobs_per_second": rate} for rate in (100.0, 50.0, 25.0)]
    ours = [{"jobs_per_second": rate * 0.9} for rate in (100.0, 50.0, 25.0)]
    (row,) = compared(ours, theirs)
    assert row == {"figure": "jobs_per_second", "here": 45.0, "there": 50.0, "ratio": 0.9, "25 %": 0.9, "75 %": 0.9}


def test_only_figures_that_both_have_are_compared() -> None:
    assert compared([{"new": 1.0}], [{"old": 1.0}]) == []


def test_a_round_with_nothing_of_something_has_no_ratio() -> None:
    ours = [{"valkey": 2.0}, {"valkey": 3.0}]
    theirs = [{"valkey": 0.0}, {"valkey": 2.0}]
    assert [row["ratio"] for row in compared(ours, theirs)] == [1.5]
