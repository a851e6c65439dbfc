"""Quota that is reserved for a period, against an oracle that counts a tree of limits again at every minute."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.engine.borrowing import Book, left, obstacle, path_prefixes
from quotas.engine.holders import in_the_way
from quotas.engine.holds import HoldRequest, Limit, grant, overcommitted, recounted
from quotas.engine.reserved import Reserves, in_force_together
from quotas.engine.reserving import Reserved, beyond, excess
from tests.laws import among, examples

START = datetime(2026, 12, 1, 8, tzinfo=UTC)
PATHS = ("a", "a/b", "a/b/c", "a/d", "a/d/e")
CLUSTERS = ("north", "south")


def at(minute):
    return START + timedelta(minutes=minute)


def limit(number, path, nominal, *, borrow=0, guaranteed=0, held=0, clusters=(), resource="gpu"):
    return Limit(
        UUID(int=number), path, resource, tuple(clusters), nominal, nominal + (borrow or 0), held, borrow, guaranteed
    )


def kept(number, path="a/b", amount=4, starts=0, minutes=60, *, used=0, cluster="north", resource="gpu"):
    return Reserved(
        UUID(int=number), path, cluster, at(starts), at(starts + minutes), ((resource, amount),), ((resource, used),)
    )


@dataclass(frozen=True)
class World:
    limits: tuple[Limit, ...]
    reserved: tuple[Reserved, ...]


@st.composite
def worlds(draw):
    """A few limits in chains, some of which guarantee something, with what work holds; and reservations of up to six minutes."""
    limits = []
    for number, path in enumerate(PATHS, start=1):
        for clusters in ((), ("north",)):
            if draw(st.booleans()):
                nominal = draw(st.integers(0, 9))
                guaranteed = draw(among(0, 0, nominal // 2)) if path != "a" else 0
                one = limit(10 * number + len(clusters), path, nominal, borrow=draw(among(0, 3)),
                            guaranteed=guaranteed, clusters=clusters)  # fmt: skip
                if not overcommitted([*limits, one]):
                    limits.append(one)
    own = {one.id: draw(st.integers(0, 3)) for one in limits}
    reserved = [
        kept(100 + number, draw(among(*PATHS)), draw(st.integers(1, 5)), draw(st.integers(0, 6)),
             draw(st.integers(1, 6)), used=draw(st.integers(0, 6)), cluster=draw(among(*CLUSTERS)))
        for number in range(draw(st.integers(0, 5)))
    ]  # fmt: skip
    return World(tuple(recounted(limits, own)), tuple(reserved))


def claims(limits, place, lines):
    """What the limits of one scope count, with these lines of tenants: the naive way, from the leaves up."""
    own = [one for one in limits if one.clusters == place]
    counted = {}
    for one in sorted(own, key=lambda one: -one.tenant_path.count("/")):
        nearest = [
            amount
            for path, amount in lines
            if next((p for p in path_prefixes(path)[::-1] if any(o.tenant_path == p for o in own)), None)
            == one.tenant_path
        ]
        below = [
            max(counted[o.id], o.guaranteed)
            for o in own
            if o.id in counted
            and next((p for p in path_prefixes(o.tenant_path)[-2::-1] if any(x.tenant_path == p for x in own)), None)
            == one.tenant_path
        ]
        counted[one.id] = sum(nearest) + sum(below)
    return counted


def reserved_at(world, minute, more=()):
    """By limit, what is reserved of it in a minute."""
    found = {}
    for place in {one.clusters for one in world.limits}:
        lines = [
            (one.tenant_path, dict(one.reserved)["gpu"])
            for one in (*world.reserved, *more)
            if one.starts_at <= at(minute) < one.until_at and (not place or one.cluster in place)
        ]
        found |= claims(world.limits, place, lines)
    return found


@pytest.mark.law
@pytest.mark.oracle
@given(
    worlds(), st.sampled_from(PATHS), st.integers(1, 6), st.integers(0, 6), st.integers(1, 6), st.sampled_from(CLUSTERS)
)
@examples(300)
def test_what_may_be_reserved_is_what_stays_within_every_limit_at_every_minute(
    world, path, amount, starts, minutes, where
):
    wanted = kept(9, path, amount, starts, minutes, cluster=where)
    by_id = {one.id: one for one in world.limits}
    over = [
        (minute, limit_id)
        for minute in range(starts, starts + minutes)
        for limit_id, reserved in reserved_at(world, minute, [wanted]).items()
        if reserved > by_id[limit_id].nominal and reserved > reserved_at(world, minute)[limit_id]
    ]
    found = excess(world.limits, world.reserved, wanted)
    assert (found is None) == (not over)
    if found is not None:
        assert found.at == at(min(minute for minute, _ in over))
        before = reserved_at(world, min(minute for minute, _ in over))[found.limit.id]
        assert (found.reserved, found.reserved + found.asked > found.limit.nominal) == (before, True)


@pytest.mark.law
@given(worlds(), st.sampled_from(PATHS), st.integers(1, 6), st.sampled_from(CLUSTERS))
@examples(300)
def test_work_fits_beside_reserved_quota_if_it_fits_in_every_minute(world, path, amount, where):
    """The oracle counts what is reserved and unused as lines of the reserving tenants."""
    book = Book(world.limits)
    chains = Reserves(book, world.reserved).beside(book.chains(path, where), path, world.reserved)
    fits = obstacle(chains, {"gpu": amount}) is None
    fits_always = obstacle(book.chains(path, where), {"gpu": amount}) is None
    for minute in range(13):
        together = [one for one in world.reserved if one.starts_at <= at(minute) < one.until_at]
        lines = dict(_own(world.limits))
        for one in together:
            for chain in book.chains(one.tenant_path, one.cluster).get("gpu", ()):
                lines[chain[0].limit.id] += max(0, dict(one.reserved)["gpu"] - dict(one.used)["gpu"])
        caps = {one.id: one.cap for one in world.limits}
        then = Book(replace(one, cap=caps[one.id]) for one in recounted(world.limits, lines))
        fits_always &= obstacle(then.chains(path, where), {"gpu": amount}) is None
    assert fits == fits_always


def _own(limits):
    from quotas.engine.holds import own_lines  # noqa: PLC0415 - the inverse of what the world was made with

    return own_lines(limits)


def test_work_of_a_reservation_counts_once():
    book = Book([limit(1, "a", 8, held=0)])
    one = kept(9, "a", 6)
    reserves = Reserves(book, [one])
    chains = book.chains("a/b", "north")
    assert left(reserves.beside(chains, "a/b", [one])["gpu"][1]) == 2
    reserves.use(one.id, {"gpu": 4})
    chains["gpu"][0][0].held += 4
    assert left(reserves.beside(chains, "a/b", [one])["gpu"][1]) == 2
    reserves.use(one.id, {"gpu": 4})
    chains["gpu"][0][0].held += 4
    assert reserves.unused(one) == {}
    assert reserves.beside(chains, "a/b", [one])["gpu"] == [chains["gpu"][0]], "more than reserved counts as held"
    reserves.use(UUID(int=77), {"gpu": 4})


def test_where_nothing_is_reserved_the_chains_are_the_identical_object():
    book = Book([limit(1, "a", 8), limit(2, "z", 8)])
    one = kept(9, "a/b")
    reserves = Reserves(book, [one])
    chains = book.chains("z", "north")
    assert reserves.beside(chains, "z", [one]) is chains
    assert reserves.beside(chains, "z", []) is chains
    assert not Reserves(book, [replace(one, reserved=())])


def test_the_largest_sets_that_are_in_force_together():
    first, second, third = kept(1, starts=0, minutes=60), kept(2, starts=30, minutes=60), kept(3, starts=60, minutes=5)
    found = in_force_together([third, first, second])
    assert [(moment, {one.id.int for one in together}) for moment, together in found] == [
        (at(30), {1, 2}),
        (at(60), {2, 3}),
    ]
    assert in_force_together([]) == []


def test_reservations_one_after_the_other_are_not_added_up():
    limits = [limit(1, "a", 8)]
    others = [kept(1, amount=8, starts=0), kept(2, amount=8, starts=120)]
    assert excess(limits, others, kept(3, amount=8, starts=60)) is None
    refused = excess(limits, others, kept(3, amount=1, starts=60, minutes=61))
    assert (refused.at, refused.reserved, refused.reservations, refused.asked) == (at(120), 8, 1, 1)


def test_a_refusal_names_limit_time_and_numbers():
    limits = [limit(1, "a", 8000), limit(2, "a/b", 6000)]
    refused = excess(limits, [kept(1, "a/b", 4000), kept(2, "a/d", 3000)], kept(3, "a/b", 1500))
    assert refused.message == (
        "a has a limit of 8 gpu: 7 are reserved or guaranteed at 2026-12-01 08:00 UTC (2 reservations), 1.5 requested"
    )
    scoped = excess([limit(3, "a/b", 4000, clusters=("north",))], [kept(1, "a/b", 3000)], kept(3, "a/b/c", 2000))
    assert scoped.message == (
        "a/b has a limit of 4 gpu on north: 3 are reserved or guaranteed at 2026-12-01 08:00 UTC (1 reservation), 2 requested"
    )
    assert (
        excess(
            [limit(3, "a/b", 4000, clusters=("north",))],
            [kept(1, "a/b", 3000)],
            kept(3, "a/b/c", 2000, cluster="south"),
        )
        is None
    )


def test_what_others_are_guaranteed_cannot_be_reserved():
    limits = [limit(1, "a", 8), limit(2, "a/b", 8), limit(3, "a/d", 3, guaranteed=3)]
    assert excess(limits, [], kept(1, "a/b", 5)) is None
    assert excess(limits, [], kept(1, "a/b", 6)).limit.tenant_path == "a"
    assert excess(limits, [], kept(1, "a/d", 3)) is None


def test_reservations_never_borrow():
    limits = [limit(1, "a", 8), limit(2, "a/b", 4, borrow=4)]
    assert excess(limits, [], kept(1, "a/b", 4)) is None
    assert excess(limits, [], kept(1, "a/b", 5)).limit.tenant_path == "a/b"


def test_what_is_reserved_beyond_a_lowered_limit_is_marked_and_nothing_else():
    first, second, elsewhere = kept(1, "a/b", 4000), kept(2, "a/b/c", 4000, 30), kept(3, "a/d", 9000)
    limits = [limit(1, "a/b", 7000)]
    marked = beyond(limits, [first, second, elsewhere])
    assert set(marked) == {first.id, second.id}
    assert marked[first.id].mark == "a/b has a limit of 7 gpu: 8 are reserved or guaranteed at 2026-12-01 08:30 UTC"
    # One other reservation counts there, with its amount.
    assert {one[2:] for one in marked.values()} == {(4000, 1, 4000)}
    assert beyond([limit(1, "a/b", 8000)], [first, second, elsewhere]) == {}


def request(number, path, amount, *, within=None, beside=()):
    return HoldRequest(UUID(int=number), UUID(int=0), path, "north", {"gpu": amount}, None, within, tuple(beside))


def test_a_grant_leaves_room_for_what_is_reserved_and_says_so():
    one = kept(9, "a/b", 4000, starts=30, used=1000)
    limits = [limit(1, "a", 8000, held=2000)]
    outcomes, _ = grant(
        [request(1, "a/d", 4000, beside=[one.id]), request(2, "a/d", 3000, beside=[one.id]), request(3, "a/d", 1000)],
        limits, (), [one],
    )  # fmt: skip
    assert outcomes[UUID(int=1)].message == (
        "a has a limit of 8 gpu: 2 held, 3 reserved from 2026-12-01 08:30 UTC on, 4 requested"
    )
    assert outcomes[UUID(int=2)] is None
    assert outcomes[UUID(int=3)] is None, "it ends before"


def test_in_a_batch_what_a_reservations_own_job_takes_is_no_longer_kept_for_it():
    one = kept(9, "a/b", 4000)
    limits = [limit(1, "a", 8000)]
    outcomes, takes = grant(
        [request(1, "a/b", 4000, within=one.id), request(2, "a/d", 4000, beside=[one.id]), request(3, "a/d", 1, beside=[one.id])],
        limits, (), [one],
    )  # fmt: skip
    assert [outcome and outcome.code for outcome in outcomes.values()] == [None, None, "quota_exceeded"]
    assert [one.amount for one in takes] == [4000, 4000]


def test_who_waits_for_reserved_quota_learns_how_much_and_from_when():
    one = kept(9, "a/b", 4000, starts=30)
    limits = (limit(1, "a", 8000, held=5000),)
    (found,) = in_the_way("a/d", [("north", {"gpu": 2000})], limits, reserved=[one])
    assert (found.lacking, found.reserved, found.reserved_from) == (3000, 4000, at(30))
    assert in_the_way("a/d", [("north", {"gpu": 2000})], limits) == ()
