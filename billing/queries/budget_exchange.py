"""What the rates that budgets kept make different from the rates that count now: the gain or loss of exchange of a period."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC
from decimal import Decimal
from uuid import UUID

from django.db import connection

from billing.models import BudgetRate

from .budgets import PeriodState


@dataclass(frozen=True, slots=True)
class ForeignCharge:
    """What a period was charged in another currency: in it, as the budget counts it, and at the rates that count now. `worth` is None
    if one of these is missing.
    """

    currency: str
    charged: Decimal
    counted: Decimal
    worth: Decimal | None

    @property
    def difference(self) -> Decimal | None:
        """How much more it would count at the rates that count now."""
        return None if self.worth is None else self.worth - self.counted


def foreign_charges(states: Collection[PeriodState]) -> dict[UUID, tuple[ForeignCharge, ...]]:
    """Of each budget of money that counts other currencies, by currency. A tenant that moved counts where it is now."""
    wanted = [state for state in states if state.terms.measure == "money"]
    if not wanted or not BudgetRate.objects.exists():
        return {}
    with connection.cursor() as cursor:
        cursor.execute(
            FOREIGN,
            {
                "budgets": [state.budget_id for state in wanted],
                "starts": [state.span[0].astimezone(UTC).date() for state in wanted],
                "ends": [state.span[1].astimezone(UTC).date() for state in wanted],
            },
        )
        rows = cursor.fetchall()
    found: dict[UUID, tuple[ForeignCharge, ...]] = {}
    for budget_id, *figures in rows:
        found[budget_id] = (*found.get(budget_id, ()), ForeignCharge(*figures))
    return found


def total_difference(charges: Collection[ForeignCharge]) -> Decimal | None:
    """The sum of the differences; None if nothing is in another currency, or a rate is missing."""
    differences = [one.difference for one in charges]
    known = [one for one in differences if one is not None]
    return sum(known, Decimal(0)) if known and len(known) == len(differences) else None


FOREIGN = """
WITH wanted AS MATERIALIZED (
    SELECT b.id, b.currency, bt.path, root.id AS organisation, greatest(w.begins, (b.counts_from AT TIME ZONE 'UTC')::date) AS begins, w.ends
      FROM unnest(%(budgets)s::uuid[], %(starts)s::date[], %(ends)s::date[]) AS w(budget, begins, ends)
      JOIN billing_budget AS b ON b.id = w.budget JOIN tenancy_tenant AS bt ON bt.id = b.tenant_id
      JOIN tenancy_tenant AS root ON root.path = split_part(bt.path, '/', 1)
), charged AS (
    SELECT w.id, d.currency, d.day, d.cost AS amount
      FROM wanted AS w JOIN tenancy_tenant AS t ON t.path = w.path OR starts_with(t.path, w.path || '/')
      JOIN billing_tenantday AS d ON d.tenant_id = t.id AND d.day >= w.begins AND d.day < w.ends AND d.currency NOT IN ('', w.currency)
    UNION ALL
    SELECT w.id, l.currency, e.charge_day, l.amount
      FROM wanted AS w JOIN tenancy_tenant AS t ON t.path = w.path OR starts_with(t.path, w.path || '/')
      JOIN billing_ledgeraccount AS a ON a.tenant_id = t.id AND a.kind = 'tenant_expense'
      JOIN billing_ledgerline AS l ON l.account_id = a.id AND l.currency <> w.currency
      JOIN billing_ledgerentry AS e ON e.id = l.entry_id AND e.kind IN ('reversal', 'reentry', 'adjustment', 'credit')
           AND e.charge_day >= w.begins AND e.charge_day < w.ends
      LEFT JOIN billing_ledgerentry AS undone ON undone.id = e.reverses_id
     WHERE coalesce(undone.kind, e.kind) NOT IN ('idle', 'platform')
), days AS (
    SELECT id, currency, day, sum(amount) AS amount FROM charged GROUP BY 1, 2, 3
)
SELECT w.id, days.currency, sum(days.amount), sum(trunc(days.amount * coalesce(k.rate, 0), 12)),
       CASE WHEN bool_and(x.rate IS NOT NULL) THEN sum(trunc(days.amount * x.rate, 12)) END
  FROM days JOIN wanted AS w ON w.id = days.id
  LEFT JOIN billing_budgetrate AS k ON k.organisation_id = w.organisation AND k.base = days.currency AND k.quote = w.currency AND k.day = days.day
  LEFT JOIN LATERAL billing_exchange_rate(w.organisation, days.currency, w.currency, days.day) AS x ON true
 GROUP BY 1, 2 ORDER BY 1, 2
"""
