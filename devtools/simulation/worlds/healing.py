"""What operators undo in the healed world, so that every job can end."""

from dataclasses import replace
from typing import TYPE_CHECKING

from django.conf import settings

from devtools.simulation.mishaps import bad_nodes, outages, overtaken, spoiling, taken_room
from devtools.simulation.requests import (
    administration,
    attaching,
    catalogue,
    data_copies,
    image_pulls,
    object_copies,
    submission_limits,
    supplies,
    trees,
)
from devtools.simulation.setting.stage import schedules
from federation.observer import feed as feeds
from federation.observer import process as observers
from foundation import bell as bells

from . import beginnings, consolidating

if TYPE_CHECKING:
    from .world import World

HEAL_SECONDS = 2700.0
"""What should end ends within this time after the world has healed: one start may time out, and the job's retries, as well as the
next job and the copy of its data, each wait for routines that have become rare.
"""
CALM = (4.0, 10.0)
"""How rare routines are that were not announced, and how seldom bells poll. Such routines find nothing in the healed world, and
would take half of a run's steps.
"""
CALMER = ((150.0, 8.0, 30.0, 25.0), (400.0, 16.0, 30.0, 50.0))
"""After how long they are rarer still, with the seconds of a pulse. Most worlds have ended before: what is left waits for a time-out."""
GATHERED = 6.0
"""How long at most announcements of routines are gathered, so that one run does the work of many."""
RECORD_SECONDS, INVENTORY_SECONDS = 3.0, 15.0
"""Observers write many reports together. What was reported in what order was explored before."""
ROUND_SECONDS, LEASE_SECONDS = 20.0, 50
"""Observers seldom renew what no other observer wants."""
PULSE_SECONDS, LOST_SECONDS = 25.0, 120
"""A cluster that does not answer is lost later than before."""


def calm_down(world: "World") -> None:
    """What repeats without an announcement becomes rare: nothing is lost any more, so it finds nothing."""
    observers.ROUND_SECONDS, observers.LEASE_SECONDS = ROUND_SECONDS, LEASE_SECONDS
    feeds.RECORD_SECONDS, feeds.INVENTORY_SECONDS = RECORD_SECONDS, INVENTORY_SECONDS
    settings.CLUSTER_LOST_SECONDS = LOST_SECONDS
    _slow_down(world, *CALM, PULSE_SECONDS)
    for seconds, *paces in CALMER:
        world.scheduler.after(seconds, lambda paces=paces: _slow_down(world, *paces))  # type: ignore[misc]


def _slow_down(world: "World", pace: float, poll_seconds: float, pulse_seconds: float) -> None:
    bells.POLL_SECONDS, feeds.PULSE_SECONDS = poll_seconds, pulse_seconds
    rarer = beginnings.hastened(schedules(max(world.pace, pace)), world.faults)
    world.schedules[:] = [replace(one, gather_seconds=GATHERED) for one in rarer]


def heal(world: "World") -> None:
    """Wishes for all of it."""
    trees.heal(world)
    administration.heal(world)
    spoiling.mend(world)
    overtaken.heal(world)
    bad_nodes.heal(world)
    image_pulls.heal(world)
    data_copies.heal(world)
    object_copies.begin(world)
    attaching.provide(world)
    world.wish("removes limits on submission", lambda: submission_limits.delete_all(world))
    world.wish("removes rules of failures", catalogue.remove_rules)
    if supplies.KIND in world.faults.rates:
        supplies.provide(world)


def is_nothing_left(world: "World") -> bool:
    """Whether nothing is under way any more beside jobs."""
    return image_pulls.are_over(world) and consolidating.are_over(world) and data_copies.are_over(world)


def patience_seconds(world: "World") -> float:
    """Within which time after that everything must have ended."""
    longer = outages.LONGER_SECONDS if world.faults.happened["hangs_long"] else 0.0
    return HEAL_SECONDS + bad_nodes.patience_seconds(world) + taken_room.patience_seconds(world) + longer
