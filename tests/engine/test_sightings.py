"""Which reported pods count, and which of their times are believed."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from clusters.engine.clocks import Era
from federation.engine.names import LABEL_ATTEMPT, LABEL_INSTALL, LABEL_JOB, LABEL_SPEC_HASH
from federation.engine.sightings import (
    ALREADY_ANOTHERS,
    MALFORMED,
    NO_SUCH_INDEX,
    NOT_RELEASED,
    PLACE_TAKEN,
    TOO_LATE,
    TOO_MANY_RUNS,
    UNKNOWN_OWNER,
    WRONG_LABELS,
    WRONG_PLACE,
    Asked,
    Run,
    admit,
    believable,
    fault_of,
    is_uid,
    reported_end,
    tally,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ATTEMPT, JOB = UUID(int=1), UUID(int=2)
LABELS = {LABEL_ATTEMPT: str(ATTEMPT), LABEL_JOB: str(JOB), LABEL_SPEC_HASH: "hash", LABEL_INSTALL: "here"}


def ago(seconds):
    return NOW - timedelta(seconds=seconds)


A_MINUTE_AGO = ago(60)


@dataclass(frozen=True)
class SeenPod:
    uid: str = "u1"
    index: int | None = 0
    phase: str = "Running"
    started_at: datetime | None = A_MINUTE_AGO
    finished_at: datetime | None = None
    namespace: str = "jobs"
    name: str = "job-1-0"
    node: str = "n1"
    labels: dict = field(default_factory=LABELS.copy)
    reason: str = ""
    exit_code: int | None = None
    owner: str = "owner"
    disruption: str = ""
    ending: str = ""
    signal: int | None = None
    message: str = ""
    init_step: int | None = None


@dataclass(frozen=True)
class Ended:
    started_at: datetime | None
    finished_at: datetime | None
    ended_pods: int


def asked(places=2, indices=2, **more):
    return Asked(7, ATTEMPT, JOB, 0, "jobs", "job-1", "hash", places, indices, **({"committed_at": ago(600)} | more))


def ended(uid="u1", index=0, *, until=10, **more):
    return SeenPod(uid, index, "Succeeded", finished_at=ago(until), **more)


@pytest.mark.parametrize(
    ("pod", "of", "fault"),
    [
        (SeenPod(), asked(), ""),
        (SeenPod(node=""), asked(), ""),
        (SeenPod(index=1), asked(), ""),
        (SeenPod(), None, UNKNOWN_OWNER),
        (SeenPod(name="Not/a name"), asked(), MALFORMED),
        (SeenPod(uid="a b"), asked(), MALFORMED),
        (SeenPod(uid="u" * 65), asked(), MALFORMED),
        (SeenPod(node="_"), asked(), MALFORMED),
        (SeenPod(namespace="other"), asked(), WRONG_PLACE),
        (SeenPod(labels=LABELS | {LABEL_ATTEMPT: str(JOB)}), asked(), WRONG_LABELS),
        (SeenPod(labels=LABELS | {LABEL_JOB: str(ATTEMPT)}), asked(), WRONG_LABELS),
        (SeenPod(labels=LABELS | {LABEL_SPEC_HASH: "other"}), asked(), WRONG_LABELS),
        (SeenPod(labels=LABELS | {LABEL_INSTALL: "there"}), asked(), WRONG_LABELS),
        (SeenPod(labels={}), asked(), WRONG_LABELS),
        (SeenPod(index=None), asked(), NO_SUCH_INDEX),
        (SeenPod(index=-1), asked(), NO_SUCH_INDEX),
        (SeenPod(index=2), asked(), NO_SUCH_INDEX),
        (SeenPod(), asked(committed_at=None), NOT_RELEASED),
    ],
)
def test_a_pod_belongs_to_an_object_only_if_all_of_it_fits(pod, of, fault):
    assert fault_of(pod, of, "here") == fault


def test_an_object_counts_as_there_until_it_is_lost():
    assert (asked().settled_at, asked().is_lost, asked().clock) == (None, False, ())
    assert (Run("u", 0, 0, None).running_at, Run("u", 0, 0, None).is_gone) == (None, False)


def test_a_uid_is_printable_and_of_at_most_64_characters():
    assert is_uid("u" * 64)
    assert not any(map(is_uid, ("", "u" * 65, "a b", "ä")))


def places(sightings):
    return {seen.uid: seen.place for seen in sightings}


def test_a_pod_takes_the_place_of_its_index_and_a_second_one_does_not_count():
    counted, refused = admit(asked(), [SeenPod("a", 0), SeenPod("b", 1), SeenPod("c", 1, started_at=ago(5))], [], NOW)
    assert (places(counted), refused) == ({"a": 0, "b": 1}, [PLACE_TAKEN])
    assert all(seen.is_new and not seen.is_back and not seen.is_estimated for seen in counted)


def test_of_more_indices_than_places_a_pod_takes_any_free_place():
    running = [Run("a", 4, 0, None), Run("b", 5, 1, ago(30))]
    counted, refused = admit(asked(2, 9), [SeenPod("c", 6), SeenPod("d", 7, started_at=ago(5))], running, NOW)
    assert (places(counted), refused) == ({"c": 1}, [PLACE_TAKEN])


def test_a_successor_counts_after_the_one_that_it_replaces():
    counted, refused = admit(asked(), [SeenPod("b", 0, started_at=ago(8)), ended("a", 0)], [], NOW)
    assert (places(counted), refused) == ({"a": 0, "b": 0}, [])
    first, second = counted
    assert (first.uid, first.finished_at) == ("a", ago(10))
    assert second.started_at == NOW, "its place was metered until the end was seen"
    assert second.is_estimated, "the end was seen eight seconds after the successor had started"


def test_pods_that_started_later_come_later_and_those_without_a_start_last():
    given = [SeenPod("a", 0, started_at=None), SeenPod("b", 0, started_at=ago(5)), SeenPod("c", 0, started_at=ago(9))]
    counted, refused = admit(asked(), given, [], NOW)
    assert (places(counted), refused) == ({"c": 0}, [PLACE_TAKEN] * 2)


def test_a_known_pod_keeps_its_place_and_loses_it_with_another_index():
    known = [Run("a", 0, 1, None)]
    (seen,), refused = admit(asked(2, 9), [SeenPod("a", 0)], known, NOW)
    assert ((seen.place, seen.is_new), refused) == ((1, False), [])
    assert admit(asked(2, 9), [SeenPod("a", 1)], known, NOW) == ([], [ALREADY_ANOTHERS])


def test_a_known_pod_that_has_ended_makes_room_for_the_next():
    counted, refused = admit(asked(), [SeenPod("b", 0), ended("a")], [Run("a", 0, 0, None)], NOW)
    assert (places(counted), refused) == ({"a": 0, "b": 0}, [])
    assert admit(asked(), [SeenPod("b", 0), SeenPod("a")], [Run("a", 0, 0, None)], NOW)[1] == [PLACE_TAKEN]


def test_an_index_has_at_most_a_hundred_pods():
    before = [Run(f"r{number}", 0, 0, ago(100)) for number in range(99)]
    assert admit(asked(), [SeenPod()], before, NOW)[1] == []
    assert admit(asked(), [SeenPod()], [*before, Run("r", 0, 0, ago(99))], NOW) == ([], [TOO_MANY_RUNS])


@pytest.mark.parametrize(("days", "late"), [(7, []), (7.01, [TOO_LATE])])
def test_an_ended_pod_counts_for_a_week_after_its_attempt_was_settled_and_a_running_one_always(days, late):
    settled = asked(committed_at=ago(10**7), settled_at=NOW - timedelta(days=days))
    assert admit(settled, [ended()], [], NOW)[1] == late
    assert admit(settled, [SeenPod()], [], NOW)[1] == []


GONE = Run("a", 0, 0, ago(30), running_at=ago(40), is_gone=True)


@pytest.mark.parametrize(
    ("run", "pod", "others", "gone", "is_back"),
    [
        (GONE, SeenPod("a"), [], (), True),
        (GONE, SeenPod("a"), [], ("a",), False),
        (replace(GONE, is_gone=False), SeenPod("a"), [], (), False),
        (replace(GONE, until_at=None), SeenPod("a"), [], (), False),
        (GONE, SeenPod("a", phase="Pending"), [], (), False),
        (GONE, SeenPod("a", finished_at=ago(1)), [], (), False),
        (GONE, SeenPod("a"), [Run("b", 0, 0, ago(30))], (), True),
        (GONE, SeenPod("a"), [Run("b", 0, 0, ago(29))], (), False),
        (GONE, SeenPod("a"), [Run("b", 0, 0, None)], (), False),
        (GONE, SeenPod("a"), [Run("b", 1, 1, None)], (), True),
    ],
)
def test_a_pod_that_was_missing_is_back_if_it_runs_and_no_other_took_its_place(run, pod, others, gone, is_back):
    (seen,), _ = admit(asked(), [pod], [run, *others], NOW, gone)
    assert seen.is_back is is_back


def test_the_place_of_a_pod_that_is_back_is_taken():
    back, refused = admit(asked(), [SeenPod("a"), SeenPod("b", 0, started_at=ago(5))], [GONE], NOW)
    assert (places(back), refused) == ({"a": 0}, [PLACE_TAKEN])


@pytest.mark.parametrize(("seconds", "is_estimated"), [(59, False), (60, False), (61, True)])
def test_a_pod_did_not_end_long_before_it_was_seen_running(seconds, is_estimated):
    run = Run("a", 0, 0, None, running_at=ago(10))
    (seen,), _ = admit(asked(), [ended("a", until=10 + seconds, started_at=ago(300))], [run], NOW)
    assert (seen.finished_at, seen.is_estimated) == (ago(10 if is_estimated else 10 + seconds), is_estimated)


def test_what_a_cluster_writes_is_bounded():
    odd = SeenPod(phase="Odd", reason="a\nb" * 200, disruption="d\t" * 60, exit_code=2**31)
    (seen,), _ = admit(asked(), [odd], [], NOW)
    assert (seen.phase, seen.reason, seen.exit_code) == ("Unknown", ("a b" * 200)[:300], None)
    assert seen.disruption == "d " * 30
    (seen,), _ = admit(asked(), [SeenPod(ending="e\n" * 60, message="m\r" * 300)], [], NOW)
    assert (seen.ending, seen.message) == ("e " * 30, "m " * 150)
    for number, kept in ((1, 1), (64, 64), (0, None), (65, None), (-1, None), (None, None)):
        assert admit(asked(), [SeenPod(signal=number)], [], NOW)[0][0].signal == kept
    for code in (0, 2**31 - 1, 1 - 2**31):
        assert admit(asked(), [SeenPod(exit_code=code)], [], NOW)[0][0].exit_code == code
    assert admit(asked(), [SeenPod(exit_code=-(2**31))], [], NOW)[0][0].exit_code is None


@pytest.mark.parametrize(
    ("started", "finished", "expected"),
    [
        (60, 10, (60, 10, False)),
        (60, None, (60, None, False)),
        (None, None, (None, None, False)),
        (None, 10, (None, 10, False)),
        (602, 601, (602, 601, False)),
        (603, 601, (602, 601, True)),
        (900, 700, (602, 602, True)),
        (None, 700, (None, 602, True)),
        (-2, None, (-2, None, False)),
        (-3, -9, (-2, -2, True)),
        (60, -3, (60, -2, True)),
        (60, 70, (60, 60, True)),
    ],
)
def test_times_are_believed_between_the_release_and_now(started, finished, expected):
    """All in seconds before now; the object was released 600 s ago, and two seconds are tolerated."""
    pod = SeenPod(
        started_at=None if started is None else ago(started), finished_at=None if finished is None else ago(finished)
    )
    began, over, is_estimated = expected
    assert believable(asked(), None, pod, NOW) == (
        None if began is None else ago(began),
        None if over is None else ago(over),
        is_estimated,
    )


def test_a_replacement_counts_from_the_end_of_the_one_before():
    assert believable(asked(), ago(30), SeenPod(), NOW) == (ago(30), None, True)
    assert believable(asked(), ago(58), SeenPod(), NOW) == (ago(58), None, False), "two seconds are tolerated"
    assert believable(asked(), ago(90), SeenPod(), NOW) == (ago(60), None, False)
    assert believable(asked(), ago(30), ended(until=40), NOW) == (ago(30), ago(30), True)


def test_what_was_never_released_began_at_most_now():
    assert believable(asked(committed_at=None), None, SeenPod(), NOW) == (ago(2), None, True)


def test_a_clock_that_is_ahead_is_set_right():
    ahead = asked(clock=(Era(ago(9000), 300_000),))
    pod = SeenPod(started_at=ago(60 - 300), finished_at=ago(10 - 300))
    assert believable(ahead, None, pod, NOW) == (ago(60), ago(10), True)


def test_an_earlier_pod_of_the_place_or_of_the_index_bounds_the_start():
    runs = [Run("a", 3, 1, ago(20)), Run("b", 8, 0, ago(10)), Run("c", 6, 0, ago(15))]
    (seen,), _ = admit(asked(2, 9), [SeenPod("d", 3)], runs, NOW)
    assert (seen.place, seen.started_at) == (0, ago(10))
    taken = [Run("a", 3, 1, ago(20)), Run("b", 8, 0, None)]
    (seen,), _ = admit(asked(2, 9), [SeenPod("d", 5)], taken, NOW)
    assert (seen.place, seen.started_at) == (1, ago(20))


def test_a_pod_that_waited_in_a_place_starts_after_the_one_that_had_the_place_before():
    runs = [Run("a", 1, 0, ago(20)), Run("b", 3, 0, None)]
    (seen,), _ = admit(asked(2, 9), [SeenPod("b", 3, started_at=ago(25))], runs, NOW)
    assert (seen.place, seen.started_at, seen.is_estimated) == (0, ago(20), True)


def test_a_pod_that_was_gone_is_not_bounded_by_one_that_took_its_place_later():
    runs = [Run("a", 1, 0, ago(20)), Run("b", 3, 0, ago(15), is_gone=True), Run("c", 4, 0, ago(5), since_at=ago(15))]
    (seen,), _ = admit(asked(2, 9), [ended("b", 3, until=16, started_at=ago(19))], runs, NOW)
    assert (seen.started_at, seen.finished_at, seen.is_estimated) == (ago(19), ago(16), False)


@pytest.mark.parametrize(("pods", "counted"), [(-1, 0), (1, 1), (2, 2), (3, 2)])
def test_an_ended_job_counts_at_most_its_pods(pods, counted):
    assert tally(asked(), Ended(ago(60), ago(10), pods), NOW) == (ago(60), ago(10), counted)


def test_an_ended_job_without_times_ran_from_its_release_until_now():
    assert tally(asked(), Ended(None, None, 1), NOW) == (ago(600), NOW, 1)
    assert tally(asked(committed_at=None), Ended(None, None, 1), NOW) == (NOW, NOW, 1)
    assert tally(asked(), Ended(None, ago(601), 1), NOW) == (ago(600), ago(600), 1)


@pytest.mark.parametrize(
    ("started", "finished", "known"),
    [
        (60, None, None),
        (60, 10, 10),
        (60, -2, -2),
        (60, -3, None),
        (60, 60, 60),
        (60, 61, None),
        (None, 10, 10),
        (None, 601, 601),
        (None, 603, None),
        (700, 650, None),
    ],
)
def test_an_end_is_known_only_as_reported_and_within_our_own_bounds(started, finished, known):
    """Seconds ago; the attempt was released 600 seconds ago, and two more are tolerated."""
    times = [None if at is None else ago(at) for at in (started, finished)]
    at = reported_end(asked(), SeenPod(started_at=times[0], finished_at=times[1]), NOW)
    assert at == (None if known is None else ago(known))


def test_an_end_is_known_on_our_clock():
    assert reported_end(asked(clock=(Era(ago(900), 30_000),)), ended(), NOW) == ago(40)
