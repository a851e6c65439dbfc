"""Moves in a replay: a larger job starts earlier, and no two jobs ever move each other in turn."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.consolidating import ConsolidationRule
from simulator.gateways import EngineGateway
from simulator.simulation import replay
from simulator.values import ClusterPlan, Conditions, Machine, TraceJob
from tests.laws import examples

LONG = 40_000.0


def fleet(nodes=2, clusters=1):
    return [
        ClusterPlan(
            f"c{on}",
            tuple(
                Machine(f"n{n}", "A100", "A100", 8, 96_000, 1_000_000, ("z", "b", f"r{n // 2}")) for n in range(nodes)
            ),
        )
        for on in range(clusters)
    ]


def gang(name, at, seconds, gpus, pods=1, **more):
    return TraceJob(name, at, seconds, pods, gpus, cpu_millicores=1000 * gpus, memory_mib=1000 * gpus, **more)


def fragmented():
    """Two long jobs that end up with half of a node each, a job of a node behind them, and one that makes a round happen."""
    return [
        gang("first", 0.0, LONG, 4),
        gang("gone", 1.0, 100.0, 4),
        gang("second", 2.0, LONG, 4),
        gang("large", 150.0, 20_000.0, 8),
        gang("later", 1000.0, 100.0, 8),
    ]


def lines(rule, jobs, plans=None, **conditions):
    gateway = EngineGateway(consolidation=rule)
    found = replay(plans or fleet(), jobs, gateway, Conditions(**conditions))
    return gateway, found, {line.job.name: line for line in found.lines}


def test_a_larger_job_starts_when_a_smaller_one_has_moved_and_all_work_is_done():
    _, off, before = lines(None, fragmented())
    gateway, on, after = lines(ConsolidationRule(share=1.0), fragmented(), checkpoint_seconds=None)
    assert (off.moves, on.moves, len(gateway.consolidator.plans)) == (0, 1, 1)
    assert before["large"].first_started >= LONG
    assert after["large"].first_started == 1000.0
    assert on.finished == off.finished == 5
    (moved,) = [line for line in on.lines if line.lost_seconds]
    assert moved.job.name in ("first", "second")
    assert moved.tries == 2
    assert moved.lost_seconds == pytest.approx(1000 + 60, abs=110)
    assert moved.finished == pytest.approx(1000 + LONG + 60, abs=1)


def test_checkpoints_make_moves_cheap_and_what_is_not_allowed_stays():
    _, on, after = lines(ConsolidationRule(share=0.2, policy="resumable"), fragmented(), checkpoint_seconds=250)
    assert after["large"].first_started == 1000.0
    assert on.lost_gpu_hours <= 4 * (250 + 60) / 3600
    _, off, _ = lines(ConsolidationRule(share=0.2, policy="resumable"), fragmented())
    assert off.moves == 0
    _, never, _ = lines(ConsolidationRule(policy="never"), fragmented(), checkpoint_seconds=250)
    assert never.moves == 0


@pytest.mark.law
@examples(10)
@given(st.integers(0, 10**6))
def test_over_many_rounds_no_jobs_move_each_other_in_turn_and_none_is_lost(seed):
    draw = random.Random(seed)
    jobs = [
        gang(str(n), draw.uniform(0, 20_000), draw.uniform(500, 20_000), draw.choice([1, 2, 4, 4, 8]),
             pods=draw.choice([1, 1, 1, 2]), priority=draw.choice([0, 0, 5]), tenant=draw.choice(["a/x", "a/y", "b"]))
        for n in range(60)
    ]  # fmt: skip
    rule = ConsolidationRule(share=1.0, most_moves=6)
    gateway, found, _ = lines(rule, jobs, fleet(nodes=3, clusters=2), checkpoint_seconds=600)
    assert found.finished == len(jobs)
    above: dict[int, set[int]] = {}
    for plan in gateway.consolidator.plans:
        assert plan.cost <= rule.share * plan.gain
        for one in plan.moves:
            above.setdefault(one.movable.run.job_id.int, set()).add(plan.job_id.int)

    def reached(start):
        seen, left = set(), [start]
        while left:
            for other in above.get(left.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    left.append(other)
        return seen

    assert all(start not in reached(start) for start in above)
