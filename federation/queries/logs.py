"""The ends of pods' logs, fetched from their cluster now; capped, and without terminal control sequences."""

import asyncio
import re
from dataclasses import dataclass
from uuid import UUID

import clusters.queries
from clusters.drivers import ClusterDriver, DriverError
from clusters.drivers.connections import run
from federation.models import Attempt, PodRun
from foundation.problems import NotFound
from tenancy.queries import Actor

from .jobs import job_of, newest_attempt

MOST_PODS = 8
MOST_TAIL_LINES = 5000
MOST_BYTES_PER_POD = 256 * 1024
READING_SECONDS = 15.0
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
    """Logs of the newest attempt's pods: the first few, or the requested one."""

    attempt_id: UUID | None
    cluster: str
    pods: tuple[PodLog, ...]
    pods_in_all: int


def logs_of(actor: Actor, job_id: UUID, *, pod: str = "", tail_lines: int = 500) -> JobLogs:
    """The logs of a visible job's newest attempt. No transaction is open during the request to the cluster.

    Raises NotFound for the job, or for a pod that the attempt does not have.
    """
    job = job_of(actor, job_id)
    attempt = newest_attempt(job)
    if attempt is None:
        if pod:
            raise NotFound
        return JobLogs(None, "", (), 0)
    runs = PodRun.objects.filter(attempt=attempt).order_by("position", "name")
    in_all = runs.count()
    chosen = list(runs.filter(name=pod) if pod else runs[:MOST_PODS])
    if pod and not chosen:
        raise NotFound
    return JobLogs(attempt.id, attempt.cluster.name, _read(attempt, chosen, tail_lines), in_all)


def _read(attempt: Attempt, runs: list[PodRun], tail_lines: int) -> tuple[PodLog, ...]:
    if not runs:
        return ()
    try:
        driver = clusters.queries.driver_of(attempt.cluster_id)

        async def gather() -> list[PodLog]:
            return await asyncio.gather(*(_read_one(driver, attempt.namespace, item, tail_lines) for item in runs))

        return tuple(run(gather(), timeout_seconds=READING_SECONDS))
    except DriverError as error:
        return tuple(_log(item, "", trouble=error.reason) for item in runs)


async def _read_one(driver: ClusterDriver, namespace: str, item: PodRun, tail_lines: int) -> PodLog:
    try:
        text = await driver.read_log(namespace, item.name, tail_lines=tail_lines, limit_bytes=MOST_BYTES_PER_POD)
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
