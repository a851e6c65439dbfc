"""The judges of ends excuse what cannot be known, and nothing that is like it."""

from types import SimpleNamespace
from typing import Any

import pytest

from devtools.simulation.clusters.objects import Run

SECOND = 1_000_000
ATTEMPT, JOB = "attempt-1", "job-1"
REFUSED, OPENED = False, True
NAME = ("team", "swy-1")


def ran(uid="pod-0", **more):
    given: dict[str, Any] = {"from_us": 10 * SECOND, "to_us": 100 * SECOND, "gpus": 1, "index": 0} | more
    return Run("east", uid, "job-uid", JOB, ATTEMPT, node="east-0", **given)


def cluster(runs, **more):
    # Django must be set up before the gateway's names are imported, so this is not at the top.
    from devtools.simulation.clusters.services import Services  # noqa: PLC0415

    given: dict[str, Any] = {"taken_away": set(), "looks": {}, "gates": {}, "reclaimed": set(), "shown": set()}
    given |= {"names_taken": set(), "strangers": [], "services": Services(lambda: "uid")}
    return SimpleNamespace(name="east", runs=runs, **(given | more))


def world(one, rows, **more):
    """A world that has one cluster and in which statements find these rows."""
    past = SimpleNamespace(spans=[], overlap=lambda *_: False)
    given: dict[str, Any] = {"clusters": {"east": one}, "removed": [], "lost_commits": past}
    given |= {"links": {"east": SimpleNamespace(is_destroyed=False, hidden_us=[])}}
    watch = SimpleNamespace(rows=lambda statement, *_: rows.get(statement, []))
    return SimpleNamespace(watch=watch, scheduler=SimpleNamespace(now_us=999 * SECOND), **(given | more))


@pytest.mark.parametrize(
    ("answers", "is_excused"),
    [
        ([], False),
        ([(30, "pod-1", REFUSED)], True),
        ([(30, "pod-1", REFUSED), (31, "pod-1", OPENED)], False),
        ([(30, "pod-1", REFUSED), (31, "pod-0", OPENED)], True),
        ([(60, "pod-1", REFUSED)], False),
    ],
)
def test_a_gang_that_runs_is_taken_back_as_refused_only_if_a_gate_stayed_closed(answers, is_excused):
    """It was asked to stop at 50 s."""
    from devtools.simulation.judges import ends as judges  # noqa: PLC0415

    gates = {ATTEMPT: [(at * SECOND, uid, is_open) for at, uid, is_open in answers]}
    ended = (ATTEMPT, "preempted", "refused_by_cluster", "refused_by_cluster", 50 * SECOND, 9 * SECOND, 1, JOB, 1)
    one = world(cluster([ran()], gates=gates), {judges.ENDED: [ended]})
    said = [] if is_excused else [f"attempt 1 of {JOB} ran, and was taken back as refused_by_cluster"]
    assert judges.promise_8_what_runs_is_not_recalled(one) == said


@pytest.mark.parametrize(
    ("is_taken", "is_put_back", "is_true"), [(True, False, True), (True, True, True), (False, True, False)]
)
def test_a_service_name_that_was_taken_stays_a_true_reason_when_a_backup_forgets_it(is_taken, is_put_back, is_true):
    from devtools.simulation.judges import ends as judges  # noqa: PLC0415

    one = cluster([])
    if is_taken:
        one.services.take_name(*NAME)
    if is_put_back:
        one.services.put_back({})
        assert one.services.foreign == {}
    said = [] if is_true else [f"attempt {ATTEMPT} ended because a name was taken, and none of {[NAME]} was"]
    there = world(one, {judges.NAMES: [(ATTEMPT, *NAME)]})
    assert judges.promise_8_an_end_has_a_true_reason(there) == said


@pytest.mark.parametrize(
    ("is_destroyed", "is_lost", "is_shown", "is_excused"),
    [(True, True, False, True), (False, True, False, False), (True, False, False, False), (True, True, True, False)],
)
def test_only_what_a_destroyed_cluster_never_showed_need_not_be_metered(is_destroyed, is_lost, is_shown, is_excused):
    from devtools.simulation.judges import ends as judges  # noqa: PLC0415

    there = world(
        cluster([ran()], shown={"pod-0"} if is_shown else set()),
        {judges.LOST: [(ATTEMPT,)] if is_lost else []},
        links={"east": SimpleNamespace(is_destroyed=is_destroyed, hidden_us=[])},
    )
    said = [] if is_excused else [f"job {JOB} ran 90000 GPU-ms and is metered 0 GPU-ms"]
    assert judges.promise_15_what_ran_is_metered(there) == said


@pytest.mark.parametrize(
    ("hidden", "is_ended", "is_shown", "is_excused"),
    [
        ((0, 200), False, False, True),
        ((60, 200), False, False, False),  # it could be seen when it began
        ((0, 60), False, False, False),  # and here before it ended
        ((0, 200), True, False, False),  # its Job said how many pods it had
        ((0, 200), False, True, False),
    ],
)
def test_only_what_was_deleted_unread_need_not_be_metered(hidden, is_ended, is_shown, is_excused):
    from devtools.simulation.judges import ends as judges  # noqa: PLC0415

    run = ran()
    there = world(
        cluster([run], shown={"pod-0"} if is_shown else set()),
        {judges.UNENDED: [] if is_ended else [(run.job_uid,)]},
        links={
            "east": SimpleNamespace(is_destroyed=False, hidden_us=[(hidden[0] * SECOND, hidden[1] * SECOND)]),
        },
    )
    said = [] if is_excused else [f"job {JOB} ran 90000 GPU-ms and is metered 0 GPU-ms"]
    assert judges.promise_15_what_ran_is_metered(there) == said


@pytest.mark.parametrize(
    ("lost_s", "uid", "is_excused"),
    [((20, 35), "job-uid", True), ((31, 35), "job-uid", False), ((20, 35), "another", False), (None, "job-uid", False)],
)
def test_a_success_is_not_known_if_its_object_was_deleted_in_commits_that_were_lost(lost_s, uid, is_excused):
    """Seed 41004: its client had cancelled it, and the program ended with 0 while it was being stopped."""
    from devtools.simulation.core.history import Sent  # noqa: PLC0415
    from devtools.simulation.judges import promises as judges  # noqa: PLC0415

    reported = (ATTEMPT, 1, "failed", "job-5", "failed", "", "object_deleted", 1)
    run = ran(code=0, to_us=40 * SECOND)
    there: Any = world(cluster([run], overdue=set()), {})
    there.watch = SimpleNamespace(rows=lambda *_: [reported])
    there.lost_commits.spans += [] if lost_s is None else [(lost_s[0] * SECOND, lost_s[1] * SECOND)]
    there.history = SimpleNamespace(sent=[Sent(30 * SECOND, "east", "delete_job", uid)])
    said = "attempt 1 of job-5 is reported as failed (object_deleted), but all its pods succeeded"
    assert judges.promise_8_an_end_is_told_as_it_was(there) == ([] if is_excused else [said])


@pytest.mark.parametrize(
    ("due", "most", "metered", "is_right"),
    [(60, 60, 60, True), (60, 60, 61, False), (60, 60, 59, False), (60, 90, 75, True), (60, 90, 91, False)],
)
def test_a_reported_end_bounds_what_is_metered_but_for_what_was_seen(due, most, metered, is_right):
    from devtools.simulation.judges import ends as judges  # noqa: PLC0415

    there = world(cluster([]), {judges.REPORTED_ENDS: [("pod-0", due, most, metered)]})
    said = f"pod pod-0 ran for {due} ms by the reports that were recorded, and is metered for {metered} ms"
    assert judges.promise_15_a_reported_end_corrects_what_was_assumed(there) == ([] if is_right else [said])
