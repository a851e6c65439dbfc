from datetime import UTC, datetime, timedelta

from foundation.schedule import How, RoutineState, Schedule, decide

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PATIENCE = timedelta(seconds=5)
CYCLE = Schedule("cycle", "tasks.cycle", "cycle", "operations.cycle", every_seconds=60)


def ago(seconds):
    return NOW - timedelta(seconds=seconds)


def rings(state, *announced):
    found = decide([CYCLE], {"cycle": state}, set(announced), NOW, PATIENCE)
    return [(ring.how, ring.is_new) for ring in found]


def test_a_routine_that_was_never_rung_is_sent():
    assert rings(RoutineState("cycle")) == [(How.SEND, True)]


def test_a_routine_at_rest_is_left_alone():
    assert rings(RoutineState("cycle", rung_at=ago(10), sent_at=ago(10), started_at=ago(9))) == []


def test_an_announcement_sends_a_message():
    assert rings(RoutineState("cycle", ago(10), ago(10), ago(9)), "cycle") == [(How.SEND, True)]


def test_another_topic_rings_nothing():
    assert rings(RoutineState("cycle", ago(10), ago(10), ago(9)), "dispatch") == []


def test_silence_for_its_period_sends_a_message():
    assert rings(RoutineState("cycle", ago(60), ago(60), ago(59))) == [(How.SEND, True)]


def test_routines_that_ring_together_do_not_stay_together():
    pair = [Schedule(name, "", "", "", every_seconds=10) for name in ("examine", "settle")]
    rung = {one.name: NOW for one in pair}
    together, at = 0, NOW
    for _ in range(2000):
        at += timedelta(seconds=0.5)
        states = {name: RoutineState(name, when, when, when) for name, when in rung.items()}
        found = [ring.schedule.name for ring in decide(pair, states, frozenset(), at, PATIENCE)]
        together += len(found) == len(pair)
        for name in found:
            assert timedelta(seconds=8) <= at - rung[name] <= timedelta(seconds=10)
            rung[name] = at
    assert together < 20  # of at least 100


def test_an_announcement_while_a_message_is_unanswered_is_only_noted():
    assert rings(RoutineState("cycle", ago(1), ago(1), ago(50)), "cycle") == [(How.NOTE, True)]


def test_nothing_happens_while_a_message_is_waited_for():
    assert rings(RoutineState("cycle", ago(1), ago(1), None)) == []


def test_past_its_patience_the_bell_does_the_work_itself():
    assert rings(RoutineState("cycle", ago(6), ago(6), ago(50))) == [(How.INLINE, False)]


def test_a_ring_noted_during_a_run_that_ended_without_seeing_it_is_sent():
    assert rings(RoutineState("cycle", rung_at=ago(1), sent_at=ago(3), started_at=ago(2))) == [(How.SEND, False)]


def turn(**instants):
    return RoutineState("cycle", **({"rung_at": ago(3), "sent_at": ago(3), "started_at": ago(50)} | instants))


def test_while_a_worker_is_in_its_turn_rings_are_noted_and_the_bell_stays_away():
    at_work = turn(beat_at=ago(2), finished_at=ago(49))
    assert rings(at_work, "cycle") == [(How.NOTE, True)]
    assert rings(at_work) == []
    assert rings(turn(sent_at=ago(6), beat_at=ago(4), finished_at=ago(49))) == []


def test_a_worker_in_its_turn_that_asks_for_help_has_others_told():
    assert rings(turn(beat_at=ago(2), finished_at=ago(49)), "cycle.more") == [(How.SEND, False)]
    assert rings(turn(beat_at=ago(2), finished_at=ago(1)), "dispatch.more") == [(How.SEND, False)]


def test_when_a_worker_in_its_turn_falls_silent_others_are_told_before_the_bell_does_it_itself():
    silent = turn(rung_at=ago(5), sent_at=ago(9), beat_at=ago(6), finished_at=ago(20))
    assert rings(silent) == [(How.SEND, False)]


def test_a_worker_that_showed_up_has_answered_the_message():
    assert rings(turn(sent_at=ago(8), beat_at=ago(7), finished_at=ago(6), started_at=ago(7)), "cycle") == [
        (How.SEND, True)
    ]
