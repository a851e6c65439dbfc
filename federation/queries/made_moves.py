"""The moves of a job, and what those to cheaper places have saved so far.

What a move saved is known only by comparison: the time that the job's runs since then did work, at the price that it left, less what
these runs cost. Time in which nothing new was done because of the move does not count as work.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db.models import QuerySet

from billing.queries import costs_of_runs
from clusters.queries import visible_clusters
from federation.models import Attempt, Move
from federation.queries.jobs import job_of
from foundation.clock import database_now
from placement.values.preemption import RESTART_SECONDS
from placement.values.reason_codes import ReasonCode
from tenancy.queries import Actor

MOST_SHOWN = 20
AN_HOUR = 3600
_STEP = Decimal("0.000001")


STATES = ("stopping", "made", "not_made")
"""Of a move: its run is being stopped, it ended so that the job moves, or it ended otherwise first."""


@dataclass(frozen=True, slots=True)
class MoveView:
    """A move. `cluster` is where its next run was placed, or else expected; empty if the viewer may not see it, or if the job did not
    move. Prices are an hour's; `price_to` is None if the job was placed on another cluster than expected. `realised` is what it has saved
    so far, None of moves for other reasons, or while its next run has not begun.
    """

    id: UUID
    at: datetime
    state: str
    """One of STATES."""
    cause: str
    origin: str
    cluster: str
    lost_seconds: int
    currency: str
    price_from: Decimal | None
    price_to: Decimal | None
    saving: Decimal | None
    price_of_move: Decimal | None
    realised: Decimal | None
    finish_by: datetime | None
    late_at: datetime | None


def moves_of(actor: Actor, job_id: UUID) -> QuerySet[Move]:
    """All moves of a job; NotFound if the actor may not see it."""
    return _of(job_of(actor, job_id).id)


def newest_moves(actor: Actor, job_id: UUID) -> tuple[MoveView, ...]:
    """The newest of those to cheaper places and for deadlines, for an actor who may see the job. One query without any."""
    rows = _of(job_id).filter(cause__in=[Move.Cause.PRICE, Move.Cause.DEADLINE])
    return move_views(actor, job_id, list(rows.order_by("-created_at")[:MOST_SHOWN]))


def _of(job_id: UUID) -> QuerySet[Move]:
    return Move.objects.filter(job=job_id).select_related("attempt")


def move_views(actor: Actor, job_id: UUID, rows: Collection[Move]) -> tuple[MoveView, ...]:
    """The moves as the actor may see them."""
    if not rows:
        return ()
    runs = list(Attempt.objects.filter(job=job_id).order_by("number"))
    ids = {run.cluster_id for run in runs} | {row.expected_id for row in rows}
    names = dict(visible_clusters(actor, with_removed=True).filter(id__in=ids).values_list("id", "name"))
    costs = costs_of_runs(job_id) if any(row.cause == Move.Cause.PRICE for row in rows) else {}
    ends = sorted(Move.objects.filter(job=job_id).values_list("attempt__number", flat=True))
    now = database_now()
    return tuple(_view(row, _since(row, runs, ends), names, costs, now) for row in rows)


def _since(row: Move, runs: Sequence[Attempt], ends: Sequence[int]) -> list[Attempt]:
    """The runs after the move, to that which the next one ended."""
    last = next((number for number in ends if number > row.attempt.number), None)
    return [run for run in runs if row.attempt.number < run.number and (last is None or run.number <= last)]


def _view(
    row: Move,
    since: Sequence[Attempt],
    names: Mapping[UUID, str],
    costs: Mapping[UUID, Mapping[str, Decimal]],
    now: datetime,
) -> MoveView:
    state, placed = _state(row.attempt), since[0].cluster_id if since else row.expected_id
    return MoveView(
        id=row.attempt_id,
        at=row.created_at,
        state=state,
        cause=row.cause,
        origin=names.get(row.attempt.cluster_id, ""),
        cluster="" if state == "not_made" else names.get(placed, ""),
        lost_seconds=row.lost_seconds,
        currency=row.currency,
        price_from=row.price_from,
        price_to=row.price_to if placed == row.expected_id else None,
        saving=row.saving,
        price_of_move=row.price_of_move,
        realised=_realised(row, since, costs, now) if state == "made" else None,
        finish_by=row.finish_by,
        late_at=row.late_at,
    )


def _state(run: Attempt) -> str:
    if run.finished_at is None:
        return "stopping"
    return "made" if run.end_reason == ReasonCode.MIGRATED else "not_made"


def _realised(
    row: Move, since: Sequence[Attempt], costs: Mapping[UUID, Mapping[str, Decimal]], now: datetime
) -> Decimal | None:
    """None as well if a part of the runs has no price, or one in another currency."""
    ran = [run for run in since if run.started_at is not None]
    if row.price_from is None or not ran:
        return None
    lost = row.lost_seconds if row.attempt.lost_seconds is None else row.attempt.lost_seconds
    work = sum(_worked(run, now) for run in ran) - lost / row.attempt.pace
    spent = Decimal(0)
    for run in ran:
        own = costs.get(run.id, {})
        if set(own) - {row.currency}:
            return None
        spent += own.get(row.currency, Decimal(0))
    stayed = row.price_from * Decimal(max(0.0, work) * row.attempt.pace) / AN_HOUR
    return (stayed - spent).quantize(_STEP)


def _worked(run: Attempt, now: datetime) -> float:
    """The seconds of work that a run did, at a pace of 1, without those of its start."""
    assert run.started_at is not None
    ran = ((run.finished_at or now) - run.started_at).total_seconds() - (run.lost_seconds or 0)
    return max(0.0, ran - RESTART_SECONDS) / run.pace
