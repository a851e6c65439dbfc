"""Clusters that fall silent just when the gateway moves a job off them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from django.conf import settings

from devtools.simulation.judges.promises import judging
from devtools.simulation.setting.stage import CLUSTERS

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

KIND = "silenced"
KEEP_SECONDS = 60
"""How long places are kept in a world of this kind: at least as long as any gateway keeps them, and so that some silences are longer."""
SECONDS = (5.0, 250.0)
LATE_SECONDS = (0.0, 0.1)
"""After a deletion is sent: it arrives or not, and its reply does or does not."""
MOVING = """
SELECT attempt.id FROM federation_attempt AS attempt JOIN clusters_cluster AS cluster ON cluster.id = attempt.cluster_id
 WHERE attempt.stop_reason = 'migrated' AND attempt.finished_at IS NULL AND cluster.name = %s AND (attempt.deletion_at IS NOT NULL OR %s)
 LIMIT 1
"""
_keep = settings.PREEMPTION_KEEP_SECONDS


def fall_silent(world: "World") -> None:
    """When a cluster is visited to stop a run that moves, it answers nothing from then on for a while, and its watches end. It has heard
    of the deletion or not; or that is not even decided.
    """
    seconds, late = world.faults.between(*SECONDS), world.faults.between(*LATE_SECONDS)
    hears, is_early = bool(world.faults.choose((False, True))), bool(world.faults.choose((False, True)))
    armed = [True]

    def arm(name: str) -> None:
        link = world.links[name]
        reached, written = link.on_reach, link.on_write

        def on_reach() -> None:
            reached()
            if armed and not hears and world.watch.rows(MOVING, name, is_early):
                armed.clear()
                _cut(world, name, seconds)

        def on_write(what: str, uid: str) -> None:
            written(what, uid)
            if armed and hears and what == "delete_job" and world.watch.rows(MOVING, name, True):
                armed.clear()
                world.scheduler.after(late, lambda: _cut(world, name, seconds))

        link.on_reach, link.on_write = on_reach, on_write

    for name in CLUSTERS:
        arm(name)


def _cut(world: "World", name: str, seconds: float) -> None:
    """Also in the healed world, where nothing else is wrong: most moves come late."""
    link = world.links[name]
    link.is_cut = True
    world.tell(name, f"falls silent for {seconds:.0f} s while a job moves away from it")

    def answer() -> None:
        link.is_cut = False

    world.scheduler.after(seconds, answer)


def configure(*, is_on: bool) -> None:
    """How long places are kept in this world."""
    settings.PREEMPTION_KEEP_SECONDS = KEEP_SECONDS if is_on else _keep


@judging
def a_move_is_undone_only_when_its_place_is_kept_no_longer(world: "World") -> list[str]:
    """Between the decision and the event that the run goes on lies the time for which its place was kept; a run that goes on was
    not deleted by the gateway.
    """
    return [
        f"the move of attempt {attempt} was undone after {seconds} s"
        for attempt, seconds in world.watch.rows(UNDONE, KEEP_SECONDS)
    ]


UNDONE = """
SELECT stays.attempt_id::text, extract(epoch FROM stays.at - decided.at)::int
  FROM federation_jobevent AS stays
 CROSS JOIN LATERAL (SELECT max(at) AS at FROM federation_jobevent AS earlier
                      WHERE earlier.attempt_id = stays.attempt_id AND earlier.kind = 'interrupted' AND earlier.id < stays.id) AS decided
 WHERE stays.kind = 'stays' AND stays.message LIKE 'Its cluster did not answer%%'
   AND (decided.at IS NULL OR stays.at < decided.at + make_interval(secs => %s)) ORDER BY 1
"""
EVENTS: dict[str, Callable[["World"], None]] = {KIND: fall_silent}
"""By the kind of fault."""
