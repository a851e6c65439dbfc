"""A worker has created an object, and sleeps past its claim before it records that. The next one visits the attempt, and before that
one commits to it, an administrator plans maintenance of the cluster by mistake, and cancels it seconds later. So an object exists that
no worker has committed to, although both visits went well, when the first worker goes on.
"""

from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import Error, close_old_connections

from clusters.operations.windows import WantedWindow, cancel_window, make_window
from devtools.simulation.core.backend.base import Stage
from devtools.simulation.core.processes import Process
from federation.operations import dispatch
from foundation import clock
from foundation.crash import crash_point
from foundation.problems import Problem
from tenancy.queries import SYSTEM

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

KIND = "window_passes"
POINT = "created"
"""Where a test may kill the process: all calls of the visit that create are answered, and nothing of them is recorded."""
ASLEEP_SECONDS = (34.0, 52.0)
"""Until its claim has expired and another worker has taken it over, in most worlds with two."""
PAUSE_SECONDS = (0.5, 2.0)
"""For how long that one hesitates: mostly until the window is planned."""
LASTS_SECONDS = (1.0, 4.0)
"""Less than a round of the sweep, which would stop the attempt."""
BEING_CREATED = """
SELECT attempt.id, attempt.cluster_id, attempt.tries > 1
  FROM federation_attempt AS attempt
 CROSS JOIN LATERAL (SELECT claim.actor FROM simulation.changes AS claim WHERE claim.what = 'claim' AND claim.id = attempt.id::text
                      ORDER BY claim.number DESC LIMIT 1) AS last
 WHERE attempt.state = 'reserved' AND attempt.stop_requested_at IS NULL AND last.actor = %s ORDER BY attempt.id
"""


def install(world: "World", _stage: Stage) -> None:
    """From now on this happens in this world, if it has this kind: each once for each attempt, beside what happens anyway."""
    met = set[tuple[UUID, bool]]()

    def pass_point(name: str) -> None:
        if name == POINT:
            _meet(world, met)

    meets = pass_point if KIND in world.faults.rates else crash_point
    dispatch.crash_point = meets  # type: ignore[attr-defined]


def _meet(world: "World", met: set[tuple[UUID, bool]]) -> None:
    actor, web = world.scheduler.current, world.processes.get("web")
    new = [row for row in world.watch.rows(BEING_CREATED, actor.name) if (row[0], row[2]) not in met]
    if not new or web is None or web.is_dead or not world.faults.happens(KIND):
        return
    attempt_id, cluster_id, is_taken_over = new[0]
    met.add((attempt_id, is_taken_over))
    if is_taken_over:
        lasts = world.faults.between(*LASTS_SECONDS)
        world.machine.start(web, f"window-{len(met)}", lambda: _pass(world, cluster_id, lasts))
        world.scheduler.sleep(world.faults.between(*PAUSE_SECONDS))
    else:
        assert isinstance(actor.process, Process)
        world.machine.freeze(actor.process, world.faults.between(*ASLEEP_SECONDS))
        world.scheduler.sleep(PAUSE_SECONDS[0])


def _pass(world: "World", cluster_id: UUID, lasts: float) -> None:
    """What is left of it when the database is lost is cancelled when the world heals."""
    close_old_connections()
    try:
        until = clock.database_now() + timedelta(hours=1)
        window = make_window(SYSTEM, cluster_id, WantedWindow(starts_at=None, ends_at=until, reason="by mistake"))
        world.planned[window.id] = world.scheduler.now_us
        world.tell("operator", f"plans maintenance, for {lasts:.0f} s, while a dispatch is under way")
        world.scheduler.sleep(lasts)
        cancel_window(SYSTEM, cluster_id, window.id)
    except (Problem, Error) as error:
        world.tell("operator", f"is refused, or never learns: {type(error).__name__}")
