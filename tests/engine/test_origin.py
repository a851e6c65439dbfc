"""Whose quota work takes: recounted unit by unit on random trees, and compared with what cycle, quote, capacity and grant
really admit.
"""

from dataclasses import replace
from random import Random
from uuid import UUID

import pytest

from placement.answers.quotes import capacity, quote
from placement.cycle.cycle import decide
from placement.fleet.limits import limit_book
from placement.preemption.loans import Loans
from placement.values.limits import LimitState
from quotas.engine.borrowing import Book
from quotas.engine.holders import in_the_way
from quotas.engine.holds import HoldRequest, Limit, grant
from quotas.engine.origin import Lenders, origin, origins, room

from .fleets import job, limit, pods, snapshot, uniform
from .preemption_worlds import run_on
from .test_borrowing import above, random_tree, tried_out

TREES = 200
GPU = 1000


def grown(chance):
    """A tree with work, and its limits; some of them take back what they lent. Amounts are in GPUs."""
    nodes = random_tree(chance)
    for _ in range(chance.randint(0, 6)):
        one = chance.choice(nodes)
        one.own += chance.randint(0, tried_out(one, nodes))
    takers = {one.path for one in nodes if chance.random() < 0.5}
    limits = [
        Limit(
            id=UUID(int=number + 1),
            tenant_path=one.path,
            resource="gpu",
            clusters=(),
            nominal=one.nominal * GPU,
            cap=one.most * GPU,
            held=one.held * GPU,
            borrowing_limit=one.borrow,
            guaranteed=one.guarantee * GPU,
            reclaims=one.path in takers,
        )
        for number, one in enumerate(nodes)
    ]
    return nodes, limits


def as_states(limits):
    return [
        LimitState(
            one.id,
            one.tenant_path,
            "gpu",
            (),
            one.cap,
            one.held,
            one.guaranteed,
            nominal=one.nominal,
            reclaims=one.reclaims,
        )
        for one in limits
    ]


def borrows(node):
    return 0 if node.parent is None else max(0, node.held - node.nominal)


def taken_one_by_one(node, amount):
    """By path what limits borrow more, and the units for which none does, when the work takes one unit after the other."""
    path, own = above(node), 0
    before = {one.path: borrows(one) for one in path}
    for _ in range(amount):
        last = {one.path: borrows(one) for one in path}
        node.own += 1
        own += all(borrows(one) == last[one.path] for one in path)
    more = {one.path: borrows(one) - before[one.path] for one in path}
    in_debt = {one.path for one in path if borrows(one)}
    node.own -= amount
    return {path: extra for path, extra in more.items() if extra}, own, in_debt


def those_who_reclaim(nodes, limits, in_debt):
    takers = {one.tenant_path for one in limits if one.reclaims and one.nominal}
    parents = {one.path: one.parent.path for one in nodes if one.parent}
    return {
        path
        for path in takers & parents.keys()
        for borrower in in_debt
        if borrower != path and parents[borrower] == parents[path]
    }


@pytest.mark.oracle
def test_what_is_own_and_what_is_borrowed_agrees_with_counting_unit_by_unit():
    chance, borrowed_somewhere, chained, reclaimed = Random(81), 0, 0, 0
    for _ in range(TREES):
        nodes, limits = grown(chance)
        book = Book(limits)
        lenders = Lenders(limits, book)
        for one in nodes:
            [chain] = book.chains(one.path, "north")["gpu"]
            most = tried_out(one, nodes)
            for amount in {0, most, chance.randint(0, most)}:
                more, own, in_debt = taken_one_by_one(one, amount)
                found = origin(chain, amount * GPU, lenders)
                assert {part.tenant_path: part.amount for part in found.borrowed} == {
                    path: extra * GPU for path, extra in more.items()
                }
                assert (found.own, found.is_own) == (own * GPU, own == amount)
                assert set(found.reclaimers) == those_who_reclaim(nodes, limits, in_debt)
                assert all(part.lender in {up.path for up in above(one)} for part in found.borrowed)
                borrowed_somewhere += bool(more)
                chained += len(more) > 1
                reclaimed += bool(found.reclaimers)
            left_here = room(chain, lenders)
            _, own, _ = taken_one_by_one(one, most)
            assert (left_here.free, left_here.own) == (most * GPU, own * GPU)
            # no work of another tenant can take what is guaranteed
            others = [other for other in nodes if other.path != one.path and other not in above(one)]
            before = {other.path: other.own for other in nodes}
            for other in others:
                if not other.path.startswith(f"{one.path}/"):
                    other.own += tried_out(other, nodes)
            assert tried_out(one, nodes) * GPU >= left_here.guaranteed
            for other in nodes:
                other.own = before[other.path]
    assert min(borrowed_somewhere, chained, reclaimed) > 20


@pytest.mark.law
@pytest.mark.parametrize("seed", range(25))
def test_a_quote_the_cycle_the_capacity_and_a_grant_admit_the_same(seed):
    chance = Random(seed)
    nodes, limits = grown(chance)
    fleet = [uniform(1, 20, per_rack=20, owner_path="a")]
    one = chance.choice(nodes)
    given = snapshot(fleet, [], as_states(limits))
    [each] = capacity(job(pods(1, 1), tenant=one.path), given).clusters[0].flavors
    free = each.own + each.borrowable
    assert free == tried_out(one, nodes) * GPU
    for gpus in {1, max(1, free // GPU), free // GPU + 1}:
        asked = job(pods(gpus, 1), tenant=one.path)
        quoted = quote(asked, given)
        placed = decide(replace(given, queue=(asked,))).placements
        outcome, lines = grant([HoldRequest(UUID(int=9), UUID(int=8), one.path, "c1", {"gpu": gpus * GPU})], limits)
        fits = gpus * GPU <= free
        assert (bool(quoted.offers), bool(placed), outcome[UUID(int=9)] is None) == (fits, fits, fits)
        if fits:
            [found] = quoted.offers[0].quota
            assert (found.amount, found.own) == (gpus * GPU, min(gpus * GPU, each.own))
            assert sum(line.amount for line in lines) == found.amount


@pytest.mark.law
@pytest.mark.parametrize("seed", range(25))
def test_who_is_stopped_for_a_tenant_was_quoted_that_tenant(seed):
    """Every debt that preemption finds was announced when the job was quoted."""
    chance = Random(seed)
    nodes, limits = grown(chance)
    owing = 0
    for one in nodes:
        gpus = min(tried_out(one, nodes), 3)
        if not gpus:
            continue
        book = Book(limits)
        announced = origins(book.chains(one.path, "c1"), {"gpu": gpus * GPU}, Lenders(limits, book))
        one.own += gpus
        now_held = {other.path: other.held * GPU for other in nodes}
        states = as_states([replace(each, held=now_held[each.tenant_path]) for each in limits])
        one.own -= gpus
        given = snapshot([], [], states)
        run = run_on(1, {"c1-n0": 1}, gpus=gpus, tenant=one.path)
        for other in nodes:
            debt = Loans(given, limit_book(given)).debt(other.path, "c1", {"gpu": GPU}, run)
            if debt is not None:
                owing += 1
                assert any(f"{other.path}/".startswith(f"{path}/") for path in announced[0].reclaimers)


def test_limits_of_each_user_lend_nothing_and_no_limit_leaves_any_amount():
    fleet = [uniform(1, 1)]
    free = capacity(job(pods(1, 1), tenant="acme/a"), snapshot(fleet, [])).clusters[0].flavors[0]
    assert (free.own, free.borrowable, free.owed) == (None, None, 0)
    offer = quote(job(pods(1, 1), tenant="acme/a"), snapshot(fleet, [])).offers[0]
    assert offer.quota == ()


def test_what_others_may_take_back_is_what_is_held_above_nominal():
    limits = [
        limit("acme", "gpu", 16 * GPU, 12 * GPU, nominal=16 * GPU, number=901),
        limit("acme/a", "gpu", 16 * GPU, 0, nominal=8 * GPU, reclaims=True, number=902),
        limit("acme/b", "gpu", 16 * GPU, 12 * GPU, nominal=8 * GPU, number=903),
        limit("acme/c", "gpu", 16 * GPU, 0, nominal=8 * GPU, number=904),  # takes nothing back
        limit("acme/d", "gpu", 16 * GPU, 0, nominal=0, reclaims=True, number=905),  # lends nothing
    ]
    fleet = [uniform(1, 1)]
    [each] = capacity(job(pods(1, 1), tenant="acme/b"), snapshot(fleet, [], limits)).clusters[0].flavors
    assert (each.own, each.borrowable, each.owed, each.reclaimers) == (0, 4 * GPU, 4 * GPU, ("acme/a",))
    [theirs] = capacity(job(pods(1, 1), tenant="acme/a"), snapshot(fleet, [], limits)).clusters[0].flavors
    assert (theirs.own, theirs.borrowable, theirs.owed, theirs.reclaimers) == (4 * GPU, 0, 0, ())


@pytest.mark.oracle
def test_the_holders_of_a_limit_add_up_to_what_it_counts_and_a_job_that_fits_waits_for_none():
    chance, waited = Random(82), 0
    for _ in range(TREES // 2):
        nodes, limits = grown(chance)
        one = chance.choice(nodes)
        most = tried_out(one, nodes)
        assert in_the_way(one.path, [("north", {"gpu": most * GPU})], limits) == ()
        [found] = in_the_way(one.path, [("north", {"gpu": (most + 1) * GPU})], limits)
        by_path = {node.path: node for node in nodes}
        refusing = by_path[found.limit.tenant_path]
        assert sum(part.held + part.kept for part in found.holders) == found.limit.held == refusing.held * GPU
        for part in found.holders:
            of = by_path[part.tenant_path]
            if part.is_direct:
                assert (part.held, part.kept, part.borrowed) == (of.own * GPU, 0, 0)
            else:
                assert of.parent is refusing
                assert (part.held, part.kept) == (of.held * GPU, max(0, of.guarantee - of.held) * GPU)
                assert part.borrowed == max(0, of.held - of.nominal) * GPU
        assert found.lacking == GPU
        waited += len(found.holders) > 1
    assert waited > 20
