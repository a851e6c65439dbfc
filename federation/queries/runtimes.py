"""Learned run times: read by key, never by scanning attempts."""

from collections.abc import Collection

from federation.models import LIVE_ATTEMPT_STATES, Attempt, Job, RunGroup
from foundation.clock import monotonic
from placement.ranking.runtimes import Groups, Histories, RunHistory, best_known, groups_of, predict
from placement.values.model import Runtime

FRESH_SECONDS = 30.0
MOST_KEPT = 50_000

_predicted: dict[str, tuple[float, Runtime | None]] = {}
"""By kind, with the end of its cache time. One run more or less hardly changes a prediction."""


def runtimes_of(kinds: Collection[Groups]) -> dict[str, Runtime]:
    """The run times of these kinds of jobs, by the narrowest group's key; one query for those not
    looked up recently.
    """
    now = monotonic()
    if len(_predicted) > MOST_KEPT:
        _predicted.clear()
    stale = {groups for groups in kinds if (known := _predicted.get(groups.job)) is None or known[0] < now}
    if stale:
        histories = _histories({key for groups in stale for key in groups})
        _predicted.update({groups.job: (now + FRESH_SECONDS, predict(groups, histories)) for groups in stale})
    found = ((groups.job, _predicted[groups.job][1]) for groups in kinds)
    return {kind: runtime for kind, runtime in found if runtime is not None}


def runtime_of_job(job: Job) -> Runtime | None:
    """A job's expected run time, from history, else from its own estimate; None if nothing is known.

    For a job with throughputs of GPU models, it is the time on the model where it runs, or on the slowest while it
    waits.
    """
    groups = groups_of(job.tenant_id, job.spec)
    history = predict(groups, _histories(groups))
    return best_known(history, job.spec.get("estimated_seconds"), job.spec.get("deadline_seconds"), _pace(job))


def _pace(job: Job) -> float:
    if not job.spec.get("throughput"):
        return 1.0
    live = Attempt.objects.filter(job_id=job.id, state__in=LIVE_ATTEMPT_STATES)
    return live.values_list("pace", flat=True).first() or 1.0


def _histories(keys: Collection[str]) -> Histories:
    rows = RunGroup.objects.filter(key__in=list(keys)).values_list("key", "recent_seconds", "runs")
    return {key: RunHistory(tuple(recent), runs) for key, recent, runs in rows}
