"""Policies are set, lost work is recorded and days are posted at the same time: what counts in the end is credited, once."""

from datetime import date, timedelta
from decimal import Decimal

import pytest
from django.db.models import Sum

from billing.models import LedgerLine
from billing.operations import create_price, posting, record_lost_work, record_runs
from billing.operations.credits import NewCreditPolicy, set_credit_policy
from billing.operations.prices import NewPrice
from billing.queries import discrepancies
from tenancy.queries import SYSTEM
from tests.builders import make_cluster, make_flavor, make_run, make_tenant
from tests.rooms.billing.ledgers import SEPTEMBER, at

from .test_quota_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)
HOUR = timedelta(hours=1)


def test_no_credit_is_forgotten_or_given_twice():
    cluster = make_cluster(name="north")
    make_flavor(cluster)
    create_price(SYSTEM, NewPrice("north", "h100", Decimal("2.5"), effective_from=SEPTEMBER))
    make_tenant("acme/one")
    runs = [make_run(cluster, "acme/one", started_at=at(day, 1), until_at=at(day, 5)) for day in range(1, 7)]
    record_runs(runs)

    def lose():
        for run in runs:
            record_lost_work({run.run_id: ("node_lost", run.started_at + HOUR)})

    def think_again():
        for run in runs[::-1]:
            record_lost_work({run.run_id: ("spot", run.started_at + 2 * HOUR)})

    def decide():
        for causes in (["node_lost"], [], ["spot", "node_lost"]):
            set_credit_policy(SYSTEM, NewCreditPolicy("acme", date(2026, 10, 1), causes))

    at_once([posting.post_days, lose, think_again, decide, posting.post_days])
    posting.post_days()

    credited = LedgerLine.objects.filter(account__kind="infrastructure").aggregate(sum=Sum("amount"))["sum"]
    assert Decimal(5) * 6 <= credited <= Decimal("7.5") * 6
    assert discrepancies() == ()
    record_lost_work({run.run_id: ("", None) for run in runs})
    posting.post_days()
    lines = LedgerLine.objects.filter(account__kind="tenant_expense")
    assert lines.aggregate(sum=Sum("amount"))["sum"] == 60
    assert discrepancies() == ()
