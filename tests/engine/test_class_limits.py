"""Limits on what the jobs of a priority class hold: one rule for holds, cycles, quotes and capacity."""

import json
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.answers.quotes import capacity, quote
from placement.answers.recording import decisions_text, snapshot_of, snapshot_text, without_users
from placement.cycle.cycle import decide
from placement.values.model import LimitState, UserLimitState
from quotas.engine.holders import in_the_way
from quotas.engine.holds import HoldRequest, Limit, UserLimit, class_limit, grant, never_fits
from tests.engine.fleets import flavor, job, pods, snapshot, uniform

URGENT, NIGHTLY = "urgent", "nightly"
ADA, BOB = UUID(int=1), UUID(int=2)


def asks(number, name, amount=1000, path="a/b", user=None):
    return HoldRequest(
        UUID(int=100 + number), UUID(int=0), path, "north", {"gpu": amount, "jobs": 1}, user, class_name=name
    )


def limit_of(name=URGENT, most=2000, held=0, resource="gpu", number=9, path=""):
    return class_limit(UUID(int=number), name, resource, most, held, path)


def test_all_tenants_share_the_limit_of_a_class_and_other_classes_are_free():
    requests = [asks(1, URGENT), asks(2, URGENT, path="z"), asks(3, URGENT), asks(4, NIGHTLY, 9000), asks(5, "", 9000)]
    outcomes, takes = grant(requests, [limit_of(held=0)])
    refused = {holder.int - 100: one for holder, one in outcomes.items() if one}
    assert list(refused) == [3]
    one = refused[3]
    assert (one.code, one.held, one.asked, one.cap, one.tenant_path) == ("class_limit_exceeded", 2000, 1000, 2000, "")
    assert one.is_of_class
    assert not one.is_of_user
    assert one.message == "the class urgent has a limit of 2 gpu: 2 held by its jobs, 1 requested"
    assert takes == ()


def test_a_class_above_a_limit_that_was_cut_keeps_it_and_takes_nothing():
    cut = limit_of(most=1000, held=3000)
    assert (cut.cap, cut.nominal) == (
        1000,
        1000,
    )  # what its own work gives back makes no room (`test_place_after_move`)
    outcomes, _ = grant([asks(1, URGENT, 1), asks(2, URGENT, 0)], [cut])
    assert [outcome is None for outcome in outcomes.values()] == [False, True]


def test_what_is_larger_than_the_class_may_hold_is_refused_for_good():
    limit = limit_of(held=2000)
    assert never_fits("a/b", [("north", {"gpu": 2000})], [limit], (), URGENT) is None
    assert never_fits("a/b", [("north", {"gpu": 3000})], [limit], (), NIGHTLY) is None
    (refusal,) = never_fits("a/b", [("north", {"gpu": 3000})], [limit], (), URGENT)
    assert refusal.message == "the class urgent has a limit of 2 gpu, 3 requested"


def test_the_limit_of_a_class_is_no_tenants_doing():
    tenant = Limit(UUID(int=7), "a", "gpu", (), 1000, 1000, 1000)
    option = [("north", {"gpu": 1000})]
    assert [one.limit for one in in_the_way("a", option, [tenant, limit_of(held=0)])] == [tenant]
    assert in_the_way("a", option, [limit_of(held=2000)]) == ()


NAMES = st.sampled_from([URGENT, NIGHTLY, ""])
TENANTS = st.sampled_from(["acme/a", "acme/a/x", "acme/b", "zeta"])
REQUESTS = st.lists(
    st.tuples(NAMES, st.integers(0, 4), st.sampled_from(["a", "a/b", "z"]), st.sampled_from([ADA, BOB])), max_size=14
)


@pytest.mark.law
@given(
    REQUESTS,
    st.integers(0, 8),
    st.integers(0, 10),
    st.integers(0, 4),
    st.integers(0, 9),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_a_request_is_granted_exactly_if_the_tenant_the_user_and_the_class_have_it_left(  # noqa: PLR0917 - each is drawn
    wanted, most, held, jobs, tenant, each, there
):
    requests = [asks(number, name, amount, path, user) for number, (name, amount, path, user) in enumerate(wanted)]
    limits = [
        Limit(UUID(int=7), "a", "gpu", (), tenant, tenant, 0),
        limit_of(most=most, held=held),
        limit_of(NIGHTLY, jobs, 0, "jobs", 8),
        limit_of(most=there, number=5, path="a"),
        limit_of(NIGHTLY, 1, 0, "jobs", 4, path="a/b"),
    ]
    outcomes, _ = grant(requests, limits, [UserLimit(UUID(int=6), "a", "gpu", each, {})])
    urgent, nightly, left, users, urgent_there, nightly_there = held, 0, tenant, {ADA: 0, BOB: 0}, 0, 0
    for one in requests:
        amount, is_below = one.amounts["gpu"], one.tenant_path != "z"
        fits = (
            (one.class_name != URGENT or not amount or urgent + amount <= most)
            and (one.class_name != NIGHTLY or nightly < jobs)
            and (not is_below or amount <= left)
            and (not is_below or not amount or users[one.user_id] + amount <= each)
            and (one.class_name != URGENT or not is_below or not amount or urgent_there + amount <= there)
            and (one.class_name != NIGHTLY or one.tenant_path != "a/b" or nightly_there < 1)
        )
        assert (outcomes[one.holder_id] is None) == fits
        if fits:
            urgent += amount if one.class_name == URGENT else 0
            nightly += one.class_name == NIGHTLY
            left -= amount if is_below else 0
            users[one.user_id] += amount if is_below else 0
            urgent_there += amount if is_below and one.class_name == URGENT else 0
            nightly_there += one.class_name == NIGHTLY and one.tenant_path == "a/b"


def of_class(name, number, gpus=1, tenant="acme/a", user=None):
    made = job(pods(gpus=gpus), tenant=tenant, shape=f"{gpus}", id=UUID(int=1000 + number), user=user)
    return replace(made, class_name=name)


def state(most, held=0, resource="gpu", name=URGENT, number=50, path=""):
    return LimitState(UUID(int=number), path, resource, (), most, held, nominal=most, class_name=name)


def test_a_cycle_stops_a_class_at_its_limit_and_says_so_while_jobs_of_the_same_shape_start():
    queue = [of_class(URGENT, 1), of_class(URGENT, 2, tenant="acme/b"), of_class(URGENT, 3), of_class(NIGHTLY, 4)]
    found = decide(replace(snapshot([uniform(1, 1, flavor(), total=8)], queue), class_limits=(state(2000),)))
    assert {placed.job_id for placed in found.placements} == {queue[0].id, queue[1].id, queue[3].id}
    (wait,) = found.waits
    assert (wait.job_id, wait.code) == (queue[2].id, "waiting_for_class_limit")
    assert wait.message == "needs 1 GPU; all jobs of the priority class urgent together may hold 2 GPUs, 0 GPUs left"
    assert [reason.code for reason in wait.per_cluster] == ["class_limit_reached"]


def test_a_limit_on_jobs_counts_each_as_one():
    queue = [of_class(URGENT, 1, gpus=4), of_class(URGENT, 2)]
    world = snapshot([uniform(1, 1, flavor(), total=8)], queue)
    found = decide(replace(world, class_limits=(state(1, resource="jobs"),)))
    assert [placed.job_id for placed in found.placements] == [queue[0].id]
    assert found.waits[0].message == (
        "needs 1 job; all jobs of the priority class urgent together may hold 1 job, 0 jobs left"
    )


def test_a_class_above_its_limit_has_nothing_left():
    world = snapshot([uniform(1, 1, flavor(), total=8)], [of_class(URGENT, 1)])
    (wait,) = decide(replace(world, class_limits=(state(1000, 5000),))).waits
    assert wait.message.endswith("may hold 1 GPU, 0 GPUs left")


def test_a_class_stops_at_the_limit_of_a_tenant_only_there_and_the_reason_names_tenant_class_use_and_limit():
    tenants = ("acme/a", "acme/a/x", "acme/a", "acme/b")
    queue = [of_class(URGENT, number, tenant=tenant) for number, tenant in enumerate(tenants, 1)]
    world = snapshot([uniform(1, 1, flavor(), total=8)], queue)
    limits = state(2500, 500, path="acme/a"), state(9000, number=51)
    found = decide(replace(world, class_limits=limits))
    assert {placed.job_id for placed in found.placements} == {queue[0].id, queue[1].id, queue[3].id}
    (wait,) = found.waits
    assert (wait.job_id, wait.code) == (queue[2].id, "waiting_for_class_limit")
    assert wait.message == (
        "needs 1 GPU; all jobs of the priority class urgent in acme/a together may hold 2.5 GPUs and hold 2.5 GPUs, 0 GPUs left"
    )


def test_the_limits_of_a_class_and_the_quota_of_the_same_tenant_are_no_chain():
    quota = Limit(UUID(int=7), "a", "gpu", (), 3000, 3000, 0)
    own, option = limit_of(most=2000, path="a"), [("north", {"gpu": 1000})]
    assert never_fits("a/b", [("north", {"gpu": 2000})], [quota, own], (), URGENT) is None
    (refusal,) = never_fits("a/b", [("north", {"gpu": 3000})], [quota, own], (), URGENT)
    assert refusal.message == "the class urgent has a limit of 2 gpu in a, 3 requested"
    below = Limit(UUID(int=8), "a/b", "gpu", (), 3000, 3000, 0, guaranteed=2000)
    assert never_fits("a/b", option, [quota, below, own], (), URGENT) is None
    (blocking,) = in_the_way("a", option, [replace(quota, held=3000), own])
    assert (blocking.limit.id, [one.held for one in blocking.holders]) == (quota.id, [3000])


@pytest.mark.law
@given(
    st.lists(st.tuples(NAMES, st.integers(1, 3), st.sampled_from([ADA, BOB]), TENANTS), max_size=6),
    st.integers(0, 6000),
    st.integers(0, 4000),
    st.integers(0, 4),
    st.integers(0, 6000),
    st.tuples(NAMES, st.integers(1, 3), TENANTS),
    st.integers(0, 6000),
)
def test_a_quote_is_what_the_next_cycle_does_under_limits_of_classes(  # noqa: PLR0917 - each is drawn
    queued, most, held, jobs, each, wanted, there
):
    queue = [of_class(name, number, size, tenant, user) for number, (name, size, user, tenant) in enumerate(queued)]
    limits = (
        state(most, held),
        state(jobs, 0, "jobs", NIGHTLY, 51),
        state(there, number=53, path="acme"),
        state(2, 0, "jobs", URGENT, 54, "acme/a"),
    )
    users = UserLimitState(UUID(int=52), "acme", "gpu", each, {})
    world = snapshot([uniform(1, 1, flavor(), total=6)], queue)
    world = replace(world, class_limits=limits, user_limits=(users,))
    asked = of_class(wanted[0], 99, wanted[1], wanted[2], user=ADA)
    told = quote(asked, world)
    after = decide(replace(world, queue=(*queue, asked)))
    waits = {wait.job_id: (wait.code, wait.message) for wait in after.waits}
    assert bool(told.offers) == (asked.id in {placed.job_id for placed in after.placements})
    assert (None if told.wait is None else (told.wait.code, told.wait.message)) == waits.get(asked.id)


def test_capacity_counts_what_the_limit_leaves_the_class():
    world = replace(snapshot([uniform(1, 1, flavor(), total=8)], []), class_limits=(state(3000, 1000),))
    assert capacity(of_class(URGENT, 1), world).within_quota == 2
    assert capacity(of_class(NIGHTLY, 1), world).within_quota == 8
    assert capacity(of_class("", 1), world).within_quota == 8
    below = replace(world, class_limits=(state(9000), state(5000, 1000, number=51, path="acme/a")))
    for tenant, within in (("acme/a", 4), ("acme/a/x", 4), ("acme/b", 8)):
        assert capacity(of_class(URGENT, 1, tenant=tenant), below).within_quota == within
    above = replace(world, class_limits=(state(1000, 3000),))
    assert capacity(of_class(URGENT, 1), above).within_quota == 0


def test_a_recording_keeps_classes_and_decides_the_same():
    queue = [of_class(URGENT, 1), of_class(URGENT, 2), of_class(NIGHTLY, 3)]
    world = replace(snapshot([uniform(1, 1, flavor(), total=8)], queue), class_limits=(state(2000, 1000),))
    recorded = without_users(world)
    assert decisions_text(decide(recorded)) == decisions_text(decide(world))
    assert snapshot_of(json.loads(snapshot_text(recorded))) == recorded
