"""Writes and withdraws a user's stop that waits for a checkpoint; `pending_stops` carries it out. A job has one at most.

Callers hold a transaction and the job's lock.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db.models.functions import Now

from federation.models import Job, JobEvent
from federation.queries.pending_stops import pending_stop
from foundation.rows import insert_rows
from placement.values.quantities import duration_text
from tenancy.queries import Actor

NO_WISH = {"stop_wish": None, "stop_wished_at": None, "stop_latest_at": None}
DONE = {"suspend": "suspended", "move": "moved"}


def wish_stop(actor: Actor, job: Job, then: str, seconds: int, more: Mapping[str, Any] | None = None) -> None:
    """Has the locked, running job suspended or moved when it reports its next checkpoint, after this time at the latest. It replaces an
    earlier wish. `more` is what the move needs then.
    """
    replaced = pending_stop(job)
    wish = {**(more or {}), "then": then, "by": actor.name}
    latest = Now() + timedelta(seconds=seconds)
    Job.objects.filter(id=job.id).update(stop_wish=wish, stop_wished_at=Now(), stop_latest_at=latest)
    instead = f", instead of being {DONE[replaced.then]}" if replaced else ""
    told = f"To be {DONE[then]} when it reports its next checkpoint, in {duration_text(seconds)} at most, by {actor.name}{instead}."
    insert_rows([JobEvent(job_id=job.id, kind="stop_waits", message=told)])


def withdraw_stop(job: Job, why: str) -> bool:
    """Whether a stop of the locked job waited, and does not any more. `why` is for its timeline."""
    wish = pending_stop(job)
    if wish is None:
        return False
    Job.objects.filter(id=job.id).update(**NO_WISH)
    insert_rows([JobEvent(job_id=job.id, kind="stop_withdrawn", message=f"Not {DONE[wish.then]}: {why}.")])
    return True
