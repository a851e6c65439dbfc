"""Room that is kept for a job in a replay stays its own from cycle to cycle, as the gateway records it."""

from datetime import timedelta
from uuid import UUID

from placement.cycle import cycle
from placement.values.decisions import KeptRoom
from placement.values.model import JobRequest, Snapshot
from simulator import gateways
from simulator.gateways import EngineGateway
from simulator.holding import KEPT_SECONDS, KeptRooms
from simulator.shares import FairShareRule, PastUses
from simulator.simulation import replay
from simulator.values import EPOCH, HOUR, Conditions, TraceJob

from .test_replay import job, plan

HELD = TraceJob("j", 0.0, 200.0, 1, 2, tenant="a")


def after(seconds):
    return EPOCH + timedelta(seconds=seconds)


def snapshot(*numbers, at=0.0):
    return Snapshot(after(at), (), tuple(JobRequest(UUID(int=number), "t", "s", ()) for number in numbers))


def test_what_was_given_up_rests_and_what_waits_no_longer_is_forgotten():
    rooms, kept = KeptRooms(), KeptRoom(UUID(int=1), UUID(int=0), ("n0",), after(0), after(100), after(200))
    assert rooms.given(snapshot(1)).kept == ()
    rooms.record([kept], after(0))
    assert rooms.given(snapshot(1, at=50.0)).kept == (kept,)
    rooms.record([], after(50))  # no longer kept, but not given up
    assert rooms.given(snapshot(1, at=60.0)).kept == ()
    rooms.record([kept], after(60))
    rooms.record([], after(150))
    assert rooms.given(snapshot(1, at=160.0)).kept == (kept,)
    assert rooms.given(snapshot(2, at=160.0)).kept == ()
    assert (rooms.given(snapshot(1)).keep_seconds, KEPT_SECONDS) == (21_600, 21_600)


def test_a_job_keeps_the_same_room_until_it_starts(monkeypatch):
    """A gang of two nodes waits behind one that runs for long, while longer jobs come behind it that would fit."""
    seen = []

    def run(given, index):
        decided = real(given, index)
        seen.append((given.kept, decided[0].kept))
        return decided

    real = cycle.run
    monkeypatch.setattr(gateways, "run_cycle", run)
    jobs = [job(0.0, 4 * HOUR, name="long", tenant="a", estimated_seconds=4 * 3600)]
    jobs += [job(60.0, HOUR, pods=2, name="gang", tenant="a", estimated_seconds=3600)]
    small = {"gpus": 4, "tenant": "a", "estimated_seconds": 6 * 3600}
    jobs += [job(HOUR * (1 + n), 6 * HOUR, name=f"small{n}", **small) for n in range(3)]
    figures = replay([plan(nodes=2)], jobs, EngineGateway(), Conditions())
    waits = {line.job.name: line.wait for line in figures.lines}
    assert waits["gang"] == 4 * HOUR - 60
    assert [given for given, _ in seen[1:]] == [decided for _, decided in seen[:-1]][: len(seen) - 1]
    rooms = {(one.since, one.nodes) for _, decided in seen for one in decided if one.job_id.int == 1}
    assert len(rooms) == 1


def test_what_is_idle_for_a_tenant_counts_as_used_and_not_as_held():
    past = PastUses(FairShareRule(half_life_seconds=100.0))
    past.shares([HELD], 0.0)
    past.keep([("a", {"gpu": 6000}), ("b", {"gpu": 1000})])
    found = {one.path: one for one in past.shares([HELD], 100.0).tenants}
    assert (found["a"].held["gpu"], found["a"].used["gpu"]) == (2000, 4000)
    assert (found["b"].held, found["b"].used["gpu"]) == ({}, 500)
    later = {one.path: one for one in past.shares([], 200.0).tenants}
    assert (later["a"].used["gpu"], later["b"].used["gpu"]) == (3000, 250)  # nothing is idle for them any more
