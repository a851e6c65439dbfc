"""The rates at which budgets count other currencies than their own."""

from collections.abc import Collection
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

from django.db import connection

from billing.engine.budgets import Commitment, Terms, needs_a_rate


class Pair(NamedTuple):
    """Two currencies on a day, of the organisation at a path."""

    organisation: str
    base: str
    quote: str
    day: date


def pair_of(path: str, terms: Terms, commitment: Commitment, began_at: datetime) -> Pair | None:
    """The rate that a budget of the tenant at `path` needs for a commitment that began then; None if it needs none."""
    if not needs_a_rate(terms, commitment):
        return None
    return Pair(path.partition("/")[0], commitment.currency, terms.currency, began_at.astimezone(UTC).date())


def rates_now(pairs: Collection[Pair]) -> dict[Pair, Decimal]:
    """The rates that count on these days: those that budgets have kept, otherwise those of the day. A pair without a rate of its day is
    missing, also if an older one was kept.
    """
    return _found(RATES_NOW, pairs)


def unknown_rates(organisation: str, currency: str, after: datetime, day: date) -> list[str]:
    """The currencies of an organisation's prices after a time that have no rate into this one on a day."""
    with connection.cursor() as cursor:
        cursor.execute(PRICED, [organisation, after, currency])
        priced = [row[0] for row in cursor.fetchall()]
    counting = rates_now({Pair(organisation, base, currency, day) for base in priced})
    return [base for base in priced if Pair(organisation, base, currency, day) not in counting]


def known_rates(pairs: Collection[Pair]) -> dict[Pair, Decimal]:
    """The rates of these days, or the nearest that are known. A pair without any is missing."""
    return _found(KNOWN, pairs)


def kept_rates_or_known(pairs: Collection[Pair]) -> dict[Pair, Decimal]:
    """The same, but the rate that budgets have kept for the day, if there is one."""
    return _found(KEPT_OR_KNOWN, pairs)


def _found(statement: str, pairs: Collection[Pair]) -> dict[Pair, Decimal]:
    if not pairs:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(statement, columns_of(pairs))
        return {Pair(*row[:4]): row[4] for row in cursor.fetchall()}


def columns_of(pairs: Collection[Pair]) -> dict[str, list[Any]]:
    """The pairs as arrays, in the order in which rates are kept."""
    ordered = sorted(pairs)
    return {name: [getattr(pair, name) for pair in ordered] for name in Pair._fields}


WANTED = """unnest(%(organisation)s::text[], %(base)s::text[], %(quote)s::text[], %(day)s::date[]) AS wanted(path, base, quote, day)
  JOIN tenancy_tenant AS t ON t.path = wanted.path"""
RATES_NOW = f"""
SELECT wanted.path, wanted.base, wanted.quote, wanted.day, coalesce(k.rate, x.rate) FROM {WANTED}
 CROSS JOIN LATERAL billing_exchange_rate(t.id, wanted.base, wanted.quote, wanted.day) AS x
  LEFT JOIN billing_budgetrate AS k ON k.organisation_id = t.id AND k.base = wanted.base AND k.quote = wanted.quote AND k.day = wanted.day
"""
PRICED = "SELECT currency FROM billing_price_currencies(%s, %s) WHERE currency <> %s ORDER BY 1"
KNOWN = f"""
SELECT wanted.path, wanted.base, wanted.quote, wanted.day, x.rate FROM {WANTED}
 CROSS JOIN LATERAL billing_known_rate(t.id, wanted.base, wanted.quote, wanted.day) AS x
"""
KEPT_OR_KNOWN = f"""
SELECT wanted.path, wanted.base, wanted.quote, wanted.day, coalesce(k.rate, (
           SELECT x.rate FROM billing_known_rate(t.id, wanted.base, wanted.quote, wanted.day) AS x), 0)
  FROM {WANTED}
  LEFT JOIN billing_budgetrate AS k ON k.organisation_id = t.id AND k.base = wanted.base AND k.quote = wanted.quote AND k.day = wanted.day
"""
