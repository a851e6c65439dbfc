"""Alerts as hooks get them: the text, the body in each form, its signature, and when a failed delivery is repeated."""

import hashlib
import hmac
import json
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from .amounts import decimal_text
from .budgets import Expectation, Terms, expectation_message, period_name, shown

SPENT, FORECAST, ANOMALY, DOCUMENT = KINDS = ("budget_spent", "budget_forecast", "anomaly", "document")
TEST = "test"
"""Of no alert: a user asks for it."""
CONFIRMATION = "confirmation"
"""Of no alert: asks an address whether it takes mail."""
JSON, CHAT, MAIL = FORMS = ("json", "chat", "mail")
SOONEST, LATEST = timedelta(minutes=1), timedelta(hours=6)
GIVES_UP_AFTER = timedelta(days=1)
DOCUMENTS = {"invoice": "Invoice", "statement": "Statement", "credit_note": "Credit note"}
AMOUNTS = frozenset({"spent", "amount", "expected", "low", "high", "cost", "usual", "total"})
"""The facts that are amounts."""
Facts = Mapping[str, Any]


def text_of(kind: str, facts: Facts) -> str:
    """The alert as one sentence or two."""
    tenant = facts["tenant"]
    if kind == SPENT:
        terms, span = _terms(facts), _span(facts)
        spent, amount = (shown(Decimal(facts[name]), terms) for name in ("spent", "amount"))
        name = period_name(terms, span)
        return f"{tenant} has spent {facts['percent']} % of its budget for {name}: {spent} of {amount}."
    if kind == FORECAST:
        return f"{tenant}: {expectation_message(_terms(facts), _span(facts), _expectation(facts))}"
    currency = facts.get("currency", "")
    if kind == ANOMALY:
        cost, usual = (f"{Decimal(facts[name]):.2f} {currency}" for name in ("cost", "usual"))
        return f"{tenant} spent {cost} on {facts['flavor']} on {facts['day']}. Usual are {usual}."
    if kind == DOCUMENT:
        total = f"{decimal_text(Decimal(facts['total']))} {currency}"
        return f"{DOCUMENTS[facts['document']]} {facts['number']} of {tenant} for {facts['month']} is issued: {total}."
    if kind == CONFIRMATION:
        return f"The address is asked to confirm that alerts of {tenant} are mailed to it."
    return f"This is a test of the alert hook {facts['hook']} of {tenant}."


def body_of(form: str, delivery_id: UUID, kind: str, facts: Facts) -> bytes:
    """What is posted: the same bytes for the same facts."""
    text = text_of(kind, facts)
    if form == CHAT:
        return json.dumps({"text": _escaped(text)}).encode()
    data = {name: decimal_text(Decimal(fact)) if name in AMOUNTS else fact for name, fact in sorted(facts.items())}
    del data["at"], data["tenant"]
    body = {"id": str(delivery_id), "kind": kind, "at": facts["at"], "tenant": facts["tenant"], "text": text}
    return json.dumps({**body, "data": data}).encode()


def signature(secret: str, at: datetime, body: bytes) -> str:
    """The value of `Switchyard-Signature`: `t=` seconds since 1970, and `v1=` HMAC-SHA-256 over these, a dot and the body."""
    seconds = int(at.timestamp())
    digest = hmac.new(secret.encode(), b"%d.%b" % (seconds, body), hashlib.sha256).hexdigest()
    return f"t={seconds},v1={digest}"


def next_attempt(tried_since: datetime, now: datetime) -> datetime | None:
    """When a delivery that failed now is repeated: after as long as it has been tried, from a minute to six hours, and a last time a
    day after `tried_since`. None: it is given up.
    """
    end = tried_since + GIVES_UP_AFTER
    if now >= end:
        return None
    return min(now + min(max(now - tried_since, SOONEST), LATEST), end)


def _escaped(text: str) -> str:
    """In the markup of chats, `<` begins mentions and links."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _terms(facts: Facts) -> Terms:
    return Terms(facts["measure"], facts["currency"], facts["period"])


def _span(facts: Facts) -> tuple[datetime, datetime]:
    return datetime.fromisoformat(facts["period_start"]), datetime.fromisoformat(facts["period_end"])


def _expectation(facts: Facts) -> Expectation:
    amount, expected, low, high = (Decimal(facts[name]) for name in ("amount", "expected", "low", "high"))
    return Expectation(facts["percent"], amount, expected, low, high, date.fromisoformat(facts["reached_on"]))
