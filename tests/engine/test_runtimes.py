"""Run times learned from history: laws of the quantiles, the order of what is believed, and the words."""

from datetime import timedelta
from math import exp
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.ranking.runtimes import (
    LONGEST_SECONDS,
    MOST_KEPT,
    RunHistory,
    best_known,
    by_estimate,
    capped,
    expected_end,
    groups_of,
    longest_seconds,
    name_pattern,
    predict,
    quantiles,
    runtime_of,
    runtime_text,
)
from placement.values.model import Runtime

from .fleets import NOW, job

TENANT = UUID(int=1)
SPEC: dict[str, Any] = {
    "name": "train",
    "pod_sets": [{"name": "a", "count": 1, "cpu": "1", "memory": "1Gi", "gpu": None}],
}
GROUPS = groups_of(TENANT, SPEC)
YEAR = 365 * 24 * 3600
seconds = st.integers(0, 20 * YEAR)
recent = st.lists(seconds, min_size=1, max_size=12).map(lambda runs: runs * 6)


def history(*found: int) -> RunHistory:
    return RunHistory(tuple(found), len(found))


def forecast(**levels) -> Runtime:
    found = predict(GROUPS, {getattr(GROUPS, level): history(*runs) for level, runs in levels.items()})
    assert found is not None
    return found


def interval(runtime: Runtime) -> tuple[int, int, int]:
    return runtime.p10_seconds, runtime.p50_seconds, runtime.p90_seconds


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(GROUPS._fields), recent, min_size=1))
def test_quantiles_are_ordered_whole_and_within_bounds(levels):
    low, middle, high = interval(forecast(**levels))
    assert 0 <= low <= middle <= high <= 2 * LONGEST_SECONDS


@settings(deadline=None)
@given(st.lists(st.tuples(seconds, seconds), min_size=1, max_size=20), recent)
def test_longer_runs_never_predict_less(pairs, name_runs):
    shorter, longer = [min(pair) for pair in pairs], [max(pair) for pair in pairs]
    before, after = (forecast(job=runs, name=name_runs) for runs in (shorter, longer))
    assert all(a <= b for a, b in zip(interval(before), interval(after), strict=True))


@settings(deadline=None)
@given(st.lists(st.integers(1000, 1100), min_size=20, max_size=25), st.data())
def test_one_outlier_moves_no_quantile_out_of_the_other_runs(runs, data):
    at = data.draw(st.integers(0, len(runs) - 1))
    outlier = data.draw(st.sampled_from([0, 1, 30 * YEAR]))
    low, middle, high = interval(forecast(job=[*runs[:at], outlier, *runs[at + 1 :]]))
    assert 900 < low <= middle <= high < 1200
    assert 1000 <= middle <= 1100


@settings(deadline=None)
@given(st.integers(1, 10 * YEAR), st.integers(MOST_KEPT, 3 * MOST_KEPT))
def test_equal_runs_are_predicted_closely(length, count):
    low, middle, high = interval(forecast(job=[length] * count))
    assert middle == length
    assert low >= 0.95 * length - 1
    assert high <= 1.05 * length + 1


def test_recent_runs_count_more():
    assert forecast(job=[100] * 20 + [1000] * 30).p50_seconds < 300
    assert forecast(job=[1000] * 20 + [100] * 30).p50_seconds > 300


@pytest.mark.parametrize(("newest", "runs", "median"), [(13, 50, 100), (13, 45, 1000), (14, 50, 1000)])
def test_a_run_counts_half_as_much_as_one_sixteen_runs_later(newest, runs, median):
    """By these weights the newest 13 count less than the 37 before them, but more than the 32 before them."""
    weights = [0.5 ** (age / 16) for age in range(runs)]
    assert (sum(weights[:newest]) > sum(weights[newest:])) == (median == 1000)
    assert round(exp(quantiles([1000] * newest + [100] * (runs - newest))[1])) == median


def test_few_runs_are_pulled_towards_the_wider_group():
    alone, among = forecast(job=[100]), forecast(job=[100], name=[1000] * 40)
    assert alone.p50_seconds == 100
    assert 100 < among.p50_seconds < 1000
    assert forecast(job=[100] * 40, name=[1000] * 40).p50_seconds < 130
    assert (among.runs, among.basis) == (1, "job")


@pytest.mark.parametrize(("runs", "counted"), [(1, 1), (4, 4), (16, 16), (60, 50)])
def test_the_wider_group_counts_as_four_runs_and_where_there_is_none_a_factor_of_two_counts_as_two(runs, counted):
    """The mean of logarithms: between 100 s and 1000 s, four runs of each give about 316 s."""
    found = forecast(job=[100] * runs, name=[1000] * 40)
    assert found.p50_seconds == round(100 * 10 ** (4 / (counted + 4)))
    low, middle, high = interval(forecast(job=[1000] * runs))
    factor = 2 ** (2 / (counted + 2))
    assert (low, middle, high) == (round(1000 / factor), 1000, round(1000 * factor))


def test_a_single_run_is_believed_within_a_factor_of_two():
    low, _, high = interval(forecast(job=[1000]))
    assert 500 < low < 1000 < high < 2000


def test_what_is_widest_serves_only_where_nothing_nearer_is_known():
    assert forecast(name=[100], pods=[9000] * 40) == forecast(name=[100])
    assert forecast(pods=[9000]).basis == "pods"
    assert predict(GROUPS, {}) is None


def test_history_comes_before_the_estimate_and_the_deadline_caps_both():
    known = Runtime(100, 200, 300, 7, "job")
    asked = job(estimated_seconds=50, deadline_seconds=250, kind="k")
    assert runtime_of(asked, {"k": known}) == Runtime(100, 200, 250, 7, "job")
    assert runtime_of(asked, {}) == Runtime(25, 50, 100, 0, "estimate")
    assert runtime_of(job(estimated_seconds=50, deadline_seconds=30), {}) == Runtime(25, 30, 30, 0, "estimate")
    assert runtime_of(job(deadline_seconds=30), {}) is None


@pytest.mark.parametrize(("ran", "end"), [(0, 50), (49, 50), (50, 90), (89, 90), (90, None), (1000, None)])
def test_a_run_ends_at_its_median_and_from_then_on_at_its_ninetieth_percentile(ran, end):
    found = expected_end(NOW - timedelta(seconds=ran), NOW, Runtime(10, 50, 90, 5, "job"))
    assert found == (None if end is None else NOW + timedelta(seconds=end - ran))
    assert expected_end(NOW, NOW, None) is None


def test_the_pessimistic_end_is_the_deadline_where_nothing_else_is_known():
    assert longest_seconds(job(deadline_seconds=30), {}) == 30
    assert longest_seconds(job(), {}) is None
    assert longest_seconds(job(estimated_seconds=10, deadline_seconds=30), {}) == 20


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("train", "train"),
        ("train-42", "train-#"),
        ("train-v2-8f3a91c", "train-v#"),
        ("nightly-2026-03-01", "nightly-#"),
        ("eval-x7k2p9qw", "eval-#"),
        ("decade-deadline", "decade-deadline"),
        ("1234", "#"),
        ("a.b_c", "a-b-c"),
        ("", ""),
    ],
)
def test_a_name_without_what_changes_from_run_to_run(name, pattern):
    assert name_pattern(name) == pattern


def test_what_a_user_says_outweighs_runs_that_share_no_more_than_their_pods():
    by_pods, by_name = (Runtime(10, 20, 40, 9, basis) for basis in ("pods", "name"))
    assert best_known(by_pods, 600, None) == by_estimate(600)
    assert best_known(by_pods, None, None) == by_pods
    assert best_known(by_name, 600, None) == by_name
    assert best_known(by_pods, 600, 300) == capped(by_estimate(600), 300)
    assert best_known(None, None, 300) is None


def test_groups_are_a_tenants_own_and_tell_pods_and_names_apart():
    bigger = {**SPEC, "pod_sets": [{**SPEC["pod_sets"][0], "count": 2}]}
    renamed = {**SPEC, "name": "other"}
    again = {**SPEC, "name": "train-7"}
    assert groups_of(TENANT, {**SPEC, "name": "train-8"}) == groups_of(TENANT, again)
    assert groups_of(TENANT, bigger).name == GROUPS.name
    assert groups_of(TENANT, renamed).pods == GROUPS.pods
    every = [*GROUPS, *groups_of(uuid4(), SPEC), groups_of(TENANT, bigger).job, groups_of(TENANT, renamed).job]
    assert len(set(every)) == len(every)


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        (Runtime(2040, 2400, 3120, 41, "job"), "usually 34–52 min, from 41 runs"),
        (Runtime(0, 0, 0, 1, "job"), "usually 0 s, from 1 run"),
        (Runtime(5, 60, 9000, 3, "name"), "usually 5 s to 2 h, from 3 runs of the same name"),
        (Runtime(3600, 3600, 3600, 9, "pods"), "usually 60 min, from 9 runs with the same pods"),
        (by_estimate(7200), "about 2 h, by the job's estimate"),
    ],
)
def test_people_read_it_in_words(runtime, words):
    assert runtime_text(runtime) == words


def test_groups_are_named_as_they_are_stored():
    """Another name would forget what is known of all past runs."""
    stored = {"name": "train-v2", "pod_sets": [{"name": "main", "count": 2, "cpu": "1"}], "throughput": {"H100": 2}}
    assert groups_of(UUID(int=7), stored) == (
        "8781e402dac010008e1876de19aee7ac",
        "81c06f03b19053dd0758d39284a5e84b",
        "24b8736bfbe3b697e9af69fdcc1bc2f5",
    )
