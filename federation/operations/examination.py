"""Judges the failures whose diagnosis needs what only a cluster, or the whole fleet, can show: the ends of pods' logs, and
whether a job could ever get more memory.

Meanwhile the attempt remains live, so nothing else starts. Logs are read once, within bounds. Every wait ends: if a
cluster does not answer within `PATIENCE`, the other rules decide; if these rules cannot be applied within `TRIES_FOR`, our
own rules decide.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

from django.db import OperationalError, models, transaction
from django.db.models.functions import Random

import clusters.queries
from clusters.drivers import ClusterDriver, DriverError, Refused
from clusters.drivers.connections import run
from federation.engine.failures.diagnoses import Diagnosis, NeedsLog, judge, judge_without_logs
from federation.engine.failures.rules import Rule, Step
from federation.engine.intake.init_and_sidecars import step_name
from federation.engine.intake.normal_form import request_of, shape_of
from federation.locks import lock_with_jobs
from federation.models import LIVE_ATTEMPT_STATES
from federation.models import Diagnosis as DiagnosisRow
from federation.queries.failures import Case, cases_of
from federation.queries.feasibility import refuse_hopeless
from federation.queries.logs import harmless
from foundation import clock
from foundation.problems import Problem
from foundation.transactions import retried
from placement.values.quantities import memory_text, whole_bytes

from . import diagnoses
from .endings import end_attempts
from .failures import again_of, ending_of, stop_for_another

log = logging.getLogger(__name__)
BATCH = 200
PATIENCE = timedelta(seconds=60)
"""From the failure on. Afterwards, rules that need a log do not match."""
TRIES_FOR = timedelta(minutes=5)
"""From the failure on. Afterwards, a failure that the rules of its job and tenants cannot judge is left to our own."""
READ_SECONDS = 5.0
"""The time limit per cluster for all logs of a round."""
AT_ONCE = 8
MOST_LOG_LINES = 500
MOST_LOG_BYTES = 64 * 1024
MOST_LOGS = 4
"""The logs that are read of one attempt: of the pods that ended first."""

Logs = Mapping[str, str]
"""The ends of logs, by pod."""


@dataclass(frozen=True, slots=True)
class _Open:
    """A failed attempt without a diagnosis. `needs` are the pods whose logs decide."""

    case: Case
    needs: tuple[str, ...]
    waited: timedelta

    @property
    def reads_no_more(self) -> bool:
        return self.waited > PATIENCE

    @property
    def is_given_up(self) -> bool:
        return self.waited > TRIES_FOR


def examine_failures() -> int:
    """The number of failures judged now."""
    waiting = _waiting()
    logs = _read([one for one in waiting if one.needs])
    judged = 0
    for one in waiting:
        if one.needs and one.case.attempt.id not in logs and not one.reads_no_more:
            continue
        judged += _judged_alone(one, logs.get(one.case.attempt.id))
    return judged


def _judged_alone(one: _Open, logs: Logs | None) -> int:
    """1 if it is judged now. One failure that cannot be judged must not hold up the others."""
    case = one.case
    judged = _attempted(case, "its failure could not be judged", lambda: _judge(case, logs))
    if judged is None and one.is_given_up:
        ours = judge_without_logs((), case.facts, case.history)
        judged = _attempted(case, "its failure could not be judged by our own rules", lambda: _apply(case, ours, {}))
    return judged or 0


def _attempted(case: Case, complaint: str, judge_it: Callable[[], int]) -> int | None:
    """The result; None, and a log entry, if it fails for another reason than the database."""
    try:
        return judge_it()
    except OperationalError:
        raise
    except Exception:
        log.exception("attempt %s: %s", case.attempt.id, complaint)
        return None


def _waiting() -> list[_Open]:
    now = clock.database_now()
    # Those that could not be judged take turns, so that any number of them holds up neither the others nor each other.
    turn = models.Case(models.When(asked_at__lt=now - TRIES_FOR, then=Random()), default=models.Value(-1.0))
    rows = DiagnosisRow.objects.filter(judged_at=None).select_related("attempt__job__tenant")
    found = {row.attempt_id: row for row in rows.order_by(turn, "asked_at")[:BATCH]}
    told = {row.attempt_id: row.text.splitlines() for row in found.values()}
    opened = []
    for case in cases_of([row.attempt for row in found.values()], told):
        wanted = judge(case.rule_sets, case.facts, case.history)
        needs = wanted.pods[:MOST_LOGS] if isinstance(wanted, NeedsLog) else ()
        opened.append(_Open(case, needs, now - found[case.attempt.id].asked_at))
    return opened


def _read(waiting: Sequence[_Open]) -> Mapping[UUID, Logs]:
    """The logs that could be read, by attempt. All clusters are asked at the same time."""
    by_cluster: dict[UUID, list[_Open]] = defaultdict(list)
    for one in waiting:
        by_cluster[one.case.attempt.cluster_id].append(one)
    places = []
    for cluster_id, opened in by_cluster.items():
        try:
            places.append((clusters.queries.driver_of(cluster_id), opened))
        except DriverError as error:
            log.info("cluster %s does not return logs of failed attempts: %s", cluster_id, error.reason)
    if not places:
        return {}

    async def ask() -> list[dict[UUID, Logs]]:
        return await asyncio.gather(*(_ask_one(driver, opened) for driver, opened in places))

    try:
        told = run(ask(), timeout_seconds=READ_SECONDS * 2)
    except DriverError as error:
        log.warning("the logs of failed attempts could not be requested from any cluster: %s", error.reason)
        return {}
    return {attempt_id: logs for found in told for attempt_id, logs in found.items()}


async def _ask_one(driver: ClusterDriver, opened: Sequence[_Open]) -> dict[UUID, Logs]:
    """The logs that one cluster returned in time: of an attempt all, or none."""
    found: dict[UUID, Logs] = {}
    turns = asyncio.Semaphore(AT_ONCE)

    async def read(one: _Open) -> None:
        namespace = one.case.attempt.namespace
        async with turns:
            steps = {pod.name: step_name(pod.init_step) for pod in one.case.facts.pods if pod.init_step}
            tails = {pod: await _tail(driver, namespace, pod, steps.get(pod, "")) for pod in one.needs}
            found[one.case.attempt.id] = tails

    try:
        async with asyncio.timeout(READ_SECONDS):
            outcomes = await asyncio.gather(*(read(one) for one in opened), return_exceptions=True)
    except TimeoutError:
        return found
    for outcome in outcomes:
        if isinstance(outcome, BaseException) and not isinstance(outcome, DriverError):
            raise outcome
    return found


async def _tail(driver: ClusterDriver, namespace: str, pod: str, step: str) -> str:
    """The end of the log of a pod, or of its init step that failed, without control sequences; empty if the cluster says
    that there is none.
    """
    try:
        text = await driver.read_log(
            namespace, pod, tail_lines=MOST_LOG_LINES, limit_bytes=MOST_LOG_BYTES, container=step
        )
    except Refused:
        return ""
    return harmless(text[-MOST_LOG_BYTES:])


def _judge(case: Case, logs: Logs | None) -> int:
    known = replace(case, facts=replace(case.facts, logs=logs or {}))
    diagnosis = judge_without_logs(known.rule_sets, known.facts, known.history)
    memory: dict[str, int] = {}
    if diagnosis.growth is not None:
        diagnosis, memory = _grown(known, diagnosis, diagnosis.growth)
    return _apply(known, diagnosis, memory)


def _grown(case: Case, diagnosis: Diagnosis, rule: Rule) -> tuple[Diagnosis, dict[str, int]]:
    """The diagnosis with the memory of the next attempt; one that stops if the job could never run with it."""
    job = case.attempt.job
    now = next(whole_bytes(one["memory"]) for one in job.spec["pod_sets"] if one["name"] == diagnosis.pod_set)
    wanted = rule.grown(now)
    if wanted <= now:
        return diagnosis.stopped(f"it has {memory_text(now)} of memory already, the most that the rule allows"), {}
    spec = diagnoses.with_memory(job.spec, {diagnosis.pod_set: wanted})
    shape = shape_of(spec, job.priority)
    request = request_of(spec, job_id=job.id, tenant_path=job.tenant.path, shape=shape, priority=job.priority)
    try:
        refuse_hopeless(request, job.tenant_id)
    except Problem as problem:
        return diagnosis.stopped(f"it cannot get {memory_text(wanted)} of memory: {problem}"), {}
    return diagnosis, {diagnosis.pod_set: wanted}


@retried
def _apply(case: Case, diagnosis: Diagnosis, memory: Mapping[str, int]) -> int:
    """1 if the diagnosis was given now; 0 if the attempt was stopped, ended or judged meanwhile."""
    with transaction.atomic():
        attempt = lock_with_jobs([case.attempt.id])[case.attempt.id]
        waits = DiagnosisRow.objects.filter(attempt_id=attempt.id, judged_at=None)
        if attempt.state not in LIVE_ATTEMPT_STATES or attempt.stop_requested_at is not None:
            waits.delete()
            return 0
        if not waits.exists():
            return 0
        if diagnosis.step == Step.STOP:
            end_attempts([ending_of(case, diagnosis)])
        else:
            stop_for_another([again_of(case, diagnosis, memory)])
    return 1
