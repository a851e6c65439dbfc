"""Going round clusters: those that hang cost the others nothing, none is visited by two, and a turn ends."""

import asyncio
import threading
import time
from collections import Counter

import pytest
from django.db import connection, connections
from django.db.models.functions import Now

from clusters.drivers.simulated import SimulatedDriver
from federation import operations
from federation.models import Attempt, ClusterUpkeep
from federation.operations import dispatch, reconciliation, rounds
from federation.operations.rounds import AT_ONCE, Brought, Rounds
from federation.queries.due_clusters import DueCluster
from foundation import advisory
from foundation.models import OutboxMessage
from foundation.postgres import spares
from foundation.threads import DatabaseThreads, close_kept_threads
from foundation.turns import Turn, endless_turn
from tests.builders import make_cluster
from tests.live import place

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def threads():
    yield
    close_kept_threads()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(rounds, "SLOW_AFTER_SECONDS", 0.5)


HANG_SECONDS = 240
"""How long clusters hang that nothing lets answer. What takes half as long has waited for one, however slow the host is."""
SOON_SECONDS = HANG_SECONDS / 2


class Fleet:
    """Clusters that are due until they were visited; those that hang answer when the test lets them."""

    def __init__(self, healthy, hanging):
        self.healthy = [make_cluster(name=f"healthy-{number}").id for number in range(healthy)]
        self.hanging = {make_cluster(name=f"hanging-{number}").id for number in range(hanging)}
        self.left = {*self.healthy, *self.hanging}
        self.released = threading.Event()
        self.visits, self.at = Counter(), {}
        self.at_once, self.most_at_once = 0, 0
        self.lock = threading.Lock()

    def due(self):
        slow = self.marked()
        return [DueCluster(one, one in slow) for one in list(self.left)]  # a copy: visits end meanwhile

    def mark(self, clusters):
        for one in clusters:
            Rounds("dispatch", "dispatch", self.due, self.visit, bool).mark(one, 600)

    def marked(self):
        return set(ClusterUpkeep.objects.filter(slow_dispatch_until__gt=Now()).values_list("cluster_id", flat=True))

    def visit(self, cluster):
        cluster_id = cluster.id
        with self.lock:
            self.visits[cluster_id] += 1
        if cluster_id in self.hanging:
            self.released.wait(HANG_SECONDS)
            return Brought(0, is_answering=False)
        self.left.discard(cluster_id)
        self.at[cluster_id] = time.monotonic()
        return Brought(1, is_answering=True)

    def go(self, turn, *, is_claimed=lambda _: False):
        return Rounds("dispatch", "dispatch", self.due, self.visit, is_claimed).go(turn)


def test_clusters_that_hang_cost_the_others_next_to_nothing_and_less_once_they_are_known(impatient):
    fleet = Fleet(healthy=60, hanging=20)
    try:
        began = time.monotonic()
        fleet.go(Turn("dispatch", seconds=60))
        eventually(lambda: len(fleet.at) == 60)
        assert max(fleet.at.values()) - began < SOON_SECONDS, "none waits for one that hangs"
        assert len(fleet.marked()) >= 10
        visits = sum(fleet.visits[one] for one in fleet.hanging)
        fleet.left.update(fleet.healthy)
        fleet.at.clear()
        fleet.go(Turn("dispatch", seconds=60))
        eventually(lambda: len(fleet.at) == 60)
        assert sum(fleet.visits[one] for one in fleet.hanging) <= visits + rounds.SLOW_AT_ONCE, (
            "theirs is a small budget"
        )
    finally:
        fleet.released.set()


def test_a_turn_ends_while_clusters_hang_and_leaves_them_to_their_threads(impatient):
    fleet = Fleet(healthy=0, hanging=3)
    try:
        began = time.monotonic()
        fleet.go(Turn("dispatch", seconds=4))
        assert time.monotonic() - began < SOON_SECONDS, "they hang for longer"
        fleet.go(Turn("dispatch", seconds=1))
        assert set(fleet.visits.values()) == {1}, "what hangs is not visited again meanwhile"
    finally:
        fleet.released.set()


def test_a_cluster_that_answers_again_counts_as_the_others():
    fleet = Fleet(healthy=1, hanging=0)
    fleet.mark(fleet.healthy)
    fleet.go(Turn("dispatch"))
    close_kept_threads()
    assert fleet.visits == {fleet.healthy[0]: 1}
    assert not fleet.marked()


def test_a_round_ends_at_once_when_only_visits_to_slow_clusters_are_left(monkeypatch):
    monkeypatch.setattr(rounds, "SLOW_AFTER_SECONDS", 600)
    fleet = Fleet(healthy=3, hanging=2)
    fleet.mark(fleet.hanging)
    try:
        began = time.monotonic()
        fleet.go(Turn("dispatch"))
        assert time.monotonic() - began < SOON_SECONDS, "both hang for longer, and count as hanging only after 600 s"
        eventually(lambda: len(fleet.at) == 3)
    finally:
        fleet.released.set()


def test_a_slow_cluster_whose_visit_found_nothing_to_do_has_not_answered():
    fleet = Fleet(healthy=1, hanging=0)
    fleet.mark(fleet.healthy)
    fleet.visit = lambda cluster: (fleet.left.clear(), Brought(0, is_answering=True))[1]
    fleet.go(Turn("dispatch"))
    close_kept_threads()
    assert fleet.marked() == set(fleet.healthy)


def test_a_round_without_other_work_leaves_a_long_visit_whose_end_announces_the_next_round(monkeypatch):
    monkeypatch.setattr(rounds, "SLOW_AFTER_SECONDS", 600)
    OutboxMessage.objects.all().delete()
    fleet = Fleet(healthy=1, hanging=0)
    visit, answered = fleet.visit, threading.Event()
    fleet.visit = lambda cluster: (answered.wait(HANG_SECONDS), visit(cluster))[1]
    try:
        assert fleet.go(Turn("dispatch", seconds=60)) == 0
        assert fleet.go(Turn("dispatch", seconds=60)) == 0, "nor is it visited twice"
        assert not OutboxMessage.objects.exists()
    finally:
        answered.set()
    eventually(OutboxMessage.objects.exists)
    assert sum(fleet.visits.values()) == 1
    assert not fleet.marked()


def test_a_visit_that_was_left_and_hangs_is_marked_by_a_later_round(monkeypatch):
    monkeypatch.setattr(rounds, "SLOW_AFTER_SECONDS", 600)
    fleet = Fleet(healthy=1, hanging=1)
    try:
        fleet.go(Turn("dispatch", seconds=60))
        assert not fleet.marked()
        monkeypatch.setattr(rounds, "SLOW_AFTER_SECONDS", 0.01)
        time.sleep(rounds.SLOW_AFTER_SECONDS)
        fleet.left.update(fleet.healthy)
        fleet.go(Turn("dispatch", seconds=60))
        assert fleet.hanging <= fleet.marked()
    finally:
        fleet.released.set()


def test_visits_that_were_left_count_among_those_at_once_until_they_hang(impatient):
    fleet = Fleet(healthy=2, hanging=AT_ONCE)
    healthy = set(fleet.healthy)
    fleet.left -= healthy
    try:
        fleet.go(Turn("dispatch", seconds=60))
        fleet.left.update(healthy)
        began = time.monotonic()
        fleet.go(Turn("dispatch", seconds=60))
        eventually(lambda: len(fleet.at) == 2)
        assert time.monotonic() - began < SOON_SECONDS, "the others hang for longer"
    finally:
        fleet.released.set()


def test_a_slow_cluster_that_answers_announces_the_next_round_because_none_waits_for_it():
    OutboxMessage.objects.all().delete()
    fleet = Fleet(healthy=1, hanging=1)
    fleet.mark([*fleet.healthy, *fleet.hanging])
    try:
        while fleet.left & set(fleet.healthy):
            fleet.go(Turn("dispatch", seconds=5))
        eventually(OutboxMessage.objects.exists)
        assert list(OutboxMessage.objects.values_list("topic", flat=True)) == ["dispatch"], (
            "the one that hangs does not"
        )
    finally:
        fleet.released.set()


def test_slow_clusters_have_few_visits_at_once_over_all_rounds_of_a_process():
    fleet = Fleet(healthy=0, hanging=3 * rounds.SLOW_AT_ONCE)
    fleet.mark(fleet.hanging)
    try:
        for _ in range(3):
            fleet.go(Turn("dispatch", seconds=1))
        eventually(lambda: len(fleet.visits) == rounds.SLOW_AT_ONCE)
        time.sleep(0.2)
        assert len(fleet.visits) == rounds.SLOW_AT_ONCE
        assert set(fleet.visits.values()) == {1}
    finally:
        fleet.released.set()


def test_a_cluster_that_is_only_marked_as_slow_has_its_visit_beside_many_that_hang(impatient):
    fleet = Fleet(healthy=2, hanging=3 * rounds.SLOW_AT_ONCE)
    fleet.mark([*fleet.hanging, *fleet.healthy])
    try:
        began = time.monotonic()
        while len(fleet.at) < 2:
            fleet.go(Turn("dispatch", seconds=1))
            assert time.monotonic() - began < SOON_SECONDS, "the others hang for longer"
        eventually(lambda: fleet.marked() == fleet.hanging)
    finally:
        fleet.released.set()


def test_visits_that_hang_leave_threads_for_the_others(impatient):
    fleet = Fleet(healthy=3, hanging=2 * rounds.MOST_THREADS)
    fleet.mark(fleet.hanging)
    healthy = list(fleet.healthy)
    fleet.left -= set(healthy)
    try:
        most = rounds.MOST_THREADS - AT_ONCE
        eventually(lambda: fleet.go(Turn("dispatch", seconds=1)) or len(fleet.visits) >= most)
        time.sleep(2 * rounds.SLOW_AFTER_SECONDS)  # all of them hang
        fleet.go(Turn("dispatch", seconds=1))
        assert len(fleet.visits) == most
        fleet.left.update(healthy)
        fleet.go(Turn("dispatch", seconds=5))
        eventually(lambda: len(fleet.at) == 3)
    finally:
        fleet.released.set()


def test_a_slow_cluster_is_left_to_the_visitor_whose_claim_holds():
    fleet = Fleet(healthy=1, hanging=0)
    fleet.mark(fleet.healthy)
    fleet.go(Turn("dispatch"), is_claimed=lambda _: True)
    close_kept_threads()
    assert not fleet.visits
    fleet.go(Turn("dispatch"), is_claimed=lambda _: False)
    close_kept_threads()
    assert fleet.visits == {fleet.healthy[0]: 1}


@pytest.mark.parametrize(
    ("rounds_of", "method"), [(dispatch.ROUNDS, "create_job"), (reconciliation.ROUNDS, "list_jobs")]
)
def test_a_visit_to_a_slow_cluster_holds_no_database_connection_while_it_waits(
    cluster, submitter, monkeypatch, rounds_of, method
):
    monkeypatch.setattr(spares, "MOST", 0)
    place(submitter, seconds=60)
    rounds_of.mark(cluster.id, 60)
    asked, answer = threading.Event(), threading.Event()
    true = getattr(SimulatedDriver, method)

    async def late(self, *args, **kwargs):
        asked.set()
        await asyncio.to_thread(answer.wait, HANG_SECONDS)
        return await true(self, *args, **kwargs)

    monkeypatch.setattr(SimulatedDriver, method, late)
    before = connections_of_others()
    rounds_of.go(Turn())
    try:
        assert asked.wait(SOON_SECONDS)
        eventually(lambda: connections_of_others() <= before)
    finally:
        answer.set()
    close_kept_threads()
    eventually(lambda: connections_of_others() <= before)
    assert not ClusterUpkeep.objects.filter(**{f"slow_{rounds_of.kind}_until__gt": Now()}).exists()


def connections_of_others():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return cursor.fetchone()[0]


def eventually(condition):
    deadline = time.monotonic() + SOON_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_when_a_turn_is_over_nothing_new_is_begun_and_what_is_left_is_told():
    fleet = Fleet(healthy=3, hanging=0)
    turn = Turn("dispatch", seconds=0)
    assert fleet.go(turn) == 0
    assert turn.has_more
    assert not fleet.visits


def test_whoever_is_stopped_begins_nothing_new():
    fleet = Fleet(healthy=3, hanging=0)
    turn = Turn("dispatch", seconds=60)
    turn.stopping.set()
    assert fleet.go(turn) == 0


def test_every_cluster_comes_round_however_much_the_others_have():
    fleet, turn = Fleet(healthy=3 * AT_ONCE, hanging=0), Turn("dispatch", seconds=SOON_SECONDS)

    def visit(cluster):
        fleet.visits[cluster.id] += 1
        if fleet.visits.total() >= 15 * AT_ONCE:
            turn.stopping.set()
        time.sleep(0.01)
        return Brought(1, is_answering=True)  # and it always has more

    Rounds("dispatch", "dispatch", fleet.due, visit, lambda _: True).go(turn)
    assert len(fleet.visits) == 3 * AT_ONCE
    assert max(fleet.visits.values()) - min(fleet.visits.values()) <= 2


def test_one_cluster_whose_visit_fails_does_not_keep_the_others_from_theirs():
    fleet = Fleet(healthy=12, hanging=0)
    visit, broken = fleet.visit, fleet.healthy[0]
    fleet.visit = lambda cluster: visit(cluster) if cluster.id != broken else 1 // 0
    assert fleet.go(Turn("dispatch", seconds=10)) == 11


def test_others_are_asked_to_join_when_there_is_more_than_one_process_takes_on_at_once():
    fleet = Fleet(healthy=AT_ONCE + 1, hanging=0)
    visit = fleet.visit
    fleet.visit = lambda cluster: (time.sleep(0.1), visit(cluster))[1]
    fleet.go(Turn("dispatch"))
    assert [row.topic for row in OutboxMessage.objects.all()] == ["dispatch.more"]


def test_a_cluster_that_another_is_at_is_left_to_it_for_as_long_as_its_claim_holds():
    fleet = Fleet(healthy=2, hanging=0)
    taken, free = fleet.healthy
    with advisory.held(advisory.Kind.VISITS, f"dispatch:{taken}"):
        assert fleet.go(endless_turn(), is_claimed=lambda _: True) == 1
        assert fleet.visits == {free: 1}
        assert fleet.go(endless_turn(), is_claimed=lambda _: False) == 1
        assert fleet.visits == {free: 1, taken: 1}


def test_a_frozen_dispatcher_does_not_keep_attempts_from_the_others(cluster, submitter):
    _, attempt = place(submitter, seconds=60)
    with advisory.held(advisory.Kind.VISITS, f"dispatch:{cluster.id}"):
        Attempt.objects.filter(id=attempt.id).update(claim_token=1, claim_expires_at=Now())
        operations.dispatch_attempts()
    attempt.refresh_from_db()
    assert attempt.released_at is not None


def test_threads_that_rest_end_and_close_their_connections():
    threads = DatabaseThreads("resting", 4, rest_seconds=0.2)

    def pid():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid(), pg_sleep(0.1)")
            return cursor.fetchone()[0]

    pids = {future.result() for future in [threads.submit(pid) for _ in range(4)]}
    assert len(pids) == 4

    def alive():
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE pid = ANY(%s)", [list(pids)])
            return cursor.fetchone()[0]

    deadline = time.monotonic() + 10
    while alive():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert threads.submit(pid).result() not in pids
    threads.close()
    connections["default"].ensure_connection()
