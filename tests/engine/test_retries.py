"""Why attempts fail, and how often their jobs go on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.engine.intake.normal_form import shape_of, spec_json
from federation.engine.intake.reading import Refused
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.retries import (
    INTERRUPTIONS,
    LEAST_PAUSE_SECONDS,
    MOST_PAUSE_SECONDS,
    MOST_RETRIES,
    Cause,
    Failure,
    Retries,
    Told,
    cause_of,
    may_go_on,
    pause_seconds,
    retries_of,
)

SPEC = {"name": "train", "pod_sets": [{"name": "main", "image": "registry.example/a:1", "cpu": "1", "memory": "1Gi"}]}
BY_POD_GC = "DeletionByPodGC"
causes = st.sampled_from(sorted(Cause))
retries = st.builds(Retries, *[st.integers(0, MOST_RETRIES)] * 5)


def failed(*disruptions: str, capacity: str = "on_demand", reason: str = "", words: str = "") -> Cause:
    pods = [Told(disruption, reason, capacity) for disruption in disruptions]
    return cause_of(Failure(pods, [words] if words else [], frozenset([capacity])))


@pytest.mark.parametrize(
    ("disruption", "on_demand", "spot"),
    [
        ("PreemptionByScheduler", Cause.PREEMPTED, Cause.PREEMPTED),
        ("EvictionByEvictionAPI", Cause.PREEMPTED, Cause.SPOT),
        ("DeletionByTaintManager", Cause.NODE_LOST, Cause.SPOT),
        (BY_POD_GC, Cause.NODE_LOST, Cause.SPOT),
        ("TerminationByKubelet", Cause.INFRASTRUCTURE, Cause.INFRASTRUCTURE),
        ("WhateverComesNext", Cause.INFRASTRUCTURE, Cause.INFRASTRUCTURE),
        ("", Cause.PROGRAM, Cause.PROGRAM),
    ],
)
def test_who_took_a_pod_says_why_its_attempt_failed(disruption: str, on_demand: Cause, spot: Cause):
    assert failed(disruption) == on_demand
    assert failed(disruption, capacity="spot") == spot


def test_a_node_that_goes_down_in_good_order_is_lost_and_on_spot_reclaimed():
    assert failed("TerminationByKubelet", reason="Terminated") == Cause.NODE_LOST
    assert failed("TerminationByKubelet", reason="Terminated", capacity="spot") == Cause.SPOT


def test_the_peers_of_a_pod_that_was_taken_do_not_make_it_the_programs_failure():
    assert failed("", BY_POD_GC, "") == Cause.NODE_LOST


def test_the_words_of_the_job_count_where_no_pod_was_seen_to_be_taken():
    words = "PodFailurePolicy: Pod a/b has condition DisruptionTarget matching FailJob rule at index 0"
    assert failed("", words=words) == Cause.INFRASTRUCTURE
    assert failed(words=words, capacity="spot") == Cause.SPOT
    assert failed("", words="PodFailurePolicy: Container main failed with exit code 1") == Cause.PROGRAM


def test_nothing_said_means_interruptions_are_survived_and_the_programs_own_failure_is_not():
    assert all(may_go_on(Retries(), cause, [cause]) for cause in INTERRUPTIONS)
    assert not may_go_on(Retries(), Cause.PROGRAM, [Cause.PROGRAM])


@given(retries, causes, st.lists(causes, max_size=300))
def test_a_job_has_as_many_attempts_for_a_cause_as_it_asks_for_and_other_ends_cost_it_none(wanted, cause, ends):
    mine = [end for end in ends if end == cause]
    assert may_go_on(wanted, cause, ends) == may_go_on(wanted, cause, mine) == (len(mine) <= wanted.of(cause))


@given(st.integers(1, 10_000))
def test_the_pause_grows_and_has_an_end(times):
    assert LEAST_PAUSE_SECONDS <= pause_seconds(times) <= pause_seconds(times + 1) <= MOST_PAUSE_SECONDS


@given(retries)
def test_what_a_spec_says_of_retries_is_stored_and_read_as_it_was_said(wanted):
    spec = read_spec({**SPEC, "retries": {"preempted": wanted.preempted, "node_lost": wanted.node_lost,
                                          "spot": wanted.spot, "infrastructure": wanted.infrastructure,
                                          "program": wanted.program}}, Rules())  # fmt: skip
    stored = spec_json(spec)
    assert (spec.retries, retries_of(stored), read_spec(stored, Rules())) == (wanted, wanted, spec)
    assert shape_of(stored) == shape_of(spec_json(read_spec(SPEC, Rules())))


@pytest.mark.parametrize(
    ("said", "field", "code"),
    [
        ({"program": 10**9}, "retries.program", "out_of_range"),
        ({"program": -1}, "retries.program", "out_of_range"),
        ({"spot": True}, "retries.spot", "wrong_type"),
        ({"spot": "3"}, "retries.spot", "wrong_type"),
        ({"always": 1}, "retries.always", "unknown_field"),
        (7, "retries", "wrong_type"),
        ([], "retries", "wrong_type"),
    ],
)
def test_what_is_no_number_of_retries_is_refused_by_name(said, field: str, code: str):
    with pytest.raises(Refused) as refused:
        read_spec({**SPEC, "retries": said}, Rules())
    assert [(fault.field, fault.code) for fault in refused.value.faults] == [(field, code)]
