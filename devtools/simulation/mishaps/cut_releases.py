"""A cluster is cut off just when it should release an object, for long enough to count as lost: the gateway has committed to the
attempt, and nothing runs.
"""

from typing import TYPE_CHECKING

from devtools.simulation.core.backend.base import Stage

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

KIND = "cut_at_release"
SECONDS = (80.0, 130.0)
"""Until the silence is noticed, the cluster counts as lost, and a sweep has come by, in most worlds."""


def install(world: "World", _stage: Stage) -> None:
    """From now on this happens in this world, if it has this kind, beside what happens anyway."""
    for name in world.links if KIND in world.faults.rates else ():
        _watch(world, name)


def _watch(world: "World", name: str) -> None:
    link = world.links[name]
    before = link.on_write

    def on_write(what: str, uid: str) -> None:
        before(what, uid)
        if what == "release_job" and not link.is_cut and link.happens(KIND):
            link.is_cut = True
            seconds = world.faults.between(*SECONDS)
            world.tell(name, f"is cut off for {seconds:.0f} s")
            world.scheduler.after(seconds, mend)

    def mend() -> None:
        link.is_cut = False

    link.on_write = on_write
