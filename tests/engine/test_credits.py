"""Who used less has credit, who used more has debt; both are capped, and nobody gains by seeming to have used less."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.answers.shares import share_lines
from placement.cycle.credits import credits_of
from tests.laws import examples

from .fleets import snapshot, uniform
from .test_fair_share import fair, fleet, placed, tenant, wanted

CAPS = st.sampled_from([0.0, 0.1, 0.25, 0.5])
WEIGHTS = st.sampled_from([0.5, 1.0, 2.0, 3.0])
PASTS = st.floats(0, 1)
LEVELS = st.lists(st.tuples(WEIGHTS, PASTS), min_size=1, max_size=6)


def counted(level, cap):
    weights = [weight for weight, _ in level]
    return credits_of([past for _, past in level], weights, [True] * len(level), cap)


def got(pasts, cap, weights=None, gpus=64):
    """What each tenant gets of an empty fleet, if all want all of it; `pasts` are parts of the fleet."""
    weights = weights or [1.0] * len(pasts)
    paths = [f"t{number}" for number in range(len(pasts))]
    rows = [tenant(path, weight, used=gpus * past) for path, weight, past in zip(paths, weights, pasts, strict=True)]
    queue = [one for path in paths for one in wanted(path, gpus)]
    found = placed(replace(snapshot(fleet(gpus), queue), fair_share=replace(fair(*rows), credit_cap=cap)))
    return [found[path] for path in paths]


@given(LEVELS, CAPS)
def test_credits_are_at_most_a_part_of_what_is_due_and_keep_the_order(level, cap):
    found = counted(level, cap)
    most = cap / sum(weight for weight, _ in level)
    assert all(abs(credit) <= most + 1e-12 for credit, _ in found)
    for (_, past), (credit, own) in zip(level, found, strict=True):
        assert own >= -1e-12
        for (_, other_past), (other_credit, other) in zip(level, found, strict=True):
            assert past > other_past or (own <= other + 1e-12 and credit >= other_credit - 1e-12)


@given(LEVELS)
def test_without_a_cap_all_past_use_counts_and_credits_sum_to_nothing(level):
    found = counted(level, None)
    assert [own for _, own in found] == [past for _, past in level]
    assert sum(weight * credit for (weight, _), (credit, _) in zip(level, found, strict=True)) == pytest.approx(0)


@given(LEVELS, CAPS, st.floats(0, 1))
def test_more_past_use_never_puts_a_tenant_further_ahead_of_any_other(level, cap, more):
    used_more = [(level[0][0], level[0][1] + more), *level[1:]]
    before, after = ([own for _, own in counted(one, cap)] for one in (level, used_more))
    for number in range(1, len(level)):
        assert after[0] - after[number] >= before[0] - before[number] - 1e-9


def test_of_no_siblings_nothing_is_made():
    assert credits_of([], [], [], 0.25) == []
    assert credits_of([0.5, 0.0], [1.0, 2.0], [False, False], 0.25) == [(0.0, 0.5), (0.0, 0.0)]


def test_the_example_of_the_reference():
    assert got([1.0, 0.0], 0.25, gpus=16) == [6, 10]
    assert got([1.0, 0.0], None, gpus=16) == [0, 16]
    rows = [tenant("a", used=16), tenant("b")]
    lines = share_lines(
        replace(fair(*rows), credit_cap=0.25), [uniform(1, 2, owner_path="")], {"a": 9, "b": 9}, ["a", "b"]
    )
    assert [(one.share, one.credit) for one in lines.values()] == [(0.625, -0.125), (0.375, 0.125)]


@pytest.mark.law
@given(st.lists(st.tuples(WEIGHTS, PASTS), min_size=2, max_size=5), st.sampled_from([0.1, 0.25, 0.4]))
@examples(30)
def test_past_use_alone_never_takes_more_than_the_cap_says(level, cap):
    """Nobody is starved by credits of others, however long they used nothing: the guarantee, within a job for each."""
    weights, gpus = [weight for weight, _ in level], 64
    found = got([past for _, past in level], cap, weights, gpus)
    assert sum(found) == gpus
    for weight, own in zip(weights, found, strict=True):
        due = gpus * weight / sum(weights)
        assert own >= (1 - 2 * cap) * due - 1 - weight / min(weights)


@pytest.mark.law
@given(st.lists(st.tuples(WEIGHTS, PASTS), min_size=2, max_size=4), CAPS, st.sampled_from([1.5, 2.0, 5.0]))
@examples(30)
def test_more_weight_never_gets_less_of_the_fleet(level, cap, factor):
    weights, pasts = [weight for weight, _ in level], [past for _, past in level]
    before = got(pasts, cap, weights)[0]
    after = got(pasts, cap, [weights[0] * factor, *weights[1:]])[0]
    assert after >= before - 1  # the last job of another cannot be split


@pytest.mark.law
@given(st.lists(PASTS, min_size=2, max_size=4), CAPS, st.floats(0, 0.5))
@examples(30)
def test_to_leave_room_unused_gains_at_most_the_cap_and_to_use_more_gains_nothing(pasts, cap, more):
    before, after = got(pasts, cap), got([pasts[0] + more, *pasts[1:]], cap)
    assert after[0] <= before[0] + 1
    assert before[0] - after[0] <= 2 * cap * 64 / len(pasts) + 2


def test_equals_get_equal_parts_whatever_a_third_used():
    one, other, third = got([0.2, 0.2, 0.9], 0.25, gpus=60)
    assert abs(one - other) <= 1  # the last job goes to one of them
    assert min(one, other) > third > 0


def test_a_sibling_that_used_something_and_waits_for_nothing_counts_for_the_mean():
    rows = [tenant("a", used=4), tenant("b"), tenant("c", used=8)]
    shares = replace(fair(*rows), credit_cap=0.25)
    queue = wanted("a", 8) + wanted("b", 8)
    # of 24: a used 1/6, c 1/3, b nothing; the mean is 1/6, the cap 1/12
    assert placed(replace(snapshot(fleet(24), queue), fair_share=shares)) == {"a": 8, "b": 8}
    lines = share_lines(shares, [uniform(1, 3, owner_path="")], {"a": 8, "b": 8}, ["a", "b", "c"])
    assert [one.credit for one in lines.values()] == pytest.approx([0, 1 / 12, -1 / 12])
    assert [one.turn for one in lines.values()] == [2, 1, None]
    asked = share_lines(shares, [uniform(1, 3, owner_path="")], {"a": 8, "b": 8}, ["a", "b"])
    assert asked == {path: lines[path] for path in ("a", "b")}


def test_tenants_of_the_page_that_neither_wait_nor_used_anything_do_not_count():
    shares = replace(fair(tenant("a", used=8)), credit_cap=0.5)
    clusters = [uniform(1, 1, owner_path="")]
    alone = share_lines(shares, clusters, {"a": 1}, ["a"])["a"]
    assert (alone.credit, alone.share) == (0.0, 1.0)
    assert share_lines(shares, clusters, {"a": 1}, ["a", "b", "c"])["a"] == alone
