"""The judges of the newer moves object to what must not be, and to nothing that is like it."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from devtools.simulation.clusters.objects import GPU, Pod, Run, secrets_of
from devtools.simulation.core.history import Asked

SECOND = 1_000_000
ATTEMPT, JOB = "attempt-1", "job-1"


def ran(job=JOB, *, until=100, code=0, uid="pod-0", node="east-0", **more):
    given: dict[str, Any] = {
        "from_us": 10 * SECOND,
        "to_us": until * SECOND,
        "gpus": 1,
        "index": 0,
        "code": code,
    } | more
    return Run("east", uid, "job-uid", job, ATTEMPT, node=node, **given)


def world(runs, rows, **more):
    """A world that has one cluster and in which statements find these rows."""
    one = SimpleNamespace(
        name="east", runs=runs, unstarted=more.pop("unstarted", []), taken_away=set(), unsupplied=set()
    )
    watch = SimpleNamespace(rows=lambda statement, *_: rows.get(statement, []))
    faults = SimpleNamespace(happened=dict.fromkeys(KINDS, 0) | more.pop("happened", {}))
    given: dict[str, Any] = {"clusters": {"east": one}, "removed": [], "lost_commits": SimpleNamespace(spans=[])}
    return SimpleNamespace(watch=watch, faults=faults, scheduler=SimpleNamespace(now_us=999 * SECOND), **(given | more))


def kinds():
    from devtools.simulation.core.faults import RATES  # noqa: PLC0415

    return tuple(RATES)


KINDS = kinds()


@pytest.mark.parametrize(("jobs", "is_right"), [(4, True), (3, False)])
def test_a_node_is_avoided_for_the_jobs_that_really_failed_there(jobs, is_right):
    from devtools.simulation.mishaps import bad_nodes  # noqa: PLC0415

    runs = [ran(f"job-{n}", code=1) for n in range(jobs)]
    runs += [ran("job-8"), ran("job-9", code=1, node="east-1"), ran("job-7", code=1, until=300)]
    there = world(runs, {bad_nodes.AVOIDED: [("east", "east-0", "4", 200 * SECOND)]})
    assert (bad_nodes.only_nodes_on_which_jobs_failed_are_avoided(there) == []) == is_right


def test_a_brake_needs_ten_failures_and_lets_no_retry_start():
    from devtools.simulation.mishaps import bad_nodes  # noqa: PLC0415

    brakes = "SELECT failures, attempts FROM federation_retrybrake ORDER BY id"
    assert bad_nodes.retries_wait_while_too_much_fails(world([], {brakes: [(10, 20), (12, 12)]})) == []
    assert len(bad_nodes.retries_wait_while_too_much_fails(world([], {brakes: [(9, 9), (10, 21)]}))) == 2
    there = world([], {bad_nodes.PLACED_ALTHOUGH: [(JOB, 2, 44.0)]})
    assert bad_nodes.retries_wait_while_too_much_fails(there) == [
        f"attempt 2 of {JOB} was placed 44 s after the brake was pulled there"
    ]


@pytest.mark.parametrize(("metered_s", "is_right"), [(95, True), (180, False)])
def test_a_run_that_was_estimated_counts_once_when_it_is_shown(metered_s, is_right):
    from devtools.simulation.mishaps import hidden_pods  # noqa: PLC0415

    there = world([ran()], {hidden_pods.METERED: [(JOB, metered_s * 1000)]})
    assert (hidden_pods.promise_15_no_run_is_metered_twice(there) == []) == is_right


@pytest.mark.parametrize(("metered_s", "is_right"), [(195, True), (230, False)])
def test_a_pod_that_failed_before_it_started_could_have_run(metered_s, is_right):
    from devtools.simulation.mishaps import hidden_pods  # noqa: PLC0415

    there = world([ran()], {hidden_pods.METERED: [(JOB, metered_s * 1000)]}, unstarted=[ran(uid="pod-1", index=1)])
    assert (hidden_pods.promise_15_no_run_is_metered_twice(there) == []) == is_right


@pytest.mark.parametrize(
    ("known", "waited", "opened", "is_right"),
    [((), (JOB,), 60, False), ((ATTEMPT,), (JOB,), 60, True), ((), (), 60, True), ((), (JOB,), 120, True)],
)
def test_what_runs_from_a_restore_until_dispatch_opens_has_an_attempt(known, waited, opened, is_right):
    """Its job waited when the backup was made, at 5 s; the restore is at 30 s, and the run ends at 100 s."""
    from devtools.simulation.mishaps import restores  # noqa: PLC0415

    rows = {
        "SELECT id::text FROM federation_attempt": [(id_,) for id_ in known],
        restores.WAITED: [(id_,) for id_ in waited],
        restores.COMPARED: [("east", opened * SECOND)],
    }
    there = world([ran()], rows, lost_commits=SimpleNamespace(spans=[(5 * SECOND, 30 * SECOND)]))
    assert (restores.promise_26_what_runs_after_a_restore_has_an_attempt(there) == []) == is_right


def limited(waiting, rate, until_us=0):
    asked = [Asked("operator", "limit submissions", "team", 0, 1 * SECOND, "ok", (waiting, rate))]
    return asked + ([Asked("operator", "limit submissions", "team", until_us)] if until_us else [])


@pytest.mark.parametrize(
    ("asked", "jobs", "is_right"),
    [
        (limited(None, 2), [(5, 6), (6, 7)], True),
        (limited(None, 2), [(5, 6), (6, 7), (7, 8)], False),
        (limited(None, 2), [(5, 6), (6, 7), (37, 38)], True),
        (limited(None, 2, 6 * SECOND), [(5, 6), (6, 7), (7, 8)], True),
        (limited(1, None), [(5, None)], True),
        (limited(1, None), [(5, 6), (7, None)], True),
        (limited(1, None), [(5, None), (7, None)], False),
        (limited(1, None, 6 * SECOND), [(5, None), (7, None)], True),
        (limited(0, None), [(0.5, None), (1.5, None)], False),
    ],
)
def test_what_is_submitted_is_within_the_limits_that_operators_know_of(asked, jobs, is_right):
    from devtools.simulation.requests import submission_limits  # noqa: PLC0415

    rows = [(at * SECOND, None if left is None else left * SECOND) for at, left in jobs]
    there = world([], {submission_limits.SUBMITTED: rows}, history=SimpleNamespace(asked=asked))
    assert (submission_limits.limits_on_submission_hold(there) == []) == is_right


@pytest.mark.parametrize(
    ("item", "is_excused"),
    [
        ({"problem": {"code": "not_found"}}, True),
        ({"problem": {"code": "queue_full"}}, False),
        ({"job": {"id": "other"}}, False),
    ],
)
def test_only_who_may_not_see_the_team_any_more_is_excused_from_the_same_answer(item, is_excused):
    from devtools.simulation.requests.bulk_requests import is_gone  # noqa: PLC0415

    assert is_gone(item) == is_excused


def test_who_limits_submissions_in_any_form_says_so_to_the_judge(monkeypatch):
    from devtools.simulation.requests import limit_forms, submission_limits  # noqa: PLC0415
    from tenancy.queries import SYSTEM  # noqa: PLC0415

    there: Any = world([], {}, history=SimpleNamespace(asked=[]))
    monkeypatch.setattr(submission_limits, "put_submission_limit", lambda *_, **__: None)
    monkeypatch.setattr(limit_forms, "put_user_limit", lambda *_, **__: None)
    for number in range(9):
        quotas = limit_forms.Quotas(there, SYSTEM, random.Random(number))
        monkeypatch.setattr(quotas, "_tenant", lambda: SimpleNamespace(id="team", path="acme/team"))
        quotas.put_on_users()
    asked = there.history.asked
    assert asked
    assert {(one.what, one.subject, one.answer) for one in asked} == {(submission_limits.LIMIT, "team", "ok")}


@pytest.mark.parametrize(("is_said", "is_known"), [(True, False), (False, True), (True, True), (False, False)])
def test_a_missing_artifact_is_said_exactly_where_it_is_missing(is_said, is_known):
    from devtools.simulation.requests import supplies  # noqa: PLC0415

    found = supplies.a_success_without_a_required_artifact_is_shown_as_that(
        world([], {supplies.ENDED: [(JOB, is_said, is_known)]})
    )
    assert (found == []) == (is_said != is_known)


def test_an_attempt_ends_for_a_right_only_where_that_lacked():
    from devtools.simulation.mishaps import outages  # noqa: PLC0415

    rows = {outages.WITHOUT_SERVICES: [(ATTEMPT, "east")]}
    lacked, never = ({"east": SimpleNamespace(lacked=which)} for which in ({"services"}, {"pods"}))
    assert outages.an_attempt_ends_for_a_right_only_where_it_lacked(world([], rows, links=lacked)) == []
    assert len(outages.an_attempt_ends_for_a_right_only_where_it_lacked(world([], rows, links=never))) == 1


def test_a_pod_needs_the_secrets_of_its_variables_files_and_image():
    container = {"env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "one"}}}]}
    spec = {
        "containers": [container | {"resources": {"requests": {GPU: "1"}}}],
        "imagePullSecrets": [{"name": "two"}],
        "volumes": [{"name": "scratch", "emptyDir": {}}, {"name": "secrets", "secret": {"secretName": "three"}}],
    }
    assert secrets_of(Pod("team", "pod", "uid", {}, "job-uid", 0, spec, 1.0, 0)) == {"one", "two", "three"}


def test_a_move_is_undone_no_earlier_than_its_place_is_open_to_others():
    from devtools.simulation.mishaps import silences  # noqa: PLC0415

    judge = silences.a_move_is_undone_only_when_its_place_is_kept_no_longer
    assert judge(world([], {})) == []
    assert judge(world([], {silences.UNDONE: [(ATTEMPT, 30)]})) == [
        f"the move of attempt {ATTEMPT} was undone after 30 s"
    ]
