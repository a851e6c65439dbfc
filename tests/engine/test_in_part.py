"""An attempt that runs in part: which mixes of pods wait in vain, and what the cluster must confirm."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import combinations_with_replacement, product

import pytest

from federation.engine.in_part import (
    PATIENCE,
    Absence,
    Overdue,
    Part,
    Size,
    Wait,
    is_overdue,
    lacks_only_room,
    told,
    told_of_end,
    why_in_part,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LONG, LATELY = NOW - PATIENCE, NOW - PATIENCE + timedelta(seconds=1)
GANG = Size(4, 4, 4)
STATES = ("runs", "has a node", "has ended", "waits", "came lately", "is absent", "vanished lately")


@dataclass(frozen=True)
class Seen:
    uid: str
    index: int
    node: str = ""
    phase: str = "Pending"
    started_at: datetime | None = None
    is_terminating: bool = False


def part(states, size=GANG):
    """What the gateway knows of pods in these states, the first of index 0."""
    numbered = list(enumerate(states))
    return Part(
        0,
        size,
        running=states.count("runs"),
        placed=states.count("runs") + states.count("has a node"),
        ended=states.count("has ended"),
        waits=tuple(
            Wait(f"pod-{index}", LONG if state == "waits" else LATELY, "no room")
            for index, state in numbered
            if state in ("waits", "came lately")
        ),
        absent=tuple(
            Absence(index, LONG if state == "is absent" else LATELY)
            for index, state in numbered
            if state in ("is absent", "vanished lately")
        ),
    )


def seen(states):
    """What a cluster answers that shows the same."""
    found = []
    for index, state in enumerate(states):
        pod = Seen(f"pod-{index}", index)
        if state in ("runs", "has a node"):
            found.append(replace(pod, node="node-1", started_at=NOW if state == "runs" else None))
        elif state == "has ended":
            found.append(replace(pod, node="node-1", phase="Succeeded", started_at=NOW))
        elif state in ("waits", "came lately"):
            found.append(pod)
    return found


def test_a_gang_is_overdue_exactly_if_a_pod_has_waited_or_been_absent_for_too_long():
    for states in combinations_with_replacement(STATES, 4):
        known = part(states)
        is_waiting = bool({"waits", "is absent"} & set(states))
        assert (states, known.is_overdue(NOW)) == (states, is_waiting)
        assert (states, known.overdue(NOW).is_confirmed(seen(states), 4)) == (states, is_waiting)


def test_an_elastic_run_needs_its_fewest_pods():
    for states, fewest in product(combinations_with_replacement(STATES, 4), range(1, 5)):
        size = Size(4, fewest, 4)
        hopeful = sum(state not in ("waits", "is absent", "has ended") for state in states)
        is_short = hopeful < max(0, fewest - states.count("has ended"))
        assert (states, fewest, part(states, size).is_overdue(NOW)) == (states, fewest, is_short)
        assert part(states, size).overdue(NOW).is_confirmed(seen(states), 4) == is_short


@pytest.mark.parametrize(
    ("states", "is_idle"),
    [
        (("runs", "waits", "waits"), False),
        (("waits", "waits", "waits"), True),
        (("has ended", "has ended", "waits"), True),
        (("has ended", "has ended", "came lately"), False),
        (("has ended", "has ended", "has a node"), False),
        (("has ended",) * 10, False),
        (("has ended",) * 9 + ("waits",), True),
    ],
)
def test_what_works_off_indices_is_overdue_only_if_no_pod_works(states, is_idle):
    queue = Size(3, 3, 10)
    assert part(states, queue).is_overdue(NOW) == is_idle
    assert part(states, queue).overdue(NOW).is_confirmed(seen(states), 3) == is_idle


OVERDUE = Overdue(0, GANG, frozenset({"pod-2", "pod-3"}), frozenset())
RUNS = [Seen("pod-0", 0, "node-1"), Seen("pod-1", 1, "node-1")]


@pytest.mark.parametrize(
    ("others", "parallelism", "is_confirmed"),
    [
        ([Seen("pod-2", 2), Seen("pod-3", 3)], 4, True),
        ([Seen("pod-2", 2, "node-2"), Seen("pod-3", 3)], 4, True),
        ([Seen("pod-2", 2, "node-2"), Seen("pod-3", 3, "node-2")], 4, False),
        # other pods have taken their places, and have their own patience
        ([Seen("new-2", 2), Seen("new-3", 3)], 4, False),
        ([Seen("pod-2", 2, is_terminating=True), Seen("new-2", 2), Seen("new-3", 3)], 4, False),
        # one is being removed: another will take its place
        ([Seen("pod-2", 2, is_terminating=True), Seen("pod-3", 3, is_terminating=True)], 4, False),
        ([Seen("pod-2", 2, is_terminating=True), Seen("pod-3", 3)], 4, True),
        # they are gone: nothing is known of how long their places have been empty
        ([], 4, False),
        ([Seen("pod-2", 2, phase="Succeeded"), Seen("pod-3", 3, phase="Failed")], 4, False),
        # someone, or a queue of the cluster, has asked for fewer pods
        ([Seen("pod-2", 2), Seen("pod-3", 3)], 2, False),
        ([Seen("pod-2", 2), Seen("pod-3", 3)], 3, True),
        ([Seen("pod-2", 2), Seen("pod-3", 3)], 0, False),
    ],
)
def test_the_cluster_confirms_only_what_still_waits_by_uid(others, parallelism, is_confirmed):
    assert OVERDUE.is_confirmed([*RUNS, *others], parallelism) == is_confirmed


def test_a_place_without_a_pod_counts_only_if_it_was_known_to_be_empty_for_long_and_still_is():
    absent = replace(OVERDUE, uids=frozenset(), indices=frozenset({2, 3}))
    assert absent.is_confirmed(RUNS, 4)
    assert not absent.is_confirmed([*RUNS, Seen("a", 2), Seen("b", 3)], 4)
    assert not replace(absent, indices=frozenset()).is_confirmed(RUNS, 4)


def test_a_pod_without_an_index_makes_nothing_whole():
    assert OVERDUE.is_confirmed([*RUNS, Seen("pod-2", 2), Seen("pod-3", 3), Seen("x", None)], 4) is True


def test_one_object_that_is_overdue_is_enough():
    whole, short = part(("runs",) * 4), part(("waits",) * 4)
    assert [is_overdue(parts, NOW) for parts in ([whole], [whole, short], [])] == [False, True, False]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([part(("runs", "runs", "waits", "waits"))], "2 of 4 pods run; 2 wait: no room"),
        ([part(("runs", "has a node", "has ended", "waits"))], "1 of 4 pods run; 1 waits: no room"),
        ([part(("runs", "runs", "runs", "is absent"))], "3 of 4 pods run; 1 was not seen"),
        (
            [part(("runs",) * 4), part(("waits", "waits", "is absent", "is absent"))],
            "4 of 8 pods run; 2 were not seen; 2 wait: no room",
        ),
        ([part(("runs",) * 4)], ""),
        ([], ""),
    ],
)
def test_what_waits_is_told_with_the_clusters_words(parts, words):
    assert told(parts, NOW) == words


def test_what_came_lately_is_on_its_way_and_not_told():
    young = replace(part(("runs",) * 3), waits=(Wait("pod-3", NOW - timedelta(seconds=19)),))
    assert [told([young], NOW), told([young], NOW + timedelta(seconds=1))] == [
        "",
        "3 of 4 pods run; 1 waits: no node yet",
    ]


def test_the_end_says_what_ran_and_what_waited():
    known = [part(("runs", "waits", "waits", "is absent"))]
    assert told_of_end(known) == "1 of 4 pods ran; 1 was not seen for 15 minutes; 2 waited for 15 minutes: no room"


def test_every_mix_of_two_objects_is_judged_by_the_worse():
    for first, second in product(STATES, repeat=2):
        one, other = part((first,), Size(1, 1, 1)), part((second,), Size(1, 1, 1))
        assert is_overdue([one, other], NOW) == (one.is_overdue(NOW) or other.is_overdue(NOW))


ROOM = "Unschedulable: 0/8 nodes are available: 3 Insufficient nvidia.com/gpu, 5 node(s) had untolerated taint {a: b}."
BLOCKED = "Unschedulable: 0/8 nodes are available: 3 Insufficient nvidia.com/gpu, 5 Insufficient ephemeral-storage."


@pytest.mark.parametrize(
    ("words", "is_room"),
    [
        (ROOM, True),
        (f"{ROOM} preemption: 0/8 nodes are available: 8 Preemption is not helpful for scheduling.", True),
        ("0/2 nodes are available: 2 Insufficient cpu. no new claims to deallocate, preemption: 0/2 nodes…", True),
        ("0/2 nodes are available: 1 Too many pods, 1 node(s) were unschedulable.", True),
        ("0/2 nodes are available: 2 cannot allocate all claims.", True),
        ("0/2 nodes are available: 1 Insufficient vendor.com/ephemeral-storage-card, 1 Insufficient memory.", True),
        ("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.", True),
        # what its user can ask for, and placement does not count
        (BLOCKED, False),
        ("0/8 nodes are available: 8 Insufficient ephemeral-storage, 8 Insufficient nvidia.com/gpu.", False),
        ("0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had volume node affinity conflict.", False),
        ("0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: not helpful.", False),
        ('0/2 nodes are available: persistentvolumeclaim "data" not found.', False),
        # no words, others, or words whose end is cut off
        ("", False),
        ("SchedulingGated", False),
        ("Unschedulable: 0 nodes are available", False),
        ("0/8 nodes are available: 3 Insufficient nvidia.com/gpu, 5 Insuff", False),
        ("0/8 nodes are available: 3 Insufficient nvidia.com/gpu", False),
    ],
)
def test_only_words_of_a_scheduler_that_name_nothing_but_room_say_that_room_lacks(words, is_room):
    assert lacks_only_room(words) == is_room


def _waits(*words, since=LONG):
    return tuple(Wait(f"pod-{number}", since, one) for number, one in enumerate(words))


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([Part(0, GANG, running=3, placed=3, waits=_waits(ROOM))], "started_in_part"),
        # one pod of a set that no node can hold, and others whose room was taken
        ([Part(0, GANG, waits=_waits(ROOM, BLOCKED))], "blocked_in_part"),
        ([Part(0, GANG, waits=_waits(ROOM)), Part(1, GANG, waits=_waits(BLOCKED))], "blocked_in_part"),
        # who came lately has no say yet
        ([Part(0, GANG, waits=_waits(ROOM)), Part(1, GANG, waits=_waits(BLOCKED, since=LATELY))], "started_in_part"),
        ([Part(0, GANG, waits=_waits(ROOM, since=LATELY))], "blocked_in_part"),
        # pods that the cluster refuses to make
        ([Part(0, GANG, running=3, placed=3, absent=(Absence(3, LONG),))], "blocked_in_part"),
        ([Part(0, GANG, waits=_waits(ROOM), absent=(Absence(3, LONG),))], "blocked_in_part"),
        ([Part(0, GANG, waits=_waits(ROOM), absent=(Absence(3, LATELY),))], "started_in_part"),
    ],
)
def test_room_was_taken_only_if_the_cluster_says_so_of_each_pod_that_has_waited_for_too_long(parts, why):
    assert why_in_part(parts, NOW) == why
