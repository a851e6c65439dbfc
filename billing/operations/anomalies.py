"""Finds days on which a team spent unusually much, closes those that no longer stand out, and records what people decide."""

import json
from collections.abc import Mapping
from datetime import UTC, date, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction
from django.db.models.functions import Now

from billing.engine.anomalies import LOOKS_BACK, Finding, standing_out
from billing.models import SpendAnomaly
from billing.queries.anomalies import Place, anomaly_by_id, daily_costs, known_since, open_days, place_of
from foundation.clock import database_now
from foundation.ids import new_id
from foundation.problems import Conflict
from tenancy.operations import record_audit
from tenancy.queries import Actor

from .failures import FirstFailure

RECHECKED_DAYS = 7
"""Days are compared again for this long: clusters may report time late."""
State = SpendAnomaly.State
ACTIONS: Mapping[str, str] = {State.EXPLAINED: "anomaly.explain", State.DISMISSED: "anomaly.dismiss"}


def inspect_spending() -> None:
    """Compares the last ended days of every organisation, and every day with an open anomaly. Errors of one organisation
    keep no other from being compared; the first one is raised at the end.
    """
    today = database_now().astimezone(UTC).date()
    failure = FirstFailure()
    for organisation_id, since in known_since().items():
        with failure.kept(f"the spending of the organisation {organisation_id} was not compared"):
            inspect_organisation(organisation_id, since, today)
    failure.raise_it()


def inspect_organisation(organisation_id: UUID, since: date, today: date) -> None:
    """Records the days before `today` that stand out, and closes open anomalies whose day does not any more."""
    still_open = open_days(organisation_id)
    recent = [today - timedelta(days=number) for number in range(1, RECHECKED_DAYS + 1)]
    first = min([recent[-1], *(day for days in still_open.values() for day in days)])
    costs = daily_costs(organisation_id, first - timedelta(days=LOOKS_BACK), today - timedelta(days=1))
    least = Decimal(settings.ANOMALY_LEAST)
    found: list[dict[str, Any]] = []
    for place, amounts in costs.items():
        for day in {*recent, *still_open.get(place, ())}:
            finding = standing_out(amounts, day, known_since=since, least=least)
            if finding is not None:
                found.append(_row(organisation_id, place, day, finding))
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(RECORD, [json.dumps(found)])
        _close(organisation_id, {(place_of_row(row), row["day"]) for row in found}, costs)


def _close(
    organisation_id: UUID, standing: set[tuple[Place, str]], costs: Mapping[Place, Mapping[date, Decimal]]
) -> None:
    for row in SpendAnomaly.objects.filter(organisation=organisation_id, state=State.OPEN).order_by("id"):
        place = place_of(row)
        if (place, f"{row.day}") in standing:
            continue
        cost = costs.get(place, {}).get(row.day, Decimal(0))
        SpendAnomaly.objects.filter(id=row.id, state=State.OPEN).update(
            state=State.CLOSED,
            reason=f"No longer stands out: after corrections the day costs {cost:.2f} {row.currency}.",
            decided_at=Now(),
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
    return Place(UUID(row["tenant_id"]), row["tenant_path"], UUID(row["cluster_id"]), row["flavor"], row["currency"])


def _row(organisation_id: UUID, place: Place, day: date, finding: Finding) -> dict[str, Any]:
    return {
        "id": str(new_id()), "organisation_id": str(organisation_id), "tenant_id": str(place.tenant_id), "tenant_path": place.tenant_path,
        "cluster_id": str(place.cluster_id), "flavor": place.flavor, "currency": place.currency, "day": f"{day}",
        "cost": str(finding.cost), "usual": str(finding.usual), "spread": str(finding.spread),
    }  # fmt: skip


RECORD = """
INSERT INTO billing_spendanomaly AS known
    (id, organisation_id, tenant_id, tenant_path, cluster_id, flavor, currency, day, cost, usual, spread, state, reason,
     decided_by_name)
SELECT id, organisation_id, tenant_id, tenant_path, cluster_id, flavor, currency, day,
       round(cost, 12), round(usual, 12), round(spread, 12), 'open', '', ''
  FROM json_populate_recordset(NULL::billing_spendanomaly, %s::json)
 ORDER BY tenant_id, day, cluster_id, flavor, tenant_path, currency
ON CONFLICT (tenant_id, day, cluster_id, flavor, tenant_path, currency) DO UPDATE
   SET cost = excluded.cost, usual = excluded.usual, spread = excluded.spread, state = 'open', reason = '', decided_at = NULL
 WHERE known.state = 'closed' OR (known.state = 'open'
   AND (known.cost, known.usual, known.spread) IS DISTINCT FROM (excluded.cost, excluded.usual, excluded.spread))
"""
"""What people decided stays as they decided it."""
