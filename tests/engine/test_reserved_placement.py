"""Reserved quota counts at the limits of its tenant for its time, once, and what is unused is lent to jobs that end soon enough."""

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.answers.quotes import capacity, quote
from placement.cycle.cycle import decide
from placement.values.advance import bounds_of, latest_end
from placement.values.preemption import Allowance, RoomClaim
from tests.laws import examples

from .checker import check
from .fleets import NOW, job, limit, pods, reservation, snapshot, uniform
from .preemption_worlds import full, planned, run_on, world
from .test_placement_laws import jobs, snapshots

R1, R2 = str(UUID(int=1)), str(UUID(int=2))
GPU = 1000
EIGHT = (("gpu", 8 * GPU),)


def asks(gpus, minutes=None, **more):
    return job(pods(1, gpus), deadline_seconds=None if minutes is None else minutes * 60, **more)


def decided(queue, limits, *reserved):
    given_snapshot = snapshot([uniform(1, 6)], queue, limits, reservations=reserved)
    decisions = decide(given_snapshot)
    check(given_snapshot, decisions)
    return decisions


def placed(decisions):
    return [placement.job_id for placement in decisions.placements]


def test_what_is_reserved_counts_while_it_is_in_force_and_its_own_jobs_count_once():
    queue = [asks(8, 30, reservation=R1), asks(8, 30), asks(1, 30)]
    decisions = decided(queue, [limit("acme", "gpu", 16 * GPU)], reservation(1, "c1-n000", reserved=EIGHT))
    assert placed(decisions) == [queue[0].id, queue[1].id]
    (wait,) = decisions.waits
    assert (wait.code, wait.message) == ("waiting_for_quota", "needs 1 GPU; acme has 0 GPUs left of its 16 GPUs")


def test_what_its_jobs_do_not_use_is_kept_from_others_with_the_numbers():
    (wait,) = decided(
        [asks(8, 30)],
        [limit("acme", "gpu", 10 * GPU)],
        reservation(1, "c1-n000", reserved=EIGHT, used=(("gpu", 3 * GPU),)),
    ).waits
    assert wait.code == "waiting_for_quota"
    assert wait.message == (
        "needs 8 GPUs; acme has 5 GPUs left of its 10 GPUs, 5 GPUs of it reserved from 01 Mar 12:00 UTC on"
    )


@pytest.mark.parametrize(
    ("minutes", "recall", "starts", "fits"),
    [
        (28, None, 30, True),
        (29, None, 30, False),
        (None, None, 30, False),
        (8, None, 0, False),
        (8, 600, 0, True),
        (9, 600, 0, False),
        (None, 86_400, 0, False),
        (28, 1200, 29, False),
        (18, 1200, 1, True),
    ],
)
def test_a_job_uses_what_is_reserved_if_it_ends_before_the_start_or_within_the_recall_time(
    minutes, recall, starts, fits
):
    one = reservation(1, *(f"c1-n00{n}" for n in range(6)), starts=starts, recall=recall, reserved=EIGHT)
    for limits in ([limit("acme", "gpu", 8 * GPU)], []):
        decisions = decided([asks(8, minutes)], limits, one)
        assert bool(decisions.placements) == fits
    end = latest_end(NOW, None if minutes is None else minutes * 60)
    assert bool(bounds_of("", "acme/ml", end, [one], NOW).never) != fits


def test_of_reservations_at_different_times_the_largest_counts_and_not_their_sum():
    reserved = [reservation(n, starts=100 * n, minutes=60, reserved=EIGHT) for n in (1, 2, 3)]
    assert placed(decided([asks(4)], [limit("acme", "gpu", 12 * GPU)], *reserved))
    at_once = [reservation(n, starts=100, minutes=60, reserved=EIGHT) for n in (1, 2)]
    assert not placed(decided([asks(4)], [limit("acme", "gpu", 12 * GPU)], *at_once))


def test_a_job_of_a_reservation_leaves_room_for_the_others():
    queue = [asks(8, 30, reservation=R1), asks(8, 30, reservation=R1)]
    reserved = (
        reservation(1, "c1-n000", "c1-n001", reserved=EIGHT),
        reservation(2, "c1-n002", reserved=EIGHT),
    )
    decisions = decided(queue, [limit("acme", "gpu", 16 * GPU)], *reserved)
    assert placed(decisions) == [queue[0].id], "the second is more than it reserved"
    assert decisions.waits[0].code == "waiting_for_quota"


def test_reserved_quota_of_other_organisations_clusters_and_tenants_does_not_count():
    here = [limit("acme/ml", "gpu", 8 * GPU, clusters=("c1",))]
    for other in (
        reservation(1, tenant="globex", reserved=EIGHT),
        reservation(1, tenant="acme/ops", reserved=EIGHT),
        reservation(1, on=2, reserved=EIGHT),
        reservation(1),
        reservation(1, minutes=-1, starts=-5, reserved=EIGHT),
    ):
        assert placed(decided([asks(8, 30)], here, other))
    assert not placed(decided([asks(8, 30)], here, reservation(1, reserved=EIGHT)))


def test_after_a_limit_was_lowered_jobs_of_a_reservation_start_as_far_as_it_allows():
    queue = [asks(8, 30, reservation=R1), asks(4, 30, reservation=R1), asks(1, 30)]
    decisions = decided(queue, [limit("acme", "gpu", 4 * GPU)], reservation(1, "c1-n000", reserved=EIGHT))
    assert placed(decisions) == [queue[1].id]
    assert {wait.code for wait in decisions.waits} == {"waiting_for_quota"}


def test_quota_that_is_kept_for_a_job_of_a_reservation_counts_once_too():
    waiting = asks(8, 30, reservation=R1)
    claim = RoomClaim(UUID(int=50), waiting.id, UUID(int=1), "c1", ("c1-n000",), NOW, 1, amounts={"gpu": 8 * GPU})
    reserved = (reservation(1, "c1-n000", reserved=EIGHT),)
    given_snapshot = replace(
        snapshot([uniform(1, 6)], [asks(8, 30), waiting], [limit("acme", "gpu", 16 * GPU)], reservations=reserved),
        claims=(claim,),
        allowance=Allowance(),
    )
    assert len(decide(given_snapshot).placements) == 2


def test_quote_and_capacity_count_what_is_reserved():
    one = reservation(1, "c1-n000", reserved=EIGHT)
    two = [limit("acme", "gpu", 20 * GPU), limit("acme/ml", "gpu", 20 * GPU, nominal=10 * GPU)]
    now = snapshot([uniform(1, 6)], [], two, reservations=[one])
    asked = asks(2, 30)
    assert (capacity(asked, now).total, capacity(asked, now).within_quota) == (20, 6)
    (room,) = capacity(asked, now).clusters
    assert (room.flavors[0].own, room.flavors[0].borrowable) == (2 * GPU, 10 * GPU)
    assert capacity(asks(8, 30, reservation=R1), now).within_quota == 1
    assert quote(asks(8, 30), now).offers
    short = capacity(asks(2, 8), replace(now, reservations=(replace(one, recall_seconds=600),)))
    assert (short.total, short.within_quota) == (24, 10)


def test_no_job_of_a_reservation_is_stopped_for_quota_that_remains_reserved():
    """The cheaper victim runs in the reservation: what it holds would stay reserved. So the other one is stopped."""
    within = run_on(1, {"c1-n0": 1}, gpus=4, minutes=10, reservation=R1)
    other = run_on(2, {"c1-n1": 1}, gpus=4, minutes=600)
    one = reservation(1, "c1-n0", reserved=(("gpu", 4 * GPU),), used=(("gpu", 4 * GPU),))
    urgent = asks(4, 30, priority=100)
    now = world([full("aaa", [within, other])], [within, other], urgent, [limit("acme", "gpu", 8 * GPU, held=8 * GPU)])
    assert [victim.run.attempt_id.int for victim in planned(now).decision.victims] == [1]
    kept = planned(replace(now, reservations=(one,)))
    assert [victim.run.attempt_id.int for victim in kept.decision.victims] == [2]
    alone = replace(now, running=(within,), reservations=(one,))
    assert planned(alone).decision is None


@pytest.mark.law
@given(snapshots, jobs(), st.integers(1, 3))
@examples(60)
def test_as_many_as_capacity_says_fit_under_the_limits_beside_what_is_reserved(given_snapshot, asked, most):
    """Of single pods, so that room is no matter of how they are put in."""
    given_snapshot = replace(given_snapshot, queue=(), budgets=(), policies=())
    constraints = replace(asked.constraints, overflow=())
    asked = replace(asked, constraints=constraints, pod_sets=asked.pod_sets[:1])
    found = capacity(asked, given_snapshot)
    number = (found.within_quota if found.within_quota < 50 else 0) + most
    copies = [replace(asked, id=UUID(int=900 + n), strategy="cheapest", shape="") for n in range(number)]
    decisions = decide(replace(given_snapshot, queue=tuple(copies)))
    check(replace(given_snapshot, queue=tuple(copies)), decisions)
    assert (not decisions.placements) == (not quote(copies[0], given_snapshot).offers)
    if not found.within_quota and not found.is_at_least:
        assert not decisions.placements
