"""The engine's own order of the queue, for gateways that are compared with it: what then differs is not the order."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from placement.cycle.ordering import by_response_ratio
from placement.ranking.kept_estimates import as_kept
from placement.ranking.runtimes import Groups, best_known, expected_end
from placement.values.model import JobRequest, Runtime

from .experience import groups_of, kind_of
from .gateways import Choice, Gateway, Known, Move
from .values import EPOCH, TraceJob


class RatioOrder:
    """Queues by response ratio, with the run times that the engine would know: learned ones, and estimates as far as
    the tenant's were kept.
    """

    def __init__(self) -> None:
        self._requests: dict[int, JobRequest] = {}
        self._groups: dict[int, Groups] = {}

    def ordered(self, queue: Sequence[tuple[int, TraceJob]], known: Known, now: float) -> list[tuple[int, TraceJob]]:
        """The queue in the order in which the engine considers the jobs of one tenant."""
        jobs = dict(queue)
        requests = as_kept([self._request(number, job) for number, job in queue], known.experience.exceeded())
        groups = {self._groups[number] for number in jobs}
        found = ((kind_of(one), known.experience.of(one)) for one in groups)
        runtimes = {kind: runtime for kind, runtime in found if runtime is not None}
        ordered = by_response_ratio(requests, runtimes, EPOCH + timedelta(seconds=now))
        return [(request.id.int, jobs[request.id.int]) for request in ordered]

    def runtime(self, number: int, job: TraceJob, known: Known) -> Runtime | None:
        """What is known of the job's run time."""
        [request] = as_kept([self._request(number, job)], known.experience.exceeded())
        return best_known(known.experience.of(self._groups[number]), request.estimated_seconds, None)

    def seconds(self, number: int, job: TraceJob, known: Known) -> float | None:
        """How long the job is expected to run; None if nothing is known."""
        runtime = self.runtime(number, job, known)
        return None if runtime is None else float(runtime.p50_seconds)

    def end(self, number: int, job: TraceJob, started: float | None, known: Known, now: float) -> float | None:
        """When the running job is expected to end; None if nothing is known, or if it should have ended."""
        at = EPOCH + timedelta(seconds=now)
        began = at if started is None else EPOCH + timedelta(seconds=started)
        found = expected_end(began, at, self.runtime(number, job, known))
        return None if found is None else (found - EPOCH).total_seconds()

    def _request(self, number: int, job: TraceJob) -> JobRequest:
        found = self._requests.get(number)
        if found is None:
            groups = self._groups[number] = groups_of(job)
            found = self._requests[number] = JobRequest(
                UUID(int=number),
                job.tenant,
                "",
                (),
                priority=job.priority,
                submitted_at=EPOCH + timedelta(seconds=job.submitted),
                estimated_seconds=job.estimated_seconds,
                kind=kind_of(groups),
                stated_by=job.stater,
            )
        return found


class Ordered:
    """A gateway that gets its queue by response ratio."""

    def __init__(self, inner: Gateway, name: str) -> None:
        self.name = name
        self._inner = inner
        self._order = RatioOrder()

    def choose(self, queue: Sequence[tuple[int, TraceJob]], known: Known, now: float) -> Sequence[Choice | Move]:
        """What the gateway inside chooses."""
        return self._inner.choose(self._order.ordered(queue, known, now), known, now)
