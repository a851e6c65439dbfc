"""What reservations keep of limits follows each change of what is held and used, and costs little."""

from time import process_time
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.engine.borrowing import Book, give_back, left, obstacle, take
from quotas.engine.reserved import Reserves, in_force_together
from tests.laws import examples

from .test_reserved_quota import CLUSTERS, PATHS, kept, limit, worlds

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["take", "return", "use", "unuse"]),
        st.sampled_from(PATHS),
        st.integers(1, 4),
        st.sampled_from(CLUSTERS),
        st.integers(0, 4),
    ),
    max_size=8,
)


def most(chains):
    return min((left(chain) for chain in chains.get("gpu", ())), default=None)


def most_at_any_time(book, reserves, reserved, path, where):
    """Counted anew for each time at which some are in force, without leaving any out."""
    found = [most(book.chains(path, where))]
    for at, together in in_force_together(reserved):
        shadows = reserves._shadows(together, at)
        chains = [[shadows.get(id(line), line) for line in chain] for chain in book.chains(path, where).get("gpu", ())]
        found.append(most({"gpu": chains}))
    return None if None in found else min(found)


@pytest.mark.law
@pytest.mark.oracle
@given(worlds(), STEPS)
@examples(300)
def test_after_each_step_it_is_as_if_counted_anew(world, steps):
    book = Book(world.limits)
    reserves, taken = Reserves(book, world.reserved), []
    for kind, path, amount, cluster, number in [("begin", "a", 1, "north", 0), *steps]:
        chains, amounts = book.chains(path, cluster), {"gpu": amount}
        if kind == "take":
            take(chains, amounts)
            taken.append((chains, amounts))
        elif kind == "return" and taken:
            give_back(*taken.pop())
        elif kind in ("use", "unuse"):
            reserves.use(UUID(int=100 + number), amounts, 1 if kind == "use" else -1)
        for asked in PATHS:
            for where in CLUSTERS:
                beside = reserves.beside(book.chains(asked, where), asked, world.reserved)
                assert most(beside) == most_at_any_time(book, reserves, world.reserved, asked, where)
                lines = [line for chain in beside.get("gpu", ()) for line in chain if line.reserved]
                assert all(line.held == line.of.held + line.reserved for line in lines)


def test_what_is_taken_within_a_guarantee_is_kept_above_it():
    book, reserved = Book((limit(1, "a", 10), limit(2, "a/b", 8, guaranteed=4))), (kept(100, "a/b", 4),)
    reserves, seen = Reserves(book, reserved), []
    for _ in range(4):
        chains = book.chains("a/b", "north")
        seen.append([line.reserved for line in reserves.beside(chains, "a", reserved)["gpu"][1]])
        take(chains, {"gpu": 1})
    assert seen == [[4, 0], [4, 1], [4, 2], [4, 3]]


def test_times_at_which_no_more_is_kept_anywhere_are_left_out():
    limits = (limit(1, "a", 100), limit(2, "a/b", 50, guaranteed=10))
    reserved = [kept(100 + n, "a/b", 4, starts=10 * n, minutes=5) for n in range(20)]
    reserved += [kept(200, "a/b", 6, starts=500, minutes=5)]
    book = Book(limits)
    found = Reserves(book, reserved).beside(book.chains("a/b", "north"), "a/b", tuple(reserved))
    assert len(found["gpu"]) == 2
    assert [line.reserved for line in found["gpu"][1]] == [6, 0]


def test_two_hundred_reservations_beside_guarantees_cost_each_job_little():
    """It was 60 ms for each job, because a job that took something within a guarantee made all of it be counted again."""
    limits = (limit(1, "a", 10**9), *(limit(10 + n, f"a/t{n}", 10**6, guaranteed=40_000) for n in range(20)))
    reserved = tuple(kept(1000 + n, f"a/t{n % 20}", 8, starts=7 * n, minutes=300 + n * 13 % 200) for n in range(200))
    book = Book(limits)
    reserves = Reserves(book, reserved)
    began = process_time()
    for number in range(200):
        chains = book.chains(f"a/t{number % 20}", "north")
        assert obstacle(reserves.beside(chains, "a", reserved), {"gpu": 1}) is None
        take(chains, {"gpu": 1})
    assert process_time() - began < 2.0  # of 12 s before; about 0.2 s


def test_of_two_times_at_which_more_is_kept_at_different_limits_both_decide():
    book = Book((limit(1, "a", 10), limit(2, "a/b", 8, guaranteed=4)))
    reserved = (kept(100, "a/b", 6, starts=0, minutes=5), kept(101, "a", 5, starts=9, minutes=5))
    found = Reserves(book, reserved).beside(book.chains("a/b", "north"), "a", reserved)["gpu"]
    assert [[line.reserved for line in chain] for chain in found[1:]] == [[6, 2], [0, 5]]
    assert [left(chain) for chain in found] == [8, 2, 8]
