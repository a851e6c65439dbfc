"""Run times learned from the runs of a replay, by the product's own rules (`placement.ranking.runtimes`)."""

from placement.ranking.kept_estimates import Kept, added, counted, factor_of
from placement.ranking.runtimes import LONGEST_SECONDS, MOST_KEPT, Groups, RunHistory, predict
from placement.values.model import Runtime

from .values import TraceJob


def groups_of(job: TraceJob) -> Groups:
    """The groups of a trace's job: those of its kind, if the trace has one, and that of its pods."""
    pods = f"{job.pods}x{job.gpus}x{job.gpu_milli}:{job.cpu_millicores}:{job.memory_mib}:{job.models}"
    kind = f"{job.tenant}|{job.kind}" if job.kind else ""
    return Groups(
        f"job:{kind}|{pods}" if kind else "", f"name:{kind}" if kind else "", f"pods:{job.tenant}|{pods}"
    )  # fmt: skip


def kind_of(groups: Groups) -> str:
    """Equal for jobs with similar runs."""
    return groups.job or groups.pods


class Experience:
    """The runs that have succeeded so far."""

    def __init__(self) -> None:
        self._histories: dict[str, RunHistory] = {}
        self._kept: dict[str, Kept] = {}
        """By who stated them, how far estimates were kept."""
        self._predicted: dict[Groups, tuple[tuple[int, ...], Runtime | None]] = {}

    def remember(self, job: TraceJob, seconds: float) -> None:
        """Adds a successful run of the job, with its duration."""
        took = round(min(max(0.0, seconds), LONGEST_SECONDS))
        for key in filter(None, groups_of(job)):
            known = self._histories.get(key, RunHistory((), 0))
            self._histories[key] = RunHistory((took, *known.recent_seconds[: MOST_KEPT - 1]), known.runs + 1)
        run = None if job.estimated_seconds is None else counted(job.estimated_seconds, took, is_success=True)
        if run is not None:
            self._kept[job.stater] = added(self._kept.get(job.stater), run)

    def exceeded(self) -> dict[str, float]:
        """By who stated it, how many times longer than stated runs took."""
        return {stater: factor_of(kept) for stater, kept in self._kept.items()}

    def of(self, groups: Groups) -> Runtime | None:
        """The predicted next run time; None without similar runs."""
        runs = tuple(history.runs if (history := self._histories.get(key)) else 0 for key in groups)
        known = self._predicted.get(groups)
        if known is None or known[0] != runs:
            known = self._predicted[groups] = (runs, predict(groups, self._histories))
        return known[1]
