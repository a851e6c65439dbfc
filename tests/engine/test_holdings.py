"""Kept room goes to few jobs, one of each tenant first, where quota lets them start, and not for ever."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.cycle.cycle import decide
from placement.values.decisions import KeptRoom
from placement.values.model import Release
from placement.values.shares import FairShare
from tests.laws import examples

from .fleets import NOW, cluster, flavor, job, limit, node, pods, snapshot, uniform
from .test_kept_room import LONG_AGO, outcome

HOUR = timedelta(hours=1)
NONE: tuple[KeptRoom, ...] = ()


def fleet(*free):
    of = flavor()
    return [cluster(1, [node(f"n{n}", of, 8, units) for n, units in enumerate(free)], [of], owner_path="")]


def gang(tenant="acme/ml", count=2, **more):
    return job(
        pods(count, 8), submitted_at=LONG_AGO, tenant=tenant, shape=more.pop("shape", f"{tenant}{count}"), **more
    )


def kept_of(one, *nodes, since=NOW, **more):
    return KeptRoom(one.id, UUID(int=1), nodes, since, since + HOUR, since + 2 * HOUR, **more)


def holders(given_snapshot):
    return [one.job_id for one in decide(given_snapshot).kept]


def test_what_is_kept_is_a_decision_with_its_nodes_times_and_what_is_idle_there():
    large = gang(count=4)
    (kept,) = decide(replace(snapshot(fleet(8, 5, 0, 3), [large]), keep_seconds=3600)).kept
    assert kept == KeptRoom(
        large.id, UUID(int=1), ("n0", "n1", "n2", "n3"), NOW, NOW + HOUR, NOW + 2 * HOUR, None, {"gpu": 16_000}
    )
    (wait,) = decide(replace(snapshot(fleet(8, 5, 0, 3), [large]), keep_seconds=3600)).waits
    assert wait.message.endswith(
        "nodes that become free on c1 are kept for it until 13:00 UTC at most; 16 GPUs idle there count as used by acme/ml"
    )
    assert kept.idle["gpu"] / 1000 == 8 + 5 + 0 + 3


def test_without_a_bound_nothing_is_given_up():
    (kept,) = decide(snapshot(fleet(8, 5), [gang()])).kept
    assert (kept.until, kept.again) == (None, None)
    assert not kept.is_given_up(NOW + timedelta(days=999))
    assert not kept.rests(NOW + timedelta(days=999))


def test_a_node_that_several_pod_sets_share_is_idle_once():
    both = job(pods(1, 4, name="driver"), pods(1, 4, name="worker"), submitted_at=LONG_AGO, shape="both")
    (kept,) = decide(replace(snapshot(fleet(5), [both]), keep_seconds=3600)).kept
    assert (kept.nodes, kept.idle) == (("n0",), {"gpu": 5000})


def test_idle_is_what_borrowers_leave():
    """A job that ends before the nodes are needed uses them; only the rest is idle."""
    large = gang()
    small = job(pods(1, 3), shape="small", deadline_seconds=60)
    ends = Release(NOW + 2 * HOUR, UUID(int=1), flavor().name, 8, 1000, 1024, {"n0": 1})
    whole = replace(snapshot(fleet(0, 8), [large, small]), releases=(ends,), keep_seconds=3600)
    decisions = decide(whole)
    (kept,) = decisions.kept
    assert [one.job_id for one in decisions.placements] == [small.id]
    assert kept.idle == {"gpu": 5000}
    # a promised start delays the bound
    assert (kept.start.at, kept.until) == (NOW + 2 * HOUR, NOW + 3 * HOUR)


def test_nothing_is_kept_where_quota_or_a_limit_of_its_cluster_would_not_let_the_job_start():
    large, small = gang(), job(pods(1, 1), shape="small")
    full = snapshot(fleet(8, 7), [large, small], [limit("acme/ml", "gpu", 15_000)])
    decisions = decide(full)
    assert decisions.kept == ()
    assert [one.job_id for one in decisions.placements] == [small.id]
    assert "kept for it" not in outcome(decisions, large).message
    enough = decide(replace(full, limits=(limit("acme/ml", "gpu", 16_000),)))
    assert [one.job_id for one in enough.kept] == [large.id]
    two = [uniform(1, 2, free=7), uniform(2, 2, free=6)]
    here = limit("acme/ml", "gpu", 15_000, clusters=("c1",))
    (kept,) = decide(snapshot(two, [large], [here])).kept
    assert kept.cluster_id == UUID(int=2)


def test_one_of_each_tenant_before_any_tenant_has_two():
    greedy = [gang("a", count, shape=f"a{count}") for count in (1, 2, 3, 4)]
    modest = [gang("b", 1), gang("c", 1)]
    queue = [*greedy, *modest]
    whole = snapshot(fleet(*[7] * 12), queue)
    tenants = {one.id: one.tenant_path for one in queue}
    assert Counter(tenants[one] for one in holders(whole)) == {"a": 2, "b": 1, "c": 1}
    many = [*greedy, *(gang(f"t{number}", 1) for number in range(9))]
    tenants = {one.id: one.tenant_path for one in many}
    assert max(Counter(tenants[one] for one in holders(snapshot(fleet(*[7] * 12), many))).values()) == 1
    assert len(holders(snapshot(fleet(*[7] * 12), greedy))) == 4


@pytest.mark.law
@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 3), st.booleans()), min_size=1, max_size=14),
    st.booleans(),
)
@examples(60)
def test_at_most_four_are_kept_and_no_tenant_has_two_while_another_that_could_keep_has_none(drawn, is_fair):
    queue, found = [], {}
    for number, (tenant, count, is_old) in enumerate(drawn):
        one = gang(tenant, count, shape=f"{tenant}{count}{number}")
        one = one if is_old else replace(one, submitted_at=NOW)
        queue.append(one)
        found[one.id] = one
    whole = replace(snapshot(fleet(*[7] * 60), queue), fair_share=FairShare() if is_fair else None, keep_seconds=3600)
    kept = holders(whole)
    assert len(kept) == len(set(kept)) <= 4
    count = Counter(found[one].tenant_path for one in kept)
    old = {one.tenant_path for one in queue if one.submitted_at == LONG_AGO}
    assert all(found[one].submitted_at == LONG_AGO for one in kept)
    assert max(count.values(), default=0) <= 1 or old <= count.keys()
    assert len(kept) == 4 or len(count) == len(old)


def test_what_was_kept_stays_with_its_job_on_its_nodes_though_others_are_nearer_now():
    large, small = gang(), job(pods(1, 8), shape="small")
    kept = kept_of(large, "n2", "n3", since=NOW - HOUR / 2)
    whole = replace(snapshot(fleet(8, 7, 0, 5), [large, small]), kept=(kept,), keep_seconds=3600)
    decisions = decide(whole)
    assert [(one.nodes, one.since, one.until) for one in decisions.kept] == [(("n2", "n3"), kept.since, kept.until)]
    assert [one.job_id for one in decisions.placements] == [small.id]
    assert decide(replace(whole, kept=())).kept[0].nodes == ("n0", "n1")


def test_nodes_that_can_no_longer_hold_the_job_are_replaced_and_the_time_goes_on():
    large = gang()
    for nodes in (("n8", "n9"), ("n0",), ()):
        kept = kept_of(large, *nodes, since=NOW - HOUR / 2)
        (now,) = decide(replace(snapshot(fleet(8, 7, 0, 5), [large]), kept=(kept,), keep_seconds=3600)).kept
        assert (now.nodes, now.until) == (("n0", "n1"), kept.until)
    gone = replace(kept, cluster_id=UUID(int=77))
    (now,) = decide(replace(snapshot(fleet(8, 7), [large]), kept=(gone,), keep_seconds=3600)).kept
    assert (now.cluster_id, now.since) == (UUID(int=1), kept.since)


def test_the_place_of_a_holder_is_not_taken_by_jobs_before_it():
    old = [gang(name, 1) for name in "abcd"]
    new = gang("e", 1)
    kept = [kept_of(one, f"n{number}") for number, one in enumerate(old)]
    whole = replace(snapshot(fleet(*[7] * 12), [new, *old]), kept=tuple(kept), keep_seconds=3600)
    assert holders(whole) == [one.id for one in old]
    # a holder that is not in the queue any more leaves its place
    assert holders(replace(whole, queue=(new, *old[1:]))) == [new.id, *(one.id for one in old[1:])]


def test_a_tenants_new_gang_does_not_take_the_place_of_its_older_one():
    new, old, others = gang("a", 1, shape="new"), gang("a", 2, shape="old"), [gang(name, 1) for name in "bcd"]
    whole = snapshot(fleet(*[7] * 12), [new, old, *others])
    held = replace(whole, kept=(kept_of(old, "n0", "n1"),), keep_seconds=3600)
    assert holders(held) == [old.id, *(one.id for one in others)]
    assert holders(whole) == [new.id, *(one.id for one in others)]


def test_room_is_given_up_after_a_set_time_and_rests_as_long_with_the_reason():
    large, small = gang(), job(pods(1, 8), shape="small")
    kept = kept_of(large, "n0", "n1", since=NOW - HOUR)
    whole = replace(snapshot(fleet(8, 7), [large, small]), kept=(kept,), keep_seconds=3600)
    decisions = decide(whole)
    assert decisions.kept == ()
    assert [one.job_id for one in decisions.placements] == [small.id]
    assert outcome(decisions, large).message.endswith(
        "nodes were kept for it from 11:00 UTC until 12:00 UTC and did not become free in time; "
        "from 13:00 UTC on they may be again"
    )
    later = replace(whole, now=NOW + HOUR)
    (again,) = decide(later).kept
    assert (again.since, again.until) == (NOW + HOUR, NOW + 2 * HOUR)


def test_behind_runs_without_end_a_tenant_idles_nodes_at_most_half_of_the_time():
    """Two nodes, of which one never comes free: the free one is kept an hour, and open an hour."""
    large, small, open_, kept = gang(), job(pods(1, 8), shape="small"), 0, NONE
    for minute in range(0, 24 * 60, 10):
        now = NOW + timedelta(minutes=minute)
        decisions = decide(replace(snapshot(fleet(0, 8), [large, small]), now=now, kept=kept, keep_seconds=3600))
        open_ += bool(decisions.placements)
        kept = decisions.kept or kept
    assert open_ == 24 * 6 / 2


def test_five_gangs_of_five_tenants_start_within_a_bound_under_a_stream_of_small_jobs():
    """Each needs all of the fleet's four nodes; small jobs of a sixth tenant never stop coming, and each runs an hour."""
    gangs = [gang(f"t{number}", 4) for number in range(5)]
    waiting, running, kept, started = list(gangs), [], NONE, {}
    for step in range(120):
        now = NOW + timedelta(minutes=10 * step)
        running = [one for one in running if one[0] > now]
        free = [8 - sum(nodes.get(f"n{number}", 0) for _, nodes in running) for number in range(4)]
        small = [job(pods(1, 1), tenant="small", shape="small", submitted_at=now) for _ in range(8)]
        queue = [*waiting, *small]
        shares = FairShare()
        decisions = decide(
            replace(snapshot(fleet(*free), queue), now=now, kept=kept, keep_seconds=7200, fair_share=shares)
        )
        kept, gpus = decisions.kept, {one.id: one.pod_sets[0].gpu.count for one in queue}
        for placed in decisions.placements:
            nodes = {name: count * gpus[placed.job_id] for name, count in placed.pod_sets[0].nodes.items()}
            running.append((now + HOUR, nodes))
            if any(placed.job_id == one.id for one in waiting):
                started[placed.job_id] = step
                waiting = [one for one in waiting if one.id != placed.job_id]
    assert sorted(started) == sorted(one.id for one in gangs)
    # each gang waits until the fleet is empty once: an hour for what runs, and an hour for each gang before it
    assert max(started.values()) <= 6 * 2 * 5


def test_an_older_gang_behind_younger_jobs_of_its_own_share_keeps_room():
    older = gang("a/ml", 2)
    younger = [job(pods(1, 1), tenant="a/ml", shape="small", priority=1, submitted_at=NOW) for _ in range(3)]
    decisions = decide(replace(snapshot(fleet(8, 7), [*younger, older]), fair_share=FairShare(), keep_seconds=3600))
    assert [one.job_id for one in decisions.kept] == [older.id]
    assert len(decisions.placements) == 3


def awaiting(one, on=1):
    return replace(one, awaits_on=UUID(int=on))


def test_a_job_that_waits_for_data_keeps_what_it_had_on_the_cluster_of_its_wait_and_is_not_placed():
    large, small = awaiting(gang()), job(pods(1, 1), shape="small")
    kept = kept_of(large, "n0", "n1", since=NOW - HOUR / 2)
    whole = replace(snapshot(fleet(8, 8), [large, small]), kept=(kept,), keep_seconds=3600)
    decisions = decide(whole)
    assert decisions.placements == ()
    assert [(wait.job_id, wait.code) for wait in decisions.waits] == [
        (large.id, "waiting_for_data"),
        (small.id, "reserved_for_gang"),
    ]
    [room] = decisions.kept
    assert (room.nodes, room.since, room.until, room.again) == (kept.nodes, kept.since, kept.until, kept.again)
    assert room.idle == {}, "its hold counts already"
    # a node more than it holds is idle beside the hold
    [room] = decide(replace(whole, queue=(replace(large, pod_sets=(pods(2, 5),)), small))).kept
    assert room.idle == {"gpu": 6000}


def test_a_job_that_waits_for_data_begins_to_keep_nothing():
    large, small = awaiting(gang()), job(pods(1, 1), shape="small")
    decisions = decide(replace(snapshot(fleet(8, 8), [large, small]), keep_seconds=3600))
    assert decisions.kept == ()
    assert [one.job_id for one in decisions.placements] == [small.id]


def test_a_job_that_waits_for_data_keeps_its_room_no_longer_than_others_and_only_where_it_waits():
    large, small = awaiting(gang()), job(pods(1, 1), shape="small")
    over = kept_of(large, "n0", "n1", since=NOW - HOUR)
    decisions = decide(replace(snapshot(fleet(8, 8), [large, small]), kept=(over,), keep_seconds=3600))
    assert decisions.kept == ()
    assert [one.job_id for one in decisions.placements] == [small.id]
    elsewhere = awaiting(large, on=2)
    kept = kept_of(large, "n0", "n1")
    both = [*fleet(8, 8), uniform(2, 2, free=8)]
    [room] = decide(replace(snapshot(both, [elsewhere]), kept=(kept,), keep_seconds=3600)).kept
    assert (room.cluster_id, len(room.nodes)) == (UUID(int=2), 2)


def test_a_job_before_it_takes_the_nodes_of_one_that_waits_for_data():
    first, large = job(pods(1, 8), shape="first", priority=9), awaiting(gang())
    whole = replace(snapshot(fleet(8, 8), [first, large]), kept=(kept_of(large, "n0", "n1"),), keep_seconds=3600)
    assert [one.job_id for one in decide(whole).placements] == [first.id]


def test_a_job_that_waits_for_data_counts_among_the_four_and_for_its_tenant():
    waits = awaiting(gang("a", 1, shape="a1"))
    others = [gang("a", 2, shape="a2"), *(gang(f"t{number}", 1) for number in range(4))]
    whole = replace(snapshot(fleet(*[7] * 12), [waits, *others]), kept=(kept_of(waits, "n3"),), keep_seconds=3600)
    tenants = {one.id: one.tenant_path for one in (waits, *others)}
    assert sorted(tenants[one] for one in holders(whole)) == ["a", "t0", "t1", "t2"]
