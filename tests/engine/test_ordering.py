"""Who is next."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.cycle.ordering import by_response_ratio
from placement.ranking.kept_estimates import HALF_LIFE_SECONDS, Kept, added, as_kept, counted, factor_of, stater
from placement.values.model import Runtime

from .fleets import NOW, job


def waiting(minutes, estimate=None, **more):
    return job(submitted_at=NOW - timedelta(minutes=minutes), estimated_seconds=estimate, **more)


def order(*queue, runtimes=None):
    return [queue.index(one) for one in by_response_ratio(queue, runtimes or {}, NOW)]


def test_a_short_job_passes_a_long_one_that_came_before():
    assert order(waiting(60, 36_000), waiting(10, 600)) == [1, 0]


def test_a_long_job_that_has_waited_in_proportion_is_next():
    assert order(waiting(10, 600), waiting(700, 36_000)) == [1, 0]


def test_priority_comes_before_any_ratio():
    assert order(waiting(600, 60), waiting(1, 36_000, priority=100)) == [1, 0]


def test_jobs_of_which_nothing_is_known_stay_in_the_order_of_submission():
    assert order(waiting(3), waiting(2), waiting(1)) == [0, 1, 2]


def test_what_is_not_known_counts_as_the_median_of_the_others():
    assert order(waiting(10), waiting(10, 60), waiting(10, 600), waiting(10, 6000)) == [1, 0, 2, 3]


def test_history_counts_more_than_the_users_word():
    liar = waiting(10, 1, kind="k")
    assert order(waiting(10, 600), liar, runtimes={"k": Runtime(3000, 6000, 9000, 9, "job")}) == [0, 1]


def test_a_job_that_was_not_submitted_has_not_waited():
    asked = job(estimated_seconds=60)
    assert order(asked, waiting(0.001, 60)) == [1, 0]
    assert order(asked, waiting(-1, 60)) == [0, 1]


def test_very_short_runs_count_as_a_minute():
    assert order(waiting(10, 60), waiting(10, 1)) == [0, 1]


@given(
    st.lists(
        st.tuples(st.integers(-10, 10_000), st.none() | st.integers(0, 10**7), st.sampled_from([0, 100])), max_size=30
    )
)
def test_everybody_is_in_it_once_and_priorities_fall(queue):
    jobs = [waiting(minutes, estimate, priority=priority) for minutes, estimate, priority in queue]
    found = by_response_ratio(jobs, {}, NOW)
    assert sorted(one.id for one in found) == sorted(one.id for one in jobs)
    assert [one.priority for one in found] == sorted((one.priority for one in jobs), reverse=True)


def test_an_estimate_counts_as_much_longer_as_those_of_its_user_were_exceeded():
    short, honest = waiting(60, 30, kind="short"), waiting(60, 1200, kind="honest")
    liar, stranger = replace(short, stated_by="liar"), replace(short, stated_by="stranger")

    def first(*queue, runtimes=None):
        return by_response_ratio(as_kept(queue, {"liar": 30.0}), runtimes or {}, NOW)[0].id

    assert first(honest, stranger) == short.id
    assert first(honest, liar) == honest.id
    assert [one.estimated_seconds for one in as_kept([honest, stranger, liar], {"liar": 30.0})] == [1200, 30, 1800]
    assert as_kept([waiting(1, stated_by="liar")], {"liar": 30.0})[0].estimated_seconds is None
    # history is not an estimate, and a run never takes longer than its deadline
    assert first(honest, liar, runtimes={"short": Runtime(50, 60, 70, 5, "job")}) == short.id
    assert first(honest, replace(liar, deadline_seconds=100)) == short.id


RUNS = st.lists(st.tuples(st.integers(1, 10**5), st.integers(0, 10**5), st.booleans()), max_size=30)


def record_of(runs, record=None):
    """The record of (stated, taken, is_success)."""
    for stated, taken, is_success in runs:
        run = counted(stated, taken, is_success=is_success)
        record = record if run is None else added(record, run)
    return record


@pytest.mark.law
@given(RUNS)
def test_no_record_makes_an_estimate_shorter_and_failures_only_make_it_longer(runs):
    record = None
    for stated, taken, is_success in runs:
        before, run = record, counted(stated, taken, is_success=is_success)
        if run is None:
            assert not is_success
            assert taken <= max(60, stated)
            continue
        record = added(before, run)
        assert record.seconds >= run.seconds
        assert record.weighed >= record.seconds
        if not is_success:
            assert run.weighed > run.seconds
    assert record is None or factor_of(record) >= 1.0


@pytest.mark.law
@given(st.lists(st.integers(60, 10**4), min_size=1, max_size=30), st.integers(1, 60))
def test_who_states_the_same_for_everything_is_believed_at_least_the_mean_of_his_runs(taken, stated):
    """More than that, the less alike they are: the mean over seconds is the mean plus the variance by the mean. What came first
    has faded, by at most half for each half-life of runs.
    """
    believed = max(60, stated) * factor_of(record_of((stated, seconds, True) for seconds in taken))
    left = 0.5 ** (sum(taken) / HALF_LIFE_SECONDS)
    assert believed >= left * sum(one * one for one in taken) / sum(taken) - 1e-6
    alike = 60 * factor_of(record_of([(60, 3600, True)] * 10))
    unlike = 60 * factor_of(record_of([(60, 600, True), (60, 6600, True)] * 5))
    assert alike == pytest.approx(3600)
    assert unlike > 1.5 * 3600


@pytest.mark.law
@given(RUNS, st.lists(st.integers(60, 10**7), max_size=200))
def test_trivial_jobs_that_are_said_to_run_for_days_buy_no_belief(runs, pads):
    """They count as much as honest runs of a minute each: whatever was stated for them, and by their time, not their number."""
    lies = record_of([*runs, (60, 36_000, True)])
    padded = record_of(((stated, 60, True) for stated in pads), lies)
    honest = record_of([(60, 60, True)] * len(pads), lies)
    assert factor_of(padded) == pytest.approx(factor_of(honest))
    share = lies.seconds / (lies.seconds + 60 * len(pads) * 2)
    assert factor_of(padded) >= 1 + (factor_of(lies) - 1) * share * 0.9


def test_a_record_counts_half_after_runs_of_as_much_time_as_the_half_life():
    record = Kept(6400.0, 12_800.0)
    for _ in range(7):
        record = added(record, Kept(24 * 3600.0, 24 * 3600.0))
    alone = record_of([(10**6, 24 * 3600, True)] * 7)
    assert record.seconds - alone.seconds == pytest.approx(3200.0)
    assert record.weighed - alone.weighed == pytest.approx(6400.0)
    assert added(None, Kept(60, 90)) == (60, 90)
    assert factor_of(record_of([(60, 3600, True)] * 40)) == pytest.approx(60)


def test_only_what_a_run_shows_is_counted():
    assert counted(600, 300, is_success=True) == (300, 300)
    assert counted(300, 600, is_success=True) == (600, 1200)
    assert counted(600, 600, is_success=False) is None
    assert counted(600, 1200, is_success=False) == (1200, 2400)
    assert counted(1, 2, is_success=True) == (60, 60)
    assert counted(59, 120, is_success=False) == (120, 240)


def test_who_states_an_estimate_is_one_user_in_one_tenant_and_cannot_be_read():
    ids = [UUID(int=number) for number in range(2)]
    names = {stater(tenant, user) for tenant in ids for user in ids}
    assert len(names) == 4
    assert {len(name) for name in names} == {16}
    assert stater(ids[0], ids[1]) == stater(UUID(int=0), UUID(int=1))
