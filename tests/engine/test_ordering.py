"""Who is next."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from placement.cycle.ordering import by_response_ratio
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
