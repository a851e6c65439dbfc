import pytest

from devtools import parts
from devtools.parts import AT_ONCE, Run


def begun(waiting, running=()):
    """The names of what runs once no more may begin."""
    waiting, running = list(waiting), list(running)
    while len(running) < AT_ONCE and (run := parts._next(waiting, running)):
        waiting.remove(run)
        running.append(run)
    return [run.name for run in running]


def runs(*names):
    return [Run(name, (), has_low_priority=name.startswith("c")) for name in names]


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        (("c1", "c2", "c3", "w1", "w2", "w3", "w4"), ["c1", "c2", "w1", "w2", "w3"]),
        (("w1", "w2", "w3", "w4", "c1", "c2", "c3"), ["w1", "w2", "w3", "c1", "c2"]),
        (("c1", "c2", "c3", "c4", "c5", "c6"), ["c1", "c2", "c3", "c4", "c5"]),
        (("w1", "w2", "w3", "w4", "w5", "w6"), ["w1", "w2", "w3", "w4", "w5"]),
        (("c1", "w1"), ["c1", "w1"]),
        ((), []),
    ],
)
def test_two_parts_that_compute_run_beside_others_and_no_place_stays_empty_while_one_waits(waiting, expected):
    assert begun(runs(*waiting)) == expected


def test_the_place_of_a_part_goes_to_one_of_its_kind():
    running = runs("c1", "c2", "w1", "w2")
    assert begun(runs("c3", "w3"), running)[-1] == "w3"
    assert begun(runs("w3", "c3"), running[1:] + runs("w4"))[-1] == "c3"
