"""The gateway's own database is put back to an earlier commit: what was committed since is lost, and clusters go on.

Operators follow docs/howto/restore-the-database.md: they stop every process, begin a standstill, start the processes, and
open dispatch when every cluster was compared and nothing is left. Or no operator notices: processes start again on a database with
another history, and the gateway begins the standstill itself.
"""

from typing import TYPE_CHECKING

from devtools.simulation.judges.promises import DATABASE_PUT_BACK
from devtools.simulation.requests import administration, standstills
from devtools.simulation.requests.operators import Wish
from federation.operations.restoration import close_on_request
from tenancy.queries import SYSTEM

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

OPEN_AFTER = (15.0, 90.0)
"""Operators first try to open dispatch after this many seconds."""
START_AFTER = (0.5, 10.0)
"""Processes start again after this time if no operator closes dispatch first."""


class LostCommits:
    """The backup of one run, and what is lost when it is used. It runs between steps and must not hand over."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._kept_us = 0
        self.is_kept = False
        self.is_closed = False
        """Whether processes must not start yet, because the standstill has not begun."""
        self.spans: list[tuple[int, int]] = []
        """From the backup to the restore: what was committed then is lost."""

        self.unannounced: list[int] = []
        """When the database was put back and no operator closed dispatch."""

    def back_up(self) -> None:
        """Keeps what is committed now."""
        self._world.watch.back_up()
        self._world.steps.note_backup()
        self._kept_us, self.is_kept = self._world.scheduler.now_us, True
        self._world.tell("database", "is backed up")

    def restore(self) -> None:
        """Kills every process and puts the database back. Operators begin a standstill before anything else runs, or leave it to
        the gateway.
        """
        world = self._world
        if not self.is_kept or self.is_closed:
            return
        world.tell("database", "is put back to its backup")
        for process in world.processes.values():
            world.machine.kill(process)
        world.watch.put_back()
        world.steps.note_restore()
        self.is_kept = False
        self.spans.append((self._kept_us, world.scheduler.now_us))
        self._forget()
        if world.faults.happens("unannounced"):
            world.tell("database", "has another history, and no operator closes dispatch")
            world.watch.change_history()
            self.unannounced.append(world.scheduler.now_us)
            world.scheduler.after(world.faults.between(*START_AFTER), self._start_all)
            world.scheduler.after(
                OPEN_AFTER[0], lambda: world.wish("looks after dispatch", standstills.looking_after())
            )
            return
        self.is_closed = True
        world.wishes.insert(0, Wish("closes dispatch", self._close))
        world.launch("operator")

    def _close(self) -> None:
        close_on_request(SYSTEM, {"reason": DATABASE_PUT_BACK})
        world = self._world
        self.is_closed = False
        self._start_all()
        delay = world.faults.between(*OPEN_AFTER)
        world.scheduler.after(delay, lambda: world.wish("opens dispatch", standstills.opening()))

    def _start_all(self) -> None:
        world = self._world
        for name in [name for name, process in world.processes.items() if process.is_dead]:
            world.launch(name)
        administration.give_up_destroyed(world)

    def _forget(self) -> None:
        """What clients were answered since the backup does not bind the gateway; they notice, and ask again."""
        world = self._world
        rows = world.watch.rows("SELECT id, state, suspend_requested_at IS NOT NULL FROM federation_job")
        states = {str(id_): state for id_, state, _ in rows}
        suspended = {str(id_) for id_, _, is_suspended in rows if is_suspended}
        ending = ("cancelling", "cancelled")
        for asked in world.history.asked:
            if asked.answer != "ok" or asked.to_us < self._kept_us:
                continue
            is_lost = asked.told not in states if asked.what == "submit" else states.get(asked.subject) not in ending
            asked.answer = "forgotten" if is_lost else "ok"
        for one in world.submissions:
            if one.job_id not in states:
                one.job_id = ""
            if states.get(one.job_id) not in ending:
                one.is_cancelled = False
            if one.job_id in suspended:
                one.is_suspended, one.is_resumed = True, False

    def overlap(self, from_us: int, to_us: int | None) -> bool:
        """Whether the time contains some of which commits were lost."""
        return any(from_us <= end and (to_us is None or to_us >= start) for start, end in self.spans)
