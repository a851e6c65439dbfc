"""The ends of pods' logs, fetched from their cluster now; capped, and without terminal control sequences."""

import asyncio
import re
from dataclasses import dataclass
from uuid import UUID

import clusters.queries
from clusters.drivers import ClusterDriver, DriverError, NotThere
from clusters.drivers.connections import run
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
    """The end of one pod's log, or in `trouble` why it is not available."""

    pod: str
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


def logs_of(actor: Actor, job_id: UUID, *, number: int | None = None, pod: str = "", tail_lines: int = 500) -> JobLogs:
    """The logs of an attempt of a visible job, by default of its newest. No transaction is open during the request to
    the cluster.

    Raises NotFound for the job, an attempt that it does not have, or a pod that the attempt does not have.
    """
    job = job_of(actor, job_id)
    attempt = newest_attempt(job) if number is None else _attempt(job, number)
    if attempt is None:
        if pod:
            raise NotFound
        return JobLogs(None, None, "", (), 0)
    runs = PodRun.objects.filter(attempt=attempt).order_by("position", "name")
    in_all = runs.count()
    chosen = list(runs.filter(name=pod) if pod else runs[:MOST_PODS])
    if pod and not chosen:
        raise NotFound
    return JobLogs(attempt.id, attempt.number, attempt.cluster.name, _read(attempt, chosen, tail_lines), in_all)


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


def _read(attempt: Attempt, runs: list[PodRun], tail_lines: int) -> tuple[PodLog, ...]:
    if not runs:
        return ()
    try:
        driver = clusters.queries.driver_of(attempt.cluster_id)

        async def gather() -> list[PodLog]:
            return await asyncio.gather(*(_read_one(driver, attempt, item, tail_lines) for item in runs))

        return tuple(run(gather(), timeout_seconds=READING_SECONDS))
    except DriverError as error:
        return tuple(_log(item, "", trouble=error.reason) for item in runs)


async def _read_one(driver: ClusterDriver, attempt: Attempt, item: PodRun, tail_lines: int) -> PodLog:
    limits = {"tail_lines": tail_lines, "limit_bytes": MOST_BYTES_PER_POD}
    try:
        text = await driver.read_log(attempt.namespace, item.name, **limits)
    except NotThere:
        return _log(item, "", trouble=_where_it_went(attempt))
    except DriverError as error:
        return _log(item, "", trouble=error.reason)
    return _log(item, text)


def _log(item: PodRun, text: str, *, trouble: str = "") -> PodLog:
    return PodLog(
        pod=item.name,
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
