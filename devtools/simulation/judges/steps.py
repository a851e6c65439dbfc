"""What happens to objects, runs, addresses and the database in a run, in the order of the changes of rows.

`protocol_steps` makes steps of the protocol model of it. The gateway takes no part: rows are noted by triggers of the
simulated database, and the rest by the simulated clusters.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from devtools.simulation.clusters.objects import Job
from federation.engine.names import LABEL_PREPARATION

if TYPE_CHECKING:
    from devtools.simulation.clusters.frail_cluster import FrailCluster
    from devtools.simulation.worlds.world import World

NUMBER = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM simulation.changes_number_seq"
ROWS = """
SELECT what, found FROM (
    SELECT 1 AS part, 'federation_job' AS what, to_jsonb(one) AS found FROM federation_job AS one
     UNION ALL SELECT 2, 'federation_attempt', to_jsonb(one) FROM federation_attempt AS one
     UNION ALL SELECT 3, 'federation_remoteobject', to_jsonb(one) FROM federation_remoteobject AS one
) AS every ORDER BY part, found ->> 'id'
"""
Kind = Literal["object", "run", "address", "backup", "restore", "control plane restored"]


@dataclass(frozen=True, slots=True, eq=False)
class Noted:
    """Something that happened after the change of a row with this number, and before the next."""

    number: int
    at_us: int
    kind: Kind
    cluster: str = ""
    is_elsewhere: bool = False
    """Whether it concerns the other cluster that answers at the address for a while."""
    found: Mapping[str, Any] = field(default_factory=dict)


class StepLog:
    """It only reads, and so changes nothing of a run."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.noted: list[Noted] = []

    def follow(self, cluster: "FrailCluster", *, is_elsewhere: bool) -> None:
        """Notes what becomes of the cluster's Jobs from now on."""
        if not self._world.keeps_steps:
            return

        def hear(what: str, kind: str, thing: Any) -> None:
            if what == "restored":
                jobs = [_object(job) for job in cluster.jobs.values() if LABEL_PREPARATION not in job.labels]
                self._note("control plane restored", {"jobs": jobs}, cluster.name, is_elsewhere=is_elsewhere)
            elif kind == "job" and LABEL_PREPARATION not in thing.labels:
                found = _object(thing) | ({"phase": "absent"} if what == "deleted" else {})
                self._note("object", found, cluster.name, is_elsewhere=is_elsewhere)

        def run(job_uid: str, more: int) -> None:
            self._note("run", {"uid": job_uid, "more": more}, cluster.name, is_elsewhere=is_elsewhere)

        cluster.on_change.append(hear)
        cluster.on_run = run

    def note_address(self, cluster: str, *, is_elsewhere: bool) -> None:
        """Another cluster answers at the address from now on, or the first one again."""
        self._note("address", {}, cluster, is_elsewhere=is_elsewhere)

    def note_backup(self) -> None:
        """The database is backed up."""
        self._note("backup", {})

    def note_restore(self) -> None:
        """The database was put back: its rows are these."""
        if self._world.keeps_steps:
            rows = [{"what": what, **found} for what, found in self._world.watch.rows(ROWS)]
            self._note("restore", {"rows": rows})

    def _note(self, kind: Kind, found: Mapping[str, Any], cluster: str = "", *, is_elsewhere: bool = False) -> None:
        if self._world.keeps_steps:
            number = int(self._world.watch.rows(NUMBER)[0][0])
            self.noted.append(Noted(number, self._world.scheduler.now_us, kind, cluster, is_elsewhere, found))


def _object(job: Job) -> dict[str, Any]:
    phase = "deleting" if job.is_terminating else "suspended" if job.suspended and not job.waits_for_kueue else "active"
    return {"name": job.name, "uid": job.uid, "labels": dict(job.labels), "phase": phase}
