"""A place that is kept for a job which failed there: who may use it meanwhile, and that its job starts there again."""

from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

import pytest

from placement.cycle.cycle import decide, run
from placement.values.model import JobRequest, Snapshot
from placement.values.preemption import Leaving, RoomClaim, claims_of_others

from .fleets import NOW, cluster, flavor, job, limit, node, pods, snapshot

OF = flavor()
HELD = {"gpu": 8000}


def place(
    holder: UUID, *names: str, on: int = 1, needed_at: datetime | None = None, held: dict[str, int] | None = None
) -> RoomClaim:
    return RoomClaim(
        UUID(int=7), holder, UUID(int=on), f"c{on}", names, NOW + timedelta(minutes=5), 0, amounts=HELD, kind="again_here",
        leaving=Leaving("acme/ml", f"c{on}", held or {}), needed_at=needed_at,
    )  # fmt: skip


def fleet(on: int = 1, nodes: int = 2, free: int = 8, prefix: str = "n"):
    return cluster(on, [node(f"{prefix}{number}", OF, 8, free) for number in range(nodes)], [OF])


def kept(queue: list[JobRequest], *claims: RoomClaim, clusters=None, limits=()) -> Snapshot:
    return replace(snapshot(clusters or [fleet()], queue, limits), claims=claims)


def nodes_of(found) -> dict[UUID, list[str]]:
    return {one.job_id: sorted(name for placed in one.pod_sets for name in placed.nodes) for one in found.placements}


def test_its_job_starts_there_and_others_do_not_whoever_is_first():
    urgent, holder = job(pods(1, 8), tenant="acme/web", priority=9), job(pods(2, 8))
    found = decide(kept([urgent, holder], place(holder.id, "n0", "n1")))
    assert nodes_of(found) == {holder.id: ["n0", "n1"]}
    assert "failed there and starts again" in found.waits[0].per_cluster[0].message
    assert decide(kept([urgent, holder])).placements[0].job_id == urgent.id


@pytest.mark.parametrize("own", ["n0", "n1"])
def test_it_takes_its_place_before_any_that_ranks_higher(own):
    holder = job(pods(1, 8))
    clusters = [fleet(2, 1, prefix="z"), fleet(), fleet(3, 1, prefix="y")]
    assert nodes_of(decide(kept([holder], place(holder.id, own), clusters=clusters))) == {holder.id: [own]}


def test_if_its_place_does_not_hold_it_it_starts_anywhere():
    holder = job(pods(1, 8))
    clusters = [cluster(1, [node("n0", OF, 8, 7), node("n1", OF, 8, 8)], [OF])]
    assert nodes_of(decide(kept([holder], place(holder.id, "n0"), clusters=clusters))) == {holder.id: ["n1"]}
    gone = decide(kept([holder], place(holder.id, "n9"), clusters=clusters))
    assert nodes_of(gone) == {holder.id: ["n1"]}


def test_two_places_are_each_for_their_own_job():
    first, second = job(pods(1, 8)), job(pods(1, 8))
    claims = replace(place(first.id, "n1"), id=UUID(int=8)), place(second.id, "n0")
    assert nodes_of(decide(kept([first, second], *claims))) == {first.id: ["n1"], second.id: ["n0"]}


@pytest.mark.parametrize(("deadline", "is_lent"), [(None, False), (479, True), (480, True), (481, False)])
def test_a_job_that_must_end_before_it_is_needed_borrows_it(deadline, is_lent):
    other = job(pods(1, 8), tenant="acme/web", deadline_seconds=deadline)
    claim = place(UUID(int=99), "n0", "n1", needed_at=NOW + timedelta(minutes=10))
    assert bool(decide(kept([other], claim)).placements) == is_lent
    assert not decide(kept([other], replace(claim, needed_at=None))).placements


def test_a_claim_lends_only_to_what_ends_by_then():
    claim = place(UUID(int=99), "n0", needed_at=NOW)
    assert claims_of_others([claim], UUID(int=1)) == (claim,)
    assert claims_of_others([claim], UUID(int=1), NOW) == ()
    assert claims_of_others([claim], UUID(int=1), NOW + timedelta(microseconds=1)) == (claim,)


@pytest.mark.parametrize("held", [{}, HELD])
def test_its_quota_is_kept_while_its_job_does_not_wait_yet_and_counted_once(held):
    other = job(pods(1, 8), tenant="acme/ml")
    there = limit("acme", "gpu", 15_999, held.get("gpu", 0))
    claim = place(UUID(int=99), "n0", held=held)
    assert [one.code for one in decide(kept([other], claim, limits=[there])).waits] == ["waiting_for_quota"]
    more = limit("acme", "gpu", 16_000, held.get("gpu", 0))
    assert decide(kept([other], claim, limits=[more])).placements


def test_what_is_idle_there_is_what_is_free_and_only_when_its_hold_has_ended():
    other = job(pods(1, 1), tenant="acme/web")
    clusters = [cluster(1, [node("n0", OF, 8, 5), node("n1", OF, 8, 8)], [OF])]
    claim = place(UUID(int=99), "n0", "n1")
    _, final = run(kept([other], claim, clusters=clusters))
    assert final.idle_places() == {claim.id: {"gpu": 13_000}}
    _, final = run(kept([other], replace(claim, leaving=Leaving("acme/ml", "c1", HELD)), clusters=clusters))
    assert final.idle_places() == {}
    _, final = run(kept([other], replace(claim, kind="moves"), clusters=clusters))
    assert final.idle_places() == {}


def test_what_its_job_took_and_what_is_lent_is_not_idle():
    holder, short = job(pods(1, 8)), job(pods(1, 3), deadline_seconds=60, tenant="acme/web")
    _, final = run(kept([holder], place(holder.id, "n0")))
    assert final.idle_places() == {}
    claim = place(UUID(int=99), "n0", "n1", needed_at=NOW + timedelta(minutes=10))
    _, final = run(kept([short], claim))
    assert final.idle_places() == {claim.id: {"gpu": 13_000}}
