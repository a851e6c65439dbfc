"""The objects on a cluster that prepare its nodes: a comparison separates them from those of attempts."""

from collections.abc import Sequence

from clusters.drivers import JobSeen
from federation.engine.names import LABEL_ATTEMPT, LABEL_PREPARATION, id_in
from federation.models import Attempt
from federation.queries.prepulls import known_pulls
from federation.queries.staging import known_stage_ins


def separated(listed: Sequence[JobSeen]) -> tuple[list[JobSeen], list[JobSeen]]:
    """The objects of attempts, and those that prepared nodes and belong to nothing under way.

    A late call made the latter, or the database forgot them. They hold no devices, and nothing of them has to run: they can go
    whether they run or not. A label alone proves nothing: others on the cluster may add it to an attempt's object.
    """
    labelled = [job for job in listed if LABEL_PREPARATION in job.labels]
    if not labelled:
        return list(listed), []
    ids = [id_ for job in labelled if (id_ := id_in(job.labels, LABEL_ATTEMPT))]
    of_attempts = set(Attempt.objects.filter(id__any_of=ids).values_list("id", flat=True))
    preparing = [job for job in labelled if id_in(job.labels, LABEL_ATTEMPT) not in of_attempts]
    uids, known = {job.uid for job in preparing}, known_pulls(ids) | known_stage_ins(ids)
    left = [job for job in preparing if not job.is_terminating and id_in(job.labels, LABEL_ATTEMPT) not in known]
    return [job for job in listed if job.uid not in uids], left
