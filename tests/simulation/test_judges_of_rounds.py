"""The judges of overtaken rounds, of rules that read logs, of budgets from the beginning on, and of pools object to what must not be,
and to nothing else.
"""

from datetime import date
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from devtools.simulation.core.history import Asked

JOB, LATER = str(UUID(int=7)), 2_000_000
JUNE = date(2026, 6, 1)


def world(rows, *, asked=(), spans=(), ran=()):
    """A world in which statements find these rows, these attempts ended with these exit codes, and users asked for this."""
    runs = [SimpleNamespace(attempt_id=attempt, code=code) for attempt, code in ran]
    given: dict[str, Any] = {
        "watch": SimpleNamespace(rows=lambda statement, *_: rows.get(statement, [])),
        "history": SimpleNamespace(asked=list(asked)),
        "lost_commits": SimpleNamespace(spans=list(spans)),
        "clusters": {"east": SimpleNamespace(runs=runs)},
        "removed": [],
    }
    return SimpleNamespace(**given)


def judges():
    # Django must be set up before the gateway is imported, so this is not at the top.
    from devtools.simulation.accounts import budgeted  # noqa: PLC0415
    from devtools.simulation.judges import finance as finance_judges  # noqa: PLC0415
    from devtools.simulation.mishaps import overtaken  # noqa: PLC0415
    from devtools.simulation.requests import logs  # noqa: PLC0415

    return SimpleNamespace(budgeted=budgeted, finance=finance_judges, logs=logs, overtaken=overtaken)


def cancelled(at_us, answer="ok"):
    return Asked("ada", "cancel", JOB, at_us - 1, at_us, answer)


@pytest.mark.parametrize(
    ("asked", "spans", "is_right"),
    [
        ([cancelled(LATER - 1)], [], False),
        ([cancelled(LATER + 1)], [], True),
        ([cancelled(LATER - 1, "unknown")], [], True),
        ([cancelled(LATER - 1)], [(0, LATER)], True),  # the cancellation may be forgotten
        ([], [], True),
    ],
)
def test_nothing_is_placed_or_stopped_for_another_job_after_a_cancellation_was_accepted(asked, spans, is_right):
    module = judges().overtaken
    rows = {module.PLACED: [(JOB, 2, LATER)], module.STOPPED: [(JOB, 1, "preempted_for_job", LATER)]}
    given = world(rows, asked=asked, spans=spans)
    assert (module.promise_17_a_round_that_was_overtaken_places_nothing(given) == []) == is_right
    assert (module.a_stop_for_another_job_finds_a_running_one(given) == []) == is_right


@pytest.mark.parametrize(
    ("rule", "code", "is_right"), [("job: log", 3, True), ("job: log", 0, False), ("job: never", 3, False)]
)
def test_a_log_decides_only_as_it_says(rule, code, is_right):
    module = judges().logs
    given = world({module.DECIDED: [("attempt", rule)]}, ran=[("attempt", code)])
    assert (module.a_log_decides_only_as_it_says(given) == []) == is_right


def test_budgets_hold_nothing_for_what_has_ended():
    module = judges().budgeted
    assert module.budgets_hold_nothing_for_what_has_ended(world({})) == []
    rows = {module.HELD: [("holder", "pending")], module.PERIODS: [(Decimal(2), Decimal(1))]}
    assert len(module.budgets_hold_nothing_for_what_has_ended(world(rows))) == 2


@pytest.mark.parametrize(("booked", "is_right"), [(8, True), (16, False), (None, False)])
def test_a_closed_month_shows_what_its_pools_cost_once(booked, is_right):
    module = judges().finance
    rows = {module.RECORDED: [(JUNE, "east", "USD", Decimal(8))]}
    if booked is not None:
        rows[module.BOOKED] = [(JUNE, "east", "USD", Decimal(booked))]
    assert (module.promise_16_a_closed_month_shows_what_its_pools_cost(world(rows)) == []) == is_right


def test_what_a_statement_locks_is_found_in_its_parameters():
    first, second = UUID(int=1), UUID(int=2)
    assert judges().overtaken._ids_in([[first], {"attempt": second}, "no id", 3]) == {first, second}


def test_jobs_have_rules_that_read_logs_only_where_logs_decide():
    module = judges().logs
    from devtools.simulation.core.swarm import ANY  # noqa: PLC0415
    from devtools.simulation.requests.clients import plan  # noqa: PLC0415

    for rates, names in (({}, set()), ({module.KIND: 1.0}, {"never", "log", "memory"})):
        found = set()
        for seed in range(10):
            jobs = plan(seed, (), ANY)
            before = [job.body.get("failure_rules") for job in jobs]
            module.let_decide(seed, rates, jobs)
            changed = [
                job.body["failure_rules"]
                for job, was in zip(jobs, before, strict=True)
                if job.body.get("failure_rules") != was
            ]
            found |= {rule["name"] for rules in changed for rule in rules}
        assert found == names
