"""The judges of waits object to what they should, and excuse what cannot be known."""

from collections import Counter
from types import SimpleNamespace

import pytest

from .test_judges_of_ends import ATTEMPT, JOB, SECOND, cluster, ran
from .test_judges_of_ends import world as world_of


def world(rows, runs=(), **more):
    """A world in which statements find these rows, and in which nothing was slow."""
    given = {"overdue": set(), **more.pop("of_cluster", {})}
    one = world_of(
        cluster(list(runs), **given), rows, faults=SimpleNamespace(happened=Counter(more.pop("happened", {})))
    )
    one.history = SimpleNamespace(timeline=more.pop("timeline", []))
    one.healed_us = more.pop("healed_us", 0)
    return one


@pytest.mark.parametrize(("gpus", "is_right"), [(4, True), (1, True), (0, False), (8, False)])
def test_what_runs_has_as_many_devices_as_a_pod_set_asks_for(gpus, is_right):
    from devtools.simulation.judges import waits as judges  # noqa: PLC0415 - it needs Django

    pod_sets = [{"gpu": {"count": 4}}, {"gpu": {"count": 1}}]
    one = world({"SELECT id, spec -> 'pod_sets' FROM federation_job": [(JOB, pod_sets)]}, [ran(gpus=gpus)])
    assert (judges.what_runs_has_the_devices_that_its_job_asked_for(one) == []) == is_right


@pytest.mark.parametrize(
    ("runs", "overdue", "is_right"),
    [
        ([ran(code=143, is_disrupted=True)], set(), False),
        ([ran(code=0), ran("pod-1", code=None, is_disrupted=True)], set(), False),
        ([ran(code=3, is_disrupted=True)], set(), True),
        ([ran(code=3), ran("pod-1", code=143, is_disrupted=True)], set(), True),
        ([ran(code=143, is_disrupted=True)], {ATTEMPT}, True),
        ([ran(code=0)], set(), True),
    ],
)
def test_a_program_that_was_interrupted_did_not_fail_itself(runs, overdue, is_right):
    from devtools.simulation.judges import waits as judges  # noqa: PLC0415

    one = world({judges.PROGRAM_FAILED: [(ATTEMPT, 1, JOB)]}, runs, of_cluster={"overdue": overdue})
    assert (judges.promise_8_an_interruption_is_not_the_programs_failure(one) == []) == is_right


@pytest.mark.parametrize(
    ("second", "could_not", "after_s", "is_right"),
    [("east", True, 5, False), ("west", True, 5, True), ("east", True, 61, True), ("east", False, 5, True)],
)
def test_a_job_that_could_not_start_is_not_placed_there_again(second, could_not, after_s, is_right):
    from devtools.simulation.judges import waits as judges  # noqa: PLC0415

    rows = [(JOB, 1, "east", could_not, 100 * SECOND, 1), (JOB, 2, second, False, None, (100 + after_s) * SECOND)]
    found = judges.promise_3_a_job_that_could_not_start_tries_another_cluster(world({judges.NEVER_BEGUN: rows}))
    assert (found == []) == is_right


@pytest.mark.parametrize(
    ("waited_s", "happened", "is_right"), [(900, {}, False), (300, {}, True), (900, {"late": 1}, True)]
)
def test_a_creation_is_given_up_unless_something_was_slow(waited_s, happened, is_right):
    from devtools.simulation.judges import waits as judges  # noqa: PLC0415

    one = world({judges.RESERVED: [(ATTEMPT, waited_s * SECOND)]}, happened=happened)
    assert (judges.promise_3_a_creation_is_given_up_in_time(one) == []) == is_right


@pytest.mark.parametrize(
    ("until_s", "healed_s", "is_right"),
    [(400, 900, False), (None, 900, False), (150, 900, True), (None, 200, True), (400, 0, False)],
)
def test_attempts_do_not_stay_unknown_when_their_cluster_answers(until_s, healed_s, is_right):
    """It answers again at 100 s."""
    from devtools.simulation.judges import waits as judges  # noqa: PLC0415

    until_us = None if until_s is None else until_s * SECOND
    one = world({judges.UNKNOWN: [(ATTEMPT, 100 * SECOND, until_us)]}, healed_us=healed_s * SECOND)
    assert (judges.promise_3_sight_is_regained(one) == []) == is_right


def test_a_round_that_fails_for_a_bad_row_is_found():
    from devtools.simulation.judges import waits as judges  # noqa: PLC0415

    told = [
        (1, "worker-1/cycle.3", "settle fails: IntegrityError: the row is spoiled"),
        (2, "database", "cannot store"),
    ]
    assert len(judges.promise_15_a_bad_row_fails_no_round(world({}, timeline=told))) == 1
    assert judges.promise_15_a_bad_row_fails_no_round(world({}, timeline=told[1:])) == []


@pytest.mark.parametrize(
    ("metered", "shown", "seconds", "is_right"),
    [(0, {"pod-0"}, 90, False), (5, {"pod-0"}, 90, True), (0, set(), 90, True), (0, {"pod-0"}, 15, True)],
)
def test_what_was_shown_to_run_is_not_metered_with_nothing(metered, shown, seconds, is_right):
    from devtools.simulation.judges import waits as judges  # noqa: PLC0415
    from devtools.simulation.judges.ends import METERED  # noqa: PLC0415

    runs = [ran(to_us=(10 + seconds) * SECOND)]
    one = world({METERED: [(JOB, metered, True)]}, runs, of_cluster={"shown": shown})
    assert (judges.promise_15_what_was_seen_to_run_costs_something(one) == []) == is_right
