"""Raw SQL against credits, as the role that the processes run as; and what the proof finds of what was forged past it."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction

from billing.engine.ledger import DayKey, Line, reversal_of
from billing.models import LedgerEntry
from billing.operations import posting, record_lost_work
from billing.queries import discrepancies
from billing.queries.charges import entry_of
from tests.builders import make_tenant
from tests.kept_rows import written_once
from tests.processes_role import as_processes
from tests.refusals import constraint_of

from .ledgers import priced_cluster, settle_pending_checks
from .test_credits import post, ran, waive
from .test_ledger_attacks import NO_RIGHT, refusal_of

pytestmark = pytest.mark.django_db
ATTACKS = {
    "lost work rewritten": ("UPDATE billing_lostwork SET lost_from = lost_from - interval '1 hour'", NO_RIGHT),
    "lost work struck out": ("DELETE FROM billing_lostwork", NO_RIGHT),
    "policy rewritten": ("UPDATE billing_creditpolicy SET causes = '[]'", NO_RIGHT),
    "policy struck out": ("DELETE FROM billing_creditpolicy", NO_RIGHT),
    "cause that does not exist": (
        "INSERT INTO billing_lostwork (run_id, cause, lost_from) VALUES (%(run)s, 'bad luck', '2026-10-05T00:00Z')",
        "lost_work_has_a_known_cause",
    ),
    "cause without a time": (
        "INSERT INTO billing_lostwork (run_id, cause) VALUES (%(run)s, 'spot')",
        "lost_work_has_a_known_cause",
    ),
    "part of a millisecond": (
        "INSERT INTO billing_lostwork (run_id, cause, lost_from) VALUES (%(run)s, 'spot', '2026-10-05T00:00:00.0001Z')",
        "lost_work_is_in_whole_milliseconds",
    ),
    "policy of a day": (
        (
            "INSERT INTO billing_creditpolicy (organisation_id, effective_from, causes, made_by_name) SELECT organisation_id, '2026-10-02',"
            " '[]', 'x' FROM billing_creditpolicy LIMIT 1"
        ),
        "credit_policy_begins_with_a_month",
    ),
    "policy for unknown causes": (
        (
            "INSERT INTO billing_creditpolicy (organisation_id, effective_from, causes, made_by_name) SELECT organisation_id, '2026-10-01',"
            " '[\"luck\"]', 'x' FROM billing_creditpolicy LIMIT 1"
        ),
        "credit_policy_names_known_causes",
    ),
    "policy that is no list": (
        (
            "INSERT INTO billing_creditpolicy (organisation_id, effective_from, causes, made_by_name) SELECT organisation_id, '2026-10-01',"
            " '\"spot\"', 'x' FROM billing_creditpolicy LIMIT 1"
        ),
        "credit_policy_names_known_causes",
    ),
    "policy of a team": (
        (
            "INSERT INTO billing_creditpolicy (organisation_id, effective_from, causes, made_by_name) SELECT tenant_id, '2026-10-01',"
            " '[]', 'x' FROM billing_ledgerentry WHERE tenant_id IS NOT NULL LIMIT 1"
        ),
        "policy_is_of_an_organisation",
    ),
}


@pytest.fixture(scope="module")
def credited(processes_role, django_db_setup, django_db_blocker):
    """Four hours of which three are credited."""
    with written_once(django_db_blocker, _credited) as found:
        yield found


def _credited():
    waive("spot")
    run = ran(priced_cluster())
    record_lost_work({run.run_id: ("spot", run.started_at + timedelta(hours=1))})
    post()
    credit = LedgerEntry.objects.get(kind="credit")
    usage = LedgerEntry.objects.get(kind="usage")
    return {"credit": credit.id, "usage": usage.id, "run": run.run_id}


@pytest.fixture
def books(credited, db):
    """They, and the session as the processes' role."""
    with as_processes():
        yield credited


def test_the_database_refuses_the_processes_role(books):
    for name, (statements, constraint) in ATTACKS.items():
        assert constraint in refusal_of(statements, books), name
    assert discrepancies() == ()


def standing_credit():
    row = LedgerEntry.objects.select_related("reverses").get(kind="credit")
    key = DayKey(row.organisation_id, row.tenant_id, row.tenant_path, row.cluster_id, row.flavor, row.charge_day)
    return entry_of(row, key)


def _lines(credit, amount, *, to="infrastructure", of=""):
    whose = of or next(line.account for line in credit.lines if line.account.startswith("tenant_expense"))
    return (Line(whose, "USD", -amount), Line(to, "USD", amount))


FORGED = {
    "a second credit": lambda c: replace(c, key="credit/forged"),
    "a larger credit": lambda c: replace(c, key="credit/forged", lines=_lines(c, 1)),
    "less than nothing": lambda c: replace(c, key="credit/forged", lines=_lines(c, -1)),
    "in another currency": lambda c: replace(c, key="credit/f", lines=tuple(replace(one, currency="EUR") for one in c.lines)),
    "at the cluster's expense": lambda c: replace(c, key="credit/f", lines=_lines(c, 1, to=f"cluster_pool:{c.day.cluster_id}")),
    "for another tenant": lambda c: replace(c, key="credit/f", lines=_lines(c, 1, of=f"tenant_expense:{make_tenant('acme/two').id}")),
    "of a day without lost work": lambda c: replace(
        c, key="credit/f", charge_day=c.charge_day + timedelta(days=1), day=replace(c.day, day=c.charge_day + timedelta(days=1))
    ),
    "without a reason": lambda c: replace(c, key="credit/f", reason=""),
    "without a tenant": lambda c: replace(c, key="credit/f", day=None),
    "taken back": reversal_of,
    "as usage": lambda c: replace(c, key="usage/f", kind="usage"),
    "as a corrected day": lambda c: replace(c, key="reentry/f", kind="reentry"),
}  # fmt: skip
JUDGED_EARLY = "entry_is_judged_with_its_lines"
REFUSED = {"ledger_is_what_segments_cost", "line_is_of_its_entrys_accounts", "entry_says_what_it_is_for"}


@pytest.mark.parametrize("forged", FORGED)
def test_no_entry_credits_anything_else(books, forged):
    def offer():
        with transaction.atomic():
            posting.post(FORGED[forged](standing_credit()))
            settle_pending_checks()

    with pytest.raises(IntegrityError) as refused:
        offer()
    assert constraint_of(refused.value) in REFUSED


def test_a_credit_that_is_taken_back_and_given_again_changes_nothing(books):
    """The sums are right, so the database accepts it, and the ledger posts nothing on top."""
    credit = standing_credit()
    posting.post(reversal_of(credit))
    posting.post(replace(credit, key="credit/again/1"))
    settle_pending_checks()
    assert discrepancies() == ()
    posting.post_days()
    assert LedgerEntry.objects.filter(kind="credit").count() == 2


def test_the_proof_finds_credits_that_were_forged_past_the_triggers(books, capsys):
    forgeries = {
        "DELETE FROM billing_ledgerline WHERE entry_id = %(credit)s": "is credited 0 USD for lost work, but by the policy it is 7.5",
        "UPDATE billing_creditpolicy SET causes = '[]'": "is credited 7.500000000000 USD for lost work, but by the policy it is 0",
        "UPDATE billing_lostwork SET lost_from = lost_from + interval '1 hour'": "but by the policy it is 5.000000000000",
    }
    for forgery, said in forgeries.items():
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("RESET ROLE; SET LOCAL session_replication_role = replica")
            cursor.execute(forgery, books)
            with pytest.raises(CommandError):
                call_command("prove_ledger")
            assert said in capsys.readouterr().err, forgery
            transaction.set_rollback(True)


@pytest.mark.parametrize("when", ["billing_judge_credit", "ALL"])
def test_no_credit_is_judged_before_it_has_its_lines(books, when):
    """Else it could come to other accounts: a credit of the same amount, at the cluster's expense."""

    def offer():
        with transaction.atomic():
            mine = standing_credit()
            posting.post(reversal_of(mine))
            with connection.cursor() as cursor:
                cursor.execute(f"SET CONSTRAINTS {when} IMMEDIATE")
            amount = -next(line.amount for line in mine.lines if line.account.startswith("tenant_expense"))
            lines = _lines(mine, amount, to=f"cluster_pool:{mine.day.cluster_id}")
            posting.post(replace(mine, key="credit/early", lines=lines))
            settle_pending_checks()

    with pytest.raises(IntegrityError) as refused:
        offer()
    expected = (
        {JUDGED_EARLY}
        if when != "ALL"
        else {JUDGED_EARLY, "ledger_is_what_segments_cost", "entry_is_what_its_digest_says"}
    )
    assert constraint_of(refused.value) in expected
