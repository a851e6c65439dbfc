"""A checkpoint is reported, and users and rounds want different things of the run, all at once: one of them decides, and no wish is left."""

import itertools
from functools import partial

import pytest
from django.db import transaction

from federation import operations
from federation.engine.lifecycle import AttemptState
from federation.models import Attempt, Job, Move
from federation.operations.consequences import Ending
from federation.operations.endings import end_attempts
from federation.operations.reports import record_report
from federation.queries.quotes import _desk
from foundation.problems import Conflict, NotAuthenticated
from tests.builders import submit
from tests.concurrency.test_live_races import at_once
from tests.live import gpu_job, observe_until, simulated_cluster
from tests.rooms.federation.test_reports import takes_reports

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["takes_reports"]
WAIT = {"wait_for_checkpoint_seconds": 600}


@pytest.fixture
def runs(cluster, submitter):
    """A job that runs and reports, with its attempt, and another cluster that has room for it."""
    simulated_cluster("west")
    job = submit(submitter, gpu_job(seconds=100_000) | {"reports": True})
    observe_until(lambda: Job.objects.filter(id=job.id, state="running").exists())
    _desk.forget()
    return job, Attempt.objects.get(job=job)


def works(submitter, job, attempt):
    """What may happen, by name."""
    sequence = itertools.count(1)

    def report():
        operations.admit_report(attempt.id)
        record_report(attempt.id, {"sequence": next(sequence), "checkpoint": {"reference": "s3://x/1"}})

    def succeed():
        with transaction.atomic():
            end_attempts([Ending(attempt.id, AttemptState.SUCCEEDED, "completed", "", 0)])

    return {
        "report": report,
        "suspend": partial(operations.request_suspension, submitter, job.id, WAIT),
        "suspend now": partial(operations.request_suspension, submitter, job.id),
        "move": partial(operations.request_migration, submitter, job.id, {"lose_work": True} | WAIT),
        "move now": partial(operations.request_migration, submitter, job.id, {"lose_work": True}),
        "resume": partial(operations.request_resumption, submitter, job.id),
        "cancel": partial(operations.request_cancellation, submitter, job.id),
        "succeed": succeed,
        "round": operations.relocate_jobs,
    }


RACES = (
    ("report", "suspend", "move", "resume", "cancel", "round"),
    ("report", "suspend", "move", "resume", "round", "round"),
    ("report", "suspend", "move now", "suspend now", "round"),
    ("report", "suspend", "succeed", "round", "resume"),
    ("suspend", "suspend", "move", "move", "round"),
)


@pytest.mark.parametrize("first", ["suspend", "move"])
@pytest.mark.parametrize("race", RACES, ids=" ".join)
def test_whatever_happens_at_once_one_decides(runs, submitter, race, first):
    job, attempt = runs
    every = works(submitter, job, attempt)
    every[first]()
    raised = at_once(*[every[name] for name in race])
    assert {type(one) for one in raised} <= {Conflict, NotAuthenticated}, raised
    job.refresh_from_db()
    attempt.refresh_from_db()
    assert Move.objects.count() <= 1
    assert job.stop_wish is None or (job.state, job.suspend_requested_at) == ("running", None)
    if "cancel" in race:
        observe_until(lambda: Job.objects.filter(id=job.id, state="cancelled").exists())
        assert Attempt.objects.filter(job=job).count() == 1
    elif "succeed" in race:
        assert job.state == "succeeded"
        assert job.stop_wish is None
    else:
        # what still waits is due as soon as one more checkpoint is reported
        if job.stop_wish is not None:
            if attempt.stop_requested_at is None:
                every["report"]()
            operations.relocate_jobs()
        job.refresh_from_db()
        assert job.stop_wish is None
        if job.suspend_requested_at is not None:
            observe_until(lambda: Job.objects.filter(id=job.id, state="suspended").exists())
    assert operations.relocate_jobs() == 0
