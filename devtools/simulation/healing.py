"""What operators undo in the healed world, so that every job can end."""

from typing import TYPE_CHECKING

from . import administration, bad_nodes, catalogue, overtaken, spoiling, submission_limits, supplies, trees

if TYPE_CHECKING:
    from .world import World

HEAL_SECONDS = 1800.0
"""What should end ends within this time after the world has healed."""


def heal(world: "World") -> None:
    """Wishes for all of it."""
    trees.heal(world)
    administration.heal(world)
    spoiling.mend(world)
    overtaken.heal(world)
    world.wish("removes limits on submission", lambda: submission_limits.delete_all(world))
    world.wish("removes rules of failures", catalogue.remove_rules)
    if supplies.KIND in world.faults.rates:
        supplies.provide(world)


def patience_seconds(world: "World") -> float:
    """Within which time after that everything must have ended."""
    return HEAL_SECONDS + bad_nodes.patience_seconds(world)
