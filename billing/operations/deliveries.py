"""Delivers alerts to hooks, at least once: what arose becomes deliveries, each is posted or mailed with no transaction open, and its result
counts unless a later attempt has begun.

The alerts' own rows are the outbox: each hook gets one delivery for each of its alerts, by constraint. An attempt ends with its lease,
on the database's clock, so what a killed process was posting is posted again.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models.functions import Now

from billing import locks
from billing.drivers.smtp import send_all
from billing.engine.hooks import MAIL, body_of, next_attempt, signature
from billing.engine.mail import Mail
from billing.models import AlertDelivery, AlertHook
from billing.models.hooks import ERROR_LENGTH
from clusters.drivers.posting import Answer, Post, post_all
from clusters.engine.sealing import CannotUnseal, Sealed
from foundation.clock import database_now
from foundation.transactions import retried
from foundation.turns import Turn, endless_turn

from .hook_rows import opened, record_of_hook
from .mails import written_mail

log = logging.getLogger(__name__)
AT_ONCE = 16
"""Hooks that a worker posts to side by side, one delivery each. Those that waited longest come first."""
LEASE_SECONDS = 30
LOOKS_BACK = timedelta(days=1)
"""Alerts of transactions that are open this long are still found."""
KEPT = timedelta(days=90)
"""For this long, deliveries that ended are shown."""
ACCEPTED = 2
"""The hundreds of statuses that mean success."""
REFUSALS_OF_AN_ADDRESS = 3
"""Mail is paused by this attempt: servers refuse for good what they take after the operator has corrected them."""
State = AlertDelivery.State


@dataclass(frozen=True, slots=True)
class Claim:
    """An attempt of this process: it counts while the delivery has as many attempts, and the hook is busy until the same time."""

    delivery_id: int
    uid: UUID
    hook_id: UUID
    kind: str
    attempts: int
    tried_since: datetime
    busy_until: datetime
    tenant_id: UUID
    name: str
    form: str
    address: str
    key_id: str
    facts: dict[str, Any] = field(repr=False)
    sealed: bytes = field(repr=False)


def deliver_alerts(turn: Turn | None = None) -> None:
    """Makes deliveries of what arose, and posts pending ones until none can be posted now."""
    turn = turn or endless_turn()
    make_deliveries()
    forget_deliveries()
    while claims := claim_deliveries():
        settle(claims, attempt(claims))
        turn.beat()
        if turn.is_over:
            turn.has_more = True
            return


def make_deliveries() -> int:
    """How many were made, of alerts of the tenants of all hooks and of those below them. Hooks that another session has are left
    to it.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        hooks = locks.claim_hooks()
        if not hooks:
            return 0
        cursor.execute(MAKE, {"hooks": hooks})
        made = int(cursor.rowcount)
        cursor.execute(LOOKED, {"hooks": hooks, "back": LOOKS_BACK.total_seconds()})
        return made


def forget_deliveries() -> None:
    """Deletes deliveries that ended long ago. Their alerts are too old to become deliveries again."""
    with connection.cursor() as cursor:
        cursor.execute(FORGET, {"kept": KEPT.total_seconds()})
        cursor.execute(FORGET_CONFIRMATIONS, {"kept": KEPT.total_seconds()})


def claim_deliveries() -> list[Claim]:
    """The next due delivery of each of some hooks, of which no other session posts to the same hook until the lease ends."""
    with transaction.atomic():
        rows = [
            [*row[:-2], json.loads(row[-2]), bytes(row[-1])] for row in locks.claim_deliveries(AT_ONCE, LEASE_SECONDS)
        ]
        return [Claim(*row) for row in rows]


def attempt(claims: Sequence[Claim]) -> list[Answer]:
    """What the hooks and the mail server answered, in order. No transaction may be open."""
    at = database_now()
    prepared = [_prepared(claim, at) for claim in claims]
    posted = iter(post_all([one for one in prepared if isinstance(one, Post)]))
    mailed = iter(send_all([one for one in prepared if isinstance(one, Mail)]))
    return [
        next(posted) if isinstance(one, Post) else next(mailed) if isinstance(one, Mail) else one for one in prepared
    ]


def settle(claims: Sequence[Claim], answers: Sequence[Answer]) -> None:
    """Records the result of each attempt; that of an attempt which another one followed changes nothing."""
    for claim, answer in zip(claims, answers, strict=True):
        _settle(claim, answer)


def _prepared(claim: Claim, at: datetime) -> Post | Mail | Answer:
    """What is posted or mailed, or why nothing can be: one delivery that cannot be written keeps no other from being posted."""
    try:
        return _mail_of(claim) if claim.form == MAIL else _post_of(claim, at)
    except CannotUnseal:
        return Answer(None, "the signing secret cannot be opened")
    except Exception as error:
        log.exception("the delivery %s could not be written", claim.uid)
        return Answer(None, f"the alert could not be written ({type(error).__name__})")


def _post_of(claim: Claim, at: datetime) -> Post:
    server, secret = opened(claim.hook_id, claim.tenant_id, Sealed(claim.key_id, claim.sealed))
    body = body_of(claim.form, claim.uid, claim.kind, claim.facts)
    headers = {
        "Switchyard-Delivery": str(claim.uid),
        "Switchyard-Attempt": str(claim.attempts),
        "Switchyard-Signature": signature(secret, at, body),
    }
    return Post(server, body, headers)


def _mail_of(claim: Claim) -> Mail:
    hook = AlertHook(id=claim.hook_id, tenant_id=claim.tenant_id, name=claim.name, address=claim.address)
    hook.key_id, hook.sealed = claim.key_id, claim.sealed
    return written_mail(hook, claim.uid, claim.kind, claim.facts)


@retried
@transaction.atomic
def _settle(claim: Claim, answer: Answer) -> None:
    at = database_now()
    AlertHook.objects.filter(id=claim.hook_id, busy_until=claim.busy_until).update(busy_until=at)
    own = AlertDelivery.objects.filter(id=claim.delivery_id, attempts=claim.attempts, state=State.PENDING)
    if answer.status is not None and answer.status // 100 == ACCEPTED:
        own.update(state=State.DELIVERED, ended_at=at, last_status=answer.status, last_error="")
        return
    told = (answer.why_not or f"it answered {answer.status}")[:ERROR_LENGTH]
    again = next_attempt(claim.tried_since, at)
    ends = {"state": State.GIVEN_UP, "ended_at": at} if again is None else {"next_at": again}
    if own.update(last_status=answer.status, last_error=told, **ends):
        detail = {"delivery": str(claim.uid), "kind": claim.kind, "attempts": claim.attempts, "last_error": told}
        is_gone = answer.is_gone and (claim.form != MAIL or claim.attempts >= REFUSALS_OF_AN_ADDRESS)
        _record_failure(claim.hook_id, detail, is_gone=is_gone, is_given_up=again is None)


def _record_failure(hook_id: UUID, detail: Mapping[str, Any], *, is_gone: bool, is_given_up: bool) -> None:
    hook = AlertHook.objects.get(id=hook_id)
    if is_given_up:
        record_of_hook("hook.give_up", hook, detail)
    gone = {"paused_at": Now(), "pause": AlertHook.Pause.GONE}
    if is_gone and AlertHook.objects.filter(id=hook_id, paused_at=None).update(**gone):
        record_of_hook("hook.pause", hook, detail)


AT = """to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')"""
"""As the API writes times."""
OF_BUDGET = f"""
       'tenant', t.path, 'at', {AT.format(column="a.at")}, 'budget', b.id, 'measure', b.measure, 'currency', b.currency, 'period', b.period,
       'period_start', {AT.format(column="p.starts_at")}, 'period_end', {AT.format(column="p.ends_at")},
       'percent', a.percent, 'spent', a.spent::text, 'amount', a.amount::text"""
MAKE = f"""
WITH hook AS (
    SELECT h.id, h.kinds, h.since, t.path FROM billing_alerthook AS h JOIN tenancy_tenant AS t ON t.id = h.tenant_id
     WHERE h.id = ANY(%(hooks)s)
), alert AS (
    SELECT 'budget_spent' AS kind, a.id::text AS subject, a.at, t.path, jsonb_build_object({OF_BUDGET}) AS facts
      FROM billing_budgetalert AS a JOIN billing_budgetperiod AS p ON p.id = a.period_id
      JOIN billing_budget AS b ON b.id = p.budget_id JOIN tenancy_tenant AS t ON t.id = b.tenant_id
     WHERE a.at >= (SELECT min(since) FROM hook)
     UNION ALL
    SELECT 'budget_forecast', a.id::text, a.at, t.path, jsonb_build_object({OF_BUDGET},
           'expected', a.expected::text, 'low', a.low::text, 'high', a.high::text, 'reached_on', a.reached_on)
      FROM billing_budgetforecastalert AS a JOIN billing_budgetperiod AS p ON p.id = a.period_id
      JOIN billing_budget AS b ON b.id = p.budget_id JOIN tenancy_tenant AS t ON t.id = b.tenant_id
     WHERE a.at >= (SELECT min(since) FROM hook)
     UNION ALL
    SELECT 'anomaly', a.id::text, a.found_at, t.path, jsonb_build_object('tenant', t.path, 'at', {AT.format(column="a.found_at")},
           'anomaly', a.id, 'flavor', a.flavor, 'day', a.day, 'currency', a.currency, 'cost', a.cost::text, 'usual', a.usual::text)
      FROM billing_spendanomaly AS a JOIN tenancy_tenant AS t ON t.id = a.tenant_id
     WHERE a.found_at >= (SELECT min(since) FROM hook)
     UNION ALL
    SELECT 'document', a.id::text, a.issued_at, t.path, jsonb_build_object('tenant', t.path, 'at', {AT.format(column="a.issued_at")},
           'invoice', a.id, 'document', a.kind, 'number', a.number, 'month', to_char(p.month, 'YYYY-MM'), 'currency', a.currency,
           'total', a.total::text)
      FROM billing_invoice AS a JOIN billing_ledgerperiod AS p ON p.id = a.period_id JOIN tenancy_tenant AS t ON t.id = a.tenant_id
     WHERE a.issued_at >= (SELECT min(since) FROM hook)
)
INSERT INTO billing_alertdelivery (hook_id, kind, subject, tenant_path, facts)
SELECT hook.id, alert.kind, alert.subject, alert.path, alert.facts
  FROM alert JOIN hook ON alert.at >= hook.since AND alert.kind = ANY(hook.kinds)
   AND (alert.path = hook.path OR starts_with(alert.path, hook.path || '/'))
 ORDER BY alert.at, alert.kind, alert.subject, hook.id ON CONFLICT (hook_id, kind, subject) DO NOTHING
"""
LOOKED = """
UPDATE billing_alerthook SET since = clock_timestamp() - make_interval(secs => %(back)s) WHERE id = ANY(%(hooks)s) AND since < clock_timestamp() - make_interval(secs => %(back)s)
"""
FORGET = "DELETE FROM billing_alertdelivery WHERE ended_at < clock_timestamp() - make_interval(secs => %(kept)s)"
FORGET_CONFIRMATIONS = """
DELETE FROM billing_addressconfirmation WHERE created_at < clock_timestamp() - make_interval(secs => %(kept)s)
"""
