"""Writes why attempts failed and what follows. The caller holds a transaction and the locks of the attempts and their jobs.

A diagnosis only decides whether a job is retried, where and when. It starts nothing: the retry is placed after the cluster
has confirmed that nothing is left of the failed attempt (`failures`, `endings`).
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from federation.engine.failures import diagnoses as engine
from federation.engine.intake.normal_form import shape_of
from federation.engine.lifecycle import AttemptState
from federation.models import Attempt, Diagnosis, Job
from federation.queries.failures import cases_of
from foundation.clock import database_now
from foundation.outbox import announce
from placement.values.quantities import memory_text
from placement.values.reason_codes import ReasonCode

from .consequences import Ending
from .kept_places import keep_places


def ask(told: Mapping[UUID, Sequence[str]], kept_seconds: Mapping[UUID, int]) -> None:
    """Notes that the diagnoses on these attempts need what only their clusters can show (`examination`). Their Jobs'
    failure messages are kept with them, until they are judged; so are the places of those that may start again there.
    """
    if told:
        rows = [
            Diagnosis(attempt_id=attempt_id, text="\n".join(words)[: engine.LONGEST_TEXT])
            for attempt_id, words in sorted(told.items())
        ]
        Diagnosis.objects.bulk_create(rows, ignore_conflicts=True)
        announce("examine")
    keep_places({id_: seconds for id_, seconds in kept_seconds.items() if id_ in told})


def asked_of(attempt_ids: Collection[UUID]) -> set[UUID]:
    """Those of these attempts whose diagnosis is asked for, or known."""
    return set(Diagnosis.objects.filter(attempt_id__in=attempt_ids).values_list("attempt_id", flat=True))


def store(attempt_id: UUID, diagnosis: engine.Diagnosis, memory: Mapping[str, int] | None = None) -> None:
    """Writes the diagnosis. One that stands remains."""
    now = database_now()
    Diagnosis.objects.filter(attempt_id=attempt_id, judged_at=None).delete()
    row = Diagnosis(
        attempt_id=attempt_id,
        failure_class=diagnosis.failure_class,
        own_class=diagnosis.own_class,
        text=diagnosis.text,
        rule=diagnosis.rule,
        step=diagnosis.step,
        next_step=engine.next_step_text(diagnosis, memory)[: engine.LONGEST_TEXT],
        retry=diagnosis.retry,
        most=diagnosis.most,
        wait_seconds=diagnosis.wait_seconds,
        avoid=diagnosis.avoid,
        avoid_until=now + timedelta(seconds=diagnosis.avoid_seconds) if diagnosis.avoid else None,
        node=diagnosis.node,
        keep_seconds=diagnosis.keep_seconds,
        memory=dict(memory or {}),
        judged_at=now,
    )
    Diagnosis.objects.bulk_create([row], ignore_conflicts=True)
    if diagnosis.keep_seconds:
        keep_places({attempt_id: diagnosis.wait_seconds + diagnosis.keep_seconds})


def conclude(endings: Sequence[tuple[Attempt, Ending]]) -> Mapping[UUID, Diagnosis]:
    """The diagnoses on attempts that end now, by attempt. Those that come with their end, and those on attempts that could
    not start, are written now. What was asked and not judged is dropped: the attempt has ended otherwise.
    """
    for attempt, ending in endings:
        if ending.diagnosis is not None:
            store(attempt.id, ending.diagnosis)
    _judge_those_that_could_not_start(endings)
    ids = [attempt.id for attempt, ending in endings if ending.state != AttemptState.SUCCEEDED]
    if not ids:
        return {}
    Diagnosis.objects.filter(attempt_id__in=ids, judged_at=None).delete()
    return {row.attempt_id: row for row in Diagnosis.objects.filter(attempt_id__in=ids)}


def _judge_those_that_could_not_start(endings: Sequence[tuple[Attempt, Ending]]) -> None:
    stuck = {attempt.id: (attempt, ending) for attempt, ending in endings if ending.reason == ReasonCode.CANNOT_START}
    if not stuck:
        return
    rows = Attempt.objects.filter(id__in=stuck).select_related("job__tenant")
    for case in cases_of(list(rows), {id_: [ending.message] for id_, (_, ending) in stuck.items()}, cannot_start=True):
        # it has not run, so it has no log
        store(case.attempt.id, engine.judge_without_logs(case.rule_sets, case.facts, case.history))


def grow(job: Job, diagnosis: Diagnosis) -> None:
    """Gives the job the memory that its diagnosis names. Its next attempt requests it, and so does its spec."""
    spec = with_memory(job.spec, diagnosis.memory)
    Job.objects.filter(id=job.id).update(spec=spec, shape=shape_of(spec, job.priority))


def with_memory(spec: Mapping[str, Any], memory: Mapping[str, int]) -> dict[str, Any]:
    """The spec with this memory, by pod set."""
    return {**spec, "pod_sets": [_grown(each, memory) for each in spec["pod_sets"]]}


def _grown(pod_set: Mapping[str, Any], memory: Mapping[str, int]) -> Mapping[str, Any]:
    wanted = memory.get(str(pod_set["name"]))
    if wanted is None:
        return pod_set
    # also for an init step that has less memory than the pod set: it failed with that
    init = [{key: value for key, value in step.items() if key != "memory"} for step in pod_set.get("init", ())]
    return {**pod_set, "memory": memory_text(wanted), **({"init": init} if init else {})}
