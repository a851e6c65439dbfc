"""The report of lines that no seed reached."""

from devtools.simulation.lines import MEASURED, NOT_MEASURED, ROOT, ranges


def test_missed_lines_are_told_as_ranges_that_no_reached_statement_interrupts():
    statements = [3, 5, 6, 9, 10, 14, 20]
    assert ranges([5, 6, 10, 14], statements) == "5-6, 10-14"
    assert ranges([3, 6, 10, 20], statements) == "3, 6, 10, 20"
    assert ranges([], statements) == ""


def test_what_is_measured_exists():
    for patterns in MEASURED.values():
        for pattern in patterns:
            assert list(ROOT.glob(pattern)), pattern
    assert all((ROOT / name).exists() for name in NOT_MEASURED)
