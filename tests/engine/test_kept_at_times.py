"""What reservations keep of limits follows each change of what is held and used, and costs little."""

from time import process_time
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.engine.borrowing import Book, give_back, obstacle, take
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


def fits_at_every_time(book, reserves, reserved, path, where, amount):
    """Counted anew for each time at which some are in force, without leaving any out."""
    for at, together in in_force_together(reserved):
        shadows = reserves._shadows(together, at)
        chains = {
            resource: [[shadows.get(id(line), line) for line in chain] for chain in each]
            for resource, each in book.chains(path, where).items()
        }
        if obstacle(chains, {"gpu": amount}) is not None:
            return False
    return obstacle(book.chains(path, where), {"gpu": amount}) is None


@pytest.mark.law
@pytest.mark.oracle
@given(worlds(), STEPS, st.sampled_from(PATHS), st.sampled_from(CLUSTERS), st.integers(1, 6))
@examples(300)
def test_after_each_step_it_is_as_if_counted_anew(world, steps, asked_at, where, asked):
    book = Book(world.limits)
    reserves, taken = Reserves(book, world.reserved), []
    for kind, path, amount, cluster, number in steps:
        chains, amounts = book.chains(path, cluster), {"gpu": amount}
        if kind == "take":
            take(chains, amounts)
            taken.append((chains, amounts))
        elif kind == "return" and taken:
            give_back(*taken.pop())
        elif kind in ("use", "unuse"):
            reserves.use(UUID(int=100 + number), amounts, 1 if kind == "use" else -1)
        found = obstacle(reserves.beside(book.chains(asked_at, where), asked_at, world.reserved), {"gpu": asked})
        assert (found is None) == fits_at_every_time(book, reserves, world.reserved, asked_at, where, asked)
        if found is not None and found.line.reserved:
            assert found.line.held == found.line.of.held + found.line.reserved
            assert found.line.reserved_from in {one.starts_at for one in world.reserved}


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
