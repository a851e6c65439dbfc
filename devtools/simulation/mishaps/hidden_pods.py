"""Pods that a cluster does not show for longer than settlement waits: the right to read them lacks, or their cache is broken."""

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from devtools.simulation.clusters.objects import Run
from devtools.simulation.core.scheduler import MICROSECONDS
from devtools.simulation.judges.promises import UNSETTLED, judging, runs_on, taken_away
from devtools.simulation.setting.stage import CLUSTERS

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

HIDDEN_SECONDS = (640.0, 900.0)
"""Settlement waits for ten minutes. This lasts into the healed world: nothing else is wrong there."""


def hide_pods(world: "World") -> None:
    """A cluster does not show its pods for a while; Jobs and nodes it does."""
    name = CLUSTERS[world.faults.choose(CLUSTERS)]
    link, seconds = world.links[name], world.faults.between(*HIDDEN_SECONDS)
    link.hides_pods = True
    now_us = world.scheduler.now_us
    link.hidden_us.append((now_us, now_us + round(seconds * MICROSECONDS)))
    world.tell(name, f"shows no pods for {seconds:.0f} s")

    def show() -> None:
        link.hides_pods = False
        world.tell(name, "shows its pods again")

    world.scheduler.after(seconds, show)


@judging
def promise_15_no_run_is_metered_twice(world: "World") -> list[str]:
    """Of each Job whose end is known, no more is metered than its pods could use from its first start to its end, also where
    the gateway estimates: a run that it estimated, and was shown later, counts once. A pod that fails before it starts
    could have run, if no observer saw it: its Job only says how many failed.
    """
    ran: dict[str, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in [*runs_on(world), *_unstarted(world)]:
        ran[run.job_id][run.job_uid].append(run)
    metered = {str(id_): int(units or 0) for id_, units in world.watch.rows(METERED)}
    unsettled = {str(row[0]) for row in world.watch.rows(UNSETTLED)}
    open_ended = {str(row[0]) for row in world.watch.rows(OPEN_ENDED)}
    found = []
    for job_id, by_object in sorted(ran.items()):
        runs = [run for own in by_object.values() for run in own]
        if job_id in unsettled | open_ended or world.lost_commits.spans or _are_disturbed(world, runs):
            continue
        most = sum(_most(own) for own in by_object.values())
        if metered.get(job_id, 0) > most:
            found.append(f"job {job_id} could use {most} GPU-ms and is metered {metered[job_id]} GPU-ms")
    return found


def _unstarted(world: "World") -> list[Run]:
    clusters = [*world.clusters.values(), *world.removed]
    return [run for cluster in clusters for run in cluster.unstarted if run.job_id]


def _most(runs: list[Run]) -> int:
    """The GPU-milliseconds that the places of one Job offer from its first start until its last end."""
    places = max(sum(other.from_us <= run.from_us < _end(other) for other in runs) for run in runs)
    span_us = max(map(_end, runs)) - min(run.from_us for run in runs)
    return max(places, len({run.index for run in runs})) * runs[0].gpus * (span_us // 1000 + SLACK_MS)


SLACK_MS = 10_000
"""Times in whole seconds, the clock of a cluster, and the time until its controllers notice an end."""


def _end(run: Run) -> int:
    return max(run.to_us or 0, run.shown_us or 0)


def _are_disturbed(world: "World", runs: list[Run]) -> bool:
    """Whether others took objects away, clocks were set, or a run has not ended."""
    if any(
        world.faults.happened[kind] for kind in ("clock_jumps", "uid_lies", "restored", "rebuilt", "cluster_destroyed")
    ):
        return True
    others = taken_away(world)
    return any(run.is_residue or run.to_us is None or run.attempt_id in others for run in runs)


METERED = """
SELECT attempt.job_id,
       (SELECT sum(segment.gpu_milliseconds) FROM billing_meter AS meter
          JOIN billing_usagesegment AS segment ON segment.meter_id = meter.id WHERE meter.workload_id = attempt.job_id)
  FROM federation_attempt AS attempt GROUP BY 1
"""
OPEN_ENDED = """
SELECT DISTINCT attempt.job_id FROM federation_attempt AS attempt
  JOIN federation_remoteobject AS object ON object.attempt_id = attempt.id
 WHERE object.uid <> '' AND object.over_at IS NULL
"""
"""Jobs with an object whose end the cluster did not report: its pods count until their absence was noticed."""
EVENTS: dict[str, Callable[["World"], None]] = {"pods_hidden": hide_pods}
"""By the kind of fault."""
