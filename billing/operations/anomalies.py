"""Finds days on which a team spent unusually much, closes those that no longer stand out, and records what people decide."""

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, date, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now

from billing.engine.anomalies import LOOKS_BACK, Finding, standing_out
from billing.models import SpendAnomaly
from billing.queries.anomalies import Place, anomaly_by_id, daily_costs, days_in, decided_in_part, known_since, place_of
from foundation.clock import database_now
from foundation.ids import new_id
from foundation.problems import Conflict
from tenancy.operations import record_audit
from tenancy.queries import Actor

from .failures import FirstFailure

RECHECKED_DAYS = 7
"""Days are compared again for this long: clusters may report time late."""
RECHECKED_OPEN_DAYS = 91
"""Open days are compared again for this long: corrections come later. Older ones remain open with their last figures."""
State = SpendAnomaly.State
ACTIONS: Mapping[str, str] = {State.EXPLAINED: "anomaly.explain", State.DISMISSED: "anomaly.dismiss"}
OF_A_CLUSTER = (
    "Spending is now compared over all clusters together; if the day stands out there, another finding says so."
)
"""Why a finding of an earlier version is closed."""


def inspect_spending() -> None:
    """Compares the last ended days of every organisation, and the days of the last weeks with an open anomaly. Errors of
    one organisation keep no other from being compared; the first one is raised at the end.
    """
    today = database_now().astimezone(UTC).date()
    failure = FirstFailure()
    for organisation_id, since in known_since().items():
        with failure.kept(f"the spending of the organisation {organisation_id} was not compared"):
            inspect_organisation(organisation_id, since, today)
    failure.raise_it()


def inspect_organisation(organisation_id: UUID, since: date, today: date) -> None:
    """Records the days before `today` that stand out, and closes open anomalies whose day does not any more.

    Reads at most RECHECKED_OPEN_DAYS + LOOKS_BACK days, and beyond the last RECHECKED_DAYS + LOOKS_BACK only tenants with an
    open anomaly.
    """
    recent = [today - timedelta(days=number) for number in range(1, RECHECKED_DAYS + 1)]
    oldest = today - timedelta(days=RECHECKED_OPEN_DAYS)
    still_open = days_in(organisation_id, State.OPEN, oldest)
    costs = daily_costs(organisation_id, recent[-1] - timedelta(days=LOOKS_BACK), today)
    first = min((day for days in still_open.values() for day in days), default=today)
    if first < recent[-1]:
        tenants = sorted({place.tenant_id for place in still_open})
        costs |= daily_costs(organisation_id, first - timedelta(days=LOOKS_BACK), today, tenants)
    decided = decided_in_part(organisation_id, recent[-1])
    least = Decimal(settings.ANOMALY_LEAST)
    found: list[dict[str, Any]] = []
    for place, amounts in costs.items():
        own = still_open.get(place, set())
        for day in sorted({*recent, *own} - (decided.get(place, set()) - own)):
            finding = standing_out(amounts, day, known_since=since, least=least)
            if finding is not None:
                found.append(_row(organisation_id, place, day, finding))
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(RECORD, [json.dumps(found)])
        _close(organisation_id, oldest, {(place_of_row(row), row["day"]) for row in found}, costs)


def _close(
    organisation_id: UUID,
    oldest: date,
    standing: AbstractSet[tuple[Place, str]],
    costs: Mapping[Place, Mapping[date, Decimal]],
) -> None:
    rows = SpendAnomaly.objects.filter(organisation=organisation_id, state=State.OPEN, day__gte=oldest)
    for row in rows.order_by("id"):
        place = place_of(row)
        if row.cluster_id is not None:
            reason = OF_A_CLUSTER
        elif (place, f"{row.day}") in standing:
            continue
        else:
            cost = costs.get(place, {}).get(row.day, Decimal(0))
            reason = f"No longer stands out: after corrections the day costs {cost:.2f} {row.currency}."
        SpendAnomaly.objects.filter(id=row.id, state=State.OPEN).update(
            state=State.CLOSED, reason=reason, decided_at=Now()
        )


def decide_anomaly(actor: Actor, anomaly_id: UUID, outcome: str, reason: str) -> SpendAnomaly:
    """The anomaly, explained or dismissed, with the actor and the reason.

    Raises NotFound, NotAllowedHere, Conflict `anomaly_not_open`.
    """
    with transaction.atomic():
        anomaly = anomaly_by_id(actor, anomaly_id, may_decide=True)
        changed = SpendAnomaly.objects.filter(id=anomaly.id, state=State.OPEN).update(
            state=outcome,
            reason=reason,
            decided_by_id=actor.user_id,
            decided_by_name=actor.name,
            decided_at=Now(),
        )
        if not changed:
            raise Conflict("Only an open anomaly can be explained or dismissed.", code="anomaly_not_open")
        record_audit(
            actor,
            ACTIONS[outcome],
            object_kind="anomaly",
            object_id=anomaly.id,
            tenant_id=anomaly.tenant_id,
            detail={"day": f"{anomaly.day}", "flavor": anomaly.flavor, "reason": reason},
        )
    return anomaly_by_id(actor, anomaly_id)


def place_of_row(row: Mapping[str, Any]) -> Place:
    """The place of a row that is to be recorded."""
    return Place(UUID(row["tenant_id"]), row["flavor"], row["currency"])


def _row(organisation_id: UUID, place: Place, day: date, finding: Finding) -> dict[str, Any]:
    return {
        "id": str(new_id()), "organisation_id": str(organisation_id), "tenant_id": str(place.tenant_id),
        "flavor": place.flavor, "currency": place.currency, "day": f"{day}",
        "cost": str(finding.cost), "usual": str(finding.usual), "spread": str(finding.spread),
    }  # fmt: skip


RECORD = """
INSERT INTO billing_spendanomaly AS known
    (id, organisation_id, tenant_id, tenant_path, flavor, currency, day, cost, usual, spread, state, reason, decided_by_name)
SELECT found.id, found.organisation_id, found.tenant_id, tenant.path, found.flavor, found.currency, found.day,
       round(found.cost, 12), round(found.usual, 12), round(found.spread, 12), 'open', '', ''
  FROM json_populate_recordset(NULL::billing_spendanomaly, %s::json) AS found
  JOIN tenancy_tenant AS tenant ON tenant.id = found.tenant_id
 ORDER BY found.tenant_id, found.day, found.flavor, found.currency
ON CONFLICT (tenant_id, day, flavor, currency) WHERE cluster_id IS NULL DO UPDATE
   SET cost = excluded.cost, usual = excluded.usual, spread = excluded.spread, state = 'open', reason = '', decided_at = NULL
 WHERE known.state = 'closed' OR (known.state = 'open'
   AND (known.cost, known.usual, known.spread) IS DISTINCT FROM (excluded.cost, excluded.usual, excluded.spread))
"""
"""What people decided stays as they decided it."""
