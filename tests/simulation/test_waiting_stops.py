"""The judges of stops that wait for a checkpoint object to those that wait too long or come too early, and to nothing that is like it."""

from types import SimpleNamespace
from typing import Any

import pytest

SECOND = 1_000_000
JOB = "job-1"


def world(rows, healed=0, happened=(), spans=()):
    """A world in which statements find these rows."""
    given: dict[str, Any] = {"healed_us": healed * SECOND, "scheduler": SimpleNamespace(now_us=900 * SECOND)}
    watch = SimpleNamespace(rows=lambda statement, *_: rows.get(statement, []))
    counts = SimpleNamespace(happened=dict.fromkeys(delaying(), 0) | dict.fromkeys(happened, 1))
    return SimpleNamespace(watch=watch, faults=counts, lost_commits=SimpleNamespace(spans=list(spans)), **given)


def delaying():
    from devtools.simulation.requests.waiting_stops import DELAYING  # noqa: PLC0415 - Django must be set up before

    return DELAYING


@pytest.mark.parametrize(
    ("ended", "more", "is_broken"),
    [
        (60, {}, False),
        (240, {}, False),
        (241, {}, True),
        (None, {}, True),
        (500, {"happened": ["freeze"], "healed": 400}, False),
        (521, {"happened": ["freeze"], "healed": 400}, True),
        (None, {"happened": ["death"]}, False),
        (521, {"healed": 400}, True),
        (700, {"spans": [(1, 2)], "healed": 600}, False),
    ],
)
def test_a_wait_ends_soon_after_its_time_or_after_the_world_has_healed(ended, more, is_broken):
    """It was asked for at 100, for 20 seconds."""
    from devtools.simulation.requests import waiting_stops  # noqa: PLC0415 - likewise

    asked = [(JOB, 100 * SECOND, 20, None if ended is None else ended * SECOND)]
    there = world({waiting_stops.WISHES: asked}, **more)
    assert bool(waiting_stops.a_stop_waits_no_longer_than_its_user_allowed(there)) is is_broken


@pytest.mark.parametrize(("ended", "is_broken"), [(400, False), (500, True)])
def test_a_wait_goes_on_in_a_standstill(ended, is_broken):
    """It ended at 300."""
    from devtools.simulation.requests import waiting_stops  # noqa: PLC0415 - likewise

    rows: dict[str, list[Any]] = {
        waiting_stops.WISHES: [(JOB, 100 * SECOND, 20, ended * SECOND)],
        waiting_stops.STANDSTILLS: [(300 * SECOND,)],
    }
    assert bool(waiting_stops.a_stop_waits_no_longer_than_its_user_allowed(world(rows))) is is_broken
    rows[waiting_stops.STANDSTILLS].append((None,))
    assert not waiting_stops.a_stop_waits_no_longer_than_its_user_allowed(world(rows))


def test_a_stop_that_comes_too_early_is_named_unless_commits_were_lost():
    from devtools.simulation.requests import waiting_stops  # noqa: PLC0415 - likewise

    rows = {waiting_stops.EARLY: [(JOB, "Suspended by ada (its checkpoint is reported).")]}
    assert JOB in waiting_stops.a_stop_does_not_come_before_its_checkpoint(world(rows))[0]
    assert not waiting_stops.a_stop_does_not_come_before_its_checkpoint(world(rows, spans=[(1, 2)]))


def test_most_jobs_of_such_a_world_report_and_are_stopped_and_none_runs_long_that_nobody_cancels():
    from devtools.simulation.core.swarm import ANY  # noqa: PLC0415 - likewise
    from devtools.simulation.requests import clients, waiting_stops  # noqa: PLC0415

    found = [one for seed in range(40) for one in equipped(clients.plan(seed, (), ANY), seed, waiting_stops)]
    reporting = [one for one in found if one.body.get("reports")]
    assert len(reporting) > 0.8 * len(found)
    assert any(one.suspend_after is not None and one.is_moved for one in reporting)
    waits = [waiting_stops.wait_of(1, one.key + str(n), one.body) for n, one in enumerate(reporting)]
    assert {} in waits
    assert {one["wait_for_checkpoint_seconds"] for one in waits if one} == set(waiting_stops.SECONDS)
    long = [one for one in reporting if one.body["labels"]["sim.switchyard.dev/run-seconds"] == "900"]
    assert long
    assert all(one.cancel_after is not None for one in long)


def equipped(submissions, seed, waiting_stops):
    waiting_stops.equip(seed, submissions)
    return submissions
