"""Clusters that accept a request and never answer: their visits end, cost few calls, and their jobs go elsewhere."""

import asyncio
from datetime import timedelta

import pytest

from clusters.drivers import Ambiguous
from clusters.drivers.simulated import SimulatedDriver
from federation import operations
from federation.models import Attempt
from federation.operations import visits
from federation.operations.dispatch import BATCH, PROBES, REST_SECONDS, ROUNDS
from federation.operations.outcomes import Failed, Stopped
from federation.operations.visits import MOST_TIMES_FAILED
from federation.queries.due_clusters import due_clusters
from foundation.clock import database_now, now
from foundation.threads import close_kept_threads
from foundation.turns import Turn
from tests.backlog import pile_up
from tests.live import place

pytestmark = pytest.mark.django_db(transaction=True)
ATTEMPTS = 3 * PROBES


def short(monkeypatch):
    """Visits of a second."""
    monkeypatch.setattr(visits, "VISIT_SECONDS", 1.0)
    monkeypatch.setattr(visits, "RELEASE_SECONDS", 0.8)


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
    Attempt.objects.filter(finished_at=None).update(next_action_at=now(), claim_expires_at=None)


def test_an_attempt_whose_creation_never_gets_an_answer_is_given_up(cluster, submitter, asked):
    _, attempt = place(submitter)
    for _ in range(MOST_TIMES_FAILED + 1):
        due_again()
        operations.dispatch_attempts()
    attempt.refresh_from_db()
    assert (attempt.state, attempt.end_reason) == ("abandoned", "create_failed")
    assert len(asked) > 1


def test_a_slow_cluster_that_does_not_answer_gets_a_few_calls_and_all_attempts_count_a_try(cluster, submitter, asked):
    _, attempt = place(submitter)
    pile_up(attempt, [cluster], ATTEMPTS - 1)
    ROUNDS.mark(cluster.id, 60)
    operations.dispatch_attempts()
    assert len(asked) == PROBES
    assert set(Attempt.objects.values_list("tries", "claim_expires_at")) == {(1, None)}
    for _ in range(5):
        due_again()
        operations.dispatch_attempts()
    assert len(set(asked)) > PROBES, "the probes are not always the same"


def test_a_slow_cluster_that_does_not_answer_is_left_alone_for_a_while_with_all_that_is_due_there(
    cluster, submitter, asked
):
    _, attempt = place(submitter)
    pile_up(attempt, [cluster], BATCH + 2)
    ROUNDS.mark(cluster.id, 60)
    operations.dispatch_attempts()
    assert len(asked) == PROBES
    assert due_clusters() == []
    soonest = Attempt.objects.order_by("next_action_at").values_list("next_action_at", flat=True)[0]
    assert soonest > database_now() + timedelta(seconds=REST_SECONDS / 2)
    assert set(Attempt.objects.values_list("tries", flat=True)) == {1}
    assert Attempt.objects.filter(sent_at=None).count() == BATCH + 3 - PROBES, "nothing was sent for the others"


def test_two_silent_clusters_are_not_left_alone_for_the_same_time(cluster, submitter, asked):
    _, attempt = place(submitter)
    ROUNDS.mark(cluster.id, 60)
    rests = set()
    for _ in range(3):
        due_again()
        operations.dispatch_attempts()
        attempt.refresh_from_db()
        rests.add(round((attempt.next_action_at - database_now()).total_seconds(), 1))
    assert len(rests) > 1
    assert all(REST_SECONDS - 1 < rest <= 2 * REST_SECONDS for rest in rests)


def test_all_that_is_worn_out_at_a_silent_cluster_is_given_up_however_much_it_is(cluster, submitter, asked):
    _, attempt = place(submitter)
    pile_up(attempt, [cluster], BATCH + PROBES + 3)
    ROUNDS.mark(cluster.id, 60)
    Attempt.objects.update(tries=MOST_TIMES_FAILED - 1)
    operations.dispatch_attempts()
    assert set(Attempt.objects.values_list("state", "end_reason")) == {("abandoned", "create_failed")}


def test_what_is_not_due_at_a_silent_cluster_counts_no_try(cluster, submitter, asked):
    _, attempt = place(submitter)
    pile_up(attempt, [cluster], PROBES)
    waits = Attempt.objects.order_by("id").first()
    ROUNDS.mark(cluster.id, 60)
    Attempt.objects.filter(id=waits.id).update(next_action_at=now() + timedelta(seconds=5))
    operations.dispatch_attempts()
    waits.refresh_from_db()
    assert waits.tries == 0
    assert waits.next_action_at > database_now() + timedelta(seconds=REST_SECONDS / 2)


def test_attempts_that_a_silent_cluster_was_not_asked_about_are_given_up_like_the_others(cluster, submitter, asked):
    _, attempt = place(submitter)
    pile_up(attempt, [cluster], ATTEMPTS - 1)
    ROUNDS.mark(cluster.id, 60)
    Attempt.objects.update(tries=MOST_TIMES_FAILED - 1)
    operations.dispatch_attempts()
    assert len(asked) == PROBES
    assert set(Attempt.objects.values_list("state", "end_reason")) == {("abandoned", "create_failed")}


def test_only_a_creation_is_given_up_without_a_call(cluster, submitter):
    _, attempt = place(submitter)
    pile_up(attempt, [cluster], 3)
    fresh, cancelled, committed, worn_out = Attempt.objects.order_by("id")
    Attempt.objects.exclude(id=fresh.id).update(tries=MOST_TIMES_FAILED)
    Attempt.objects.filter(id=cancelled.id).update(stop_requested_at=now(), stop_reason="cancelled", stop_message="x")
    Attempt.objects.filter(id=committed.id).update(state="starting", starting_at=now())
    outcomes = visits.without_a_call([one.id for one in (fresh, cancelled, committed, worn_out)], Ambiguous("silence"))
    assert [type(outcome) for outcome in outcomes] == [Failed, Failed, Failed, Stopped]


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
    assert set(Attempt.objects.values_list("released_at", "tries")) == {(None, 1)}


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
