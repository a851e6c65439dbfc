"""What operators undo in the healed world, so that every job can end."""

from typing import TYPE_CHECKING

from django.conf import settings

from federation.observer import feed as feeds
from federation.observer import process as observers
from foundation import bell as bells

from . import administration, bad_nodes, beginnings, catalogue, overtaken, spoiling, submission_limits, supplies, trees
from .stage import schedules

if TYPE_CHECKING:
    from .world import World

HEAL_SECONDS = 1800.0
"""What should end ends within this time after the world has healed."""
CALM = (4.0, 10.0)
"""How rare routines are that were not announced, and how seldom bells poll. Such routines find nothing in the healed world, and
would take half of a run's steps.
"""
CALMER_AFTER, CALMER = 150.0, (8.0, 30.0)
"""Most worlds have ended before. What is left waits for a time-out."""
ROUND_SECONDS, LEASE_SECONDS = 20.0, 50
"""Observers seldom renew what no other observer wants."""
PULSE_SECONDS, LOST_SECONDS = 25.0, 60
"""A cluster that does not answer is lost later than before."""


def calm_down(world: "World") -> None:
    """What repeats without an announcement becomes rare: nothing is lost any more, so it finds nothing."""
    observers.ROUND_SECONDS, observers.LEASE_SECONDS = ROUND_SECONDS, LEASE_SECONDS
    feeds.PULSE_SECONDS, settings.CLUSTER_LOST_SECONDS = PULSE_SECONDS, LOST_SECONDS
    _slow_down(world, *CALM)
    world.scheduler.after(CALMER_AFTER, lambda: _slow_down(world, *CALMER))


def _slow_down(world: "World", pace: float, poll_seconds: float) -> None:
    bells.POLL_SECONDS = poll_seconds
    world.schedules[:] = beginnings.hastened(schedules(max(world.pace, pace)), world.faults)


def heal(world: "World") -> None:
    """Wishes for all of it."""
    trees.heal(world)
    administration.heal(world)
    spoiling.mend(world)
    overtaken.heal(world)
    bad_nodes.heal(world)
    world.wish("removes limits on submission", lambda: submission_limits.delete_all(world))
    world.wish("removes rules of failures", catalogue.remove_rules)
    if supplies.KIND in world.faults.rates:
        supplies.provide(world)


def patience_seconds(world: "World") -> float:
    """Within which time after that everything must have ended."""
    return HEAL_SECONDS + bad_nodes.patience_seconds(world)
