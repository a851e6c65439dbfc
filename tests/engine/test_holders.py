"""Who holds the quota that work waits for: every part of each limit in the way, the largest first."""

from uuid import UUID

from quotas.engine.holders import Holder, holders, in_the_way
from quotas.engine.holds import UserLimit

from .test_borrowing import limit

ADA = UUID(int=77)
TOP = limit("a", 10_000, 9000, number=1)
BELOW = [
    limit("a/b", 3000, 5000, borrow=None, number=2),
    limit("a/c", 2000, 500, lend=0, number=3),
    limit("a/d", 1000, 1000, number=4),
    limit("a/d/e", 1000, 1000, number=5),
    limit("a/f", 1000, 0, number=6),
    limit("a", 64_000, 3, resource="cpu", number=7),
]
LIMITS = [TOP, *BELOW]


def test_a_limit_counts_what_is_right_below_it_and_what_is_held_at_itself():
    assert holders(TOP, LIMITS) == (
        Holder("a/b", 5000, 0, 3000, is_direct=False),
        Holder("a/c", 500, 1500, 2000, is_direct=False),
        Holder("a", 1000, 0, 10_000, is_direct=True),
        Holder("a/d", 1000, 0, 1000, is_direct=False),
    )
    assert [one.borrowed for one in holders(TOP, LIMITS)] == [2000, 0, 0, 0]
    assert holders(BELOW[2], LIMITS) == (Holder("a/d/e", 1000, 0, 1000, is_direct=False),)
    assert holders(BELOW[4], LIMITS) == ()
    over = limit("a", 1000, 4000, number=1)
    assert holders(over, [over])[0].borrowed == 0, "a limit borrows nothing from itself"


def test_each_limit_in_the_way_is_told_once_with_the_least_that_it_lacks():
    options = [("north", {"gpu": 4000}), ("south", {"gpu": 2000}), ("east", {"gpu": 3000})]
    (found,) = in_the_way("a/f", options, [TOP, limit("a/f", 1000, borrow=None, number=6)])
    assert (found.limit.id.int, found.lacking) == (1, 1000)
    assert in_the_way("a/f", [*options, ("west", {"gpu": 1000})], [TOP, limit("a/f", 1000, number=6)]) == ()
    assert in_the_way("a/f", [], LIMITS) == ()


def test_clusters_with_limits_of_their_own_are_told_apart():
    north = limit("a", 1000, 1000, clusters=("north",), number=8)
    found = in_the_way("a", [("north", {"gpu": 500}), ("south", {"gpu": 5000})], [TOP, north])
    assert [(one.limit.id.int, one.lacking) for one in found] == [(8, 500), (1, 4000)]
    assert [one.holders[0].is_direct for one in found] == [True, True]


def test_only_the_users_own_work_is_in_the_way_at_a_limit_on_each_user():
    each = UserLimit(UUID(int=9), "a", "gpu", 1000, {ADA: 1000})
    asked = [("north", {"gpu": 500})]
    assert in_the_way("a/f", asked, [TOP], [each], ADA) == ()
    assert in_the_way("a/f", asked, [TOP], [each]) == ()
    assert in_the_way("a/f", [("north", {"gpu": 2000})], [TOP], [each])[0].limit.id.int == 1
