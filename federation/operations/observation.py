"""Turns clusters' reports into guarded transitions. A cluster can report only on attempts that were dispatched to it.

An observation counts only if the object's uid is the one stored for an attempt on that cluster; labels alone prove
nothing. Observations may arrive late, twice and in any order: terminal states absorb, and known times are kept.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import DatabaseError, OperationalError, connection, transaction
from django.db.models import BooleanField, Case, Count, F, Value, When
from django.db.models.functions import Coalesce

import clusters.operations
from clusters.drivers import JobSeen, PodSeen
from clusters.engine.clocks import eras_of
from federation.engine.lifecycle import AttemptState
from federation.engine.sightings import (
    TOLD,
    WRONG_JOB,
    Asked,
    Run,
    Sighting,
    admit,
    fault_of,
    is_uid,
    reported_end,
    tally,
)
from federation.locks import lock_with_jobs
from federation.models import ATTEMPT_LIFECYCLE, Attempt, PodRun, RemoteObject
from federation.queries.claimed_attempts import UNRELEASED
from foundation import clock
from foundation.rows import as_parameters, columns_of, insertion
from foundation.transactions import retried
from placement.values.reason_codes import ReasonCode

from . import diagnoses, figures, transitions
from .consequences import Ending
from .endings import OBJECT_DELETED, end_attempts
from .failures import Judged, judge_failures, stop_for_another
from .pod_devices import record_devices
from .reopening import Changed, reopen_settled
from .setting_aside import in_parts
from .true_ends import LateEnd, correct_assumed_runs

NO_JOB = ""


@dataclass(frozen=True, slots=True)
class Observations:
    """What one cluster reported since the last time: current objects, and uids of objects that are gone."""

    jobs: Sequence[JobSeen] = ()
    pods: Sequence[PodSeen] = ()
    gone_jobs: Sequence[str] = ()
    gone_pods: Sequence[str] = ()
    vanished_pods: Sequence[str] = ()
    """The gone objects that were missing in a list: their end was not seen."""
    devices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The devices that claims gave to pods, by the pods' uids."""

    def of(self, owners: Collection[str]) -> "Observations":
        """The reports on the Jobs with these uids and on their pods. Gone pods of which nothing else is reported count
        as those of the empty uid.
        """
        owner_of = {pod.uid: pod.owner for pod in self.pods}
        return Observations(
            jobs=[job for job in self.jobs if job.uid in owners],
            pods=[pod for pod in self.pods if pod.owner in owners],
            gone_jobs=[uid for uid in self.gone_jobs if uid in owners],
            gone_pods=[uid for uid in self.gone_pods if owner_of.get(uid, NO_JOB) in owners],
            vanished_pods=[uid for uid in self.vanished_pods if owner_of.get(uid, NO_JOB) in owners],
            devices={uid: names for uid, names in self.devices.items() if owner_of.get(uid, NO_JOB) in owners},
        )

    @property
    def owners(self) -> list[str]:
        """The uids of the Jobs that the reports are about."""
        return sorted({NO_JOB, *(job.uid for job in self.jobs), *(pod.owner for pod in self.pods), *self.gone_jobs})


def record_observations(cluster_id: UUID, seen: Observations) -> set[UUID]:
    """The attempts whose reports the database refuses: these are set aside, and do not hold up those of others. Reports
    that do not count are logged as security events.
    """
    refused: set[UUID] = set()

    def refuse(owners: Collection[str]) -> list[UUID]:
        rows = RemoteObject.objects.filter(cluster_id=cluster_id, uid__any_of=[uid for uid in owners if is_uid(uid)])
        found = list(rows.values_list("attempt_id", flat=True))
        refused.update(found)
        return found

    def record(owners: Collection[str]) -> int:
        return _record(cluster_id, seen.of(frozenset(owners)))

    try:
        _record(cluster_id, seen)
    except OperationalError:
        raise
    except DatabaseError:
        # Another writer recorded a pod for the same place meanwhile: its current state decides. If not, a part is bad.
        in_parts("observe", seen.owners, record, attempts_of=refuse)
    return refused


@retried
def _record(cluster_id: UUID, seen: Observations) -> int:
    uids = {job.uid for job in seen.jobs} | set(seen.gone_jobs) | {pod.owner for pod in seen.pods}
    known = _known_objects(cluster_id, uids)
    at = clock.database_now()
    with transaction.atomic():
        _mark_vanished(cluster_id, seen.vanished_pods)
        _mark_gone(cluster_id, seen.gone_pods, at)
        refused, changed, late = _record_pods(cluster_id, known, seen, at)
        record_devices(cluster_id, seen.devices)
        refused.update(_record_outcomes(known, seen.jobs, at))
        concerned = {item.attempt_id for item in known.values()}
        begun = _begun(concerned)
        gone = {known[uid].attempt_id for uid in seen.gone_jobs if uid in known}
        vanished = what_vanished(gone)
        ended, judged = _finished(concerned, _words(known, seen.jobs))
        endings = [*ended, *judged.endings, *vanished.endings]
        if begun or vanished.broken or judged.again or judged.open:
            asked = (*(one.attempt_id for one in endings), *(one.attempt_id for one in judged.again), *judged.open)
            lock_with_jobs({*begun, *vanished.broken, *asked})
        transitions.start(begun)
        end_attempts(endings)
        transitions.stop_the_rest(vanished.broken)
        stop_for_another(judged.again)
        diagnoses.ask({id_: words for id_, words in judged.open.items() if id_ not in gone}, judged.kept_seconds)
        correct_assumed_runs(cluster_id, late)
        reopen_settled(cluster_id, changed)
    _tell_refused(cluster_id, refused)
    figures.OBSERVED.labels(str(cluster_id)).inc(
        len(seen.jobs) + len(seen.pods) + len(seen.gone_jobs) + len(seen.gone_pods)
    )
    return len(concerned)


def _known_objects(cluster_id: UUID, uids: Iterable[str]) -> dict[str, Asked]:
    rows = RemoteObject.objects.filter(cluster_id=cluster_id, uid__any_of={uid for uid in uids if is_uid(uid)})
    columns = rows.values_list(
        "uid",
        "id",
        "attempt_id",
        "attempt__job_id",
        "position",
        "attempt__namespace",
        "name",
        "attempt__spec_hash",
        "pods",
        Coalesce("completions", "pods"),
        "attempt__starting_at",
        "attempt__settled_at",
        Case(When(attempt__state=AttemptState.LOST, then=True), default=False, output_field=BooleanField()),
        "attempt__reopened_at",
        "attempt__cluster__clock_eras",
    )
    return {uid: replace(Asked(*rest), clock=eras_of(eras)) for uid, *rest, eras in columns}


KNOWN_RUNS = """
SELECT pod.remote_object_id, pod.uid, pod.index, pod.place,
       CASE WHEN pod.finished_at IS NOT NULL OR pod.is_gone
            THEN greatest(pod.started_at, pod.finished_at, pod.observed_at) END,
       CASE WHEN pod.phase = 'Running' AND pod.finished_at IS NULL AND NOT pod.is_gone THEN pod.observed_at END, pod.is_gone,
       pod.started_at
  FROM unnest(%s::uuid[], %s::int[], %s::int[]) AS asked(attempt_id, position, index)
  JOIN federation_podrun AS pod ON pod.attempt_id = asked.attempt_id AND pod.position = asked.position
   AND (pod.index = asked.index OR asked.index IS NULL)
"""
SEEN_COLUMNS = columns_of(
    PodRun, without={"devices", "first_seen_at", "id", "initializing_at", "last_seen_at", "part", "resumed_at"}
)
UPSERT_PODS = f"""
{insertion(PodRun, SEEN_COLUMNS, alias="pod")}
ON CONFLICT (cluster_id, uid) DO UPDATE
   SET node = coalesce(nullif(excluded.node, ''), pod.node),
       phase = excluded.phase,
       reason = excluded.reason,
       disruption = coalesce(nullif(excluded.disruption, ''), pod.disruption),
       started_at = coalesce(pod.started_at, CASE WHEN pod.is_gone AND excluded.started_at IS NOT NULL
                                                  THEN least(excluded.started_at, pod.observed_at)
                                                  ELSE excluded.started_at END),
       finished_at = CASE WHEN excluded.finished_at IS NULL THEN NULL
                          WHEN pod.is_gone THEN greatest(least(excluded.finished_at, pod.observed_at), pod.started_at)
                          ELSE greatest(excluded.finished_at, pod.started_at) END,
       exit_code = excluded.exit_code,
       signal = excluded.signal,
       ending = excluded.ending,
       message = excluded.message,
       init_step = excluded.init_step,
       initializing_at = CASE WHEN starts_with(pod.reason, 'Initializing:') OR starts_with(excluded.reason, 'Initializing:')
                              THEN excluded.observed_at ELSE pod.initializing_at END,
       is_estimated = pod.is_estimated OR excluded.is_estimated,
       last_seen_at = CASE WHEN excluded.finished_at IS NULL THEN pod.last_seen_at END,
       observed_at = CASE WHEN pod.is_gone THEN pod.observed_at ELSE excluded.observed_at END
 WHERE pod.finished_at IS NULL AND pod.attempt_id = excluded.attempt_id AND pod.position = excluded.position
   AND (pod.phase, pod.node, pod.reason, pod.disruption, pod.started_at, pod.finished_at) IS DISTINCT FROM
       (excluded.phase, excluded.node, excluded.reason, excluded.disruption, excluded.started_at, excluded.finished_at)
RETURNING pod.attempt_id, pod.uid, pod.started_at IS NOT NULL
"""
"""`least` ignores nulls: alone, it would begin the run of a pod that never began."""


def _record_pods(
    cluster_id: UUID, known: Mapping[str, Asked], seen: Observations, at: datetime
) -> tuple[Counter[str], list[Changed], list[LateEnd]]:
    """Records the pods that count. Returns why the others do not, which started pods were not known to have
    started, and the reported ends of attempts that were settled before. A pod that was seen to have ended never changes again.
    """
    refused: Counter[str] = Counter()
    by_object: dict[Asked, dict[str, PodSeen]] = defaultdict(dict)
    for pod in seen.pods:
        asked = known.get(pod.owner)
        fault = fault_of(pod, asked, settings.INSTALL_ID)
        if fault or asked is None:
            refused[fault] += 1
        elif asked.is_lost:
            continue  # its end was attested: it is deleted, and counts no more
        else:
            by_object[asked][pod.uid] = pod
    if not by_object:
        return refused, [], []
    gone = set(seen.gone_pods)
    runs = _known_runs(by_object)
    counted: list[tuple[Asked, Sighting]] = []
    for asked, pods in by_object.items():
        sightings, faults = admit(asked, list(pods.values()), runs.get(asked.object_id, ()), at, gone)
        refused.update(faults)
        counted += [(asked, sighting) for sighting in sightings]
    changed: list[Changed] = []
    if counted:
        _bring_back(cluster_id, [sighting.uid for _, sighting in counted if sighting.is_back])
        # A pod's end precedes the start of the pod that takes its place; otherwise one order, to prevent deadlocks.
        counted.sort(key=lambda each: (each[1].is_new, each[1].uid))
        rows = [_row(asked, sighting, is_gone=sighting.uid in gone) for asked, sighting in counted]
        with connection.cursor() as cursor:
            cursor.execute(UPSERT_PODS, as_parameters({"cluster_id": cluster_id, "observed_at": at}, rows))
            changed = [Changed(attempt_id, uid) for attempt_id, uid, has_begun in cursor.fetchall() if has_begun]
    late = [
        LateEnd(asked.attempt_id, asked.object_id, one.index, one.uid, ended_at)
        for asked, one in counted
        if asked.was_settled and (ended_at := reported_end(asked, by_object[asked][one.uid], at)) is not None
    ]
    return refused, changed, late


def _bring_back(cluster_id: UUID, uids: Sequence[str]) -> None:
    """Restores pods that were missing in a list but exist: no new pod gets the same uid."""
    if uids:
        PodRun.objects.filter(cluster_id=cluster_id, uid__any_of=list(uids), finished_at=None).update(
            is_gone=False, last_seen_at=None
        )


def _known_runs(by_object: Mapping[Asked, Mapping[str, PodSeen]]) -> dict[int, list[Run]]:
    """The known runs of these pods' indices, or of all pods of an object that has more indices than places."""
    wanted = {
        (asked.attempt_id, asked.position, None if asked.indices > asked.places else pod.index)
        for asked, pods in by_object.items()
        for pod in pods.values()
    }
    found: dict[int, list[Run]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(KNOWN_RUNS, [list(column) for column in zip(*wanted, strict=True)])
        for object_id, *run in cursor.fetchall():
            found[object_id].append(Run(*run))
    return found


def _row(asked: Asked, pod: Sighting, *, is_gone: bool) -> dict[str, Any]:
    return {
        "attempt_id": asked.attempt_id, "remote_object_id": asked.object_id, "position": asked.position,
        "index": pod.index, "place": pod.place, "uid": pod.uid, "name": pod.name, "node": pod.node, "phase": pod.phase,
        "reason": pod.reason, "started_at": pod.started_at, "finished_at": pod.finished_at, "exit_code": pod.exit_code,
        "is_estimated": pod.is_estimated, "is_gone": is_gone, "disruption": pod.disruption, "ending": pod.ending,
        "signal": pod.signal, "message": pod.message, "init_step": pod.init_step,
    }  # fmt: skip


def _mark_gone(cluster_id: UUID, uids: Sequence[str], at: datetime) -> None:
    """Marks pods that vanished without a seen end: their end is unknown, and now is the latest possible time."""
    named = [uid for uid in uids if is_uid(uid)]
    if named:
        there = PodRun.objects.filter(cluster_id=cluster_id, uid__any_of=named, is_gone=False)
        there.update(is_gone=True, observed_at=Case(When(finished_at=None, then=Value(at)), default=F("observed_at")))


def _mark_vanished(cluster_id: UUID, uids: Sequence[str]) -> None:
    named = [uid for uid in uids if is_uid(uid)]
    if named:
        there = PodRun.objects.filter(cluster_id=cluster_id, uid__any_of=named, is_gone=False)
        there.filter(finished_at=None).update(last_seen_at=F("observed_at"))


def _tell_refused(cluster_id: UUID, refused: Mapping[str, int]) -> None:
    for fault, reports in refused.items():
        figures.REFUSED_REPORTS.labels(str(cluster_id), fault).inc(reports)
        clusters.operations.record_lie(cluster_id, fault, f"It reported {reports} {TOLD[fault]}; they are ignored.")


RECORD_OUTCOMES = """
UPDATE federation_remoteobject AS object
   SET outcome = said.outcome, ended_at = now(), began_at = said.began_at, over_at = said.over_at, pods_over = said.pods
  FROM unnest(%s::bigint[], %s::text[], %s::timestamptz[], %s::timestamptz[], %s::int[])
       AS said(id, outcome, began_at, over_at, pods)
 WHERE object.id = said.id AND object.outcome = ''
"""


def _record_outcomes(known: Mapping[str, Asked], jobs: Sequence[JobSeen], at: datetime) -> Counter[str]:
    """Records outcomes. They count only for the object with this uid, in its namespace and with its name."""
    refused: Counter[str] = Counter()
    rows: dict[int, tuple[Any, ...]] = {}
    for job in jobs:
        asked = known.get(job.uid)
        if not job.outcome or asked is None:
            continue
        if (job.namespace, job.name) == (asked.namespace, asked.name):
            rows[asked.object_id] = (asked.object_id, job.outcome, *tally(asked, job, at))
        else:
            refused[WRONG_JOB] += 1
    if rows:
        with connection.cursor() as cursor:
            cursor.execute(RECORD_OUTCOMES, [list(column) for column in zip(*rows.values(), strict=True)])
    return refused


def _begun(attempt_ids: set[UUID]) -> list[UUID]:
    """Attempts with a pod that was seen running, which are not yet marked as running."""
    waiting = ATTEMPT_LIFECYCLE.sources(AttemptState.RUNNING)
    rows = Attempt.objects.filter(id__any_of=attempt_ids, state__in=waiting, pods__started_at__isnull=False)
    return list(rows.distinct().values_list("id", flat=True))


def _words(known: Mapping[str, Asked], jobs: Sequence[JobSeen]) -> Mapping[UUID, list[str]]:
    """The failure messages of failed Jobs, by attempt."""
    said: dict[UUID, list[str]] = defaultdict(list)
    for job in (one for one in jobs if one.outcome == "failed" and one.uid in known):
        said[known[job.uid].attempt_id].append(f"{job.reason}: {job.message}")
    return said


def _finished(attempt_ids: set[UUID], words: Mapping[UUID, Sequence[str]]) -> tuple[Sequence[Ending], Judged]:
    """The consequences for attempts of which one object failed or all succeeded."""
    by_attempt: dict[UUID, list[str]] = defaultdict(list)
    rows = RemoteObject.objects.filter(attempt_id__any_of=attempt_ids, attempt__finished_at=None)
    for attempt_id, outcome in rows.values_list("attempt_id", "outcome"):
        by_attempt[attempt_id].append(outcome)
    done = [attempt_id for attempt_id, outcomes in by_attempt.items() if set(outcomes) == {"succeeded"}]
    judged = judge_failures({id_ for id_, outcomes in by_attempt.items() if "failed" in outcomes}, words)
    return [Ending(id_, AttemptState.SUCCEEDED, ReasonCode.COMPLETED, exit_code=0) for id_ in done], judged


@dataclass(frozen=True, slots=True)
class Vanished:
    """The consequences for attempts of which an object is gone."""

    endings: Sequence[Ending]
    broken: Sequence[UUID]
    """Attempts that dispatch ends, when it has confirmed that nothing of them is left: those with further objects, and
    stopped ones whose jobs may run again. Pods may outlive a Job that others delete."""


def what_vanished(attempt_ids: set[UUID]) -> Vanished:
    """Attempts of which an object was deleted, by our request or by another client."""
    endings, broken = [], []
    rows = Attempt.objects.filter(id__any_of=attempt_ids, finished_at=None)
    columns = rows.values_list(
        "id", "state", "stop_reason", "stop_message", "stop_requested_at", Count("remote_objects")
    )
    for attempt_id, state, stop_reason, stop_message, stopped, objects in columns:
        may_run_again = stopped is not None and state not in UNRELEASED and stop_reason != ReasonCode.CANCELLED
        if objects > 1 or may_run_again:
            broken.append(attempt_id)
        else:
            ending = _vanished_ending(attempt_id, AttemptState(state), stop_reason if stopped else "")
            endings.append(replace(ending, message=ending.message or stop_message))
    return Vanished(endings, broken)


def _vanished_ending(attempt_id: UUID, state: AttemptState, stop_reason: str) -> Ending:
    if state in UNRELEASED:
        return Ending(attempt_id, AttemptState.ABANDONED, stop_reason or OBJECT_DELETED)
    if stop_reason == ReasonCode.CANCELLED:
        return Ending(attempt_id, AttemptState.CANCELLED, ReasonCode.CANCELLED)
    return Ending(
        attempt_id,
        AttemptState.FAILED,
        OBJECT_DELETED,
        "Its object was deleted on the cluster, not by Switchyard; it is not run again.",
    )
