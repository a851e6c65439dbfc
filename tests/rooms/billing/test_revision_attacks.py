"""What the database refuses of revisions, whoever writes."""

import pytest
from django.db import DatabaseError, connection, transaction

from billing.operations import record_runs
from billing.queries import discrepancies
from tests.builders import make_run
from tests.processes_role import as_processes
from tests.refusals import constraint_of

from .ledgers import at, priced_cluster, settle_pending_checks
from .test_revisions import guessed, reported

pytestmark = pytest.mark.django_db

ROW = "INSERT INTO billing_meterrevision (is_estimated, meter_id, number, counted_until, until"
REVISION = ROW + ") SELECT false, id, {}, {}, {} FROM billing_meter WHERE source_uid = '{}';"
CUT = "metered_until, metered_from + interval '2 hours'"
NO_RIGHT = "no right"
ATTACKS = {
    "below what was seen": (REVISION.format(1, "metered_until", "metered_from", "seen"), "only_estimates_are_revised"),
    "a certain end": (
        REVISION.format(1, "metered_until", "metered_until - interval '1 ms'", "sure"), "only_estimates_are_revised",
    ),
    "twice": (
        REVISION.format(1, "metered_until", "metered_from + interval '2 hours'", "seen")
        + REVISION.format(2, "metered_until", "metered_from + interval '90 minutes'", "seen"),
        "only_estimates_are_revised",
    ),
    "longer": (REVISION.format(1, "metered_until", "metered_until + interval '1 hour'", "seen"), "a_revision_shortens"),
    "of what is not counted": (
        REVISION.format(1, "metered_until + interval '1 hour'", "metered_from + interval '2 hours'", "seen"),
        "revision_is_of_what_is_counted",
    ),
    "another number": (
        REVISION.format(2, "metered_until", "metered_from + interval '2 hours'", "seen"), "revision_is_of_what_is_counted",
    ),
    "before the beginning": (
        REVISION.format(1, "metered_until", "metered_from - interval '2 hours'", "seen"), "revision_is_of_what_is_counted",
    ),
    "between milliseconds": (
        REVISION.format(1, "metered_until", "metered_from + interval '2 hours 1 us'", "seen"),
        "revision_is_of_what_is_counted",
    ),
    "of an open meter": (
        REVISION.format(1, "metered_until", "metered_from + interval '2 hours'", "open"), "revision_is_of_what_is_counted",
    ),
    "dated back": (
        ROW + ", recorded_at) SELECT false, id, 1, metered_until, metered_from + interval '2 hours', now() - interval '1 day'"
        " FROM billing_meter WHERE source_uid = 'seen'",
        "revision_is_of_what_is_counted",
    ),
    "a meter shortened without one": (
        "UPDATE billing_meter SET metered_until = metered_from + interval '2 hours' WHERE source_uid = 'seen'",
        "meter_only_runs_on",
    ),
    "an open meter shortened": (
        "UPDATE billing_meter SET metered_until = metered_from, certain_until = metered_from WHERE source_uid = 'open'",
        "meter_only_runs_on",
    ),
    "a number taken": ("UPDATE billing_meter SET revisions = revisions + 1", "meter_only_runs_on"),
    "a revision counted twice": (
        REVISION.format(1, "metered_until", "metered_from + interval '2 hours'", "seen")
        + "UPDATE billing_meter SET metered_until = metered_from, certain_until = metered_from, revisions = 2"
        " WHERE source_uid = 'seen'",
        "meter_only_runs_on",
    ),
    "what is certain made uncertain": (
        "UPDATE billing_meter SET certain_until = metered_from WHERE source_uid = 'sure'", "meter_only_runs_on",
    ),
    "what was seen made unseen": (
        "UPDATE billing_meter SET certain_until = metered_from WHERE source_uid = 'open'", "meter_only_runs_on",
    ),
    "what was seen made unknown": (
        "UPDATE billing_meter SET certain_until = NULL WHERE source_uid = 'open'", "meter_only_runs_on",
    ),
    "more certain than metered": (
        "UPDATE billing_meter SET certain_until = metered_until + interval '1 hour' WHERE source_uid = 'open'",
        "a_meter_is_certain_of_its_own_time",
    ),
    "budgets relieved": (
        "INSERT INTO billing_budgetmovement (run_id, period_id, kind, held, spent) VALUES (gen_random_uuid(), 1, 'revise', 0, -1)",
        "only_revisions_return_what_was_spent",
    ),
    "segments deleted": ("DELETE FROM billing_usagesegment", NO_RIGHT),
    "a copy invented": ("INSERT INTO billing_replacedsegment DEFAULT VALUES", NO_RIGHT),
    "a copy deleted": ("DELETE FROM billing_replacedsegment", NO_RIGHT),
    "a revision rewritten": ("UPDATE billing_meterrevision SET until = until", NO_RIGHT),
    "a revision deleted": ("DELETE FROM billing_meterrevision", NO_RIGHT),
}  # fmt: skip


def refusal(statements):
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statements)
            cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
            transaction.set_rollback(True)
    except DatabaseError as error:
        return NO_RIGHT if "permission denied" in str(error) else constraint_of(error)
    return "nothing"


def test_the_database_refuses(processes_role):
    north = priced_cluster()
    guessed(north, source_uid="seen")
    record_runs([make_run(north, source_uid="sure", started_at=at(10, 12), certain_until=at(10, 13))])
    record_runs([
        make_run(
            north, source_uid="open", started_at=at(10), until_at=at(10, 9), certain_until=at(10, 8), is_final=False
        )
    ])  # fmt: skip
    settle_pending_checks()
    with as_processes():
        found = {name: refusal(statements) for name, (statements, _) in ATTACKS.items()}
    assert found == {name: expected for name, (_, expected) in ATTACKS.items()}


def test_not_even_the_owner_deletes_or_invents():
    north = priced_cluster()
    run = guessed(north)
    copied = "SELECT 1, id, meter_id, period, gpu_milliseconds, cpu_millicore_milliseconds, price_id, cost, currency, false, now()"
    invented = (
        "INSERT INTO billing_replacedsegment (revision_id, segment_id, meter_id, period, gpu_milliseconds,"
        f" cpu_millicore_milliseconds, price_id, cost, currency, is_estimated, recorded_at) {copied} FROM billing_usagesegment"
    )
    attacks = {
        "DELETE FROM billing_usagesegment": "ledger_is_append_only",
        "TRUNCATE billing_usagesegment CASCADE": "ledger_is_append_only",
        invented: "replaced_segment_was_one",
    }
    settle_pending_checks()
    assert {statement: refusal(statement) for statement in attacks} == attacks
    reported(run, 1.5)
    attacks = {
        "DELETE FROM billing_usagesegment": "ledger_is_append_only",
        "DELETE FROM billing_replacedsegment": "ledger_is_append_only",
        "UPDATE billing_replacedsegment SET cost = 0": "ledger_is_append_only",
        "UPDATE billing_meterrevision SET until = until": "ledger_is_append_only",
        "TRUNCATE billing_meterrevision CASCADE": "ledger_is_append_only",
    }
    assert {statement: refusal(statement) for statement in attacks} == attacks


def test_the_processes_may_revise(processes_role):
    north = priced_cluster()
    run = guessed(north)
    settle_pending_checks()
    with as_processes():
        assert reported(run, 2) == {run.run_id}
    assert discrepancies() == ()
