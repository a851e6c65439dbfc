"""Clusters that accept a request and never answer: their visits end, cost few calls, and their jobs go elsewhere."""

import asyncio
from datetime import timedelta

import pytest

from clusters.drivers import Ambiguous
from clusters.drivers.simulated import SimulatedDriver
from federation import operations
from federation.locks import claim_left_waiting
from federation.models import Attempt, ClusterUpkeep
from federation.operations import last_looks, visits
from federation.operations.dispatch import BATCH, MOST_SILENT_VISITS, PATIENCE_SECONDS, PROBES, ROUNDS
from federation.operations.observation import record_observations
from federation.operations.rests import FORGET_SECONDS, REST_SECONDS
from federation.operations.visits import MOST_TIMES_FAILED
from federation.queries.due_clusters import due_clusters
from foundation import clock
from foundation.clock import database_now, now
from foundation.threads import close_kept_threads
from foundation.turns import Turn
from tests.backlog import pile_up
from tests.live import every_visit, place

pytestmark = pytest.mark.django_db(transaction=True)
ATTEMPTS = 3 * PROBES


def short(monkeypatch):
    """Visits of two seconds, half of them for releases: on a busy host, too, there is time for each call to begin."""
    monkeypatch.setattr(visits, "VISIT_SECONDS", 2.0)
    monkeypatch.setattr(visits, "RELEASE_SECONDS", 1.0)


@pytest.fixture
def asked(monkeypatch):
    """The names of the Jobs that the hanging cluster was asked to create."""
    asked = []

    async def hang(_, manifest):
        asked.append(manifest["metadata"]["name"])
        await asyncio.Event().wait()

    short(monkeypatch)
    monkeypatch.setattr(SimulatedDriver, "create_job", hang)
    return asked


def due_again():
    """Everything there is due, and the cluster has rested."""
    Attempt.objects.filter(finished_at=None).update(next_action_at=now(), claim_expires_at=None)
    ClusterUpkeep.objects.filter(rests_until__gt=now()).update(rests_until=now())


def test_an_attempt_whose_creation_never_gets_an_answer_is_given_up(cluster, submitter, asked):
    _, attempt = place(submitter)
    for _ in range(MOST_TIMES_FAILED + 1):
        due_again()
        operations.dispatch_attempts()
    attempt.refresh_from_db()
    assert (attempt.state, attempt.end_reason) == ("abandoned", "create_failed")
    assert len(asked) > 1


def silent_visits(cluster, number=1):
    """This many visits in a row that the cluster does not answer; returns what it rests after each, in seconds."""
    ROUNDS.mark(cluster.id, 600)
    rests = []
    for _ in range(number):
        due_again()
        operations.dispatch_attempts()
        rest = ClusterUpkeep.objects.get(cluster=cluster).rests_until - database_now()
        rests.append(rest.total_seconds())
    return rests


def place_many(submitter, cluster, number):
    """Attempts that wait for their creation there."""
    _, attempt = place(submitter)
    pile_up(attempt, [cluster], number - 1)
    return attempt


def have_waited(**attempts):
    Attempt.objects.filter(**attempts).update(reserved_at=now() - timedelta(seconds=PATIENCE_SECONDS + 1))


def test_a_slow_cluster_that_does_not_answer_gets_a_few_calls_and_nothing_else_there_is_written(
    cluster, submitter, asked
):
    place_many(submitter, cluster, ATTEMPTS)
    silent_visits(cluster)
    assert len(asked) == PROBES
    assert Attempt.objects.filter(sent_at=None, tries=0, claim_expires_at=None).count() == ATTEMPTS - PROBES
    silent_visits(cluster, 5)
    assert len(set(asked)) > PROBES, "the probes are not always the same"


def test_a_silent_cluster_rests_with_all_that_is_placed_there_meanwhile(cluster, submitter, asked):
    attempt = place_many(submitter, cluster, BATCH + 2)
    silent_visits(cluster)
    pile_up(attempt, [cluster], 1)
    assert due_clusters() == []
    due_again()
    assert [due.id for due in due_clusters()] == [cluster.id]


def test_rests_double_twice_and_differ_between_clusters(cluster, submitter, asked):
    place_many(submitter, cluster, 2 * PROBES)
    rests = silent_visits(cluster, 4)
    for rest, doubled in zip(rests, (1, 2, 4, 4), strict=True):
        assert REST_SECONDS * doubled - 1 < rest <= 2 * REST_SECONDS * doubled
    assert len({round(rest / doubled, 1) for rest, doubled in zip(rests, (1, 2, 4, 4), strict=True)}) > 1


def test_a_rest_of_long_ago_does_not_lengthen_the_next(cluster, submitter, asked):
    place_many(submitter, cluster, PROBES)
    silent_visits(cluster, 3)
    ClusterUpkeep.objects.update(rests_until=now() - timedelta(seconds=FORGET_SECONDS + 1))
    assert silent_visits(cluster)[0] <= 2 * REST_SECONDS


def test_an_answer_ends_the_row_of_silent_visits(cluster, submitter, asked, monkeypatch):
    place_many(submitter, cluster, PROBES)
    silent_visits(cluster, 3)
    monkeypatch.undo()
    due_again()
    operations.dispatch_attempts()
    upkeep = ClusterUpkeep.objects.get(cluster=cluster)
    assert (upkeep.silent_visits, upkeep.rests_until) == (0, None)
    assert Attempt.objects.filter(released_at=None).count() == 0


def test_all_that_waited_too_long_at_a_silent_cluster_goes_elsewhere_however_much_it_is(cluster, submitter, asked):
    place_many(submitter, cluster, BATCH + PROBES + 4)
    silent_visits(cluster, MOST_SILENT_VISITS - 1)
    have_waited()
    assert Attempt.objects.filter(finished_at=None).count() == BATCH + PROBES + 4, "too few visits were silent"
    silent_visits(cluster)
    assert set(Attempt.objects.values_list("state", "end_reason")) == {("abandoned", "create_failed")}
    assert len(asked) == MOST_SILENT_VISITS * PROBES
    cluster.refresh_from_db()
    assert "creates_fail" in [reason["code"] for reason in cluster.reasons]


def test_only_a_creation_that_waited_is_given_up_without_a_call(cluster, submitter, asked):
    place_many(submitter, cluster, 4)
    _fresh, cancelled, committed, waited = Attempt.objects.order_by("id")
    have_waited(id__in=[cancelled.id, committed.id, waited.id])
    Attempt.objects.filter(id=cancelled.id).update(stop_requested_at=now(), stop_reason="cancelled", stop_message="x")
    Attempt.objects.filter(id=committed.id).update(state="starting", starting_at=now())
    claim = claim_left_waiting(cluster.id, PATIENCE_SECONDS, BATCH)
    assert claim.attempt_ids == (waited.id,)
    assert visits.given_up(waited.id, Ambiguous("silence")).reason == "create_failed"


def test_a_slow_cluster_that_hangs_on_releases_gets_a_few_of_them(cluster, submitter, monkeypatch):
    _, attempt = place(submitter)
    pile_up(attempt, [cluster], ATTEMPTS - 1)
    released = []

    async def hang(_, namespace, name, *rest):
        released.append(name)
        await asyncio.Event().wait()

    short(monkeypatch)
    monkeypatch.setattr(SimulatedDriver, "release_job", hang)
    ROUNDS.mark(cluster.id, 60)
    operations.dispatch_attempts()
    assert len(released) == PROBES
    assert Attempt.objects.filter(state="starting").count() == PROBES
    assert set(Attempt.objects.values_list("released_at", "tries")) == {(None, 0), (None, 1)}


def test_a_slow_cluster_that_answers_gets_all_calls_of_the_visit(cluster, submitter):
    _, attempt = place(submitter)
    pile_up(attempt, [cluster], ATTEMPTS - 1)
    ROUNDS.mark(cluster.id, 60)
    operations.dispatch_attempts()
    assert Attempt.objects.filter(released_at=None).count() == 0


def test_an_error_is_an_answer(cluster, submitter, monkeypatch):
    """A webhook may refuse some jobs: the others are not kept back because of it."""
    _, attempt = place(submitter)
    pile_up(attempt, [cluster], ATTEMPTS - 1)
    asked = []

    async def fail(_, manifest):
        asked.append(manifest["metadata"]["name"])
        raise Ambiguous("failed calling webhook", status=500)

    monkeypatch.setattr(SimulatedDriver, "create_job", fail)
    ROUNDS.mark(cluster.id, 60)
    operations.dispatch_attempts()
    assert len(asked) > PROBES


def test_a_creation_that_hangs_delays_neither_the_creation_nor_the_release_of_others(cluster, submitter, monkeypatch):
    _, attempt = place(submitter)
    pile_up(attempt, [cluster], ATTEMPTS - 1)
    hanging = attempt.remote_objects.get().name
    create, release = SimulatedDriver.create_job, SimulatedDriver.release_job

    async def take_a_while(self, *args):
        await asyncio.sleep(0.1)
        return await release(self, *args)

    async def hang_once(self, manifest):
        if manifest["metadata"]["name"] == hanging:
            await asyncio.Event().wait()
        return await create(self, manifest)

    short(monkeypatch)
    monkeypatch.setattr(SimulatedDriver, "create_job", hang_once)
    monkeypatch.setattr(SimulatedDriver, "release_job", take_a_while)
    operations.dispatch_attempts(Turn(seconds=0.1))
    close_kept_threads()  # waits for the visit
    assert list(Attempt.objects.filter(released_at=None).values_list("id", "tries", "state")) == [
        (attempt.id, 1, "reserved")
    ]


@pytest.mark.usefixtures("cluster")
def test_a_visit_whose_time_is_over_removes_nothing(submitter, monkeypatch):
    """Storing what was seen took so long that another worker may have taken the attempt over, and may let it go on."""
    job, attempt = place(submitter, seconds=100_000)
    operations.dispatch_attempts()
    operations.request_cancellation(submitter, job.id)

    def slowly(*given):
        monkeypatch.setattr(visits, "monotonic", lambda: clock.monotonic() + visits.VISIT_SECONDS)
        return record_observations(*given)

    removed = []

    async def note(*given):
        removed.append(given)

    with monkeypatch.context() as slow:
        slow.setattr(last_looks, "record_observations", slowly)
        slow.setattr(SimulatedDriver, "delete_job", note)
        every_visit(attempt, 1)
    assert not removed
    monkeypatch.setattr(visits, "monotonic", clock.monotonic)
    every_visit(attempt, 2)
    assert Attempt.objects.get(id=attempt.id).state == "cancelled"
