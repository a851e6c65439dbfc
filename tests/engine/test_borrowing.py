"""What may still be taken under limits that lend to each other, against two oracles: the laws tried out one unit after the
other, and the arithmetic of Kueue's cohorts as its proposal 79 documents it.
"""

from dataclasses import dataclass, field
from random import Random
from uuid import UUID

import pytest

from quotas.engine.borrowing import Book, falls, left, obstacle, path_prefixes, rises, standing, take
from quotas.engine.holds import (
    Borrowing,
    HoldRequest,
    Limit,
    asked_at,
    at_rest,
    bound,
    grant,
    never_fits,
    overcommitted,
    own_lines,
    parents,
    recounted,
)

TREES = 1000
UNBOUNDED = 10**15


@dataclass
class Node:
    """A limit as the oracles see it. `lend` and `borrow` are None without a bound."""

    path: str
    nominal: int
    borrow: int | None
    lend: int | None
    own: int = 0
    children: list["Node"] = field(default_factory=list)
    parent: "Node | None" = None

    @property
    def guarantee(self):
        return 0 if self.lend is None else max(0, self.nominal - self.lend)

    @property
    def floor(self):
        """What it claims above without any work."""
        return max(self.guarantee, sum(child.floor for child in self.children))

    @property
    def held(self):
        return self.own + sum(max(child.held, child.guarantee) for child in self.children)

    @property
    def most(self):
        if self.parent is None:
            return self.nominal
        return self.nominal + (UNBOUNDED if self.borrow is None else self.borrow)


def random_tree(chance):
    """A tree of up to eight limits in which no limit guarantees more than it has."""
    nodes = [Node("a", chance.randint(0, 24), chance.choice([0, 3]), None)]
    for number in range(chance.randint(0, 7)):
        parent = chance.choice(nodes)
        if parent.path.count("/") > 3:
            continue
        room = max(0, parent.nominal - sum(child.floor for child in parent.children))
        nominal = chance.randint(0, 12)
        lend = chance.choice([None, max(0, nominal - chance.randint(0, room)), nominal])
        node = Node(f"{parent.path}/t{number}", nominal, chance.choice([None, 0, 0, 1, 2, 5]), lend, parent=parent)
        parent.children.append(node)
        if any(one.held > one.nominal for one in above(node)):
            parent.children.remove(node)
            continue
        nodes.append(node)
    return nodes


def above(node):
    return [node, *(above(node.parent) if node.parent else [])]


def book_of(nodes):
    return Book(
        Limit(
            id=UUID(int=number),
            tenant_path=node.path,
            resource="gpu",
            clusters=(),
            nominal=node.nominal,
            cap=node.most,
            held=node.held,
            borrowing_limit=node.borrow,
            guaranteed=node.guarantee,
        )
        for number, node in enumerate(nodes)
    )


def tried_out(node, nodes):
    """The most that fits there: one unit more would break a law somewhere."""
    before = node.own
    while all(one.held <= one.most for one in nodes):
        node.own += 1
    most, node.own = node.own - before - 1, before
    return most


def kueue_available(node):
    """`available` of Kueue's resource node. A cohort's own quota adds to its children's there, so a ceiling is a cohort whose
    subtree has the nominal amount without what its children keep, and usage without what they keep.
    """
    kept = sum(child.floor for child in node.children)
    subtree_quota, usage, local_quota = node.nominal - kept, node.held - kept, node.floor - kept
    if node.parent is None:
        return subtree_quota - usage
    local_available = max(0, local_quota - usage)
    parent_available = kueue_available(node.parent)
    if node.borrow is not None:
        stored_in_parent = subtree_quota - local_quota
        used_in_parent = max(0, usage - local_quota)
        parent_available = min(stored_in_parent - used_in_parent + node.borrow, parent_available)
    return local_available + parent_available


@pytest.mark.oracle
def test_what_is_left_agrees_with_both_oracles_on_a_thousand_trees():
    chance = Random(79)
    borrowed = lent = 0
    for _ in range(TREES):
        nodes = random_tree(chance)
        for _ in range(chance.randint(0, 6)):
            node = chance.choice(nodes)
            node.own += chance.randint(0, tried_out(node, nodes))
        book = book_of(nodes)
        for node in nodes:
            chains = book.chains(node.path, "north")
            expected = tried_out(node, nodes)
            assert left(chains["gpu"][0]) == expected == kueue_available(node)
            assert obstacle(chains, {"gpu": expected}) is None
            assert obstacle(chains, {"gpu": expected + 1}) is not None
            borrowed += node.held > node.nominal
            lent += node.nominal - node.held > expected
    assert borrowed > 100
    assert lent > 100


@pytest.mark.oracle
def test_taking_and_counting_again_agree_on_a_thousand_trees():
    chance = Random(16)
    for _ in range(TREES):
        nodes = random_tree(chance)
        book = book_of(nodes)
        for _ in range(chance.randint(1, 6)):
            node, amount = chance.choice(nodes), chance.randint(1, 6)
            chains = book.chains(node.path, "north")
            fits = amount <= tried_out(node, nodes)
            assert (obstacle(chains, {"gpu": amount}) is None) == fits
            if fits:
                node.own += amount
                take(chains, {"gpu": amount})
        lines = {chain[0].limit.tenant_path: chain[0].held for n in nodes for chain in book.chains(n.path, "")["gpu"]}
        assert lines == {node.path: node.held for node in nodes}


@pytest.mark.oracle
def test_what_never_fits_is_what_does_not_fit_when_all_work_has_ended():
    chance = Random(7)
    for _ in range(TREES // 4):
        nodes = random_tree(chance)
        limits = [chain[0].limit for node in nodes for chain in book_of(nodes).chains(node.path, "")["gpu"]]
        assert overcommitted(limits) == []
        for node in nodes:
            most = tried_out(node, nodes)
            assert never_fits(node.path, [("north", {"gpu": most})], limits) is None
            assert never_fits(node.path, [("north", {"gpu": most + 1})], limits) is not None


def limit(path, nominal, held=0, *, borrow=0, lend=None, number=None, clusters=(), resource="gpu"):
    most = nominal + (UNBOUNDED if borrow is None else borrow) * ("/" in path)
    guaranteed = 0 if lend is None else max(0, nominal - lend)
    id_ = UUID(int=number if number is not None else len(path))
    return Limit(id_, path, resource, clusters, nominal, max(most, held), held, borrow, guaranteed)


def asked(path, amount, number=1):
    return HoldRequest(UUID(int=number), UUID(int=0), path, "north", {"gpu": amount})


def test_what_is_taken_inside_a_guarantee_adds_nothing_above():
    book = Book([limit("a", 10_000, 6000), limit("a/b", 6000, 2000, lend=0)])
    chains = book.chains("a/b/c", "north")
    rising = [(line.limit.tenant_path, rise) for line, rise in rises(chains["gpu"][0], 5000)]
    assert rising == [("a/b", 5000), ("a", 1000)]
    take(chains, {"gpu": 4000})
    assert [line.held for line in chains["gpu"][0]] == [6000, 6000]


def test_limits_of_another_scope_or_resource_lend_nothing_and_bind_alone():
    limits = [
        limit("a", 20_000, number=1),
        limit("a/b", 2000, borrow=None, number=2),
        limit("a/b", 1000, number=3, clusters=("north",)),
        limit("a/b", 1000, number=4, resource="cpu", borrow=None),
    ]
    refused = grant([asked("a/b", 2000)], limits)[0][UUID(int=1)]
    assert (refused.limit_id, refused.borrowing_helps) == (UUID(int=3), False)
    assert grant([asked("a/b", 1000)], limits)[0] == {UUID(int=1): None}
    assert [take.limit_id.int for take in grant([asked("a/b", 1000)], limits)[1]] == [2, 3]


@pytest.mark.parametrize(
    ("limits", "amount", "message"),
    [
        (
            [limit("a", 8000, 2000), limit("a/b", 2000, 2000)],
            1000,
            "a/b has a limit of 2 gpu: 2 held, 1 requested; it would fit if a/b could borrow 1 more",
        ),
        (
            [limit("a", 8000, 3000), limit("a/b", 2000, 3000, borrow=1000)],
            2000,
            (
                "a/b has a limit of 2 gpu and a borrowing limit of 1: 3 held, 2 requested;"
                " it would fit if a/b could borrow 2 more"
            ),
        ),
        (
            [limit("a", 8000, 8000), limit("a/b", 2000, 2000, borrow=None)],
            1000,
            "a has a limit of 8 gpu: 8 held, 1 requested; too little is left to borrow",
        ),
        ([limit("a", 8000, 8000), limit("a/b", 2000, 0)], 1000, "a has a limit of 8 gpu: 8 held, 1 requested"),
        (
            [limit("a", 8000, 8000), limit("a/b", 2000, 1000, borrow=None, lend=0)],
            2000,
            "a has a limit of 8 gpu: 8 held, 1 of 2 requested; too little is left to borrow",
        ),
    ],
)
def test_a_refusal_says_whether_borrowing_would_help(limits, amount, message):
    refused = grant([asked("a/b", amount)], limits)[0][UUID(int=1)]
    assert refused.message == message
    assert refused.borrowing_helps == ("would fit" in message)


def test_a_guarantee_of_others_is_never_free_for_a_job():
    limits = [limit("a", 8000), limit("a/b", 3000, borrow=None, number=2), limit("a/c", 6000, lend=0, number=3)]
    refused = never_fits("a/b", [("north", {"gpu": 3000})], limits)
    assert refused[0].message == "a has a limit of 8 gpu, 6 guaranteed to others, 3 requested"
    assert never_fits("a/b", [("north", {"gpu": 2000})], limits) is None
    assert [one.held for one in at_rest(limits) if one.tenant_path == "a"] == [6000]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ([limit("a", 8000, 3000)], (0, 0, 0, 0, 5000)),
        ([limit("a", 8000, 8000), limit("a/b", 4000, 1000)], (0, 3000, 0, 0, 0)),
        ([limit("a", 8000, 8000), limit("a/b", 4000, 1000, lend=1000)], (0, 1000, 3000, 2000, 2000)),
        ([limit("a", 8000, 7000), limit("a/b", 4000, 6000, borrow=None)], (2000, 0, 0, 0, 1000)),
        ([limit("a", 8000, 6000), limit("a/b", 4000, 6000)], (0, 0, 0, 0, 0)),
    ],
)
def test_a_limit_shows_what_it_borrows_lends_and_keeps(limits, expected):
    own = limits[-1]
    chain = Book(limits).chain(own)
    most = 0 if len(limits) == 1 else UNBOUNDED if own.borrowing_limit is None else own.borrowing_limit
    assert tuple(standing(chain, own.nominal, most)) == (*expected, 0, 0)


def test_a_ceiling_is_what_a_limit_is_if_nothing_else_is_said():
    assert Borrowing() == Borrowing(borrowing_limit=0, lending_limit=None)


TREE = [
    limit("a", 20_000, 9000, number=1),
    limit("a/b", 6000, 1000, lend=2000, number=2, borrow=3000),
    limit("a/b/c", 3000, 2000, number=3),
    limit("a/b/c", 500, 0, number=4, clusters=("north",)),
    limit("a", 64_000, 5, number=5, resource="cpu"),
]
"""At a/b, 4000 are guaranteed; its own lines and those of a/b/c claim less."""


def numbers(found):
    return {key.int: value for key, value in found.items()}


def test_each_limit_borrows_from_the_nearest_one_above_it_of_its_resource_and_scope():
    found = {key.int: value and value.int for key, value in parents(TREE).items()}
    assert found == {1: None, 2: 1, 3: 2, 4: None, 5: None}
    assert parents([TREE[0], TREE[2]])[UUID(int=3)] == UUID(int=1), "where none is between"
    assert path_prefixes("a/b/c") == ["a", "a/b", "a/b/c"]


def test_own_lines_are_what_is_held_without_the_claims_from_below():
    # a/b claims 4000 of a (its guarantee), and a/b/c claims 2000 of a/b, which holds only 1000.
    assert numbers(own_lines(TREE)) == {1: 5000, 2: -1000, 3: 2000, 4: 0, 5: 5}


def test_counted_again_every_limit_holds_its_lines_and_the_claims_from_below():
    found = {one.id.int: (one.held, one.cap) for one in recounted(TREE, {UUID(int=1): 5000, UUID(int=3): 5000})}
    assert found == {
        1: (10_000, 20_000),
        2: (5000, 9000),
        # A surplus remains: what is held may be more than the limit now allows.
        3: (5000, 5000),
        4: (0, 500),
        5: (0, 64_000),
    }
    assert {one.id.int: one.held for one in at_rest(TREE)} == {1: 4000, 2: 0, 3: 0, 4: 0, 5: 0}


def test_without_a_limit_above_there_is_nothing_to_borrow_and_no_limit_of_borrowing_is_none():
    assert [bound(TREE[1], has_parent=given) for given in (True, False)] == [9000, 6000]
    assert bound(limit("a/b", 1000, borrow=None), has_parent=True) == 1000 + UNBOUNDED


def test_more_guaranteed_below_than_a_limit_has_is_found_and_as_much_is_not():
    both = [limit("a", 4000, number=1), limit("a/b", 4000, lend=0, number=2)]
    assert overcommitted(both) == []
    (found,) = overcommitted([*both, limit("a/c", 1000, lend=0, number=3)])
    assert (found[0].id.int, found[1]) == (1, 5000)


def test_what_is_asked_of_a_limit_is_the_sum_of_all_requests_that_have_a_line_there():
    requests = [asked("a/b/c", 1000, 1), asked("a/b/c", 500, 2), asked("a/b", 100, 3), asked("a/b", 0, 4)]
    assert numbers(asked_at(requests, TREE)) == {3: 1500, 4: 1500, 2: 100}


def test_what_is_returned_leaves_each_limit_as_it_was_before_it_was_taken():
    book = Book([limit("a", 20_000, 4000, number=1), limit("a/b", 6000, 1000, lend=2000, number=2)])
    chains = book.chains("a/b", "north")
    (chain,) = chains["gpu"]
    assert [(line.limit.id.int, rise) for line, rise in rises(chain, 3000)] == [(2, 3000)]
    assert [(line.limit.id.int, rise) for line, rise in rises(chain, 3001)] == [(2, 3001), (1, 1)]
    take(chains, {"gpu": 3500})
    assert [line.held for line in chain] == [4500, 4500]
    assert [(line.limit.id.int, fall) for line, fall in falls(chain, 500)] == [(2, 500), (1, 500)]
    assert [(line.limit.id.int, fall) for line, fall in falls(chain, 3500)] == [(2, 3500), (1, 500)]
    assert (falls(chain, 0), rises(chain, 0)) == ([], [])


def test_a_limit_on_some_clusters_binds_there_only_and_a_book_answers_the_same_twice():
    book = Book(TREE)
    north, south = book.chains("a/b/c", "north"), book.chains("a/b/c", "south")
    assert [[line.limit.id.int for line in chain] for chain in north["gpu"]] == [[3, 2, 1], [4]]
    assert [[line.limit.id.int for line in chain] for chain in south["gpu"]] == [[3, 2, 1]]
    assert book.chains("a/b/c", "north") is north
    assert [line.limit.id.int for line in book.chain(TREE[1])] == [2, 1]
    plain = Book(TREE[:1])
    assert plain.chains("a", "north") is plain.chains("a", "south"), "equal where all apply everywhere"
