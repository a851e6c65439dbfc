"""Records what is recommended, from day to day in the same rows, and what people decide about it."""

import json
from collections.abc import Collection, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import F
from django.db.models.functions import Now

from billing.engine.recommendations import Finding
from billing.models import Recommendation, RequiredLabels
from billing.queries.recommendations import recommendation_by_id
from billing.queries.sharing import organisation_at
from foundation.clock import database_now
from foundation.ids import new_id
from foundation.problems import Conflict, Invalid
from tenancy.operations import record_audit
from tenancy.queries import Actor

State = Recommendation.State
DONE_AFTER = timedelta(days=14)
"""For which an accepted recommendation must not have been found; the trigger has the same."""
MOST_UNTIL = timedelta(days=366)
USUAL_UNTIL = timedelta(days=90)
MOST_KEYS = 10
MOST_FINDINGS = 2000
"""Of an organisation; those with the largest amounts."""


def record_findings(organisation_id: UUID, found: Collection[Finding], today: date) -> None:
    """Adds what is new, updates what is known, and closes what is not found any more. Twice is as once."""
    kept = sorted(found, key=lambda one: (-one.high, str(one.tenant_id), one.kind, one.subject))[:MOST_FINDINGS]
    rows = [_row(organisation_id, one, today) for one in kept]
    own = Recommendation.objects.filter(organisation=organisation_id)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(RECORD, [json.dumps(rows)])
        gone = own.filter(last_found_on__lt=today)
        gone.filter(state=State.OPEN).update(state=State.EXPIRED)
        gone.filter(state=State.DISMISSED, until__lte=today).update(state=State.EXPIRED, until=None, decided_high=None)
        own.filter(state=State.ACCEPTED, last_found_on__lte=today - DONE_AFTER).update(state=State.DONE)


def accept(actor: Actor, id_: UUID, reason: str = "", *, at: datetime | None = None) -> Recommendation:
    """The recommendation, accepted: its saving is measured from now on, or from `at` on (of a made-up history). Accepting an accepted one
    changes nothing.

    Raises NotFound, NotAllowedHere, Conflict `recommendation_not_open`.
    """
    return _decide(actor, id_, State.ACCEPTED, reason, None, at)


def dismiss(actor: Actor, id_: UUID, reason: str, until: date | None = None) -> Recommendation:
    """The recommendation, dismissed until a day (by default 90 days from today). Dismissing a dismissed one changes nothing.

    Raises NotFound, NotAllowedHere, Invalid `out_of_range`, Conflict `recommendation_not_open`.
    """
    today = database_now().astimezone(UTC).date()
    until = until or today + USUAL_UNTIL
    if not today < until <= today + MOST_UNTIL:
        raise Invalid.field("until", "out_of_range", f"a day after today, at most {MOST_UNTIL.days} days from now")
    return _decide(actor, id_, State.DISMISSED, reason, until)


def reopen(actor: Actor, id_: UUID) -> Recommendation:
    """The recommendation, open again after it was accepted or dismissed. Opening an open one changes nothing.

    Raises NotFound, NotAllowedHere, Conflict `recommendation_ended`.
    """
    with transaction.atomic():
        row = recommendation_by_id(actor, id_, may_decide=True)
        if row.state == State.OPEN:
            return row
        cleared = {"state": State.OPEN, "reason": "", "until": None, "decided_high": None}
        decided = Recommendation.objects.filter(id=id_, state__in=[State.ACCEPTED, State.DISMISSED])
        if decided.update(**cleared, **_who(actor)):
            _audit(actor, "recommendation.reopen", row, {})
        elif not Recommendation.objects.filter(id=id_, state=State.OPEN).exists():
            raise Conflict("What it recommended is not found any more.", code="recommendation_ended")
    return recommendation_by_id(actor, id_)


def _decide(
    actor: Actor, id_: UUID, state: str, reason: str, until: date | None, at: datetime | None = None
) -> Recommendation:
    with transaction.atomic():
        row = recommendation_by_id(actor, id_, may_decide=True)
        fields = {"state": state, "reason": reason, "until": until, "decided_high": F("high"), **_who(actor)}
        fields |= {"decided_at": at} if at else {}
        if Recommendation.objects.filter(id=id_, state=State.OPEN).update(**fields):
            said = {"reason": reason, "high": f"{row.high:f}", "currency": row.currency}
            said |= {"until": f"{until}"} if until else {}
            action = "recommendation.accept" if state == State.ACCEPTED else "recommendation.dismiss"
            _audit(actor, action, row, said)
        elif not Recommendation.objects.filter(id=id_, state=state).exists():
            raise Conflict("Only an open recommendation can be accepted or dismissed.", code="recommendation_not_open")
    return recommendation_by_id(actor, id_)


def require_labels(actor: Actor, path: str, effective_from: date, keys: Sequence[str]) -> RequiredLabels:
    """The labels that an organisation's jobs must have from a day on; none: no label. No job is refused for them.

    The keys are those of labels, which the caller has checked. Raises NotFound, NotAllowedHere, Invalid (`too_many`, `in_the_past`).
    """
    organisation = organisation_at(actor, path, may_close=True)
    wanted = sorted(set(keys))
    if len(wanted) > MOST_KEYS:
        raise Invalid.field("keys", "too_many", f"at most {MOST_KEYS}")
    if effective_from < database_now().astimezone(UTC).date():
        raise Invalid.field("effective_from", "in_the_past", "today (UTC) or a later day")
    with transaction.atomic():
        row = RequiredLabels.objects.create(
            organisation=organisation, effective_from=effective_from, keys=wanted, made_by_id=actor.user_id,
            made_by_name=actor.name,
        )  # fmt: skip
        record_audit(
            actor, "required_labels.set", object_kind="required_labels", object_id=str(row.id), tenant_id=organisation.id,
            detail={"from": f"{effective_from}", "keys": wanted},
        )  # fmt: skip
    row.refresh_from_db()
    return row


def _who(actor: Actor) -> dict[str, Any]:
    return {"decided_by_id": actor.user_id, "decided_by_name": actor.name, "decided_at": Now()}


def _audit(actor: Actor, action: str, row: Recommendation, said: dict[str, Any]) -> None:
    detail = {"kind": row.kind, "subject": row.subject} | said
    record_audit(
        actor, action, object_kind="recommendation", object_id=row.id, tenant_id=row.tenant_id, detail=detail
    )  # fmt: skip


def _row(organisation_id: UUID, one: Finding, today: date) -> dict[str, Any]:
    return {
        "id": str(new_id()), "organisation_id": str(organisation_id), "tenant_id": str(one.tenant_id), "kind": one.kind.value,
        "subject": one.subject, "currency": one.currency, "low": str(one.low), "high": str(one.high),
        "confidence": str(one.confidence), "evidence": dict(one.evidence), "found_on": f"{today}",
    }  # fmt: skip


OPENS = """(known.state IN ('done', 'expired') AND known.last_found_on < excluded.last_found_on)
    OR (known.state = 'dismissed' AND (known.until <= excluded.last_found_on OR excluded.high >= 1.5 * known.decided_high))"""
"""When the routine opens a recommendation again; the trigger has the same."""
RECORD = f"""
INSERT INTO billing_recommendation AS known
    (id, organisation_id, tenant_id, tenant_path, kind, subject, currency, low, high, confidence, evidence, found_on, last_found_on,
     state, reason, decided_by_name)
SELECT found.id, found.organisation_id, found.tenant_id, tenant.path, found.kind, found.subject, found.currency, found.low, found.high,
       found.confidence, found.evidence, found.found_on, found.found_on, 'open', '', ''
  FROM json_populate_recordset(NULL::billing_recommendation, %s::json) AS found
  JOIN tenancy_tenant AS tenant ON tenant.id = found.tenant_id
 ORDER BY found.tenant_id, found.kind, found.subject, found.currency
ON CONFLICT (tenant_id, kind, subject, currency) DO UPDATE
   SET low = excluded.low, high = excluded.high, confidence = excluded.confidence, evidence = excluded.evidence,
       tenant_path = excluded.tenant_path, last_found_on = excluded.last_found_on,
       state = CASE WHEN {OPENS} THEN 'open' ELSE known.state END,
       reason = CASE WHEN {OPENS} THEN '' ELSE known.reason END,
       until = CASE WHEN {OPENS} THEN NULL ELSE known.until END,
       decided_high = CASE WHEN {OPENS} THEN NULL ELSE known.decided_high END,
       decided_by_id = CASE WHEN {OPENS} THEN NULL ELSE known.decided_by_id END,
       decided_by_name = CASE WHEN {OPENS} THEN '' ELSE known.decided_by_name END,
       decided_at = CASE WHEN {OPENS} THEN NULL ELSE known.decided_at END
 WHERE known.last_found_on <= excluded.last_found_on
"""
