"""The cost of a job's work on each candidate beyond the hourly price: how long it takes there (`pace`), what
interruptions lose of it (`interruptions`), and the cost of moving its data there (`egress`), spread over the work; and where
it would be too late (`deadlines`).
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple, TypeAlias

import numpy as np

from placement.fleet.egress import egress_to
from placement.fleet.fleet import Fleet
from placement.fleet.pools import Floats, Ints, Mask
from placement.values.datasets import DataNeed, Egress
from placement.values.decisions import InterruptionRisk
from placement.values.model import JobRequest, ModelSpeed, Snapshot
from placement.values.moving import SPOT

from .candidates import Ask
from .deadlines import haste_of, late_places
from .interruptions import Exposure, Exposures, work_seconds
from .pace import pace_on
from .runtimes import LONGEST_SECONDS

_HOUR = 3600


class Stakes(NamedTuple):
    """What counts on a candidate besides the hourly price, for `decisions.Placement`."""

    risk: InterruptionRisk | None = None
    egress: Egress | None = None
    pace: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """The time and cost of an hour of a job's work on the candidates of a fleet; an hour on the
    slowest model it names.
    """

    seconds: int
    """Of all its work."""
    cluster_of_pool: Ints
    exposure: Exposure | None = None
    paces: Floats | None = None
    """Per pool, the hours that an hour of work takes there; None means 1 everywhere."""
    egress: tuple[Egress, ...] = ()
    """By the cluster's number; empty for jobs that name no data."""
    late: Ints | None = None
    """Per pool, how late the job could be there (`deadlines.late_places`); None for jobs without a deadline."""

    def hours(self, ask: Ask) -> Floats:
        """How many hours an hour of work takes on each candidate, with what interruptions lose."""
        paces = self._paces_on(ask)
        found: Floats = np.ones(len(ask.pools)) if paces is None else paces
        if self.exposure is not None:
            found = found * self.exposure.slowdown(ask.pools, paces)
        return found

    def hourly(self, cost: Floats, ask: Ask) -> Floats:
        """The cost of an hour of work on each candidate, given the hourly `cost` there. Unknown egress counts as 0."""
        paces = self._paces_on(ask)
        if paces is not None:
            cost = cost * paces
        if self.exposure is not None:
            cost = cost * self.exposure.slowdown(ask.pools, paces)
        if self.egress:
            cost = cost + np.nan_to_num(self._egress_on(ask)) * (_HOUR / self.seconds)
        return cost

    def is_unknown(self, ask: Ask) -> Mask:
        """Per candidate, whether the cost of moving the data there is unknown."""
        if not self.egress:
            return np.zeros(len(ask.pools), dtype=np.bool_)
        unknown: Mask = np.isnan(self._egress_on(ask))
        return unknown

    def stakes(self, ask: Ask, candidate: int, hourly_cost: Decimal | None) -> Stakes:
        """What counts on one candidate."""
        pools, pace = tuple(ask.pools[candidate].tolist()), self.pace(ask, candidate)
        risk = None if self.exposure is None else self.exposure.risk(pools, hourly_cost, pace)
        cluster = int(self.cluster_of_pool[ask.lead[candidate]])
        return Stakes(risk, self.egress[cluster] if self.egress else None, pace)

    def pace(self, ask: Ask, candidate: int) -> float:
        """The hours that an hour of work takes on the candidate."""
        paces = self._paces_on(ask, slice(candidate, candidate + 1))
        return 1.0 if paces is None else float(paces[0])

    def _paces_on(self, ask: Ask, rows: slice = slice(None)) -> Floats | None:
        """The pace on each candidate. Pods run at the same time, so the slowest devices decide; pods without a GPU do
        not count.
        """
        if self.paces is None:
            return None
        columns = [n for n, pod_set in enumerate(ask.pod_sets) if pod_set.gpu is not None]
        found: Floats = (
            self.paces[ask.pools[rows][:, columns]].max(axis=1) if columns else np.ones(len(ask.pools[rows]))
        )
        return found

    def _egress_on(self, ask: Ask) -> Floats:
        costs = np.array([np.nan if one.cost is None else float(one.cost) for one in self.egress], dtype=np.float64)
        found: Floats = costs[self.cluster_of_pool[ask.lead]]
        return found


Asked: TypeAlias = tuple[str, tuple[DataNeed, ...]]
"""The tenant, whose organisation's prices apply, and the data."""


class Works:
    """The work of each job of a cycle."""

    def __init__(self, fleet: Fleet, snapshot: Snapshot) -> None:
        self._fleet = fleet
        self._rates, self._at = snapshot.egress, snapshot.now
        self._runtimes = snapshot.runtimes
        self._exposures = Exposures(fleet, snapshot.runtimes)
        self._egress: dict[Asked, tuple[Egress, ...]] = {}
        self._paces: dict[tuple[ModelSpeed, ...], Floats] = {}
        self._is_spot: Mask = np.array([pool.flavor.capacity_type == SPOT for pool in fleet.pools], dtype=np.bool_)

    def key(self, job: JobRequest) -> object:
        """Equal for jobs of one shape whose work takes and costs the same everywhere; None if only the hourly price
        counts.
        """
        late = self._late(job)
        if not job.data and not job.throughput:
            exposed = self._exposures.seconds(job) if self._exposures.matter else None
            return exposed if late is None else (exposed, late.tobytes())
        seconds = work_seconds(job, self._runtimes)
        known = seconds, job.checkpoint_seconds, job.deadline_seconds, job.throughput, _asked(job)
        return known if late is None else (*known, late.tobytes())

    def of(self, job: JobRequest) -> Work | None:
        """The job's work; None if only the hourly price counts."""
        exposure, late = self._exposures.of(job), self._late(job)
        if exposure is None and late is None and not job.data and not job.throughput:
            return None
        return Work(
            seconds=max(1, min(work_seconds(job, self._runtimes), job.deadline_seconds or LONGEST_SECONDS)),
            cluster_of_pool=self._fleet.cluster_of_pool,
            exposure=exposure,
            paces=self._paces_of(job.throughput) if job.throughput else None,
            egress=self._egress_of(job) if job.data else (),
            late=late,
        )

    def _late(self, job: JobRequest) -> Ints | None:
        haste = haste_of(job, self._runtimes, self._at)
        if haste is None:
            return None
        serves: Mask = np.zeros(len(self._is_spot), dtype=np.bool_)
        for pod_set in job.pod_sets:
            if pod_set.gpu is not None:
                serves |= self._fleet.serving(pod_set.gpu)[0] >= 0
        if not serves.any():
            serves[:] = True
        paces = self._paces_of(job.throughput) if job.throughput else np.ones(len(self._is_spot))
        return late_places(haste, self._at, paces, self._is_spot, serves)

    def _paces_of(self, speeds: tuple[ModelSpeed, ...]) -> Floats:
        if speeds not in self._paces:
            models = [pool.flavor.gpu_model for pool in self._fleet.pools]
            by_model = {model: pace_on(speeds, [model]) for model in set(models)}
            self._paces[speeds] = np.array([by_model[model] for model in models], dtype=np.float64)
        return self._paces[speeds]

    def _egress_of(self, job: JobRequest) -> tuple[Egress, ...]:
        asked = _asked(job)
        if asked not in self._egress:
            each = (egress_to(job, cluster, self._rates, self._at) for cluster in self._fleet.clusters)
            self._egress[asked] = tuple(one for one in each if one is not None)
        return self._egress[asked]


def _asked(job: JobRequest) -> Asked:
    return job.tenant_path, job.data
