"""The ends of pods' logs, fetched from their cluster now; capped, and without terminal control sequences."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import clusters.queries
from clusters.drivers import ClusterDriver, DriverError, NotThere
from clusters.drivers.connections import run
from federation.engine.intake.init_and_sidecars import containers_of
from federation.engine.lifecycle import KEPT_ATTEMPTS
from federation.models import ATTEMPT_LIFECYCLE, Attempt, Job, PodRun
from foundation.problems import Invalid, NotFound
from tenancy.queries import Actor

from .jobs import job_of, newest_attempt

MOST_PODS = 8
MOST_TAIL_LINES = 5000
MOST_BYTES_PER_POD = 256 * 1024
READING_SECONDS = 15.0
MOST_DIGITS = 9
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])?"
)
_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


@dataclass(frozen=True, slots=True)
class PodLog:
    """The end of the log of one container of a pod, or in `trouble` why it is not available."""

    pod: str
    container: str
    position: int
    node: str
    phase: str
    text: str
    is_cut: bool
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class JobLogs:
    """Logs of an attempt's pods: the first few, or the requested one."""

    attempt_id: UUID | None
    number: int | None
    cluster: str
    pods: tuple[PodLog, ...]
    pods_in_all: int
    containers: tuple[str, ...] = ()
    """The names of the containers that its pods have, if one has several."""


def logs_of(
    actor: Actor, job_id: UUID, *, number: int | None = None, pod: str = "", container: str = "", tail_lines: int = 500
) -> JobLogs:
    """The logs of an attempt of a visible job, by default of its newest. No transaction is open during the request to
    the cluster. Without `container`, a pod's log is that of its program, or of the init step that failed.

    Raises NotFound for the job, an attempt that it does not have, or a pod or container that the attempt does not have.
    """
    job = job_of(actor, job_id)
    attempt = newest_attempt(job) if number is None else _attempt(job, number)
    if attempt is None:
        if pod or container:
            raise NotFound
        return JobLogs(None, None, "", (), 0)
    named = [containers_of(pod_set) for pod_set in job.spec["pod_sets"]]
    runs = PodRun.objects.filter(attempt=attempt).order_by("position", "name")
    if container:
        runs = runs.filter(position__in=[number for number, own in enumerate(named) if container in own])
    in_all = runs.count()
    chosen = list(runs.filter(name=pod) if pod else runs[:MOST_PODS])
    if (pod and not chosen) or (container and not any(container in own for own in named)):
        raise NotFound
    pods = _read(attempt, [(item, container or _main(item, named)) for item in chosen], tail_lines)
    offered = tuple(dict.fromkeys(name for own in named for name in own)) if any(len(own) > 1 for own in named) else ()
    return JobLogs(attempt.id, attempt.number, attempt.cluster.name, pods, in_all, offered)


def _main(item: PodRun, named: Sequence[Sequence[str]]) -> str:
    """The container whose log is read unless another is named."""
    own = named[item.position] if item.position < len(named) else [""]
    return own[item.init_step] if item.init_step is not None and item.init_step < len(own) else own[0]


def read_number(text: str) -> int | None:
    """The number of an attempt as users write it; None, for the newest, if it is empty."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS and int(text)):
        raise Invalid.field("attempt", "out_of_range", "the number of an attempt, from 1")
    return int(text)


def _attempt(job: Job, number: int) -> Attempt:
    attempt = Attempt.objects.select_related("cluster").filter(job_id=job.id, number=number).first()
    if attempt is None:
        raise NotFound
    return attempt


def _where_it_went(attempt: Attempt) -> str:
    """Why a pod that was observed, and its log, no longer exist on the cluster."""
    if attempt.state not in ATTEMPT_LIFECYCLE.terminal:
        return "the pod no longer exists on the cluster, and its log with it"
    if attempt.state in KEPT_ATTEMPTS:
        return "the pod was deleted some time after the attempt ended, and its log with it"
    return f"the attempt was {attempt.state}, so its pods were deleted then, and their logs with them"


def _read(attempt: Attempt, runs: list[tuple[PodRun, str]], tail_lines: int) -> tuple[PodLog, ...]:
    if not runs:
        return ()
    try:
        driver = clusters.queries.driver_of(attempt.cluster_id)

        async def gather() -> list[PodLog]:
            return await asyncio.gather(
                *(_read_one(driver, attempt, item, container, tail_lines) for item, container in runs)
            )

        return tuple(run(gather(), timeout_seconds=READING_SECONDS))
    except DriverError as error:
        return tuple(_log(item, container, "", trouble=error.reason) for item, container in runs)


async def _read_one(driver: ClusterDriver, attempt: Attempt, item: PodRun, container: str, tail_lines: int) -> PodLog:
    try:
        text = await driver.read_log(
            attempt.namespace, item.name, tail_lines=tail_lines, limit_bytes=MOST_BYTES_PER_POD, container=container
        )
    except NotThere:
        return _log(item, container, "", trouble=_where_it_went(attempt))
    except DriverError as error:
        return _log(item, container, "", trouble=error.reason)
    return _log(item, container, text)


def _log(item: PodRun, container: str, text: str, *, trouble: str = "") -> PodLog:
    return PodLog(
        pod=item.name,
        container=container,
        position=item.position,
        node=item.node,
        phase=item.shown_phase,
        text=harmless(text[-MOST_BYTES_PER_POD:]),
        is_cut=len(text.encode()) >= MOST_BYTES_PER_POD,
        trouble=trouble,
    )


def harmless(text: str) -> str:
    """The text without escape sequences, control characters and invisible marks; line breaks and tabs remain."""
    return _UNSEEN.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n")))
