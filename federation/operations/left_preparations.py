"""The objects on a cluster that prepare its nodes: a comparison separates them from those of attempts."""

from collections.abc import Sequence

from clusters.drivers import JobSeen
from federation.engine.names import LABEL_ATTEMPT, LABEL_PREPARATION, id_in
from federation.queries.prepulls import known_pulls


def separated(listed: Sequence[JobSeen]) -> tuple[list[JobSeen], list[JobSeen]]:
    """The objects of attempts, and those that prepared nodes and belong to nothing under way.

    A late call made the latter, or the database forgot them. They hold no devices, and nothing of them has to run: they can go
    whether they run or not.
    """
    ours = [job for job in listed if LABEL_PREPARATION in job.labels]
    if not ours:
        return list(listed), []
    known = known_pulls([id_ for job in ours if (id_ := id_in(job.labels, LABEL_ATTEMPT))])
    left = [job for job in ours if not job.is_terminating and id_in(job.labels, LABEL_ATTEMPT) not in known]
    return [job for job in listed if LABEL_PREPARATION not in job.labels], left
