"""Which running jobs are stopped because a limit was lowered below what is held."""

import random
from dataclasses import replace
from datetime import timedelta
from itertools import combinations
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.preemption.surplus import Beyond, reduce
from placement.values.preemption import Allowance, Leaving, Surplus
from tests.laws import examples

from .fleets import NOW, limit
from .preemption_worlds import run_on

GPU = 1000
TREE = ("acme", "acme/a", "acme/a/x", "acme/b")


def run(number, gpus=1, tenant="acme/a", minutes=60, **more):
    return run_on(number, {f"c1-n{number}": 1}, gpus=gpus, tenant=tenant, minutes=minutes, **more)


def amounts_of(runs, gone):
    return [(one.tenant_path, one.amounts["gpu"]) for one in runs if one.attempt_id not in gone]


def held_at(path, runs, gone=(), guaranteed=None):
    """What a limit counts when these runs have ended: its own tenant's, and of each limit below at least its guarantee."""
    guaranteed = guaranteed or {}
    below = [one for one in TREE if one.rpartition("/")[0] == path]
    own = sum(amount for tenant, amount in amounts_of(runs, gone) if tenant == path)
    return own + sum(max(held_at(one, runs, gone, guaranteed), guaranteed.get(one, 0)) for one in below)


def beyond(runs, due, *, going=(), guaranteed=None, **more):
    """The tree with what these runs and the leaving ones hold; `due` is what may be held, by path of a lowered limit."""
    guaranteed, everything = guaranteed or {}, [*runs, *going]
    limits = tuple(
        limit(path, "gpu", 1000 * GPU, held, guaranteed=guaranteed.get(path, 0), number=900 + place)
        for place, path in enumerate(TREE)
        for held in [held_at(path, everything, (), guaranteed)]
    )
    by_path = {one.tenant_path: one for one in limits}
    surpluses = tuple(
        Surplus(by_path[path].id, UUID(int=1), path, "gpu", (), by_path[path].held, most * GPU, NOW, "Ada")
        for path, most in due.items()
    )
    leaving = tuple(Leaving(one.tenant_path, one.cluster, one.amounts) for one in going)
    allowance = more.pop("allowance", Allowance(16))
    return Beyond(NOW, "acme", limits, surpluses, tuple(runs), leaving, allowance, **more)


def stopped(given_world, **more):
    found = reduce(given_world, **more)
    return None if found is None else {one.run.attempt_id.int for one in found.victims}


def test_a_limit_for_which_enough_is_being_stopped_is_no_reason_for_more():
    runs, going = [run(1, 4), run(2, 4, tenant="acme/b")], [run(3, 8, tenant="acme/b")]
    found = reduce(beyond(runs, {"acme": 8, "acme/a": 0}, going=going))
    assert [one.tenant_path for one in found.limits] == ["acme/a"]
    assert [(one.run.attempt_id.int, one.surplus.tenant_path) for one in found.victims] == [(1, "acme/a")]


def test_a_limit_that_was_removed_meanwhile_stops_nothing():
    world = beyond([run(1, 4), run(2, 4, tenant="acme/b")], {"acme/a": 0, "acme/b": 0})
    left = tuple(one for one in world.limits if one.tenant_path != "acme/a")
    assert stopped(replace(world, limits=left)) == {2}
    assert reduce(replace(world, limits=left, due=world.due[:1])) is None


def test_the_cheapest_jobs_are_stopped_that_bring_the_limit_back():
    runs = [run(1, 4, minutes=60), run(2, 4, minutes=10), run(3, 4, minutes=90)]
    assert stopped(beyond(runs, {"acme/a": 8})) == {2}
    assert stopped(beyond(runs, {"acme/a": 7})) == {1, 2}
    assert stopped(beyond(runs, {"acme/a": 0})) == {1, 2, 3}
    assert stopped(beyond(runs, {"acme/a": 12})) is None
    assert stopped(beyond(runs, {"acme/b": 0})) is None
    found = reduce(beyond(runs, {"acme/a": 8}))
    assert (found.is_exact, [one.run.attempt_id.int for one in found.considered]) == (True, [1, 3])
    assert [one.surplus.tenant_path for one in found.victims] == ["acme/a"]
    assert found.cost == (600 + 60) * 4


def test_one_large_job_goes_rather_than_many_that_cost_more():
    runs = [run(1, 8, minutes=10), *(run(number, 1, minutes=600) for number in range(2, 10))]
    assert stopped(beyond(runs, {"acme/a": 8})) == {1}


def test_what_is_being_stopped_or_has_ended_counts_as_gone():
    runs, going = [run(1, 4), run(2, 4)], [run(3, 4)]
    assert stopped(beyond(runs, {"acme/a": 8}, going=going)) is None
    assert stopped(beyond(runs, {"acme/a": 5}, going=going)) == {1}


def test_a_shielded_job_is_stopped_only_after_its_shield_and_none_goes_in_vain_before():
    shielded = run(1, 8, minutes=1, shield_until=NOW + timedelta(minutes=4))
    small = run(2, 2, minutes=600)
    assert stopped(beyond([shielded, small], {"acme/a": 8})) == {2}  # the other suffices
    assert (
        stopped(beyond([shielded, small], {"acme/a": 4})) is None
    )  # the shielded one suffices, and the other does not
    assert stopped(beyond([shielded, small], {"acme/a": 1})) == {2}  # both have to go
    later = replace(beyond([shielded, small], {"acme/a": 4}), now=NOW + timedelta(minutes=4))
    assert stopped(later) == {1}


def test_jobs_that_were_stopped_three_times_run_to_their_end_and_the_rest_goes_as_far_as_it_helps():
    tired, other = run(1, 6, times_preempted=3), run(2, 2)
    assert stopped(beyond([tired], {"acme/a": 0})) is None
    assert stopped(beyond([tired, other], {"acme/a": 0})) == {2}
    assert stopped(beyond([tired, other], {"acme/a": 4})) == {2}  # the other alone would suffice, and may not go


def test_what_a_guarantee_keeps_is_not_taken():
    """A job inside a guarantee returns nothing to the limit above."""
    runs = [run(1, 2, tenant="acme/b", minutes=1), run(2, 4, tenant="acme/a", minutes=900)]
    assert stopped(beyond(runs, {"acme": 6}, guaranteed={"acme/b": 4 * GPU})) == {2}
    assert stopped(beyond(runs, {"acme": 4})) == {1}


def test_limits_above_each_other_share_their_victims():
    runs = [run(1, 4, tenant="acme/b", minutes=1), run(2, 4, tenant="acme/a/x", minutes=300)]
    assert stopped(beyond(runs, {"acme": 4, "acme/a": 0})) == {2}


def test_the_brake_stops_the_cheapest_of_the_choice():
    runs = [run(number, 2, minutes=10 * number) for number in range(1, 6)]
    assert stopped(beyond(runs, {"acme/a": 0}, allowance=Allowance(2))) == {1, 2}
    assert stopped(beyond(runs, {"acme/a": 0}, allowance=Allowance(16, {"acme": 5 * GPU}))) == {1, 2}
    assert stopped(beyond(runs, {"acme/a": 0}, allowance=Allowance(16, {"acme": GPU}))) is None
    assert stopped(beyond(runs, {"acme/a": 0}, allowance=Allowance(0))) is None


def test_limits_on_some_clusters_count_only_jobs_there():
    there, here = run(1, 4), replace(run(2, 4), cluster="c2")
    own = limit("acme", "gpu", 1000 * GPU, 4 * GPU, clusters=("c2",), number=901)
    due = Surplus(own.id, UUID(int=1), "acme", "gpu", ("c2",), 4 * GPU, 0, NOW, "Ada")
    assert stopped(Beyond(NOW, "acme", (own,), (due,), (there, here), (), Allowance(16))) == {2}


@pytest.mark.parametrize("count", [60])
def test_a_long_list_of_jobs_is_thinned_and_still_suffices(count):
    runs = [run(number, 1 + number % 3, minutes=number) for number in range(1, count + 1)]
    given_world = beyond(runs, {"acme/a": 40}, allowance=Allowance(count))
    gone = {one.run.attempt_id for one in reduce(given_world).victims}
    assert held_at("acme/a", runs, gone) <= 40 * GPU
    assert all(held_at("acme/a", runs, gone - {one}) > 40 * GPU for one in gone)


def random_beyond(seed):
    draw = random.Random(seed)
    runs = [
        run(
            number,
            draw.randint(1, 4),
            tenant=draw.choice(TREE),
            minutes=draw.randint(1, 500),
            shield_until=NOW + timedelta(minutes=draw.choice([-1, -1, 5])),
            times_preempted=draw.choice([0, 0, 1, 3]),
        )
        for number in range(1, draw.randint(2, 8))
    ]
    going = [run(number, draw.randint(1, 4), tenant=draw.choice(TREE)) for number in range(90, 90 + draw.randint(0, 2))]
    guaranteed = {path: draw.choice([0, 0, 2, 5]) * GPU for path in TREE[1:]}
    due = {path: draw.randint(0, 12) for path in draw.sample(TREE, draw.randint(1, 3))}
    return runs, going, guaranteed, due


@pytest.mark.law
@examples(300)
@given(st.integers(0, 10**9))
def test_law_what_is_stopped_is_needed_allowed_and_the_cheapest(seed):
    runs, going, guaranteed, due = random_beyond(seed)
    everything, leaving = [*runs, *going], {one.attempt_id for one in going}

    def over(gone):
        return {path: held_at(path, everything, leaving | gone, guaranteed) - due[path] * GPU for path in due}

    found = reduce(beyond(runs, due, going=going, guaranteed=guaranteed, allowance=Allowance(99)))
    may = [one for one in runs if one.times_preempted < 3]
    now = [one for one in may if one.shield_until <= NOW]
    enough = [
        (sum(one.cost(NOW) for one in some), some)
        for count in range(len(now) + 1)
        for some in combinations(now, count)
        if max(over({one.attempt_id for one in some}).values()) <= 0
    ]
    gone = set() if found is None else {one.run.attempt_id for one in found.victims}
    assert gone <= {one.attempt_id for one in now}
    for one in gone:
        without, with_it = over(gone - {one}), over(gone)
        assert any(without[path] > max(0, with_it[path]) for path in due)
    if enough:
        assert max(over(gone).values()) <= 0
        assert sum(one.cost(NOW) for one in now if one.attempt_id in gone) == pytest.approx(min(enough)[0])
    if max(over(set()).values()) <= 0:
        assert found is None


@pytest.mark.law
@examples(100)
@given(st.integers(0, 10**9))
def test_law_the_greedy_choice_stops_none_in_vain(seed):
    runs, going, guaranteed, due = random_beyond(seed)
    everything, leaving = [*runs, *going], {one.attempt_id for one in going}
    found = reduce(beyond(runs, due, going=going, guaranteed=guaranteed, allowance=Allowance(99)), exact=0)
    gone = set() if found is None else {one.run.attempt_id for one in found.victims}
    for one in gone:
        rest = leaving | gone - {one}
        assert any(held_at(path, everything, rest, guaranteed) > due[path] * GPU for path in due)
