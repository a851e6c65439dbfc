import threading
from contextlib import contextmanager

import pytest
from django.db import connection, transaction

from foundation.bell import INLINE_THREADS, LEAVE_SECONDS, MOST_RARE, Bell, ensure_rows
from foundation.management.commands import beat
from foundation.models import OutboxMessage, Routine
from foundation.outbox import announce
from foundation.schedule import How, Schedule
from foundation.threads import open_threads

pytestmark = pytest.mark.django_db(transaction=True)
HERE = "tests.rooms.foundation.test_bell"
SCHEDULES = [
    Schedule(name, f"tasks.{name}", name, f"{HERE}.work_on_{name}", every_seconds=3600, gather_seconds=0)
    for name in ("cycle", "dispatch")
]
ran = []
began, go_on = [], threading.Event()


def work_on_cycle():
    ran.append("cycle")


def work_on_dispatch():
    raise RuntimeError("no luck")


class Post:
    """A broker that keeps what it is given, or is down."""

    def __init__(self, *, is_down=False):
        self.sent, self.tries, self.is_down = [], 0, is_down

    def send_task(self, name, **options):
        self.tries += 1
        if self.is_down:
            raise ConnectionError("refused")
        self.sent.append((name, options["queue"]))


@pytest.fixture(autouse=True)
def rows():
    ran.clear()
    ensure_rows(SCHEDULES)
    at_rest()


def at_rest():
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE foundation_routine SET rung_at = clock_timestamp(), sent_at = clock_timestamp(),"
            " started_at = clock_timestamp() + interval '1 millisecond'"
        )
        cursor.execute("SELECT pg_sleep(0.002)")


def let_pass(seconds):
    with connection.cursor() as cursor:
        for column in ("rung_at", "sent_at", "started_at"):
            cursor.execute(f"UPDATE foundation_routine SET {column} = {column} - make_interval(secs => {seconds})")


def say(*topics):
    with transaction.atomic():
        announce(*topics)


def take(bell):
    return [(ring.schedule.name, ring.how) for ring in bell.take()]


def test_many_announcements_make_one_message_a_topic():
    for _ in range(20):
        say("cycle", "dispatch")
    bell = Bell(SCHEDULES, Post())
    assert take(bell) == [("cycle", How.SEND), ("dispatch", How.SEND)]
    assert not OutboxMessage.objects.exists()
    say("cycle")
    assert take(bell) == []
    assert not OutboxMessage.objects.exists()


def test_announcements_nobody_listens_to_are_cleared_away():
    say("observe")
    assert take(Bell(SCHEDULES, Post())) == []
    assert not OutboxMessage.objects.exists()


def test_a_message_goes_to_its_queue_and_nothing_runs_here():
    post = Post()
    say("cycle")
    bell = Bell(SCHEDULES, post)
    for ring in bell.take():
        bell.deliver(ring)
    assert post.sent == [("tasks.cycle", "cycle")]
    assert ran == []


def test_without_a_broker_the_work_is_done_here_and_the_broker_rests():
    post = Post(is_down=True)
    bell = Bell(SCHEDULES, post)
    for _ in range(3):
        say("cycle")
        for ring in bell.take():
            bell.deliver(ring)
    assert ran == ["cycle"] * 3
    assert post.tries == 1


def test_an_unanswered_message_is_worked_off_here_after_the_patience():
    post = Post()
    bell = Bell(SCHEDULES, post)
    say("cycle")
    bell.take()
    let_pass(6)
    rings = bell.take()
    assert [(ring.schedule.name, ring.how) for ring in rings] == [("cycle", How.INLINE)]
    bell.deliver(rings[0])
    assert ran == ["cycle"]
    assert post.sent == []
    assert take(bell) == []


def test_announcements_soon_after_a_ring_are_gathered_for_the_next(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("foundation.bell.monotonic", lambda: now[0])
    slow = Schedule("cycle", "tasks.cycle", "cycle", f"{HERE}.work_on_cycle", every_seconds=3600, gather_seconds=0.25)
    bell = Bell([slow, SCHEDULES[1]], Post(is_down=True))

    def rung():
        at_rest()
        return [name for name, _ in take(bell)]

    say("cycle")
    assert rung() == ["cycle"]
    say("cycle", "dispatch")
    say("cycle")
    assert rung() == ["dispatch"]
    assert OutboxMessage.objects.count() == 2
    now[0] += 0.26
    assert rung() == ["cycle"]
    assert not OutboxMessage.objects.exists()
    assert rung() == []


def test_failing_work_is_recorded_and_tried_again():
    bell = Bell(SCHEDULES, Post(is_down=True))
    say("dispatch")
    for ring in bell.take():
        bell.deliver(ring)
    assert Routine.objects.get(name="dispatch").error == "RuntimeError: no luck"
    let_pass(6)
    assert take(bell) == [("dispatch", How.INLINE)]


def test_several_bells_tick_once():
    let_pass(3601)
    found, start = [], threading.Barrier(4)

    def ring():
        try:
            bell = Bell(SCHEDULES, Post())
            start.wait()
            for _ in range(3):
                found.extend(take(bell))
        finally:
            connection.close()

    threads = [threading.Thread(target=ring) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(found) == [("cycle", How.SEND), ("dispatch", How.SEND)]


def test_a_bell_stops_when_told():
    bell = Bell(SCHEDULES, Post())
    bell.stopping.set()
    bell.run()


def test_a_running_bell_hears_an_announcement_and_outlives_its_connections():
    post = Post()
    bell = Bell(SCHEDULES, post)

    def run():
        try:
            bell.run()
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        say("cycle")
        wait_for(lambda: post.sent == [("tasks.cycle", "cycle")])
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
        say("dispatch")
        wait_for(lambda: ("tasks.dispatch", "dispatch") in post.sent)
    finally:
        bell.stopping.set()
        thread.join(10)
    assert not thread.is_alive()


class Stopped(Bell):
    """A bell that keeps what it said when it stopped."""

    have_ended: bool | None = None


def takes_long():
    began.append(1)
    go_on.wait(20)


@contextmanager
def occupied(post, count, every_seconds):
    """A running bell that does that many routines of this silence itself, which take long, because no worker answers."""
    began.clear()
    go_on.clear()
    frequent = Schedule("cycle", "tasks.cycle", "cycle", f"{HERE}.work_on_cycle", every_seconds=5, gather_seconds=0)
    names = [f"long-{number}" for number in range(count)]
    long = [Schedule(name, f"tasks.{name}", "bill", f"{HERE}.takes_long", every_seconds) for name in names]
    ensure_rows(long)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE foundation_routine SET rung_at = clock_timestamp(), sent_at = clock_timestamp() - interval '6 seconds'"
            " WHERE name = ANY(%s)",
            [names],
        )
    bell = Stopped([*long, frequent], post)

    def run():
        try:
            bell.have_ended = bell.run()
        finally:
            connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield bell
    finally:
        bell.stopping.set()
        go_on.set()
        thread.join(10)
    assert not thread.is_alive()


@pytest.mark.parametrize("is_done", [True, False])
def test_a_stopping_bell_waits_for_work_that_ends_and_leaves_what_does_not(monkeypatch, is_done):
    """It says which: its process must end with work that it leaves. Kubernetes kills it after 30 seconds."""
    assert LEAVE_SECONDS <= 10
    monkeypatch.setattr("foundation.bell.LEAVE_SECONDS", 60.0 if is_done else 0.05)
    threads = open_threads("bell", 2)
    monkeypatch.setattr("foundation.bell.open_threads", lambda *_: threads)
    with occupied(Post(), 1, every_seconds=30) as bell:
        wait_for(lambda: began)
        bell.stopping.set()
        if is_done:
            go_on.set()
        wait_for(lambda: bell.have_ended is not None)
        assert bell.have_ended is is_done
    threads.close()  # with the sessions of work that was left


@pytest.mark.parametrize(("have_ended", "codes"), [(True, []), (False, [0])])
def test_a_bells_process_ends_with_the_work_that_it_leaves(monkeypatch, have_ended, codes):
    ended = []
    monkeypatch.setattr(Bell, "run", lambda _: have_ended)
    monkeypatch.setattr("os._exit", ended.append)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(beat, "serve_metrics", lambda _: None)
    beat.Command().handle()
    assert ended == codes


def test_work_that_takes_long_here_keeps_no_message_from_a_worker():
    post = Post()
    with occupied(post, INLINE_THREADS, every_seconds=30):
        wait_for(lambda: len(began) == INLINE_THREADS)
        say("cycle")
        wait_for(lambda: ("tasks.cycle", "cycle") in post.sent)
    assert ran == []


def test_work_for_which_there_is_no_room_here_is_offered_to_the_workers_again():
    post = Post()
    with occupied(post, INLINE_THREADS + 1, every_seconds=30):
        wait_for(lambda: len(began) == INLINE_THREADS and len(post.sent) == 1)
        assert post.sent[0][0].startswith("tasks.long-")


def test_rare_routines_leave_room_for_those_that_jobs_wait_for():
    with occupied(Post(is_down=True), 6, every_seconds=3600):
        wait_for(lambda: len(began) == MOST_RARE)
        say("cycle")
        wait_for(lambda: ran == ["cycle"])
        assert len(began) == MOST_RARE


def wait_for(condition, seconds=10):
    pause, left = threading.Event(), seconds
    while not condition():
        assert left > 0, "it did not happen"
        pause.wait(0.02)
        left -= 0.02
