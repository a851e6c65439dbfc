"""A statement that waits for a lock goes on when it is granted, whoever released the lock."""

from types import SimpleNamespace

from devtools.simulation.core.actors import Policy
from devtools.simulation.core.scheduler import Scheduler


def test_the_last_actor_that_waits_goes_on_when_its_lock_is_released_between_steps():
    """For instance by the death of another process, at a time when every actor that lives waits."""
    granted, said = [], []
    watch = SimpleNamespace(
        is_waiting=lambda _: not granted, is_granted=lambda _: bool(granted), pause=lambda _: None,
        resume=lambda _: None, set_clock=lambda _: None,
    )  # fmt: skip
    scheduler = Scheduler(1, watch, Policy(), 0)

    def work():
        scheduler.begin_statement()
        while not granted:
            scheduler.bide()
        scheduler.end_statement(may_release=False)
        said.append("done")
        scheduler.leave(actor)

    def release():
        granted.append(True)
        scheduler.note_release()

    actor = scheduler.add("web", SimpleNamespace(name="web", is_frozen=False), work)
    actor.backend = SimpleNamespace(pid=1)
    scheduler.after(1, release)
    scheduler.after(2, lambda: None)
    scheduler.run(lambda: bool(said))
    assert said == ["done"]
    assert scheduler.lock_waits == 1


def test_skipping_time_drops_what_was_to_be_done_before():
    scheduler, done = Scheduler(1, SimpleNamespace(), Policy(), 0), []
    scheduler.after(1, lambda: done.append("early"))
    scheduler.skip_to(5_000_000)
    scheduler.after(1, lambda: done.append("late"))
    scheduler.run(lambda: bool(done))
    assert done == ["late"]
    assert scheduler.now_us == 6_000_000


def test_an_actor_that_sleeps_lets_its_session_serve_others():
    rested = []
    scheduler = Scheduler(1, SimpleNamespace(), Policy(), 0)

    def work():
        scheduler.sleep(1)
        scheduler.leave(actor)

    actor = scheduler.add("web", SimpleNamespace(name="web", is_frozen=False), work)
    actor.backend = SimpleNamespace(pid=1, rest=lambda: rested.append(scheduler.now_us))
    scheduler.run(lambda: not scheduler.actors)
    assert rested == [0]


def test_an_actor_lends_its_session_only_when_others_run_before_its_next_statement():
    lent = []
    scheduler = Scheduler(1, SimpleNamespace(), Policy(), 0)
    process = SimpleNamespace(name="web", is_frozen=False)

    def a_life(name):
        def work():
            for _ in range(20):
                scheduler.give_way("statement")
            scheduler.leave(actors[name])

        return work

    actors = {name: scheduler.add(name, process, a_life(name)) for name in ("one", "other")}
    for name, actor in actors.items():
        actor.backend = SimpleNamespace(
            pid=1, lend=lambda name=name: lent.append((name, len(scheduler.actors), scheduler.current.name))
        )
    scheduler.run(lambda: not scheduler.actors)
    assert {name for name, _, _ in lent} == {"one", "other"}
    assert all(name == current and count == 2 for name, count, current in lent), "who is alone keeps its session"
    assert len(lent) < 40, "at some steps, an actor goes on itself"


def test_outside_of_the_turns_each_actor_runs_for_as_long_as_it_can():
    def order(turns):
        ran = []
        scheduler = Scheduler(1, SimpleNamespace(), Policy(), 0)
        scheduler.turns = turns

        def a_life(name):
            def work():
                for _ in range(10):
                    ran.append(name)
                    scheduler.give_way("statement")
                scheduler.leave(actors[name])

            return work

        actors = {name: scheduler.add(name, SimpleNamespace(is_frozen=False), a_life(name)) for name in "abc"}
        scheduler.run(lambda: not scheduler.actors)
        return "".join(ran)

    whole = "a" * 10 + "b" * 10 + "c" * 10
    assert order((0, 0)) == whole
    assert order(None) != whole
    mixed = order((10, 20))
    assert mixed != whole
    assert mixed[:10] == whole[:10], "they begin in turn"
    assert sorted(mixed) == sorted(whole)
