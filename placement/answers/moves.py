"""What a move of a running job changes: where it would continue, its hourly cost here and there, and the work that is repeated."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from placement.fleet.prices import hourly_cost
from placement.values.decisions import Placement, Wait
from placement.values.model import JobRequest, Snapshot
from placement.values.preemption import MILLI, RESTART_SECONDS, RunningJob
from placement.values.sizes import running_size

AN_HOUR = 3600
_STEP = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class MoveQuote:
    """`outcome` is the place that the job would get if its run had ended at `at`, or why there is none. `hourly_cost` is what
    the run costs now; None if a flavor of it has no price.
    """

    at: datetime
    outcome: Placement | Wait
    hourly_cost: Decimal | None
    currency: str

    @property
    def expected_start(self) -> datetime | None:
        """When its pods would run there: after the run has stopped, and its images are pulled."""
        if isinstance(self.outcome, Wait):
            return None
        pull = self.outcome.pull.seconds if self.outcome.pull else 0
        return self.at + timedelta(seconds=RESTART_SECONDS + pull)

    def lost_cost(self, lost_seconds: int) -> Decimal | None:
        """What that much work of the run costs, at today's prices."""
        return None if self.hourly_cost is None else (self.hourly_cost * lost_seconds / AN_HOUR).quantize(_STEP)


def quoted(snapshot: Snapshot, job: JobRequest, run: RunningJob, outcome: Placement | Wait) -> MoveQuote:
    """The outcome of a trial, with what the run costs where it is."""
    cluster = next((one for one in snapshot.clusters if one.id == run.cluster_id), None)
    found = [] if cluster is None else [cluster.flavors.get(held.flavor) for held in run.pods]
    flavors = tuple(flavor for flavor in found if flavor is not None)
    if not flavors or len(flavors) != len(job.pod_sets):
        return MoveQuote(snapshot.now, outcome, None, "USD")
    running = running_size(job, run)
    return MoveQuote(snapshot.now, outcome, hourly_cost(running.pod_sets, flavors), flavors[0].currency)


def gpu_hours(run: RunningJob, seconds: int) -> Decimal:
    """What the run uses of GPUs in that time."""
    return (Decimal(run.amounts.get("gpu", 0)) * seconds / (MILLI * AN_HOUR)).quantize(Decimal("0.001"))
