"""What the gateway asks a Prometheus, what it reads of an answer, and what becomes of it."""

import itertools
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from billing.engine.utilisation import (
    ASKED_FOR,
    MeteredPod,
    hour_of,
    is_measurable,
    next_ask,
    pods_to_ask_for,
)
from clusters.engine.telemetry import (
    MOST,
    PODS_PER_QUESTION,
    QUESTIONS,
    Device,
    Metric,
    NoAnswer,
    Number,
    Over,
    PodName,
    questions,
    read_answer,
)

POD = PodName("swy-a-1", "train-0")
ONE, TWO = Device("GPU-1", ""), Device("GPU-2", "")
SLICE = Device("GPU-1", "4")
HOUR = datetime(2026, 11, 10, 12, tzinfo=UTC)
MEAN, COUNT = (Metric.UTILISATION, Over.MEAN), (Metric.UTILISATION, Over.COUNT)
SM, SM_COUNT = (Metric.SM_ACTIVE, Over.MEAN), (Metric.SM_ACTIVE, Over.COUNT)
TENSOR, MEMORY = (Metric.TENSOR_ACTIVE, Over.MEAN), (Metric.MEMORY_USED, Over.PEAK)
POWER = (Metric.POWER, Over.MEAN)


def pod(**changes):
    return replace(MeteredPod(7, POD, 1, "whole", 3600), **changes)


def told(numbers):
    return {
        question: [Number(POD, device, value) for device, value in found.items()] for question, found in numbers.items()
    }


def row(numbers, **changes):
    rows = hour_of([pod(**changes)], told(numbers)).rows
    return rows[0] if rows else None


def body(*series):
    result = [{"metric": labels, "value": [1, value]} for labels, value in series]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def labels(**more):
    return {"namespace": POD.namespace, "pod": POD.name, "Hostname": "n1", "UUID": "GPU-1"} | more


def test_there_are_seven_questions_over_five_metrics_and_each_number_has_a_bound():
    assert {str(metric) for metric, _ in QUESTIONS} == {
        "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_DEV_POWER_USAGE",
    }  # fmt: skip
    assert set(MOST) == set(QUESTIONS)
    assert len(QUESTIONS) == 7


def test_a_question_is_exactly_this():
    asked = {(metric, over): query for metric, over, _, query in questions([PodName("swy-a-1", "train.x-0"), POD])}
    first = next(questions([PodName("swy-a-1", "train.x-0"), POD]))
    own = '{namespace=~"swy-a-1",pod=~"train-0|train[.]x-0"}'
    exported = '{exported_namespace=~"swy-a-1",exported_pod=~"train-0|train[.]x-0"}'
    kept = "max by (namespace,pod,exported_namespace,exported_pod,UUID,gpu,GPU_I_ID)"
    assert first[3] == (
        f"avg_over_time({kept} (DCGM_FI_DEV_GPU_UTIL{own})[60m:1m]) or avg_over_time({kept} (DCGM_FI_DEV_GPU_UTIL{exported})[60m:1m])"
    )
    assert asked[MEMORY] == (
        f"{kept} (max_over_time(DCGM_FI_DEV_FB_USED{own}[60m])) or {kept} (max_over_time(DCGM_FI_DEV_FB_USED{exported}[60m]))"
    )
    assert first[:3] == (Metric.UTILISATION, Over.MEAN, frozenset([PodName("swy-a-1", "train.x-0"), POD]))


@pytest.mark.parametrize(
    "name", ["", 'a"}) or vector(1', "a|.*", ".*", "A", "a b", "a\n", "-a", "a-", "é", "a\\", "x" * 254, "a\x00"]
)
def test_a_name_that_kubernetes_would_not_allow_is_in_no_question(name):
    assert list(questions([PodName("swy-a-1", name), PodName(name, "train-0")])) == []


def test_many_pods_are_asked_for_in_parts():
    pods = [PodName("swy-a-1", f"p-{number}") for number in range(2 * PODS_PER_QUESTION + 1)]
    asked = list(questions(pods + pods))
    assert len(asked) == 3 * len(QUESTIONS)
    assert frozenset().union(*(some for _, _, some, _ in asked)) == frozenset(pods)
    assert max(len(some) for _, _, some, _ in asked) == PODS_PER_QUESTION


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("shift", [-1, 0, 1])
def test_each_number_is_read_up_to_its_bound(question, shift):
    metric, over = question
    read = read_answer(body((labels(), str(MOST[question] + shift))), metric, over, frozenset([POD]))
    assert (len(read.numbers), read.unusable) == ((0, 1) if shift == 1 or MOST[question] + shift < 0 else (1, 0))


def test_of_two_numbers_for_one_gpu_the_first_by_its_labels_counts_in_any_order():
    series = [(labels(job="b"), "90"), (labels(job="a"), "10"), (labels(job="c"), "50")]
    for order in itertools.permutations(series):
        read = read_answer(body(*order), *MEAN, frozenset([POD]))
        assert read.numbers == (Number(POD, ONE, 10.0),)
        assert read.unusable == 2


def test_labels_that_prometheus_renamed_name_the_pod():
    own = {
        "namespace": "monitoring",
        "pod": "exporter",
        "exported_namespace": POD.namespace,
        "exported_pod": POD.name,
        "gpu": "3",
    }
    read = read_answer(body((own, "5")), *MEAN, frozenset([POD]))
    assert read.numbers == (Number(POD, Device("3", ""), 5.0),)


def test_an_answer_that_is_none_repeats_nothing():
    with pytest.raises(NoAnswer, match=r"^the answer is not JSON$"):
        read_answer(b'{"canary"', *MEAN, frozenset([POD]))


def test_a_whole_gpu_is_measured_in_full():
    found = row({
        MEAN: {ONE: 40}, COUNT: {ONE: 60}, SM: {ONE: 0.25}, TENSOR: {ONE: 0.125}, MEMORY: {ONE: 20480.4}, POWER: {ONE: 350.5004},
    })  # fmt: skip
    assert found is not None
    assert (found.coverage_seconds, found.utilisation, found.sm_active, found.tensor_active) == (3600, 0.4, 0.25, 0.125)
    assert (found.peak_memory_mib, found.power_watts, found.meter_id) == (20480, 350.5, 7)


def test_what_is_not_reported_is_not_zero():
    found = row({MEAN: {ONE: 0}, COUNT: {ONE: 60}})
    assert (found.utilisation, found.sm_active, found.tensor_active, found.peak_memory_mib, found.power_watts) == (
        0, None, None, None, None,
    )  # fmt: skip


@pytest.mark.parametrize(
    "numbers", [{}, {MEAN: {ONE: 40}}, {COUNT: {ONE: 60}}, {MEAN: {ONE: 40}, COUNT: {ONE: 0}}, {MEAN: {ONE: 40}, COUNT: {TWO: 60}},
                {SM: {ONE: 1}, SM_COUNT: {ONE: 60}}, {MEAN: {SLICE: 40}, COUNT: {SLICE: 60}}],
)  # fmt: skip
def test_without_a_number_and_a_count_of_a_whole_gpu_nothing_is_measured(numbers):
    assert row(numbers) is None


def test_gpus_weigh_by_how_long_each_was_seen():
    numbers = {MEAN: {ONE: 100, TWO: 0}, COUNT: {ONE: 45, TWO: 15}, SM: {ONE: 0.5, TWO: 0.1}, MEMORY: {ONE: 5, TWO: 9}}
    found = row(numbers, units=2)
    assert (found.coverage_seconds, found.utilisation, found.sm_active, found.peak_memory_mib) == (1800, 0.75, 0.4, 9)


def test_a_gap_is_a_gap():
    assert row({MEAN: {ONE: 50}, COUNT: {ONE: 1}}).coverage_seconds == 60
    assert row({MEAN: {ONE: 50}, COUNT: {ONE: 1}}, units=60).coverage_seconds == 1
    assert row({MEAN: {ONE: 50}, COUNT: {ONE: 1}}, units=61) is None


@pytest.mark.parametrize(
    ("seconds", "counted", "seen"), [(3600, 61, 3600), (600, 60, 600), (59, 1, 59), (3600, 59.5, 3570)]
)
def test_no_more_is_seen_than_was_metered(seconds, counted, seen):
    assert row({MEAN: {ONE: 50}, COUNT: {ONE: counted}}, seconds=seconds).coverage_seconds == seen


def test_more_gpus_than_the_pod_has_are_left_out():
    hour = hour_of([pod()], told({MEAN: {ONE: 10, TWO: 90}, COUNT: {ONE: 60, TWO: 60}, MEMORY: {ONE: 1, TWO: 99}}))
    assert (hour.rows[0].utilisation, hour.rows[0].peak_memory_mib, hour.unusable) == (0.1, 1, 1)


def test_a_slice_counts_its_multiprocessors_and_has_no_power():
    numbers = {
        MEAN: {ONE: 90},
        COUNT: {ONE: 60},
        SM: {SLICE: 0.3, ONE: 0.9},
        SM_COUNT: {SLICE: 30, ONE: 60},
        POWER: {SLICE: 300},
    }
    found = row(numbers, sharing="mig:1g.10gb")
    assert (found.coverage_seconds, found.utilisation, found.sm_active, found.power_watts) == (1800, 0.3, 0.3, None)


@pytest.mark.parametrize(
    ("sharing", "units", "expected"),
    [("whole", 1, True), ("", 1, True), ("mig:1g.10gb", 2, True), ("timeslice:4", 1, False), ("mps:2", 1, False), ("whole", 0, False)],
)  # fmt: skip
def test_only_what_a_pod_has_alone_is_measured(sharing, units, expected):
    assert is_measurable(pod(sharing=sharing, units=units)) is expected
    assert bool(pods_to_ask_for([pod(sharing=sharing, units=units)])) is expected
    assert expected or not hour_of([pod(sharing=sharing, units=units)], told({MEAN: {ONE: 1}, COUNT: {ONE: 60}})).rows


def test_pods_of_one_name_are_not_measured():
    assert hour_of([pod(), pod(meter_id=8)], told({MEAN: {ONE: 1}, COUNT: {ONE: 60}})).rows == ()


@pytest.mark.parametrize(
    ("seconds", "seen", "asks"), [(3600, 3480, False), (3600, 3479, True), (60, 0, True), (60, 1, False)]
)
def test_a_pod_is_asked_for_until_it_is_seen(seconds, seen, asks):
    assert bool(pods_to_ask_for([pod(seconds=seconds, seen_seconds=seen)])) is asks


def test_pauses_grow_and_end_after_a_day():
    last = HOUR + timedelta(hours=1) + ASKED_FOR
    at = HOUR + timedelta(hours=1, minutes=20)
    pauses = []
    for asks in itertools.count(1):
        following = next_ask(HOUR, asks, at)
        if following is None:
            break
        assert at < following <= last
        pauses.append(following - at)
        at = following
    assert at == last
    assert pauses[:3] == [timedelta(minutes=15), timedelta(hours=1), timedelta(hours=4)]
    assert len(pauses) == 5


def test_a_regular_expression_matches_exactly_its_names():
    names = ["a", "a.b", "a-b"]
    query = next(questions([PodName("n", name) for name in names]))[3]
    pattern = re.search(r'pod=~"([^"]*)"', query)[1]
    assert [name for name in ("a", "a.b", "a-b", "axb", "ab", "a.bc", "") if re.fullmatch(pattern, name)] == names
