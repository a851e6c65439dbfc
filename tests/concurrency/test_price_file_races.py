"""Price book files that are applied while usage is rated, with real commits: each is applied once, and all time costs what the file says."""

from datetime import timedelta

import pytest

from billing.models import Price
from billing.operations import posting, record_runs
from billing.operations.price_file import apply_prices, plan_prices
from billing.queries import discrepancies
from foundation.problems import Conflict
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import make_run
from tests.concurrency.test_quota_races import at_once
from tests.rooms.billing.ledgers import at, expense, priced_cluster

pytestmark = pytest.mark.django_db(transaction=True)
FILE = """
apiVersion: switchyard/v1
kind: PriceBook
prices:
  - {cluster: north, flavor: h100, capacity_type: on_demand, from: 2026-10-05, currency: USD, unit_price: 5}
"""


def test_a_plan_is_applied_once_while_usage_is_rated_and_all_of_it_costs_what_the_file_says():
    north = priced_cluster()
    digest = plan_prices(SYSTEM, FILE).digest
    outcomes: list[int | str] = []

    def use(name):
        for number in range(3):
            start = at(5 + number, 3)
            record_runs([make_run(north, f"acme/{name}", started_at=start, until_at=start + timedelta(hours=2))])
            posting.post_days()

    def apply():
        try:
            outcomes.append(len(apply_prices(SYSTEM, FILE, expected=digest).changes))
        except Conflict as refused:
            outcomes.append(refused.code)

    at_once([lambda: use("a"), apply, lambda: use("b"), apply, lambda: use("c"), apply])
    posting.post_days()
    assert sorted(outcomes, key=str) == [1, "prices_changed", "prices_changed"]
    assert AuditEntry.objects.filter(action="prices.apply").count() == 1
    assert Price.objects.count() == 2
    assert expense() == 3 * 3 * 2 * 5
    assert not discrepancies()
    assert apply_prices(SYSTEM, FILE).changes == ()
