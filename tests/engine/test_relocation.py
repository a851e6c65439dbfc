"""When the gateway itself moves a job: only if staying costs more, not often, and few at the same time."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.engine.relocation import (
    DRAINED_WITHIN,
    HELD_SECONDS,
    MARGIN_SECONDS,
    MOST_MOVES_A_DAY,
    REST,
    SPOT_NOTICE,
    Cause,
    MovableRun,
    Notice,
    chosen,
    decide,
    most_leaving,
)
from federation.queries.queue import REFUSED_FOR
from placement.values.preemption import RESTART_SECONDS
from tests.laws import examples

NOW = datetime(2026, 12, 5, 12, tzinfo=UTC)
HERE = UUID(int=1)


def run(*notices, number=1, cluster=HERE, saved_ago=10, every=3600, ends_in=86_400, **changes):
    return MovableRun(
        attempt_id=UUID(int=100 + number),
        job_id=UUID(int=200 + number),
        cluster_id=cluster,
        started_at=NOW - timedelta(hours=10),
        ends_at=NOW + timedelta(seconds=ends_in),
        saved_at=NOW - timedelta(seconds=saved_ago),
        checkpoint_seconds=every,
        notices=notices,
        **changes,
    )


def window(hours):
    return Notice(Cause.MAINTENANCE, NOW + timedelta(hours=hours))


DRAIN = Notice(Cause.DRAIN, NOW + DRAINED_WITHIN)
SPOT = Notice(Cause.SPOT, NOW + SPOT_NOTICE)


def test_a_job_moves_right_after_its_checkpoint_and_stays_before_the_next_one():
    found = decide(run(window(5)), NOW)
    assert (found.lost_seconds, found.cost_seconds, found.stay_seconds) == (10, 70, 1860)
    assert decide(run(window(5), saved_ago=1800 - MARGIN_SECONDS), NOW) is None
    assert decide(run(window(5), saved_ago=1799 - MARGIN_SECONDS), NOW) is not None


def test_a_job_that_ends_before_it_is_stopped_stays():
    assert decide(run(window(2), ends_in=7200), NOW) is None
    assert decide(run(window(2), ends_in=7201), NOW) is not None
    assert decide(run(DRAIN, ends_in=3600), NOW) is None


def test_a_job_that_nothing_threatens_stays():
    assert decide(run(), NOW) is None


def test_a_job_on_a_node_that_goes_away_loses_what_it_does_until_then():
    found = decide(run(SPOT, saved_ago=500), NOW)
    assert (found.cost_seconds, found.stay_seconds) == (560, 680)
    assert decide(run(SPOT, saved_ago=3590), NOW) is None  # its next checkpoint comes first


def test_a_job_on_a_drained_cluster_would_be_held_until_somebody_attests_its_loss():
    found = decide(run(DRAIN, saved_ago=3500), NOW)
    assert found.stay_seconds == 1800 + RESTART_SECONDS + HELD_SECONDS
    assert decide(run(DRAIN, saved_ago=1, every=10), NOW) is not None


def test_of_several_notices_the_one_with_the_largest_gain_counts():
    assert decide(run(window(5), DRAIN, SPOT), NOW).notice.cause == Cause.DRAIN


def test_work_without_a_report_is_saved_as_often_as_the_job_declares():
    found = decide(replace(run(window(5)), saved_at=None, started_at=NOW - timedelta(seconds=3600 * 4 + 7)), NOW)
    assert found.lost_seconds == 7


def test_the_most_pressing_leave_first_and_never_more_of_a_cluster_than_its_share():
    runs = [
        run(window(5), number=1),
        run(SPOT, number=2),
        run(DRAIN, number=3),
        run(DRAIN, number=4, cluster=UUID(int=2)),
    ]
    tried = chosen(runs, NOW, {HERE: 20}, {}, Fraction(1, 10))
    assert [one.run.attempt_id.int for one in tried] == [102, 103, 104]
    tried = chosen(runs, NOW, {HERE: 20}, {HERE: 1}, Fraction(1, 10))
    assert [one.run.attempt_id.int for one in tried] == [102, 104]
    assert chosen(runs, NOW, {HERE: 20}, {HERE: 2, UUID(int=2): 1}, Fraction(1, 10)) == []


@pytest.mark.parametrize(("running", "share", "most"), [(1, "0.1", 1), (30, "0.1", 3), (9, "1", 9), (9, "0", 0)])
def test_at_least_one_may_leave_unless_the_share_is_zero(running, share, most):
    assert most_leaving(running, Fraction(share)) == most


def test_a_job_rests_longer_than_it_avoids_the_cluster_that_it_left():
    assert REST > REFUSED_FOR


moments = st.integers(0, 3 * 86_400).map(lambda seconds: NOW + timedelta(seconds=seconds))
notices = st.lists(st.builds(Notice, st.sampled_from(Cause), moments), max_size=3).map(tuple)
runs = st.builds(
    run,
    number=st.integers(1, 50),
    cluster=st.integers(1, 3).map(lambda number: UUID(int=number)),
    saved_ago=st.integers(-60, 40_000),
    every=st.integers(1, 20_000),
    ends_in=st.integers(-60, 3 * 86_400),
    moves_today=st.integers(0, 5),
    last_moved_at=st.none() | st.integers(0, 7200).map(lambda seconds: NOW - timedelta(seconds=seconds)),
)
threatened = st.builds(lambda one, given: replace(one, notices=given), runs, notices)


@pytest.mark.law
@examples(150)
@given(threatened)
def test_nothing_moves_unless_that_gains_more_than_the_margin(one):
    found = decide(one, NOW)
    if found is not None:
        assert found.gain_seconds > MARGIN_SECONDS
        assert found.stay_seconds > found.cost_seconds >= found.lost_seconds + RESTART_SECONDS
        assert found.notice in one.notices
        assert found.notice.at < one.ends_at
        assert one.moves_today < MOST_MOVES_A_DAY
        assert one.last_moved_at is None or NOW - one.last_moved_at >= REST


@pytest.mark.law
@examples(150)
@given(threatened, st.integers(1, 5000))
def test_more_to_lose_now_never_makes_it_move(one, more):
    later = replace(one, saved_at=one.saved_at - timedelta(seconds=more))
    spared = [each for each in one.notices if each.cause == Cause.DRAIN]
    if decide(one, NOW) is None and not spared:
        found = decide(later, NOW)
        # Only work that is lost either way may have grown: then its next checkpoint comes after the notice.
        assert (
            found is None or found.lost_seconds + int((found.notice.at - NOW).total_seconds()) < one.checkpoint_seconds
        )


@pytest.mark.law
@examples(100)
@given(
    st.lists(threatened, max_size=20, unique_by=lambda one: one.attempt_id),
    st.dictionaries(st.integers(1, 3).map(lambda number: UUID(int=number)), st.integers(0, 60)),
    st.dictionaries(st.integers(1, 3).map(lambda number: UUID(int=number)), st.integers(0, 5)),
    st.fractions(0, 1, max_denominator=20),
)
def test_no_more_leave_a_cluster_than_its_share(every, running, leaving, share):
    tried = chosen(every, NOW, running, leaving, share)
    going = Counter(one.run.cluster_id for one in tried)
    for cluster, count in going.items():
        assert count + leaving.get(cluster, 0) <= most_leaving(running.get(cluster, 0), share)
    assert all(decide(one.run, NOW) == one for one in tried)
    assert [one.notice.at for one in tried] == sorted(one.notice.at for one in tried)
