"""One recommendation that several people decide while the routine finds it again, with real commits: one decision counts, and is audited once."""

from datetime import UTC
from decimal import Decimal

import pytest

from billing.engine.recommendations import Finding, Kind
from billing.models import Recommendation
from billing.operations.recommendations import accept, dismiss, record_findings
from foundation.clock import now
from foundation.problems import Conflict
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import make_tenant
from tests.concurrency.test_quota_races import at_once

pytestmark = pytest.mark.django_db(transaction=True)


def test_one_decision_counts_whoever_else_decides_and_whatever_is_found_meanwhile():
    acme, today = make_tenant("acme"), now().astimezone(UTC).date()
    finding = Finding(Kind.CHEAPER, acme.id, "train-#", "USD", Decimal(1), Decimal(10), Decimal("0.5"), {"jobs": 3})
    record_findings(acme.id, [finding], today)
    row = Recommendation.objects.get()
    outcomes: list[str] = []

    def decided(decide):
        try:
            outcomes.append(decide().state)
        except Conflict as refused:
            outcomes.append(refused.code)

    at_once(
        [
            *[lambda: decided(lambda: accept(SYSTEM, row.id))] * 4,
            *[lambda: decided(lambda: dismiss(SYSTEM, row.id, "not now"))] * 4,
            *[lambda: record_findings(acme.id, [finding], today)] * 2,
        ]
    )
    row.refresh_from_db()
    [entry] = AuditEntry.objects.filter(action__in=["recommendation.accept", "recommendation.dismiss"])
    assert row.state == {"recommendation.accept": "accepted", "recommendation.dismiss": "dismissed"}[entry.action]
    assert sorted(outcomes) == sorted([row.state] * 4 + ["recommendation_not_open"] * 4)
    assert (row.decided_high, row.last_found_on) == (10, today)
