"""The database is put back to before a job was placed, while the job runs: what runs must be found and adopted."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from devtools.simulation.judges.promises import judging, runs_on, taken_away

from .lost_commits import LostCommits

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

QUEUED = "SELECT id::text FROM federation_job WHERE state = 'queued' AND suspend_requested_at IS NULL"
LOOK_SECONDS = 0.5
LONGEST_WAIT, LONGEST_RUN = 120, 120
"""How often is looked for a job that waits, and then for a pod of it that runs."""
LATER_SECONDS = (0.0, 5.0)


def restore_over_a_run(world: "World") -> None:
    """The database is backed up as soon as a job waits, and put back to that when the job runs."""
    _back_up(world, LONGEST_WAIT)


def _back_up(world: "World", left: int) -> None:
    past = world.lost_commits
    if past.is_kept or past.is_closed or world.faults.is_healed or not left:
        return
    waiting = {id_ for (id_,) in world.watch.rows(QUEUED)}
    if not waiting:
        world.scheduler.after(LOOK_SECONDS, lambda: _back_up(world, left - 1))
        return
    past.back_up()
    _put_back(world, past, waiting, LONGEST_RUN)


def _put_back(world: "World", past: LostCommits, waiting: set[str], left: int) -> None:
    if world.faults.is_healed:
        return
    if left and not any(
        run.job_id in waiting for cluster in world.clusters.values() for run in cluster.running.values()
    ):
        world.scheduler.after(LOOK_SECONDS, lambda: _put_back(world, past, waiting, left - 1))
        return

    def restore() -> None:
        if not world.faults.is_healed:
            past.restore()

    world.scheduler.after(world.faults.between(*LATER_SECONDS), restore)


@judging
def promise_26_what_runs_after_a_restore_has_an_attempt(world: "World") -> list[str]:
    """What ran from a restore on until dispatch was opened is an attempt of its job, whatever commits were lost."""
    if any(world.faults.happened[kind] for kind in PREVENT_ADOPTION):
        return []
    known = {id_ for (id_,) in world.watch.rows("SELECT id::text FROM federation_attempt")}
    others, found = taken_away(world), set[str]()
    for kept_us, put_back_us in world.lost_commits.spans:
        waited = {id_ for (id_,) in world.watch.rows(WAITED, kept_us)}
        for name, open_us in world.watch.rows(COMPARED, put_back_us):
            found |= {
                f"attempt {run.attempt_id} of job {run.job_id} ran on {name} from a restore until dispatch was opened, and is unknown"
                for run in runs_on(world)
                if run.cluster == name and run.job_id in waited and run.attempt_id not in known | others
                if run.from_us < put_back_us and open_us < (run.to_us or open_us + 1) and not run.is_residue
            }
    return sorted(found)


PREVENT_ADOPTION = frozenset(
    {"stranger_edits", "stranger_copies", "name_taken", "uid_lies", "restored", "rebuilt", "emptied", "list_lacks", "tenant_moved",
     "limits_changed", "limit_cut", "flavor_renamed"}
)  # fmt: skip
"""With these, an object may differ from what its job asks for, be unknown, or not fit its quota."""
WAITED = """
SELECT id FROM (
    SELECT DISTINCT ON (id) id, after FROM simulation.changes
     WHERE what = 'job' AND at <= simulation.at(%s) ORDER BY id, number DESC) AS last
 WHERE after = 'queued' AND EXISTS (SELECT FROM federation_job AS job WHERE job.id::text = last.id)
"""
"""Jobs that were waiting when the backup was made."""
COMPARED = """
SELECT cluster.name, (extract(epoch FROM standstill.ended_at) * 1000000)::bigint
  FROM federation_standstill AS standstill
  JOIN federation_comparedcluster AS compared ON compared.standstill_id = standstill.id
  JOIN clusters_cluster AS cluster ON cluster.id = compared.cluster_id
 WHERE standstill.ended_at IS NOT NULL AND standstill.began_at = (
       SELECT min(began_at) FROM federation_standstill WHERE began_at > simulation.at(%s)) ORDER BY 1
"""
"""The clusters that were compared after the restore, and when dispatch was opened."""
EVENTS: dict[str, Callable[["World"], None]] = {"restored_over_run": restore_over_a_run}
"""By the kind of fault."""
