"""What a tenant takes along when it moves, against counting every hold again on the moved tree."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from quotas.engine.borrowing import path_prefixes
from quotas.engine.holds import Limit, bound, own_lines, parents, recounted
from quotas.engine.moves import Held, moved, overruns

PLACES = ["a", "a/x", "a/x/t", "a/x/t/p", "a/y", "a/y/z"]
SCOPES = [(), ("north",)]
AMOUNTS = st.integers(0, 4)
WORK = [Held("a/x/t/p", "north", {"gpu": 2})]


@st.composite
def trees(draw):
    """Limits that hold what the work below them takes, in any order of cuts; the work; and a new place for a/x/t."""
    keys = [(path, resource, scope) for path in PLACES for resource in ("gpu", "cpu") for scope in SCOPES]
    chosen = draw(st.lists(st.sampled_from(keys), unique=True, max_size=9))
    limits = []
    for number, (path, resource, scope) in enumerate(chosen, 1):
        nominal = draw(AMOUNTS)
        guaranteed, borrows = draw(st.integers(0, nominal)), draw(st.sampled_from([None, 0, 2]))
        limits.append(Limit(UUID(int=number), path, resource, scope, nominal, 0, 0, borrows, guaranteed))
    work = [
        Held(path, draw(st.sampled_from(["north", "south"])), {"gpu": draw(AMOUNTS), "cpu": draw(AMOUNTS)})
        for path in draw(st.lists(st.sampled_from(PLACES), max_size=6))
    ]
    return counted(limits, work), work, draw(st.sampled_from(["a", "a/y", "a/y/z"]))


def counted(limits, work):
    """The limits, each with what the work takes at the nearest one of each resource and scope: from nothing."""
    own = {limit.id: 0 for limit in limits}
    for held in work:
        for resource, scope in {(one.resource, one.clusters) for one in limits}:
            if scope and held.cluster not in scope:
                continue
            above = [
                one for path in path_prefixes(held.tenant_path) for one in limits
                if (one.tenant_path, one.resource, one.clusters) == (path, resource, scope)
            ]  # fmt: skip
            if above:
                own[above[-1].id] += held.amounts[resource]
    return recounted(limits, own)


def at(path, to):
    return f"{to}/t{path.removeprefix('a/x/t')}" if f"{path}/".startswith("a/x/t/") else path


def below(work):
    return [held for held in work if f"{held.tenant_path}/".startswith("a/x/t/")]


@given(trees())
def test_after_a_move_limits_hold_what_they_would_if_all_work_had_begun_there(tree):
    limits, work, to = tree
    expected = counted(
        [Limit(one.id, at(one.tenant_path, to), *_rest(one)) for one in limits],
        [held._replace(tenant_path=at(held.tenant_path, to)) for held in work],
    )
    found = moved(limits, below(work), "a/x/t", f"{to}/t")
    assert {one.id: (one.tenant_path, one.held) for one in found} == {
        one.id: (one.tenant_path, one.held) for one in expected
    }
    assert own_lines(found) == own_lines(expected)


@given(trees())
def test_an_overrun_is_a_limit_that_holds_more_than_before_and_than_it_may(tree):
    limits, work, to = tree
    after = moved(limits, below(work), "a/x/t", f"{to}/t")
    above, before = parents(after), {one.id: one.held for one in limits}
    expected = {
        one.id for one in after
        if one.held > before[one.id] and one.held > bound(one, has_parent=above[one.id] is not None)
    }  # fmt: skip
    found = overruns(limits, below(work), "a/x/t", f"{to}/t")
    assert {one.limit.id for one in found} == expected
    assert all(one.held == before[one.limit.id] < one.limit.held > one.most for one in found)


def test_there_and_back_is_where_it_was():
    limits = counted(
        [Limit(UUID(int=1), "a/x", "gpu", (), 4, 0, 0), Limit(UUID(int=2), "a/y", "gpu", (), 1, 0, 0)], WORK
    )
    there = moved(limits, WORK, "a/x/t", "a/y/t")
    assert [one.held for one in there] == [0, 2]
    [over] = overruns(limits, WORK, "a/x/t", "a/y/t")
    assert (over.limit.tenant_path, over.held, over.most, over.limit.held) == ("a/y", 0, 1, 2)
    back = moved(there, [held._replace(tenant_path=at(held.tenant_path, "a/y")) for held in WORK], "a/y/t", "a/x/t")
    assert [one.held for one in back] == [one.held for one in limits]


def _rest(one):
    return (one.resource, one.clusters, one.nominal, 0, 0, one.borrowing_limit, one.guaranteed)
