"""What a refusal of the database says when a submission exceeds a limit on waiting jobs or on their rate."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from django.db import IntegrityError

from federation.queries.queue import RETRY_SECONDS
from foundation.problems import Problem, RateLimited

WAITING, RATE = "waiting_jobs_are_limited", "submission_rate_is_kept"
MOST_SECONDS = 3600


@contextmanager
def within_submission_limits() -> Iterator[None]:
    """Makes RateLimited `queue_full` or `submission_rate` of a statement that the limits on submission refuse.

    The database alone judges: it costs nothing where no limit applies, and holds for jobs that arrive at the same time.
    """
    try:
        yield
    except (IntegrityError, psycopg.IntegrityError) as error:  # COPY raises the driver's own
        refusal = _refusal_of(error if isinstance(error, psycopg.Error) else error.__cause__)
        if refusal is None:
            raise
        raise refusal from error


def _refusal_of(cause: BaseException | None) -> Problem | None:
    if not isinstance(cause, psycopg.Error) or cause.diag.constraint_name not in (WAITING, RATE):
        return None
    found = json.loads(cause.diag.message_detail or "{}")
    tenant, most = found["tenant"], found["most"]
    if cause.diag.constraint_name == WAITING:
        return RateLimited(
            f"{tenant}, with all tenants below it, can have at most {most} waiting jobs. Submit more when some have started.",
            code="queue_full",
            retry_after_seconds=RETRY_SECONDS,
        )
    advice = f"Send at most {most} in one request." if found["asked"] > most else "Submit the rest later."
    return RateLimited(
        f"{tenant}, with all tenants below it, can submit at most {most} jobs a minute. {advice}",
        code="submission_rate",
        retry_after_seconds=min(MOST_SECONDS, max(1, found["seconds"])),
    )
