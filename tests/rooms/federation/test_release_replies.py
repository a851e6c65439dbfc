"""Each answer of a cluster to a release, and what its repetition does to the Job: it starts once, and stays as others put it."""

import pytest

from clusters.drivers import Ambiguous, DriverError, NotThere, Refused, Stale, Throttled, Unreachable
from clusters.drivers.kubernetes.wire import Expired
from clusters.drivers.simulated import SimulatedDriver, path_of, suspend_job
from federation import operations
from federation.models import Attempt
from foundation.clock import now
from tests.live import call, every_visit, place

pytestmark = pytest.mark.django_db(transaction=True)
UNHEARD = {
    "lost": Ambiguous("no answer"),
    "500": Ambiguous("the server answered 500", status=500),
    "429": Throttled("wait"),
    "404": NotThere("not found", status=404),
    "409": Stale("the object has been modified", status=409),
    "422 of a failed test": Stale("testing value /metadata/generation failed: test failed", status=422),
    "no connection": Unreachable("no route"),
}
"""Answers after which the Job's own state decides."""
REFUSALS = {
    "410": Expired("gone", status=410),
    "422": Refused("spec.template: Invalid value", status=422),
}
VISITS = 3


def answering(monkeypatch, error: DriverError, *, is_done: bool, then=lambda: None):
    """The first release gets this answer, whether the cluster has carried it out or not; later ones get their own. `then` happens
    before the answer. The returned list gets the first release: it may still be under way.
    """
    original, under_way = SimulatedDriver.release_job, []

    async def release_job(driver, *arguments):
        if under_way:
            return await original(driver, *arguments)
        under_way.append(arguments)
        if is_done:
            await original(driver, *arguments)
        then()
        raise error

    monkeypatch.setattr(SimulatedDriver, "release_job", release_job)
    return under_way


def visited(attempt):
    every_visit(attempt, VISITS)
    attempt.refresh_from_db()
    return attempt.released_at is not None, attempt.stop_reason


@pytest.mark.parametrize("answer", UNHEARD)
@pytest.mark.parametrize("is_done", [False, True], ids=["not done", "done"])
def test_after_any_answer_a_job_starts_once(cluster, submitter, monkeypatch, answer, is_done):
    _, attempt = place(submitter, seconds=100_000)
    answering(monkeypatch, UNHEARD[answer], is_done=is_done)
    operations.dispatch_attempts()
    assert visited(attempt) == (True, "")
    [job] = call(cluster, "list_jobs")
    assert (job.suspended, job.generation) == (False, 2)
    assert len(call(cluster, "list_pods", attempt.namespace, job.name)) == 1


@pytest.mark.parametrize("answer", [*UNHEARD, *REFUSALS])
@pytest.mark.parametrize("is_quick", [False, True], ids=["after the answer", "before it"])
def test_what_others_suspend_after_a_release_whose_answer_was_lost_stays_suspended(
    cluster, submitter, monkeypatch, settings, answer, is_quick
):
    _, attempt = place(submitter, seconds=100_000)
    path = path_of(settings.HOME, cluster.server)
    [name] = attempt.remote_objects.values_list("name", flat=True)

    def suspend():
        """As `kubectl patch job … suspend: true` does, and Kueue."""
        suspend_job(path, attempt.namespace, name, at=now())

    answering(monkeypatch, (UNHEARD | REFUSALS)[answer], is_done=True, then=suspend if is_quick else lambda: None)
    operations.dispatch_attempts()
    suspend()
    assert visited(attempt) == (True, "")
    [job] = call(cluster, "list_jobs")
    assert (job.suspended, job.generation) == (True, 3)
    assert call(cluster, "list_pods", attempt.namespace, job.name) == []
    assert Attempt.objects.get().state in {"starting", "running"}, "it waits for them, and nothing runs elsewhere"


def test_a_release_that_arrives_late_starts_nothing_that_others_have_suspended_meanwhile(
    cluster, submitter, monkeypatch, settings
):
    _, attempt = place(submitter, seconds=100_000)
    under_way = answering(monkeypatch, UNHEARD["lost"], is_done=False)
    operations.dispatch_attempts()
    assert visited(attempt) == (True, "")
    [job] = call(cluster, "list_jobs")
    suspend_job(path_of(settings.HOME, cluster.server), attempt.namespace, job.name, at=now())
    with pytest.raises(Stale):
        call(cluster, "release_job", *under_way[0])
    [job] = call(cluster, "list_jobs")
    assert (job.suspended, job.generation) == (True, 3)


@pytest.mark.parametrize("answer", REFUSALS)
def test_a_refused_release_is_given_up_and_nothing_of_it_runs(cluster, submitter, monkeypatch, answer):
    _, attempt = place(submitter, seconds=100_000)
    answering(monkeypatch, REFUSALS[answer], is_done=False)
    operations.dispatch_attempts()
    attempt.refresh_from_db()
    assert (attempt.released_at, attempt.stop_reason) == (None, "refused_by_cluster")
    assert call(cluster, "list_jobs") == []
