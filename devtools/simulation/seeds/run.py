"""Runs one seed and judges it."""

import gc
import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from django.db import connection

import billing.queries
from devtools.simulation.core.actors import Stalled
from devtools.simulation.core.alarm import alarm
from devtools.simulation.core.database import Watch
from devtools.simulation.core.processes import Slots, StageHost
from devtools.simulation.core.swarm import ANY, Swarm
from devtools.simulation.judges.answers import write_told
from devtools.simulation.judges.ends import broken_for_good
from devtools.simulation.judges.promises import judge, standing
from devtools.simulation.judges.protocol_steps import write_steps
from devtools.simulation.setting.size import Size
from devtools.simulation.setting.stage import BEGAN_US, set_up
from devtools.simulation.worlds.smaller import Wishes
from devtools.simulation.worlds.world import World
from federation.queries.proof import disagreements
from foundation import host as hosts

CHANGES = """
SELECT (extract(epoch FROM change.at) * 1000000)::bigint,
       coalesce(job.name || ' attempt ' || attempt.number, placed.name), change.what, change.before, change.after
  FROM simulation.changes AS change
  LEFT JOIN federation_attempt AS attempt ON attempt.id::text = change.id AND change.what = 'attempt'
  LEFT JOIN federation_job AS job ON job.id = attempt.job_id
  LEFT JOIN federation_job AS placed ON placed.id::text = change.id AND change.what = 'job'
 WHERE change.what IN ('attempt', 'job') AND change.before IS DISTINCT FROM change.after ORDER BY change.number
"""


@dataclass(slots=True)
class Result:
    """What a run showed."""

    seed: int
    size: Size = field(default_factory=Size)
    digest: str = ""
    """The hash of the whole run: of each step, of the timeline, and of what clients asked and received."""
    breaks: list[str] = field(default_factory=list)
    timeline: list[str] = field(default_factory=list)
    steps: int = 0
    """How often an actor stopped so that others may run: before each statement, commit, request and answer."""
    switches: int = 0
    """How often another actor went on."""
    lock_waits: int = 0
    seconds: float = 0.0
    simulated_seconds: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    fault_count: int = 0
    dispatch_digest: str = ""
    """The order of the steps of dispatch: equal for runs in which dispatch interleaved alike."""
    jobs: tuple[int, ...] = ()
    wish_count: int = 0
    """How much operators wanted, with what was left out."""
    doing_count: int = 0
    """How much accountants planned, with what was left undone."""

    @property
    def broken_promises(self) -> frozenset[str]:
        """The names of the judges that found something."""
        return frozenset(line.partition(":")[0] for line in self.breaks if not line.startswith(" "))

    def line(self) -> str:
        """The result in one line."""
        word = "BROKEN" if self.breaks else "ok"
        return (
            f"seed {self.seed}: {word}, {self.steps} steps, {self.lock_waits} lock waits, {self.simulated_seconds:.0f} s in"
            f" {self.seconds:.2f} s, {self.digest}"
        )


class Runner:
    """Runs seeds one after the other in this process."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self._slots = Slots()
        self.swarm: Swarm = ANY

    def set_up(self) -> None:
        """Writes the beginning of every world into a migrated database."""
        logging.disable(logging.CRITICAL)
        self.watch.set_clock(BEGAN_US)
        self.watch.show_clock_to_all()
        hosts.use_host(StageHost(BEGAN_US))
        set_up()
        connection.close()
        self.watch.rules()
        # Python looks for garbage between runs only, and not among what is here now: neither order nor time follow from it.
        gc.collect()
        gc.freeze()
        gc.disable()

    def cpu_seconds(self) -> tuple[float, float]:
        """Processor time so far: this process's, and that of its database's sessions."""
        return time.process_time(), self.watch.cpu_seconds()

    def run(self, seed: int, size: Size | None = None, *, history: Path | None = None) -> Result:
        """Runs the seed; with a folder, writes its history there."""
        began = time.monotonic()
        world = World(seed, self.watch, self._slots, size or Size(), self.swarm, keeps_steps=history is not None)
        result = Result(seed, size or Size())
        try:
            with alarm(seed, world.scheduler):
                world.run()
        except Stalled as stall:
            result.breaks.append(f"simulation: {stall}")
        else:
            world.proof = self._prove()
            result.breaks += broken_for_good(world) if world.is_broken else judge(world)
            if result.breaks:
                result.breaks += standing(world)
        result.breaks += world.machine.unexpected
        if history is not None:
            self._write(world, history)
        world.history.add_changes(self.watch.rows(CHANGES))
        result.timeline = world.history.lines()
        result.digest = _digest(world, result.timeline)
        result.steps, result.lock_waits = world.scheduler.steps, world.scheduler.lock_waits
        result.switches = world.scheduler.switches
        result.simulated_seconds = ((world.ended_us or world.scheduler.now_us) - world.scheduler.began_us) / 1e6
        result.faults, result.fault_count = world.faults.happened, world.faults.count
        result.dispatch_digest = world.dispatch.hexdigest()
        result.jobs = tuple(dict.fromkeys(one.number for one in world.submissions))
        result.wish_count = world.wishes.made if isinstance(world.wishes, Wishes) else 0
        result.doing_count = world.books.planned if world.books is not None else 0
        result.seconds = time.monotonic() - began
        del world
        gc.collect()
        return result

    def _write(self, world: World, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        runs = [run for cluster in [*world.clusters.values(), *world.removed] for run in cluster.runs]
        changes = self.watch.rows("SELECT at, what, id, before, after FROM simulation.changes ORDER BY number")
        world.history.write(folder / f"seed-{world.seed}.jsonl", runs, changes)
        write_told(world, folder / f"told-{world.seed}.jsonl")
        write_steps(world, folder / f"steps-{world.seed}.jsonl")

    def _prove(self) -> list[str]:
        return [*billing.queries.discrepancies(), *disagreements()]


def _digest(world: World, timeline: Sequence[str]) -> str:
    whole = blake2b(world.scheduler.digest().encode(), digest_size=16)
    for part in (*timeline, *map(repr, world.history.asked)):
        whole.update(part.encode())
    return whole.hexdigest()
