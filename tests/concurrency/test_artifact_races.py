"""Announcements of artifacts race with each other and with the end of their attempt."""

import threading
from functools import partial

import pytest
from django.db import transaction

from federation import operations
from federation.engine.lifecycle import AttemptState
from federation.locks import lock_attempts
from federation.models import Artifact, Attempt, Job
from federation.operations.consequences import Ending
from federation.operations.endings import end_attempts
from federation.operations.reports import record_report
from foundation.problems import NotAuthenticated
from tests.builders import stored_spec
from tests.concurrency.test_live_races import at_once
from tests.rooms.federation.test_retries import make_attempt

pytestmark = pytest.mark.django_db(transaction=True)
MODEL = {"name": "model", "url": "s3://bucket/model", "required": True}


def running():
    attempt = make_attempt(**stored_spec(), reports=True, artifacts=[MODEL])
    operations.admit_report(attempt.id)
    return attempt


def announce(attempt, sequence):
    told = {"name": "model", "sha256": f"{sequence:064x}", "size_bytes": sequence}
    record_report(attempt.id, {"sequence": sequence, "artifacts": [told]})


def end(attempt):
    with transaction.atomic():
        end_attempts([Ending(attempt.id, AttemptState.SUCCEEDED, "completed", exit_code=0)])


def test_of_announcements_at_once_the_newest_remains():
    attempt = running()
    assert at_once(*[partial(announce, attempt, number) for number in range(1, 9)]) == []
    row = Artifact.objects.get()
    assert (row.sequence, row.sha256, row.size_bytes) == (8, f"{8:064x}", 8)


def test_an_end_says_what_was_announced_before_it_and_nothing_is_announced_after_it():
    outcomes = set()
    for _ in range(12):
        attempt = running()
        raised = at_once(partial(announce, attempt, 1), partial(end, attempt), partial(announce, attempt, 2))
        assert all(isinstance(error, NotAuthenticated) for error in raised), raised
        is_there = Artifact.objects.filter(attempt=attempt).exists()
        job = Job.objects.get(id=attempt.job_id)
        assert (job.state, job.reason_code) == ("succeeded", "" if is_there else "artifacts_missing")
        outcomes.add(is_there)
    assert outcomes


def test_an_announcement_waits_for_an_end_that_has_not_committed_and_is_refused_then():
    attempt = running()

    def ends_slowly():
        with transaction.atomic():
            lock_attempts([attempt.id])
            locked.set()
            assert not told.wait(0.2), "it was announced beside the end"
            end_attempts([Ending(attempt.id, AttemptState.SUCCEEDED, "completed", exit_code=0)])

    def announces():
        assert locked.wait(60)
        try:
            announce(attempt, 1)
        finally:
            told.set()

    locked, told = threading.Event(), threading.Event()
    [refused] = at_once(ends_slowly, announces)
    assert isinstance(refused, NotAuthenticated)
    assert (Attempt.objects.get().state, Artifact.objects.count()) == ("succeeded", 0)
    assert Job.objects.get().reason_code == "artifacts_missing"
