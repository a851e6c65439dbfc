"""Keeps the rates at which budgets count other currencies than their own."""

from collections.abc import Collection
from decimal import Decimal

from django.db import connection

from billing.queries.budget_rates import WANTED, Pair, columns_of


def kept_rates(pairs: Collection[Pair]) -> dict[Pair, Decimal]:
    """The rates that budgets count at on these days, kept now if need be; zero where no rate was ever known."""
    if not pairs:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(KEEP, columns_of(pairs))
        return {Pair(*row[:4]): row[4] for row in cursor.fetchall()}


KEEP = f"""
SELECT wanted.path, wanted.base, wanted.quote, wanted.day, billing_keep_rate(wanted.id, wanted.base, wanted.quote, wanted.day)
  FROM (SELECT t.id, wanted.* FROM {WANTED} ORDER BY t.id, wanted.base, wanted.quote, wanted.day) AS wanted
"""
"""In one order, so that two transactions that keep the same rates wait for each other and do not deadlock."""
