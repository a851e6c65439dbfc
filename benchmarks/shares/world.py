"""The tenants, estimates and fleet of the replay.

The published traces have no tenants, so their jobs are dealt to six of unequal weight, in batches as users submit them. The part of
the jobs that a tenant has is not the part that its weight gives it: some want more than their share, some less. A trace in the replay's
own format keeps its tenants.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from benchmarks.replay import CLUSTERS, GPUS, NODES, STRIDE, jobs_of, with_estimate
from simulator.traces import compressed, read_trace
from simulator.values import TraceJob

DEALT: Mapping[str, tuple[float, float]] = {
    "org/a": (4.0, 0.25),
    "org/b": (2.0, 0.10),
    "org/c": (1.0, 0.30),
    "org/d": (1.0, 0.15),
    "org/e": (0.5, 0.15),
    "org/f": (0.5, 0.05),
}
"""The weight of each tenant, and its part of the jobs."""
BATCH = 10
"""The number of jobs of the trace in a row that are of one tenant."""
FEWEST = 5
"""A trace with fewer tenants is dealt."""
USERS = 20
LIARS = 3
"""15 % of the users."""
LIE_SECONDS = 60
OFF = 10.0
"""Estimates that are off both ways are so by up to this factor."""


def weights_of(jobs: Sequence[TraceJob], given: Sequence[str]) -> dict[str, float]:
    """The weight of each tenant with jobs: of `tenant=weight` words, else what it was dealt, else 1. ValueError unless it is above 0."""
    said = {tenant: float(weight) for tenant, _, weight in (word.rpartition("=") for word in given)}
    if not all(0 < weight < float("inf") for weight in said.values()):
        raise ValueError("a weight must be above 0")
    usual = {tenant: weight for tenant, (weight, _) in DEALT.items()}
    return {tenant: said.get(tenant, usual.get(tenant, 1.0)) for tenant in sorted({job.tenant for job in jobs})}


def jobs_for(traces: Path, name: str, file: Path | None, load: float, limit: int | None) -> tuple[TraceJob, ...]:
    """The jobs of a published trace, or of a file, that a cluster can hold, with tenants, pressed together to the load."""
    found = jobs_of(traces, name) if file is None else read_trace(str(file), file.read_text())
    fitting = [job for job in found[:limit] if job.pods <= NODES // CLUSTERS]
    if not fitting:
        raise ValueError("there are no jobs that a cluster can hold")
    if len({job.tenant for job in fitting}) < FEWEST:
        fitting = [replace(job, tenant=dealt(number)) for number, job in enumerate(fitting)]
    return compressed(fitting, NODES * GPUS, load)


def dealt(number: int, begins: float = 0.0) -> str:
    """The tenant of a job by its place in the trace."""
    at = (number // BATCH * STRIDE + begins) % 1
    bounds = accumulate(part for _, part in DEALT.values())
    return next((tenant for tenant, bound in zip(DEALT, bounds, strict=True) if at < bound), list(DEALT)[-1])


def _true(job: TraceJob, number: int) -> TraceJob:
    del number
    return replace(job, estimated_seconds=max(1, round(job.seconds or 0.0)))


def _off(job: TraceJob, number: int) -> TraceJob:
    factor = OFF ** (2 * (number * STRIDE % 1) - 1)
    return replace(job, estimated_seconds=max(1, round((job.seconds or 0.0) * factor)))


def _absent(job: TraceJob, number: int) -> TraceJob:
    del number
    return replace(job, estimated_seconds=None)


ESTIMATES: Mapping[str, Callable[[TraceJob, int], TraceJob]] = {
    "true": _true,
    "long": with_estimate,
    "off": _off,
    "absent": _absent,
}
"""How users state run times: as they are, up to five times too long, up to ten times off both ways, or not at all."""


def estimated(jobs: Sequence[TraceJob], how: str) -> tuple[TraceJob, ...]:
    """The jobs with estimates of this kind: the same for all gateways."""
    return tuple(ESTIMATES[how](job, number) for number, job in enumerate(jobs))


def of_users(jobs: Sequence[TraceJob], *, in_one_tenant: bool) -> tuple[TraceJob, ...]:
    """The jobs as those of twenty users who state what their jobs take: in one tenant, or each in an own one."""
    names = [f"u{number:02d}" for number in range(USERS)]
    users = [names[int(number * STRIDE % 1 * USERS)] for number in range(len(jobs))]
    told = estimated(jobs, "true")
    if in_one_tenant:
        return tuple(replace(job, tenant="org/t", user=user) for job, user in zip(told, users, strict=True))
    return tuple(replace(job, tenant=f"org/{user}") for job, user in zip(told, users, strict=True))


def is_liar(job: TraceJob) -> bool:
    """Whether the job's user is one of those who state a minute for everything in `lied`."""
    user = job.user or job.tenant.rpartition("/")[2]
    return int(user[1:]) % (USERS // LIARS) == 0 and int(user[1:]) // (USERS // LIARS) < LIARS


def lied(jobs: Sequence[TraceJob]) -> tuple[TraceJob, ...]:
    """The jobs, for which 15 % of the users state a minute."""
    return tuple(replace(job, estimated_seconds=LIE_SECONDS) if is_liar(job) else job for job in jobs)
