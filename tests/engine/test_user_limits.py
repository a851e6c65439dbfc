"""Limits on what each user may hold: one rule for holds, cycles, quotes and capacity."""

import json
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.answers.quotes import capacity, quote
from placement.answers.recording import decisions_text, snapshot_of, snapshot_text, without_users
from placement.cycle.cycle import decide
from placement.values.model import UserLimitState
from quotas.engine.amounts import BadAmount, format_amount, parse_amount
from quotas.engine.holds import HoldRequest, Limit, UserLimit, grant, never_fits
from tests.engine.fleets import flavor, job, pods, snapshot, uniform

ADA, BOB = UUID(int=1), UUID(int=2)


def asks(number, user, amount=1000, path="a/b", resource="gpu"):
    return HoldRequest(UUID(int=100 + number), UUID(int=0), path, "north", {resource: amount, "jobs": 1}, user)


def test_each_user_has_a_share_and_one_at_the_limit_stops_no_other():
    limit = UserLimit(UUID(int=9), "a", "gpu", 2000, {ADA: 1000})
    outcomes, takes = grant([asks(1, ADA), asks(2, ADA), asks(3, BOB, 2000), asks(4, None, 9000)], [], [limit])
    refused = {holder.int - 100: one for holder, one in outcomes.items() if one}
    assert list(refused) == [2]
    assert (refused[2].code, refused[2].held, refused[2].asked, refused[2].cap) == (
        "user_limit_exceeded",
        2000,
        1000,
        2000,
    )
    assert refused[2].is_of_user
    assert refused[2].message == "a has a limit of 2 gpu for each user: 2 held by the job's user, 1 requested"
    assert takes == ()


def test_what_a_user_holds_below_counts_together_and_other_branches_do_not():
    limit = UserLimit(UUID(int=9), "a/b", "jobs", 1, {})
    outcomes, _ = grant([asks(1, ADA, path="a/b/c"), asks(2, ADA, path="a/b/d"), asks(3, ADA, path="a/x")], [], [limit])
    assert [outcome is None for outcome in outcomes.values()] == [True, False, True]


def test_a_user_above_a_limit_that_was_cut_keeps_it_and_takes_nothing():
    limit = UserLimit(UUID(int=9), "a", "gpu", 1000, {ADA: 3000})
    outcomes, _ = grant([asks(1, ADA, 1), asks(2, BOB)], [], [limit])
    assert [outcome is None for outcome in outcomes.values()] == [False, True]


def test_what_is_larger_than_any_user_may_hold_is_refused_for_good():
    limit = UserLimit(UUID(int=9), "a", "gpu", 2000, {ADA: 2000})
    assert never_fits("a/b", [("north", {"gpu": 2000})], [], [limit]) is None
    (refusal,) = never_fits("a/b", [("north", {"gpu": 3000})], [], [limit])
    assert refusal.message == "a has a limit of 2 gpu for each user, 3 requested"


REQUESTS = st.lists(
    st.tuples(st.sampled_from([ADA, BOB, None]), st.integers(0, 4), st.sampled_from(["a", "a/b", "a/b/c", "a/d"])),
    max_size=12,
)


@pytest.mark.law
@given(REQUESTS, st.integers(0, 8), st.integers(0, 8), st.integers(0, 10), st.integers(0, 12))
def test_no_user_exceeds_a_share_and_no_refusal_is_of_another_users_doing(wanted, top, inner, held, tenant):
    each = [UserLimit(UUID(int=9), "a", "gpu", top, {ADA: held}), UserLimit(UUID(int=8), "a/b", "gpu", inner, {})]
    whole = Limit(UUID(int=7), "a", "gpu", (), tenant, tenant, 0)
    requests = [asks(number, user, amount, path) for number, (user, amount, path) in enumerate(wanted)]
    outcomes, _ = grant(requests, [whole], each)
    granted = [one for one in requests if outcomes[one.holder_id] is None]
    for user in (ADA, BOB):
        for limit in each:
            own = [one.amounts["gpu"] for one in granted if one.user_id == user and is_below(one.tenant_path, limit)]
            assert not sum(own) or limit.held.get(user, 0) + sum(own) <= limit.most
    alone, _ = grant([one for one in requests if one.user_id == ADA], [replace(whole, nominal=99, cap=99)], each)
    refused_alone = {holder for holder, outcome in alone.items() if outcome is not None}
    if tenant == 12 and sum(one.amounts["gpu"] for one in requests) <= tenant:
        assert refused_alone == {one.holder_id for one in requests if one.user_id == ADA and outcomes[one.holder_id]}


def is_below(path, limit):
    return f"{path}/".startswith(f"{limit.tenant_path}/")


def owned(user, number, gpus=1, tenant="acme/a"):
    return job(pods(gpus=gpus), tenant=tenant, shape=f"{gpus}", id=UUID(int=1000 + number), user=user)


def each(most, held=None, resource="gpu", tenant="acme"):
    return UserLimitState(UUID(int=50), tenant, resource, most, held or {})


def test_a_cycle_stops_a_user_at_the_limit_and_says_so_while_jobs_of_the_same_shape_start():
    queue = [owned(ADA, 1), owned(ADA, 2), owned(ADA, 3), owned(BOB, 4)]
    found = decide(replace(snapshot([uniform(1, 1, flavor(), total=8)], queue), user_limits=(each(2000),)))
    assert {placed.job_id.int for placed in found.placements} == {queue[0].id.int, queue[1].id.int, queue[3].id.int}
    (wait,) = found.waits
    assert (wait.job_id, wait.code) == (queue[2].id, "waiting_for_user_limit")
    assert wait.message == "needs 1 GPU; each user in acme may hold 2 GPUs, its user has 0 GPUs left"
    assert [reason.code for reason in wait.per_cluster] == ["user_limit_reached"]


def test_a_limit_on_jobs_counts_each_as_one():
    queue = [owned(ADA, 1, gpus=4), owned(ADA, 2)]
    found = decide(
        replace(snapshot([uniform(1, 1, flavor(), total=8)], queue), user_limits=(each(1, resource="jobs"),))
    )
    assert len(found.placements) == 1
    assert found.placements[0].amounts["jobs"] == 1
    assert found.waits[0].message == "needs 1 job; each user in acme may hold 1 job, its user has 0 jobs left"


@pytest.mark.law
@given(
    st.lists(st.tuples(st.sampled_from([ADA, BOB]), st.integers(1, 3)), max_size=6),
    st.integers(0, 6000),
    st.integers(0, 4000),
    st.integers(1, 3),
)
def test_a_quote_is_what_the_next_cycle_does_under_limits_on_users(queued, most, held, gpus):
    queue = [owned(user, number, size) for number, (user, size) in enumerate(queued)]
    world = replace(snapshot([uniform(1, 1, flavor(), total=6)], queue), user_limits=(each(most, {ADA: held}),))
    asked = owned(ADA, 99, gpus)
    told = quote(asked, world)
    after = decide(replace(world, queue=(*queue, asked)))
    waits = {wait.job_id: wait.code for wait in after.waits}
    assert bool(told.offers) == (asked.id in {placed.job_id for placed in after.placements})
    assert (None if told.wait is None else told.wait.code) == waits.get(asked.id)


def test_capacity_counts_what_the_limit_leaves_the_user():
    world = replace(snapshot([uniform(1, 1, flavor(), total=8)], []), user_limits=(each(3000, {ADA: 1000}),))
    assert capacity(owned(ADA, 1), world).within_quota == 2
    assert capacity(owned(BOB, 1), world).within_quota == 3
    assert capacity(replace(owned(BOB, 1), user=None), world).within_quota == 8


def test_jobs_are_whole_numbers():
    assert (parse_amount("jobs", "4"), parse_amount("jobs", "1k"), format_amount("jobs", 12)) == (4, 1000, "12")
    for text, code in (("0.5", "too_fine"), ("500m", "too_fine"), ("-1", "not_a_quantity"), ("x", "not_a_quantity")):
        with pytest.raises(BadAmount) as refused:
            parse_amount("jobs", text)
        assert refused.value.code == code


def test_a_recording_numbers_users_and_decides_the_same():
    queue = [owned(BOB, 1), owned(BOB, 2), owned(ADA, 3), owned(None, 4)]
    world = replace(snapshot([uniform(1, 1, flavor(), total=8)], queue), user_limits=(each(2000, {BOB: 1000}),))
    recorded = without_users(world)
    assert [one.user for one in recorded.queue] == [BOB, BOB, ADA, None]
    assert decisions_text(decide(recorded)) == decisions_text(decide(world))
    assert snapshot_of(json.loads(snapshot_text(recorded))) == recorded
