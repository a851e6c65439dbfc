"""How large the world of a seed is. Most are small: few jobs, some kinds of faults and a short time already show most defects, for a
fraction of the processor time. Every eighth has everything, for what needs many actors or a long time.
"""

import random
from dataclasses import dataclass

from devtools.simulation.core.swarm import ANY, Swarm

WHOLE_ONE_IN = 8


@dataclass(frozen=True, slots=True)
class Scale:
    """What a seed draws its world from. All shares and times are parts of those of a whole world."""

    name: str
    chaos_seconds: tuple[float, float] | None = None
    """How long faults happen; None: as the swarm says."""
    most_jobs: int | None = None
    kinds: float = 1.0
    """How many kinds of faults are switched on."""
    without: frozenset[str] = frozenset()
    """Kinds that need many jobs or much time."""
    haste: float = 1.0
    """How long clients wait before they do something."""
    paces: tuple[float, ...] = (1.0, 2.0, 3.0)
    """By how much more rarely than usual routines run without an announcement."""
    doubled: float = 0.5
    """How often there are two bells, two observers or two workers."""
    books: float = 1.0
    """In how many worlds accountants work. Their work costs the same in each, so they do it where more kinds concern it."""


WHOLE = Scale("whole", books=2.5)
SMALL = Scale(
    "small",
    chaos_seconds=(12.0, 40.0),
    most_jobs=2,
    kinds=0.3,
    without=frozenset(
        {"nodes_kill", "emptied", "pods_hidden", "requests_hang", "restored_over_run", "room_kept", "consolidated"}
    ),
    haste=0.4,
    paces=(3.0, 5.0),
    doubled=0.3,
    books=0.1,
)
SCALES = {one.name: one for one in (WHOLE, SMALL)}


def scale_of(seed: int, wanted: str, swarm: Swarm) -> Scale:
    """The scale of that name; without one, the seed's. Where a defect is looked for in a swarm, that says how much there is."""
    if wanted:
        return SCALES[wanted]
    is_whole = swarm != ANY or random.Random(f"{seed}/scale").randrange(WHOLE_ONE_IN) == 0
    return WHOLE if is_whole else SMALL
