"""What a world of a shrunk run lacks: schedules, processes, a cluster, wishes, and the time after a promise is broken."""

from collections.abc import Collection
from typing import TYPE_CHECKING, SupportsIndex

from devtools.simulation.judges.ends import broken_for_good
from devtools.simulation.requests.operators import Wish
from devtools.simulation.setting.stage import CLUSTERS

if TYPE_CHECKING:
    from .world import World

LOOK_SECONDS = 2.0
REMOVE = "UPDATE clusters_cluster SET removed_at = last_seen_at WHERE name = %s RETURNING id"


def begin(world: "World", processes: list[str]) -> list[str]:
    """As its size says; the processes that it has."""
    world.scheduler.turns = world.size.turns
    world.wishes = Wishes(world.size.unwished)
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


class Wishes(list[Wish]):
    """What operators want, in order, but for what they do not want in this world."""

    def __init__(self, left_out: Collection[int]) -> None:
        super().__init__()
        self._left_out = frozenset(left_out)
        self._known: set[Wish] = set()

    @property
    def made(self) -> int:
        """How many there were so far, with those that were left out."""
        return len(self._known)

    def append(self, wish: Wish) -> None:
        """Adds it at the end."""
        if self._is_wanted(wish):
            super().append(wish)

    def insert(self, at: SupportsIndex, wish: Wish) -> None:
        """Adds it there."""
        if self._is_wanted(wish):
            super().insert(at, wish)

    def _is_wanted(self, wish: Wish) -> bool:
        """What has to wait, and is wanted again, keeps its number."""
        number = len(self._known)
        if wish in self._known:
            return True
        self._known.add(wish)
        return number not in self._left_out
