"""Nodes that make jobs fail are found, healthy ones are not, and neither one program nor one tenant can make one bad."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.engine.failures.lemons import (
    FALSE_ALARM,
    LEAST_FAILURES,
    LEAST_GROUPS,
    LEAST_JOBS,
    MOST_PERCENT,
    NodeRun,
    find_lemons,
    poisson_tail,
)

NODES = 40


def runs(seed: int, rate_of: dict[str, float], count: int = 1500, usual: float = 0.01) -> list[NodeRun]:
    """Jobs of four groups spread over the nodes; each fails at its node's rate."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        node = f"n{chance.randrange(NODES)}"
        is_blamed = chance.random() < rate_of.get(node, usual)
        found.append(NodeRun("c", node, f"j{number}", f"g{number % 4}", is_blamed))
    return found


def named(found) -> list[str]:
    return [lemon.node for lemon in found]


@pytest.mark.parametrize("seed", range(5))
def test_bad_nodes_are_found_and_no_healthy_one(seed: int):
    found = find_lemons(runs(seed, {"n3": 0.6, "n17": 0.5}), {"c": NODES})
    assert sorted(named(found)) == ["n17", "n3"]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("usual", [0.0, 0.01, 0.1, 0.5])
def test_a_fleet_whose_nodes_fail_alike_has_no_lemon(seed: int, usual: float):
    assert find_lemons(runs(seed, {}, usual=usual), {"c": NODES}) == []


def test_a_program_that_fails_everywhere_makes_no_node_bad():
    bad = [NodeRun("c", f"n{number % NODES}", f"bad{number}", "g0", True) for number in range(400)]
    assert find_lemons([*runs(1, {}), *bad], {"c": NODES}) == []
    on_one = [NodeRun("c", "n5", f"more{number}", "g0", True) for number in range(50)]
    assert find_lemons([*runs(1, {}), *bad, *on_one], {"c": NODES}) == []


def test_one_job_that_is_tried_again_and_again_is_one_piece_of_evidence():
    again = [NodeRun("c", "n5", f"j{group}", f"g{group}", True) for group in range(3) for _ in range(100)]
    assert find_lemons([*runs(2, {}), *again], {"c": NODES}) == []


def test_one_hostile_tenant_cannot_poison_a_healthy_node_however_many_jobs_it_fails_there():
    hostile = [NodeRun("c", "n5", f"evil{number}", "evil", True) for number in range(10_000)]
    assert find_lemons([*runs(3, {}, usual=0.0), *hostile], {"c": NODES}) == []
    # nor if another's job failed there by chance
    unlucky = [NodeRun("c", "n5", "unlucky", "g1", True)]
    assert find_lemons([*runs(3, {}, usual=0.0), *hostile, *unlucky], {"c": NODES}) == []


def test_a_bad_cluster_is_not_emptied():
    everywhere = {f"n{number}": 0.9 for number in range(20)}
    found = find_lemons(runs(4, everywhere), {"c": NODES})
    assert len(found) <= NODES * MOST_PERCENT // 100


@pytest.mark.law
@given(
    st.lists(
        st.builds(
            NodeRun,
            st.sampled_from("cd"),
            st.sampled_from(["n1", "n2", "n3"]),
            st.sampled_from([f"j{number}" for number in range(12)]),
            st.sampled_from(["g1", "g2", "g3"]),
            st.booleans(),
        ),
        max_size=200,
    )
)
def test_whatever_was_seen_a_lemon_has_its_evidence(seen):
    for lemon in find_lemons(seen, {"c": 3, "d": 3}):
        assert lemon.failures >= LEAST_FAILURES
        assert lemon.jobs >= LEAST_JOBS
        assert lemon.groups >= LEAST_GROUPS
        assert lemon.chance < FALSE_ALARM
        own = [run for run in seen if (run.cluster, run.node) == (lemon.cluster, lemon.node)]
        assert lemon.runs <= len(own)
    assert find_lemons(list(reversed(seen)), {"c": 3, "d": 3}) == find_lemons(seen, {"c": 3, "d": 3})


def test_the_tail_of_poissons_distribution_is_exact():
    assert poisson_tail(0, 3.0) == 1.0
    assert poisson_tail(1, 1.0) == pytest.approx(0.6321205588)
    assert poisson_tail(5, 1.0) == pytest.approx(0.00365984682)
    assert poisson_tail(20, 1.0) == pytest.approx(1.64e-19, rel=0.05)
    assert poisson_tail(3, 500.0) == pytest.approx(1.0)
    assert poisson_tail(3, 0.0) == 0.0


def test_one_node_of_a_small_cluster_may_be_avoided():
    bad = [NodeRun("c", "n5", f"bad{number}", f"g{number % 4}", True) for number in range(40)]
    assert named(find_lemons([*runs(5, {}, usual=0.0), *bad], {"c": 2})) == ["n5"]
    assert named(find_lemons([*runs(5, {}, usual=0.0), *bad], {})) == ["n5"]


@pytest.mark.parametrize(("least", "mean"), [(1, 0.5), (2, 0.5), (3, 3.0), (4, 0.01), (1, 7.5), (12, 4.0), (30, 10.0)])
def test_the_tail_of_a_poisson_distribution_is_one_minus_its_beginning(least, mean):
    beginning = math.fsum(math.exp(-mean) * mean**count / math.factorial(count) for count in range(least))
    assert poisson_tail(least, mean) == pytest.approx(1 - beginning, rel=1e-9)


def test_no_failure_is_certain_and_without_a_mean_there_are_none():
    assert (poisson_tail(0, 0.0), poisson_tail(0, 3.0), poisson_tail(-1, 3.0)) == (1.0, 1.0, 1.0)
    assert (poisson_tail(1, 0.0), poisson_tail(1, -1.0)) == (0.0, 0.0)


def test_a_lemon_is_told_with_how_many_runs_failures_jobs_and_groups_show_it():
    """Also if nothing ever ended well on it."""
    elsewhere = [run for run in runs(5, {}, usual=0.0) if run.node != "n5"]
    bad = [NodeRun("c", "n5", f"bad{number}", f"g{number % 4}", True) for number in range(40)]
    [lemon] = find_lemons([*elsewhere, *bad, *bad[:5]], {"c": NODES})
    assert (lemon.cluster, lemon.node) == ("c", "n5")
    assert (lemon.failures, lemon.runs, lemon.jobs, lemon.groups) == (40, 40, 40, 4)
    good = [NodeRun("c", "n5", f"good{number}", "g0", False) for number in range(7)]
    [lemon] = find_lemons([*elsewhere, *bad, *good], {"c": NODES})
    assert (lemon.failures, lemon.runs, lemon.jobs, lemon.groups) == (40, 47, 40, 4)
