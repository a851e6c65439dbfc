"""Pods that ran unseen, as their Job tells of them: never more than it counted, never longer than it lasted."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.engine.unseen import Known, Tally, unseen_runs

NOON = datetime(2026, 11, 23, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def job(indices: int = 1, *, places: int | None = None, over: int | None = None, end: float = 10) -> Tally:
    return Tally(indices, places or indices, indices if over is None else over, NOON, at(end))


def waiting(index: int = 0, *, place: int | None = None, seen: float | None = 0) -> Known:
    """A pod that was last seen waiting, or with `seen` None was seen to go."""
    last_seen_at = None if seen is None else at(seen)
    return Known(f"uid-{index}", index, index if place is None else place, None, None, last_seen_at)


def ran(index: int, start: float, end: float | None, *, place: int | None = None) -> Known:
    until = None if end is None else at(end)
    return Known(f"uid-{index}", index, index if place is None else place, at(start), until, None)


def told(tally: Tally, *pods: Known) -> list[tuple[str, int, int, float, float]]:
    found = unseen_runs(tally, pods)
    return [
        (
            run.uid,
            run.index,
            run.place,
            (run.started_at - NOON).total_seconds(),
            (run.finished_at - NOON).total_seconds(),
        )
        for run in found
    ]


def test_a_pod_that_nobody_ever_saw_ran_from_its_jobs_start_to_its_end():
    assert told(job()) == [("", 0, 0, 0, 10)]


def test_a_pod_that_was_last_seen_waiting_and_vanished_ran_from_then_on():
    assert told(job(), waiting()) == [("uid-0", 0, 0, 0, 10)]
    assert told(job(), waiting(seen=4)) == [("uid-0", 0, 0, 4, 10)]


def test_a_pod_that_was_last_seen_waiting_long_ago_counts_for_a_bounded_time():
    assert told(job(end=7200), waiting()) == [("uid-0", 0, 0, 6600, 7200)]


def test_a_pod_that_was_seen_to_go_without_having_begun_did_not_run():
    assert told(job(), waiting(seen=None)) == []


def test_a_pod_that_was_seen_to_run_is_not_counted_again():
    assert told(job(), ran(0, 1, 9)) == []
    assert told(job(), ran(0, 1, None)) == []


def test_a_job_that_counted_no_ended_pod_ran_none_unseen():
    assert told(job(4, over=0)) == []


def test_of_a_gang_those_that_were_not_seen_are_taken_to_have_run():
    assert told(job(3), ran(1, 1, 9)) == [("", 0, 0, 0, 10), ("", 2, 2, 0, 10)]


def test_of_more_pods_than_places_each_unseen_one_gets_time_that_none_held():
    array = job(4, places=2, over=4)
    assert told(array, ran(0, 0, 4, place=0), ran(1, 0, 10, place=1)) == [("", 2, 0, 4, 10)]


def test_a_cluster_that_counts_more_pods_than_were_asked_for_is_not_believed():
    assert len(told(job(2, over=1_000_000))) == 2


@st.composite
def stories(draw):
    indices = draw(st.integers(1, 6))
    places = draw(st.integers(1, indices))
    pods = []
    for index in draw(st.sets(st.integers(0, indices - 1))):
        place = index if indices <= places else draw(st.integers(0, places - 1))
        start = draw(st.integers(-5, 30))
        pods.append(
            draw(
                st.sampled_from(
                    [
                        waiting(index, place=place, seen=start),
                        waiting(index, place=place, seen=None),
                        ran(index, start, start + draw(st.integers(0, 20)), place=place),
                    ]
                )
            )
        )
    return job(indices, places=places, over=draw(st.integers(0, 9)), end=draw(st.integers(0, 3600))), pods


@given(stories())
def test_unseen_runs_are_no_more_than_counted_stay_in_their_job_and_share_no_place(story):
    tally, pods = story
    found = unseen_runs(tally, pods)
    begun = sum(pod.held_from is not None for pod in pods)
    assert len(found) <= max(0, min(tally.pods_over, tally.indices) - begun)
    assert len({run.index for run in found}) == len(found)
    assert {run.index for run in found}.isdisjoint(pod.index for pod in pods if pod.held_from is not None)
    spans: dict[int, list[tuple[datetime, datetime]]] = {}
    for pod in pods:
        if pod.held_from is not None and pod.held_until is not None and pod.held_from < pod.held_until:
            spans.setdefault(pod.place, []).append((pod.held_from, pod.held_until))
    for run in found:
        assert tally.began_at <= run.started_at <= run.finished_at <= tally.over_at
        assert 0 <= run.place < tally.places
        for start, end in spans.get(run.place, []):
            assert run.finished_at <= start or end <= run.started_at
        spans.setdefault(run.place, []).append((run.started_at, run.finished_at))


@pytest.mark.parametrize("end", [0, -5])
def test_a_job_without_duration_ran_nothing(end: float):
    assert told(job(end=end)) == []
