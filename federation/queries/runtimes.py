"""Learned run times: read by key, never by scanning attempts."""

from collections.abc import Collection, Sequence

from federation.models import LIVE_ATTEMPT_STATES, Attempt, Job, RunGroup
from foundation.caches import cached_all
from placement.ranking.runtimes import Groups, Histories, RunHistory, best_known, groups_of, predict
from placement.values.model import Runtime

FRESH_SECONDS = 30.0
"""One run more or less hardly changes a prediction."""
MOST_KEPT = 50_000


def runtimes_of(kinds: Collection[Groups]) -> dict[str, Runtime]:
    """The run times of these kinds of jobs, by the narrowest group's key; one query for those not
    looked up recently.
    """
    kinds = list(kinds)
    found = zip(kinds, _predicted(kinds), strict=True)
    return {groups.job: runtime for groups, runtime in found if runtime is not None}


@cached_all("job", most=MOST_KEPT, seconds=FRESH_SECONDS)
def _predicted(kinds: Sequence[Groups]) -> list[Runtime | None]:
    histories = _histories({key for groups in kinds for key in groups})
    return [predict(groups, histories) for groups in kinds]


def runtime_of_job(job: Job) -> Runtime | None:
    """A job's expected run time, from history, else from its own estimate; None if nothing is known.

    For a job with throughputs of GPU models, it is the time on the model where it runs, or on the slowest while it
    waits; for an elastic one likewise with the pods of its run, or its fewest.
    """
    groups = groups_of(job.tenant_id, job.spec)
    history = predict(groups, _histories(groups))
    return best_known(history, job.spec.get("estimated_seconds"), job.spec.get("deadline_seconds"), _pace(job))


def _pace(job: Job) -> float:
    if not (job.spec.get("throughput") or job.spec.get("elastic")):
        return 1.0
    live = Attempt.objects.filter(job_id=job.id, state__in=LIVE_ATTEMPT_STATES)
    return live.values_list("pace", flat=True).first() or 1.0


def _histories(keys: Collection[str]) -> Histories:
    rows = RunGroup.objects.filter(key__in=list(keys)).values_list("key", "recent_seconds", "runs")
    return {key: RunHistory(tuple(recent), runs) for key, recent, runs in rows}
