"""Turns observed runs into usage segments: each moment once, at the price in force then."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction
from psycopg.types.range import TimestamptzRange

from billing import locks
from billing.engine.rating import whole_milliseconds
from billing.engine.runs import MeterKey, ObservedRun, TrueEnd
from billing.models import Meter, MeterRevision, UsageSegment
from billing.queries.prices import price_spans
from billing.queries.progress import assumed_beyond, meters_for, rated
from foundation.rows import insert_rows

logger = logging.getLogger(__name__)


def record_runs(runs: Sequence[ObservedRun]) -> None:
    """Meters the observed time that is not metered yet, in the caller's transaction or its own.

    A run that is reported again, late, or with an earlier end changes nothing here (`correct_ends` does). Time without a price
    is metered at no cost.
    """
    latest = _latest(runs)
    if not latest:
        return
    with transaction.atomic():
        locks.read_price_book()
        _open_meters(latest)
        meters = [meter for meter in locks.lock_meters(latest.keys()) if not meter.is_closed]
        _warn_of_contradictions(meters, latest)
        moved = [meter for meter in meters if _moves(meter, latest[meter.cluster_id, meter.source_uid])]
        segments = _segments(moved, latest)
        for meter in moved:
            run = latest[meter.cluster_id, meter.source_uid]
            meter.metered_until = max(meter.metered_until, run.until_at)
            meter.is_closed = run.is_final
            meter.redone_from = _redone_from(meter, run)
            meter.certain_until = _certain_until(meter, run)
        _run_on(moved)
        insert_rows(segments)


def correct_ends(ends: Sequence[TrueEnd]) -> set[UUID]:
    """The runs of the closed meters that these reports shorten, in the caller's transaction or its own: a meter that had assumed
    a later end gives back the time after the reported one, and its days are posted again.

    What was observed, or reported before, stands: the same report again, and one that contradicts it, change nothing.
    """
    of = {end.key: replace(end, at=whole_milliseconds(end.at)) for end in ends}
    with transaction.atomic():
        too_long = assumed_beyond({key: end.at for key, end in of.items()})
        if not too_long:
            return set()
        locks.read_price_book()
        revisions = [
            revision
            for meter in locks.lock_meters(too_long)
            if (revision := _shortened(meter, of[_key(meter)])) is not None
        ]
        MeterRevision.objects.bulk_create(revisions)
    return {revision.meter.run_id for revision in revisions}


def _key(meter: Meter) -> MeterKey:
    return meter.cluster_id, meter.source_uid


def _shortened(meter: Meter, end: TrueEnd) -> MeterRevision | None:
    """The revision of a closed meter that assumed a later end; None if it is certain of its time until then."""
    if not meter.is_closed or meter.certain_until is None:
        return None
    until, counted = max(meter.certain_until, end.at), meter.metered_until
    if until >= counted:
        return None
    return MeterRevision(
        meter=meter,
        number=meter.revisions + 1,
        counted_until=counted,
        until=until,
        is_estimated=end.is_estimated or until > end.at,
    )


def _latest(runs: Iterable[ObservedRun]) -> dict[MeterKey, ObservedRun]:
    """One run for each pod, in whole milliseconds: the report with the latest end, final if any report of the pod is
    final.
    """
    latest: dict[MeterKey, ObservedRun] = {}
    for run in runs:
        started_at = whole_milliseconds(run.started_at)
        until_at = max(started_at, whole_milliseconds(run.until_at))
        whole = replace(run, started_at=started_at, until_at=until_at)
        known = latest.get(run.key)
        if known is not None:
            further = whole if whole.until_at > known.until_at else known
            redone_from = known.redone_from or run.redone_from
            whole = replace(further, is_final=known.is_final or run.is_final, redone_from=redone_from)
        latest[run.key] = whole
    return latest


def _open_meters(runs: Mapping[MeterKey, ObservedRun]) -> None:
    """Opens a meter for each run that has none yet, in one order, so that concurrent deliveries of the same runs cannot
    deadlock.
    """
    Meter.objects.bulk_create(meters_for(run for _, run in sorted(runs.items())), ignore_conflicts=True)


def _moves(meter: Meter, run: ObservedRun) -> bool:
    return run.is_final or run.until_at > meter.metered_until


def _redone_from(meter: Meter, run: ObservedRun) -> datetime | None:
    """The start of the lost work that a closing meter counted; None if that is at its end or later."""
    if run.redone_from is None or not meter.is_closed:
        return None
    at = max(meter.metered_from, whole_milliseconds(run.redone_from))
    return at if at < meter.metered_until else None


def _certain_until(meter: Meter, run: ObservedRun) -> datetime:
    """Until when the meter's time is more than assumed: this never decreases."""
    known = meter.certain_until or meter.metered_from
    if run.certain_until is None:
        return known
    return max(known, min(whole_milliseconds(run.certain_until), meter.metered_until))


def _segments(meters: Sequence[Meter], runs: Mapping[MeterKey, ObservedRun]) -> list[UsageSegment]:
    """The time that each meter has not counted yet, cut and priced."""
    if not meters:
        return []
    until = max(runs[meter.cluster_id, meter.source_uid].until_at for meter in meters)
    start = min(meter.metered_until for meter in meters)
    prices = price_spans({meter.cluster_id for meter in meters}, start, until) if start < until else {}
    segments = []
    for meter in meters:
        run = runs[meter.cluster_id, meter.source_uid]
        if run.until_at <= meter.metered_until:
            continue
        segments += [
            UsageSegment(
                meter=meter,
                period=TimestamptzRange(piece.start, piece.until),
                gpu_milliseconds=piece.gpu_milliseconds,
                cpu_millicore_milliseconds=piece.cpu_millicore_milliseconds,
                price_id=piece.price_id,
                cost=piece.cost,
                currency=piece.currency,
                is_estimated=run.is_estimated,
            )
            for piece in rated(meter, meter.metered_until, run.until_at, prices)
        ]
    return segments


def _run_on(meters: Sequence[Meter]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE billing_meter AS m SET metered_until = moved.until, is_closed = moved.closed, redone_from = moved.redone,"
            " certain_until = moved.certain FROM unnest(%s::bigint[], %s::timestamptz[], %s::boolean[], %s::timestamptz[],"
            " %s::timestamptz[]) AS moved(id, until, closed, redone, certain) WHERE m.id = moved.id",
            [
                [meter.id for meter in meters],
                [meter.metered_until for meter in meters],
                [meter.is_closed for meter in meters],
                [meter.redone_from for meter in meters],
                [meter.certain_until for meter in meters],
            ],
        )


def _warn_of_contradictions(meters: Sequence[Meter], runs: Mapping[MeterKey, ObservedRun]) -> None:
    """A pod's first report remains in force; a report that contradicts it needs an operator's attention."""
    for meter in meters:
        run = runs[meter.cluster_id, meter.source_uid]
        first = (meter.run_id, meter.flavor, meter.gpu_units, meter.cpu_millicores, meter.metered_from)
        if first != (run.run_id, run.flavor, run.gpu_units, run.cpu_millicores, run.started_at):
            logger.warning(
                "the report of pod %s of cluster %s differs from an earlier one", run.source_uid, run.cluster_id
            )
