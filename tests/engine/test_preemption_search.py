"""The search for the cheapest victims, on plain sets: what it starts from, what it drops, and how much it tries."""

import pytest

from placement.preemption.search import MOST_SEEDS, Problem, cheapest, pruned, shortlist


def problem(costs, fits, *, sizes=None, most=99, **more):
    return Problem(costs, sizes or [1] * len(costs), lambda chosen: fits(set(chosen)), most, **more)


def any_of(*enough):
    """Fits as soon as all of one of these sets are stopped."""
    return lambda chosen: any(one <= chosen for one in enough)


def test_victims_that_are_not_needed_are_dropped_the_most_expensive_first():
    assert pruned(problem([1, 2, 3, 4], lambda chosen: len(chosen) >= 2), (0, 1, 2, 3)) == (0, 1)
    assert pruned(problem([1, 1, 1], lambda chosen: len(chosen) >= 2), (0, 1, 2)) == (1, 2)


@pytest.mark.parametrize("needed", range(8))
def test_without_areas_the_cheapest_ones_up_to_the_first_that_suffice_are_candidates(needed):
    given = problem(list(range(7)), lambda chosen: chosen >= set(range(needed)))
    assert shortlist(given, 0) == tuple(range(needed))
    assert shortlist(given, 3) == tuple(range(max(3, needed)))


def test_areas_that_suffice_alone_are_candidates_the_cheapest_first_until_there_are_enough():
    costs, areas = [0, 0, 0, 0, 0, 3, 5, 9], [(7,), (1, 7), (3, 6), (0, 1, 2, 3, 4, 5), (2, 5), (4,)]
    fits = any_of({2, 5}, {3, 6}, {7}, {0, 1, 2, 3, 4})
    given = problem(costs, fits, areas=areas)
    # The area of six is too large, (4,) does not suffice; after two areas of two there is no room for a third.
    assert shortlist(given, 4) == (2, 3, 5, 6)
    assert shortlist(given, 5) == (0, 2, 3, 5, 6)
    # Together they are as many as there may be.
    assert shortlist(problem([1, 1, 1, 9], any_of({0, 3}), areas=[(0, 3)]), 2) == (0, 3)


def test_an_area_of_more_than_may_be_stopped_is_passed_over():
    given = problem([0, 1, 1, 9], any_of({1, 2}, {3}), areas=[(1, 2), (3,)], most=1)
    assert shortlist(given, 2) == (0, 3)
    given = problem([0, 1, 1, 9], any_of({1, 2}, {3}), areas=[(1, 2), (3,)], sizes=[4, 4, 4, 5], most_size=5)
    assert shortlist(given, 2) == (0, 3)


def test_only_the_cheapest_areas_are_tried():
    tried = []

    def fits(chosen):
        tried.append(chosen)
        return chosen >= {38}

    shortlist(problem([1] * 40, fits, areas=[(one,) for one in range(40)]), 40)
    assert [one for one in tried if len(one) == 1][:MOST_SEEDS] == [{one} for one in range(MOST_SEEDS)]
    assert {38} not in tried


def test_the_greedy_search_finds_few_large_victims_that_cost_less_than_many_small_ones():
    sizes = [1] * 8 + [0, 8]
    given = problem([1] * 8 + [0.1, 4], lambda chosen: sum(sizes[one] for one in chosen) >= 8, sizes=sizes)
    assert cheapest(given, exact=0) == (9,) == cheapest(given)


def test_the_greedy_search_finds_an_area_that_costs_less_than_the_cheapest_ones():
    fits = any_of({5, 6}, {0, 1, 2, 3, 4})
    given = problem([2] * 5 + [4, 4], fits, areas=[(0, 1), (5, 6)])
    assert cheapest(given, exact=0) == (5, 6) == cheapest(given)
    # Without the area, it ends with what it started from.
    assert cheapest(problem([2] * 5 + [4, 4], fits), exact=0) == (0, 1, 2, 3, 4)


def test_more_victims_than_allowed_are_none():
    given = problem([1, 1, 1], lambda chosen: len(chosen) >= 2, most=1)
    assert cheapest(given) is None
    assert cheapest(given, exact=0) is None
    assert cheapest(problem([1, 1], any_of())) is None
    sized = problem([1, 1, 5], any_of({0, 1}, {2}), sizes=[3, 3, 5], most_size=5)
    assert cheapest(sized) == (2,)


def test_of_sets_that_cost_the_same_the_one_with_the_fewest_victims_is_chosen():
    assert cheapest(problem([1, 1, 2], any_of({0, 1}, {2}))) == (2,)
