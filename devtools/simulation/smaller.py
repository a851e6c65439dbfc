"""What a world of a shrunk run lacks: schedules, processes, a cluster, and the time after a promise is broken."""

from typing import TYPE_CHECKING

from .judges_of_ends import broken_for_good
from .stage import CLUSTERS

if TYPE_CHECKING:
    from .world import World

LOOK_SECONDS = 2.0
REMOVE = "UPDATE clusters_cluster SET removed_at = last_seen_at WHERE name = %s RETURNING id"


def begin(world: "World", processes: list[str]) -> list[str]:
    """As its size says; the processes that it has."""
    world.scheduler.turns = world.size.turns
    if world.size.one_cluster:
        world.watch.rows(REMOVE, CLUSTERS[1])
    if world.size.cut:
        _look(world)
    return [name for name in processes if name.partition("-")[0] not in world.size.absent]


def _look(world: "World") -> None:
    """Again and again: judges read what is committed."""
    if world.is_broken or broken_for_good(world):
        world.is_broken = world.is_done = True
        return
    world.scheduler.after(LOOK_SECONDS, lambda: _look(world))
