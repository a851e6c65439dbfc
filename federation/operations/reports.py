"""Stores what runs report of themselves: progress, checkpoints and artifacts. A run reports only of itself, and decides nothing.

Each attempt has a bound on its reports, which counts before a body is read. A report with a sequence that is not newer
than what is known changes nothing, so a repeated or late one is harmless.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models.functions import Now

from federation.engine.artifacts import reference_below
from federation.engine.intake.reading import Refused
from federation.engine.reports import (
    MOST_CHECKPOINTS,
    MOST_REPORTS,
    WINDOW_SECONDS,
    Report,
    merged,
    read_report,
    stored_report,
)
from federation.locks import keep_from_ending, lock_progress
from federation.models import Artifact, Checkpoint, Progress
from federation.queries.pending_stops import is_stop_pending
from federation.queries.reports import REPORTING_STATES
from federation.queries.submissions import field_errors
from foundation import clock
from foundation.outbox import announce
from foundation.problems import Invalid, NotAuthenticated, RateLimited
from foundation.transactions import retried

ADMIT = """
INSERT INTO federation_progress (attempt_id, window_began_at, window_reports)
SELECT id, now(), 1 FROM federation_attempt WHERE id = %(attempt)s AND state = ANY(%(states)s)
ON CONFLICT (attempt_id) DO UPDATE
   SET window_began_at = CASE WHEN federation_progress.window_began_at > now() - make_interval(secs => %(seconds)s)
                              THEN federation_progress.window_began_at ELSE now() END,
       window_reports = CASE WHEN federation_progress.window_began_at > now() - make_interval(secs => %(seconds)s)
                             THEN federation_progress.window_reports + 1 ELSE 1 END
 WHERE federation_progress.window_reports < %(most)s
    OR federation_progress.window_began_at <= now() - make_interval(secs => %(seconds)s)
RETURNING attempt_id
"""


def admit_report(attempt_id: UUID) -> None:
    """Counts one more report of the attempt. Raises RateLimited if it has reported too often."""
    asked: dict[str, Any] = {
        "attempt": attempt_id,
        "states": REPORTING_STATES,
        "seconds": WINDOW_SECONDS,
        "most": MOST_REPORTS,
    }
    with connection.cursor() as cursor:
        cursor.execute(ADMIT, asked)
        if cursor.fetchone() is None:
            raise RateLimited(
                f"An attempt may send at most {MOST_REPORTS} reports in {WINDOW_SECONDS} seconds.",
                retry_after_seconds=WINDOW_SECONDS // 4,
            )


@retried
def record_report(attempt_id: UUID, body: object) -> bool:
    """Whether the report of an admitted attempt is newer than what is known, and is stored now. Invalid with every
    field at fault.
    """
    try:
        report = read_report(body)
    except Refused as refused:
        raise Invalid(errors=field_errors(refused.faults)) from None
    with transaction.atomic():
        declared = keep_from_ending(attempt_id, REPORTING_STATES) if report.artifacts else []
        known = lock_progress(attempt_id, REPORTING_STATES)
        if known is None or declared is None:
            raise NotAuthenticated("This token is not valid.")
        # Another pod's report may be newer; a checkpoint counts by its own sequence, and so does an artifact.
        is_new = _store_checkpoint(attempt_id, report)
        if is_new and is_stop_pending(attempt_id):
            announce("relocate")
        is_new = _store_artifacts(attempt_id, report, {one["name"]: one for one in declared}) or is_new
        return _store_progress(known, report) or is_new


def _store_progress(known: Progress, report: Report) -> bool:
    if report.sequence <= known.sequence:
        return False
    series = merged(known.series, report)
    if series is None:
        raise Invalid.field("series", "too_many", "the attempt has reported other names before, too many in all")
    told = stored_report(report)
    step, total = told.get("step", known.step), told.get("total_steps", known.total_steps)
    if step is not None and total is not None and step > total:
        raise Invalid.field("step", "out_of_range", "must be at most total_steps")
    # a run that counts from a lower step again has another pace
    if report.step is not None and (known.first_step is None or known.step is None or report.step < known.step):
        told |= {"first_step": report.step, "first_step_at": Now()}
    Progress.objects.filter(attempt_id=known.attempt_id).update(
        sequence=report.sequence, series=series, reported_at=Now(), **told
    )
    return True


def _store_checkpoint(attempt_id: UUID, report: Report) -> bool:
    """Whether the report names a checkpoint that is new, or newer than its row. The oldest rows beyond the bound go."""
    given = report.checkpoint
    if given is None:
        return False
    now = clock.database_now()
    told = {
        "sequence": report.sequence,
        "size_bytes": given.size_bytes,
        "step": report.step if given.step is None else given.step,
        "flavors": list(given.flavors),
        "written_at": min(given.written_at or now, now),
        "reported_at": now,
    }
    rows = Checkpoint.objects.filter(attempt_id=attempt_id)
    if rows.filter(reference=given.reference).exists():
        return bool(rows.filter(reference=given.reference, sequence__lt=report.sequence).update(**told))
    Checkpoint.objects.create(attempt_id=attempt_id, reference=given.reference, **told)
    kept = rows.order_by("-sequence", "-id").values_list("id", flat=True)[:MOST_CHECKPOINTS]
    rows.exclude(id__in=list(kept)).delete()
    return True


def _store_artifacts(attempt_id: UUID, report: Report, declared: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the report announces an artifact that is new, or newer than its row. Invalid for one that the job does not declare."""
    is_new = False
    for index, given in enumerate(report.artifacts):
        place = declared.get(given.name)
        if place is None:
            raise Invalid.field(
                f"artifacts[{index}].name", "unknown_value", "the job declares no artifact of this name"
            )
        told = {
            "sequence": report.sequence,
            "storage": place.get("storage", ""),
            "reference": reference_below(place, given.path),
            "sha256": given.sha256,
            "size_bytes": given.size_bytes,
        }
        rows = Artifact.objects.filter(attempt_id=attempt_id, name=given.name)
        if rows.exists():
            is_new = bool(rows.filter(sequence__lt=report.sequence).update(**told, announced_at=Now())) or is_new
        else:
            Artifact.objects.create(attempt_id=attempt_id, name=given.name, **told)
            is_new = True
    return is_new
