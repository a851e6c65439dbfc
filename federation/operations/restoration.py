"""After a database was restored, or promoted without its last commits: first find out what runs, then dispatch (ADR
19).

An operator or the gateway itself (`histories`) begins a standstill: nothing is placed, claimed or committed. The
gateway lists each cluster and compares its objects with the rows. An object that runs and fits a waiting job in every label is adopted as its attempt. An
attempt whose object is further than its row catches up. Suspended unknown objects are removed. Anything else that may
run is left and counted. An operator opens dispatch again by hand, when nothing is left or with a note on what is. The
gateway opens it only if it began the standstill, and nothing shows that commits were lost.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import F
from django.db.models.functions import Now

import quotas.operations
from clusters.drivers import JobSeen
from clusters.models import Cluster
from federation.engine import names
from federation.engine.intake.elastic import spec_of_run
from federation.engine.intake.normal_form import request_of
from federation.engine.intake.reading import Faults, Fields
from federation.engine.lifecycle import AttemptState, JobState
from federation.engine.objects import rendering
from federation.locks import lock_job, lock_with_jobs, rewrite_standstill
from federation.models import Attempt, ComparedCluster, Job, RemoteObject, Standstill
from federation.queries.reservations import quota_within
from federation.queries.snapshot import load_fleet
from federation.queries.standstill import Circumstances, circumstances, left_of, open_standstill
from federation.queries.submissions import field_errors
from foundation import clock
from foundation.outbox import announce
from foundation.problems import Conflict, Invalid
from foundation.transactions import retried
from placement.fleet.amounts import amounts_of, units_per_pod
from placement.values.model import FleetFlavor, JobRequest
from placement.values.sizes import pace_of_size, resized
from quotas.operations import HoldRequest
from tenancy.operations import record_audit
from tenancy.queries import Actor, require_operator

from . import transitions
from .histories import watch_history
from .upkeep import ask_for_reconciliation

ALREADY_HELD = "already_held"
MOST_WORDS_BYTES = 500
UNRELEASED = (AttemptState.RESERVED, AttemptState.CREATED)


def begin_standstill(actor: Actor, reason: str) -> Standstill:
    """The standstill that begins now, or the open one if there is one: then it needs an operator from now on."""
    with transaction.atomic():
        rewrite_standstill()
        standing = open_standstill()
        if standing is not None and standing.needs_operator:
            return standing
        if standing is None:
            standing = Standstill.objects.create(reason=reason)
            ask_for_reconciliation()
        else:
            standing.needs_operator, standing.reason = True, f"{standing.reason}; {reason}"
            standing.save(update_fields=["needs_operator", "reason"])
        record_audit(actor, "dispatch.close", object_kind="installation", detail={"reason": reason})
    return standing


def open_dispatch(actor: Actor, note: str = "") -> None:
    """Ends the standstill. Raises Conflict `standstill` while something is left, unless a note says why it does not
    matter.
    """
    watch_history()  # a standstill that has to begin must not be missed
    with transaction.atomic():
        rewrite_standstill()
        standing = open_standstill()
        if standing is None:
            return
        left = left_of(standing)
        if not left.is_nothing and not note.strip():
            told = [f"{name} was not compared" for name in left.uncompared]
            told += [f"{count} objects on {name} run for no known attempt" for name, count in left.strangers]
            raise Conflict(f"Dispatch stays closed: {'; '.join(told)}.", code="standstill")
        by = f"{actor.name}: {note.strip() or 'every cluster was compared, nothing was left'}"
        Standstill.objects.filter(id=standing.id).update(ended_at=Now(), ended_by=by, needs_operator=True)
        detail = {
            "note": note,
            "uncompared": list(left.uncompared),
            "strangers": dict(left.strangers),
            "found": {one.cluster: {"adopted": one.adopted, "vanished": one.vanished} for one in left.found},
        }
        record_audit(actor, "dispatch.open", object_kind="installation", detail=detail)
        announce("cycle", "dispatch", "reconcile")


def close_on_request(actor: Actor, body: object) -> None:
    """`begin_standstill` by an operator's `{"reason": …}`."""
    require_operator(actor, "pause dispatch")
    begin_standstill(actor, _text_of(body, "reason"))


def open_on_request(actor: Actor, body: object) -> None:
    """`open_dispatch` by an operator's `{"note": …}`, which is optional."""
    require_operator(actor, "resume dispatch")
    open_dispatch(actor, _text_of(body, "note", default=""))


def _text_of(body: object, name: str, default: str | None = None) -> str:
    faults = Faults()
    text = Fields(body, "", faults, frozenset({name})).text(name, default=default, most_bytes=MOST_WORDS_BYTES)
    if default is None and not faults.found and not text.strip():
        faults.add(name, "required", "this field is required")
    if faults.found:
        raise Invalid(errors=field_errors(faults.found))
    return text.strip()


def take_in(then: Circumstances, cluster_id: UUID, seen: Sequence[JobSeen], vanished: int = 0) -> list[JobSeen] | None:
    """The cluster's unknown objects that do not run and may be deleted. All others are adopted or counted. None if the
    comparison does not count, because the standstill has ended or the history has changed meanwhile.

    `then`: when the cluster was listed. `vanished`: the number of objects of live attempts that may have run and are gone.
    """
    by_attempt: dict[UUID | None, list[JobSeen]] = defaultdict(list)
    for job in seen:
        by_attempt[names.id_in(job.labels, names.LABEL_ATTEMPT)].append(job)
    known = {a.id: a for a in Attempt.objects.filter(id__in=[id_ for id_ in by_attempt if id_])}
    inert = list[JobSeen]()
    counts = {"strangers": 0, "adopted": 0, "vanished": vanished}
    for attempt_id, jobs in by_attempt.items():
        attempt = known.get(attempt_id) if attempt_id else None
        if attempt is not None and attempt.cluster_id == cluster_id:
            if attempt.state in UNRELEASED and any(not job.suspended for job in jobs):
                counts["adopted"] += _catch_up(attempt.id, jobs)
        elif not any(not job.suspended for job in jobs):
            inert += [job for job in jobs if not job.is_terminating]
        elif attempt is None and attempt_id is not None and _adopt(cluster_id, attempt_id, jobs):
            counts["adopted"] += 1
        else:
            counts["strangers"] += sum(not job.suspended and not job.outcome for job in jobs)
    return inert if _record(then, cluster_id, counts, has_inert=bool(inert)) else None


@retried
def _record(then: Circumstances, cluster_id: UUID, counts: Mapping[str, int], *, has_inert: bool) -> bool:
    """Writes the result of the comparison. False if the standstill has ended or the history has changed since the list.

    If the gateway is to end the standstill itself, a cluster with unknown objects counts as compared when they are gone:
    a late call of a frozen process could still release them.
    """
    with transaction.atomic():
        rewrite_standstill()
        now = circumstances()
        if now.standstill_id is None or not then.is_still(now):
            return False
        if any(counts.values()):
            Standstill.objects.filter(id=now.standstill_id).update(needs_operator=True)
        history = "" if has_inert and not now.needs_operator else then.history
        values = {"compared_at": Now(), "history": history, **counts}
        ComparedCluster.objects.update_or_create(
            standstill_id=now.standstill_id,
            cluster_id=cluster_id,
            create_defaults=values,
            defaults=values | {"adopted": F("adopted") + counts["adopted"]},
        )
    return True


@retried
def _catch_up(attempt_id: UUID, jobs: Sequence[JobSeen]) -> bool:
    """Whether the attempt's release was forgotten, and is recorded again."""
    with transaction.atomic():
        (attempt,) = lock_with_jobs([attempt_id]).values()
        uids = {job.name: job.uid for job in jobs if job.namespace == attempt.namespace}
        objects = list(attempt.remote_objects.all())
        if attempt.state in UNRELEASED and all(one.uid in ("", uids.get(one.name)) for one in objects):
            transitions.catch_up(attempt, {one.id: uids[one.name] for one in objects if one.name in uids})
            return True
    return False


@retried
def _adopt(cluster_id: UUID, attempt_id: UUID, jobs: Sequence[JobSeen]) -> bool:
    """Whether the objects became the attempt of a waiting job: every label, name and quota must fit, and none may be
    missing.
    """
    job_id = names.id_in(jobs[0].labels, names.LABEL_JOB)
    flavors = next((one.flavors for one in load_fleet(clock.database_now()) if one.id == cluster_id), None)
    if job_id is None or flavors is None:
        return False
    try:
        with transaction.atomic():
            job = lock_job(job_id)
            if job is None or job.state != JobState.QUEUED or not _fits(job, attempt_id, jobs):
                return False
            request = _size_of(_request(job), attempt_id, jobs)
            if request is None:
                return False
            serving = _serving(request, flavors)
            return serving is not None and _take(cluster_id, attempt_id, job, request, serving, jobs)
    except IntegrityError:
        return False  # the uid of another object, or a live attempt of the job elsewhere


def _request(job: Job) -> JobRequest:
    return request_of(job.spec, job_id=job.id, tenant_path=job.tenant.path, shape=job.shape, priority=job.priority)


def _size_of(request: JobRequest, attempt_id: UUID, jobs: Sequence[JobSeen]) -> JobRequest | None:
    """The request with the pods of the object; None if the job may not have that many."""
    elastic = request.elastic
    if elastic is None:
        return request
    name = names.object_name(attempt_id, elastic.position)
    pods = next(one.parallelism for one in jobs if one.name == name)
    return resized(request, pods) if elastic.fewest <= pods <= elastic.most else None


def _fits(job: Job, attempt_id: UUID, jobs: Sequence[JobSeen]) -> bool:
    namespace = names.namespace_of(job.tenant.path, job.tenant_id)
    asked = {names.object_name(attempt_id, position) for position in range(len(job.spec["pod_sets"]))}
    labels = {
        names.LABEL_TENANT: str(job.tenant_id),
        names.LABEL_JOB: str(job.id),
        names.LABEL_SPEC_HASH: rendering.spec_hash(job.spec),
    }
    return {one.name for one in jobs} == asked and all(
        one.namespace == namespace and all(one.labels.get(key) == value for key, value in labels.items())
        for one in jobs
    )


def _serving(request: JobRequest, flavors: Mapping[str, FleetFlavor]) -> dict[str, FleetFlavor] | None:
    """By pod set, the cluster's first flavor that serves it; only the lost rows had the real one."""
    found = {
        pod_set.name: next((f for _, f in sorted(flavors.items()) if units_per_pod(pod_set.gpu, f) is not None), None)
        for pod_set in request.pod_sets
    }
    return {name: flavor for name, flavor in found.items() if flavor} if all(found.values()) else None


def _take(
    cluster_id: UUID,
    attempt_id: UUID,
    job: Job,
    request: JobRequest,
    serving: Mapping[str, FleetFlavor],
    jobs: Sequence[JobSeen],
) -> bool:
    name = Cluster.objects.values_list("name", flat=True).get(id=cluster_id)
    amounts = amounts_of(request, serving)
    within = quota_within(request.constraints.reservation, job.tenant.path, name)
    own = job.created_by_id, within, (), request.class_name
    hold = HoldRequest(attempt_id, job.tenant_id, job.tenant.path, name, amounts, *own)
    refusal = quotas.operations.take_holds([hold])[attempt_id]
    if refusal is not None and refusal.code != ALREADY_HELD:
        return False
    begun_at = max(made_at(attempt_id, clock.database_now()), job.created_at)
    uids = {one.name: one.uid for one in jobs}
    first = serving[request.pod_sets[0].name]
    attempt = {
        "id": attempt_id,
        "job_id": job.id,
        "number": job.attempts_made + 1,
        "cluster_id": cluster_id,
        "flavor": first.name,
        "pace": pace_of_size(request),
        "namespace": jobs[0].namespace,
        "spec_hash": rendering.spec_hash(job.spec),
        "reserved_at": begun_at,
        "sent_at": begun_at,
    }
    spec = spec_of_run(job.spec, [one.count for one in request.pod_sets])
    objects = [
        {
            "attempt_id": attempt_id,
            "position": position,
            "name": names.object_name(attempt_id, position),
            "flavor": serving[asked.name].name,
            "capacity_type": serving[asked.name].capacity_type,
            "pods": asked.count,
            "completions": spec["completions"],
            "gpu_units": units_per_pod(asked.gpu, serving[asked.name]) or 0,
            "cpu_millicores": asked.cpu_millicores,
            "memory_mib": asked.memory_mib,
            "resources": dict(asked.resources),
        }
        for position, asked in enumerate(request.pod_sets)
    ]
    event = {
        "job_id": job.id,
        "attempt_id": attempt_id,
        "message": f"Found running on {name} after a restore; adopted.",
    }
    transitions.place([attempt], objects, [event])
    rows = dict(RemoteObject.objects.filter(attempt_id=attempt_id).values_list("id", "name"))
    transitions.catch_up(Attempt.objects.get(id=attempt_id), {id_: uids[name] for id_, name in rows.items()})
    return True


def made_at(attempt_id: UUID, now: datetime) -> datetime:
    """When an id of ours was made (UUIDv7), now at the latest: a cluster may report any id."""
    return datetime.fromtimestamp(min((attempt_id.int >> 80) / 1000, now.timestamp()), UTC)
