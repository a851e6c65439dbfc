"""Users who act beside what runs, in the web process: they come when there is something to act on."""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

MANY = 1_000_000
Act = Callable[["World", random.Random], Callable[[], object]]
"""What one of them does, given their random numbers."""


def come(world: "World", name: str, act: Act, *, when: str, looks: int, pause_seconds: float) -> None:
    """One or two come when the query `when` has rows, or after this number of looks."""
    if world.faults.is_healed:
        return
    web = world.processes["web"]
    if looks and (web.is_dead or not world.watch.rows(when)):
        world.scheduler.after(
            pause_seconds, lambda: come(world, name, act, when=when, looks=looks - 1, pause_seconds=pause_seconds)
        )
        return
    for number in range(1 + world.faults.choose(range(2))):
        chance = random.Random(f"{world.seed}/{name}/{world.faults.choose(range(MANY))}")
        if not web.is_dead:
            world.machine.start(web, f"{name}-{number}", act(world, chance))
