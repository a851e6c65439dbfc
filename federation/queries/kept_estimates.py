"""How far the estimates of waiting jobs' users have been kept."""

from collections.abc import Iterable, Sequence

from federation.models import EstimateRecord
from placement.ranking.kept_estimates import Kept, as_kept, factor_of, stater
from placement.values.model import JobRequest


def with_kept_estimates(queue: Iterable[JobRequest]) -> Sequence[JobRequest]:
    """The jobs with their estimates as much longer as those of the same user in the same tenant were exceeded."""
    jobs = list(queue)
    paths = {job.tenant_path for job in jobs if job.stated_by}
    if not paths:
        return jobs
    rows = EstimateRecord.objects.filter(tenant__path__any_of=sorted(paths))
    columns = rows.values_list("tenant_id", "user_id", "stated_seconds", "taken_seconds")
    return as_kept(jobs, {stater(tenant, user): factor_of(Kept(*record)) for tenant, user, *record in columns})
