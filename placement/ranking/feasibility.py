"""Whether a job could ever run: a job that no cluster could hold even when empty is refused
immediately, with reasons.
"""

from collections.abc import Sequence

import numpy as np

from placement.fleet.fleet import FleetIndex
from placement.fleet.fleet_state import FleetState
from placement.fleet.policies import NO_POLICY, Policy
from placement.values.decisions import Reason
from placement.values.model import FleetCluster, JobRequest

from .candidates import ask_of
from .reasons import reason_on


def never_fits(
    job: JobRequest, clusters: Sequence[FleetCluster], index: FleetIndex | None = None, policy: Policy = NO_POLICY
) -> tuple[Reason, ...] | None:
    """The reason on each cluster if none that the job's tenant may use could ever run it, else None.

    `policy` is the tenant's effective policy. Clusters count as empty and healthy, whatever their load and state.
    Without any cluster the result is None, because one may be registered later. Pass an `index` to keep the fleet's
    arrays between calls.
    """
    fleet = (index or FleetIndex()).fleet(clusters)
    audience = fleet.audience(job.tenant_path)
    if not audience.clusters:
        return None
    ask = ask_of(fleet, job.pod_sets, job.topology, fleet.largest_capacity)
    empty = FleetState(fleet, is_empty=True)
    if not ask.is_complete:
        return None
    lawful = fleet.lawful(audience, job.constraints, policy)[ask.pools]
    for candidate in np.flatnonzero(lawful.all(axis=1)).tolist():
        if empty.site(ask.pools[candidate].tolist(), ask.needs(candidate)) is not None:
            return None
    return tuple(reason_on(job, number, empty, policy)[0] for number in audience.clusters)
