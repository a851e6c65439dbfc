"""A failing run is made smaller as long as it breaks the same promise."""

from collections import Counter

import pytest

from devtools.simulation.run import Result
from devtools.simulation.shrink import shrunk
from devtools.simulation.size import Size

KINDS = ["lost", "slow", "death", "freeze"]


def a_world(needed_job, needed_faults, count=64):
    """Stands for a simulation: a fault of each kind in turn; it fails with one job and some of the faults alone."""

    def attempt(size):
        left = [n for n in range(count) if n not in size.spared and KINDS[n % 4] not in size.without]
        left = [n for n in left if not size.until or n < size.until]
        jobs = size.jobs or (0, 1, 2, 3)
        result = Result(7, size, faults=Counter(KINDS[n % 4] for n in left), fault_count=count, jobs=jobs)
        if needed_job in jobs and set(needed_faults) <= set(left):
            result.breaks.append("promise_8: two attempts ran")
        else:
            result.breaks.append("promise_3: it did not end")
        return result

    return attempt


@pytest.mark.parametrize("needed", [(), (17,), (3, 4, 60)])
def test_what_is_not_needed_is_left_out(needed):
    attempt = a_world(2, needed)
    smaller = shrunk(attempt(Size()), attempt, seconds=60)
    assert smaller.broken_promises == {"promise_8"}
    assert smaller.size.jobs == (2,)
    assert smaller.size.alone
    assert smaller.faults.total() == len(needed)


def test_a_shrink_ends_in_its_time_with_the_smallest_run_that_it_found():
    attempt = a_world(2, (17,))
    first = attempt(Size())
    assert shrunk(first, attempt, seconds=-1) is first
