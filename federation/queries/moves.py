"""Where a running job would continue if it were moved, what that costs, and why it cannot be moved. Read-only."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db.models import Q

from clusters.models import Cluster
from clusters.queries import visible_clusters
from federation.engine import names
from federation.engine.intake.reading import Faults, Fields
from federation.engine.intake.spec import DNS_LABEL
from federation.engine.lifecycle import JobState
from federation.models import Checkpoint, Job
from federation.models.moves import MOST_CLUSTERS
from federation.queries.jobs import job_of, permission_to_change
from federation.queries.pending_stops import WAIT, need_reports, wait_in
from federation.queries.preemption import load_run
from federation.queries.quotes import move_quote
from federation.queries.submissions import field_errors
from foundation.problems import Conflict, FieldError, Invalid
from placement.answers.moves import MoveQuote, gpu_hours
from placement.ranking.reasons import MOVED, nearest_message
from placement.values.decisions import Placement, Reason, Wait
from placement.values.preemption import RESTART_SECONDS, RunningJob
from placement.values.reason_codes import ReasonCode
from tenancy.queries import Actor, require

MOST_REASON_BYTES = 300
AN_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
_FIELDS = frozenset({"reason", "lose_work", "clusters", WAIT})


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """What a user asks for. `clusters` are the names, or ids, of those where the job is to continue; empty: anywhere else.
    `wait_seconds` is how long its run goes on for a checkpoint.
    """

    reason: str = ""
    may_lose: bool = False
    clusters: tuple[str, ...] = ()
    wait_seconds: int = 0


@dataclass(frozen=True, slots=True)
class Lost:
    """Work that a move repeats. `cost` is what it cost so far; None without a price."""

    seconds: int
    gpu_hours: Decimal
    cost: Decimal | None


@dataclass(frozen=True, slots=True)
class MovePlan:
    """A move as it would happen now. `refusal` is why it cannot happen; with `cannot_resume`, `place` is known all the same.

    `why_not` are the reasons of the clusters in question when none has room.
    """

    job: Job
    run: RunningJob | None = None
    quote: MoveQuote | None = None
    place: Placement | None = None
    lost: Lost | None = None
    named: tuple[UUID, ...] = ()
    refusal: Conflict | None = None
    why_not: tuple[Reason, ...] = ()

    @property
    def cost_seconds(self) -> int:
        """The time that it takes from the job: what it repeats, and the restart."""
        return RESTART_SECONDS + (self.lost.seconds if self.lost else 0)


def read_move(body: object) -> MoveRequest:
    """The request in the body; Invalid with every field at fault."""
    faults = Faults()
    fields = Fields({} if body is None else body, "", faults, _FIELDS)
    request = MoveRequest(
        fields.text("reason", default="", most_bytes=MOST_REASON_BYTES),
        fields.flag("lose_work", default=False),
        fields.names("clusters", names.dns_label, DNS_LABEL, most=MOST_CLUSTERS),
        wait_in(fields),
    )
    if faults.found:
        raise Invalid(errors=field_errors(faults.found))
    return request


def preview(actor: Actor, job_id: UUID, body: object) -> MovePlan:
    """The plan of a move that is not made. Raises what the move would raise, except for Conflicts: the plan has these."""
    request = read_move(body)
    job = movable_job(actor, job_id)
    need_reports(job, request.wait_seconds)
    return plan_move(actor, job, request)


def movable_job(actor: Actor, job_id: UUID) -> Job:
    """The job, if the actor may move it."""
    job = job_of(actor, job_id)
    require(actor, job.tenant, permission_to_change(job, actor))
    return job


def plan_move(actor: Actor, job: Job, request: MoveRequest) -> MovePlan:
    """The move as it would happen now, or why it cannot."""
    run = load_run(job.id) if job.state == JobState.RUNNING else None
    if run is None:
        return MovePlan(job, refusal=Conflict(NOT_RUNNING, code="state_conflict"))
    named = _clusters(actor, request.clusters, run)
    quote = move_quote(job.id, run, job.created_by_id, named)
    if isinstance(quote.outcome, Wait):
        return _without_place(job, run, quote, named)
    place = quote.outcome
    resumes, refusal = can_resume(job, place), None
    if not resumes and not request.may_lose:
        refusal = _cannot_resume(job, place)
    lost = lost_work(run, quote, run.lost_seconds(quote.at) if resumes else _ran(run, quote.at))
    return MovePlan(job, run, quote, place, lost, named, refusal)


NOT_RUNNING = (
    "Only a job that runs, and is not being stopped, can be moved, and only from a cluster without `too_many_vanished`. Read"
    " it again."
)


def _clusters(actor: Actor, asked: Sequence[str], run: RunningJob) -> tuple[UUID, ...]:
    """The ids of the clusters; Invalid for one that the actor does not see, or where the job runs."""
    ids = [UUID(one) for one in asked if AN_ID(one)]
    seen = visible_clusters(actor).filter(Q(name__in=asked) | Q(id__in=ids)) if asked else Cluster.objects.none()
    found = dict(seen.values_list("name", "id"))
    known = {*found, *map(str, found.values())}
    faults = [
        FieldError(f"clusters[{number}]", "unknown_value", "there is no such cluster, or you may not see it")
        for number, one in enumerate(asked)
        if one not in known
    ]
    if run.cluster_id in found.values():
        faults.append(FieldError("clusters", "conflict", f"the job runs on {run.cluster} already; name others"))
    if faults:
        raise Invalid(errors=faults)
    return tuple(sorted(found.values()))


def _without_place(job: Job, run: RunningJob, quote: MoveQuote, named: tuple[UUID, ...]) -> MovePlan:
    assert isinstance(quote.outcome, Wait)
    asked = tuple(one for one in quote.outcome.per_cluster if one.code not in MOVED)
    open_ones = [one for one in asked if not one.is_for_good] or asked
    is_about_clusters = quote.outcome.code not in NOT_OF_CLUSTERS and open_ones
    message = nearest_message(open_ones) if is_about_clusters else quote.outcome.message
    which = "none of the clusters that you named" if named else "no other cluster"
    refusal = Conflict(
        f"The job stays where it is, because {which} would take it now: {message}.", code="no_place_to_move"
    )
    lost = lost_work(run, quote, run.lost_seconds(quote.at))
    return MovePlan(job, run, quote, None, lost, named, refusal, asked)


NOT_OF_CLUSTERS = frozenset(
    {
        ReasonCode.WAITING_FOR_QUOTA,
        ReasonCode.WAITING_FOR_USER_LIMIT,
        ReasonCode.WAITING_FOR_CLASS_LIMIT,
        ReasonCode.WAITING_FOR_BUDGET,
    }
)


def lost_work(run: RunningJob, quote: MoveQuote, seconds: int) -> Lost:
    """That much work of the run."""
    return Lost(seconds, gpu_hours(run, seconds), quote.lost_cost(seconds))


def _ran(run: RunningJob, at: datetime) -> int:
    return max(0, int((at - run.started_at).total_seconds()))


def can_resume(job: Job, place: Placement) -> bool:
    """Whether the job would continue from a checkpoint there."""
    reported = Checkpoint.objects.filter(attempt__job=job)
    there = Q(flavors=[]) | Q(flavors__contains=[place.pod_sets[0].flavor])
    return reported.filter(there).exists() or bool(job.spec.get("checkpoint_seconds") and not reported.exists())


def _cannot_resume(job: Job, place: Placement) -> Conflict:
    flavor = place.pod_sets[0].flavor
    has_any = Checkpoint.objects.filter(attempt__job=job).exists()
    what = f"none that can be resumed on {flavor}" if has_any else "no checkpoint"
    return Conflict(
        f"The job stays where it is: it has reported {what}, so it would start again on {place.cluster} from its beginning. "
        "Send lose_work: true to accept that.",
        code="cannot_resume",
    )
