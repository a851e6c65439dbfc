"""A failing run is made smaller as long as it breaks the same promise."""

from collections import Counter

import pytest

from devtools.simulation.seeds.run import Result
from devtools.simulation.seeds.shrink import shrunk
from devtools.simulation.setting.size import Size

KINDS = ["lost", "slow", "death", "freeze"]
STEPS = 1000


def a_world(needed_job, needed_faults, count=64, *, turn=None, needs=()):
    """Stands for a simulation: a fault of each kind in turn; it fails with one job and some of the faults alone, if the seed
    decides who runs at the step `turn`, and if it has what it needs.
    """

    def attempt(size):
        left = [n for n in range(count) if n not in size.spared and KINDS[n % 4] not in size.without]
        left = [n for n in left if not size.until or n < size.until]
        jobs = size.jobs or (0, 1, 2, 3)
        result = Result(7, size, faults=Counter(KINDS[n % 4] for n in left), fault_count=count, jobs=jobs, steps=STEPS)
        is_turn = turn is None or size.turns is None or size.turns[0] <= turn < size.turns[1]
        lacks = any(need in size.absent or getattr(size, need, False) for need in needs)
        if needed_job in jobs and set(needed_faults) <= set(left) and is_turn and not lacks:
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
    assert smaller.size.cut
    assert smaller.size.one_cluster
    assert smaller.size.turns == (0, 0)
    assert set(smaller.size.absent) == {"operator", "observer", "bell", "worker"}
    assert smaller.faults.total() == len(needed)


def test_what_is_needed_stays():
    attempt = a_world(1, (3,), needs=("observer", "one_cluster", "alone"))
    smaller = shrunk(attempt(Size()), attempt, seconds=60)
    assert smaller.broken_promises == {"promise_8"}
    assert (smaller.size.alone, smaller.size.one_cluster, smaller.size.cut) == (False, False, True)
    assert set(smaller.size.absent) == {"operator", "bell", "worker"}
    assert smaller.size.jobs == (1,)


@pytest.mark.parametrize("turn", [0, 333, STEPS - 1])
def test_the_seed_decides_who_runs_only_for_as_long_as_that_matters(turn):
    attempt = a_world(2, (17,), turn=turn)
    smaller = shrunk(attempt(Size()), attempt, seconds=60)
    first, last = smaller.size.turns
    assert first <= turn < last
    assert last - first <= STEPS / 4
    assert smaller.faults.total() == 1


def test_a_shrink_ends_in_its_time_with_the_smallest_run_that_it_found():
    attempt = a_world(2, (17,))
    first = attempt(Size())
    assert shrunk(first, attempt, seconds=-1) is first


def test_a_size_is_read_as_it_is_written():
    size = Size(
        jobs=(0, 2), only=("lost",), without=("slow",), spared=(3, 4), alone=True, until=5.0, scale="small", turns=(120, 180),
        absent=("observer", "operator"), one_cluster=True, cut=True, unwished=(0, 1, 2, 7), undone=(5, 6),
    )  # fmt: skip
    assert Size.read(size.arguments()) == size
    assert "--unwished 0-2,7 --undone 5-6" in size.arguments()
    assert Size.read(Size(turns=(0, 0)).arguments()).turns == (0, 0)
    assert Size.read("") == Size()


def test_who_asks_whether_everything_ends_keeps_those_without_whom_nothing_does():
    def attempt(size):
        return Result(7, size, breaks=["promise_3_everything_ends: a job waits"], jobs=(1,))

    smaller = shrunk(attempt(Size()), attempt, seconds=60)
    assert (smaller.size.absent, smaller.size.one_cluster, smaller.size.alone) == ((), False, True)


def of_length(size, lines, *, promise="promise_8", **more):
    """A run that breaks the promise, with so many lines in its timeline."""
    return Result(7, size, breaks=[f"{promise}: it does"], jobs=(1,), timeline=["line"] * lines, **more)


def test_what_has_a_longer_timeline_is_not_kept():
    def attempt(size):
        return of_length(size, 50 + 9 * size.alone - 9 * ("bell" in size.absent))

    smaller = shrunk(attempt(Size()), attempt, seconds=60)
    assert not smaller.size.alone
    assert smaller.size.cut
    assert "bell" in smaller.size.absent
    assert len(smaller.timeline) == 41


def test_what_is_short_enough_is_not_made_shorter():
    tried = []

    def attempt(size):
        tried.append(size)
        return of_length(size, 30)

    smaller = shrunk(of_length(Size(), 41), attempt, seconds=60, enough=40)
    assert (len(tried), len(smaller.timeline)) == (1, 30)


@pytest.mark.parametrize("what", ["unwished", "undone"])
@pytest.mark.parametrize("needed", [(), (2,), (0, 7, 19)])
def test_what_people_do_in_vain_is_left_out(what, needed):
    def attempt(size):
        left_out = getattr(size, what)
        promise = "promise_3" if set(needed) & set(left_out) else "promise_8"
        return of_length(size, 50 - len(left_out), promise=promise, wish_count=20, doing_count=20)

    smaller = shrunk(attempt(Size()), attempt, seconds=60)
    assert set(getattr(smaller.size, what)) == set(range(20)) - set(needed)
    assert smaller.broken_promises == {"promise_8"}
