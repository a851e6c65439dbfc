"""The sizes of an elastic job: its request with each number of pods that one of its pod sets may have.

A waiting job's request has its fewest pods. So everything that is promised to it (kept room, claims, expected starts, whether it
can ever run) is promised for these, and only the decision to place it looks for a larger size.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from .decisions import Placement
from .model import JobRequest
from .preemption import RunningJob

Found = TypeVar("Found")


def pods_of(job: JobRequest) -> int:
    """The pods of its elastic pod set in this request; 0 for a job of one size."""
    return 0 if job.elastic is None else job.pod_sets[job.elastic.position].count


def size_text(job: JobRequest) -> str:
    """`6 of 4 to 8 pods`; empty for a job of one size."""
    return "" if job.elastic is None else job.elastic.text(pods_of(job))


def resized(job: JobRequest, pods: int) -> JobRequest:
    """The request of an elastic job with this number of pods in its elastic pod set. `job` has its fewest."""
    elastic = job.elastic
    if elastic is None or pods == pods_of(job):
        return job
    if not elastic.fewest <= pods <= elastic.most:
        raise ValueError(f"job {job.id} runs with {elastic.fewest} to {elastic.most} pods, not {pods}")
    pod_sets = list(job.pod_sets)
    pod_sets[elastic.position] = replace(pod_sets[elastic.position], count=pods)
    return replace(job, pod_sets=tuple(pod_sets), shape=f"{job.shape} with {pods} pods" if job.shape else "")


def at_most(job: JobRequest, pods: int) -> JobRequest:
    """The request of an elastic job that gets no more pods than these for now."""
    elastic = job.elastic
    if elastic is None or pods >= elastic.most:
        return job
    most = max(elastic.fewest, pods)
    shape = f"{job.shape} with at most {most} pods" if job.shape else ""
    return replace(job, elastic=replace(elastic, most=most), shape=shape)


def placed_size(job: JobRequest, placement: Placement) -> JobRequest:
    """The request with the number of pods that were placed."""
    if job.elastic is None:
        return job
    return resized(job, sum(placement.pod_sets[job.elastic.position].nodes.values()))


def running_size(job: JobRequest, run: RunningJob) -> JobRequest:
    """The request with the number of pods of its run, as far as they still run."""
    elastic = job.elastic
    if elastic is None or elastic.position >= len(run.pods):
        return job
    pods = sum(run.pods[elastic.position].nodes.values())
    return resized(job, max(elastic.fewest, min(pods, elastic.most)))


def pace_of_size(job: JobRequest) -> float:
    """How many hours an hour of its work takes with these pods. The hour is one with its fewest pods, and twice as many take
    half of it.
    """
    return 1.0 if job.elastic is None else job.elastic.fewest / pods_of(job)


def largest(job: JobRequest, tried: Callable[[JobRequest], Found | None]) -> tuple[JobRequest, Found] | None:
    """The largest size for which `tried` finds something, and that; None if it finds nothing for the fewest pods.

    The size is found by bisection: what fits with more pods fits with fewer. In any case, it found nothing for one pod more.
    """
    found = tried(job)
    if found is None:
        return None
    best = job, found
    if job.elastic is None:
        return best
    low, high = job.elastic.fewest, job.elastic.most + 1
    middle = job.elastic.most
    while low < middle:
        sized = resized(job, middle)
        found = tried(sized)
        if found is None:
            high = middle
        else:
            low, best = middle, (sized, found)
        middle = (low + high) // 2
    return best
