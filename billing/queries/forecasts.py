"""Forecasts of a tenant's month and of a budget's period, from the stored sums of days and the holds of running work."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Q

from billing.engine.budgets import Commitment, Span, Terms, period_at
from billing.engine.forecast import MOST_DAYS, ZERO, Forecast, Member, forecast, running_by_day
from billing.models import Budget
from foundation.clock import database_now
from foundation.problems import Invalid
from tenancy.models import Tenant
from tenancy.queries import Actor, tenant_by_path

from .budgets import PeriodState, states_at
from .usage import DEFAULT_CURRENCY

A_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class BudgetForecast:
    """A budget's current period and what is expected of it; `outlook` is None outside of a budget's dates. `past`: the
    period's days up to today, with what was posted up to the end of each.
    """

    state: PeriodState
    at: datetime
    past: tuple[tuple[date, Decimal], ...] = ()
    outlook: Forecast | None = None


@dataclass(frozen=True, slots=True)
class TenantForecast:
    """What a tenant and all below it are expected to cost this month. Its members are the tenant itself and its children, by
    path.
    """

    path: str
    currency: str
    span: Span
    at: datetime
    past: tuple[tuple[date, Decimal], ...]
    outlook: Forecast


def budget_forecast(budget: Budget) -> BudgetForecast:
    """What the current period of the budget is expected to reach. Posted is what the budget counts as spent."""
    at = database_now().astimezone(UTC)
    state = states_at([budget], at)[budget.id]
    if not state.span[0] <= at < state.span[1]:
        return BudgetForecast(state, at)
    below = Q(path=budget.tenant.path) | Q(path__startswith=f"{budget.tenant.path}/")
    keys = dict.fromkeys(Tenant.objects.filter(below).values_list("id", flat=True), "")
    members, days = _members(keys, state.terms, state.span, at)
    member = members.get("") or Member("", ZERO, {}, {})
    member = Member("", state.spent, member.history, member.running)
    past = _past(days, state.spent, state.span, at)
    return BudgetForecast(state, at, past, forecast([member], state.span, at))


def tenant_forecast(actor: Actor, path: str) -> TenantForecast:
    """What the tenant is expected to cost in the current month. Raises NotFound, Invalid `mixed_currencies`."""
    tenant = tenant_by_path(actor, path)
    at = database_now().astimezone(UTC)
    below = Q(path=tenant.path) | Q(path__startswith=f"{tenant.path}/")
    keys = {
        tenant_id: _member_of(tenant.path, own)
        for tenant_id, own in Tenant.objects.filter(below).values_list("id", "path")
    }
    terms = Terms("money", _currency_of(keys, at), "month")
    span = period_at(terms, at)
    assert span is not None  # a month has no dates
    members, days = _members(keys, terms, span, at)
    ordered = [members.get(key) or Member(key, ZERO, {}, {}) for key in sorted(set(keys.values()))]
    outlook = forecast(ordered, span, at)
    past = _past(days, outlook.parts.posted, span, at)
    return TenantForecast(tenant.path, terms.currency, span, at, past, outlook)


def _past(days: Mapping[date, Decimal], posted: Decimal, span: Span, at: datetime) -> tuple[tuple[date, Decimal], ...]:
    """The sums at the end of each day of the period up to today. They end with what is posted: of a budget, that also counts
    tenants which have left.
    """
    found, reached = [], posted
    day, first = at.date(), span[0].date()
    for later in [other for other in days if other > day]:
        reached -= days[later]
    while day >= first:
        found.append((day, reached))
        reached -= days.get(day, ZERO)
        day -= timedelta(days=1)
    return tuple(reversed(found))


def _member_of(path: str, own: str) -> str:
    """The child of the tenant at `path` under which a tenant is; the path itself for the tenant's own work."""
    return "/".join(own.split("/")[: path.count("/") + 2])


def _currency_of(tenants: Iterable[UUID], at: datetime) -> str:
    """The one currency of the tenants' costs on the days that are read, and of what runs."""
    first = at.date() - timedelta(days=MOST_DAYS)
    with connection.cursor() as cursor:
        cursor.execute(CURRENCIES, {"tenants": list(tenants), "first": first})
        found = sorted(row[0] for row in cursor.fetchall())
    if len(found) > 1:
        raise Invalid.field("tenant", "mixed_currencies", f"costs in {' and '.join(found)} cannot be added up")
    return found[0] if found else DEFAULT_CURRENCY


def _members(
    keys: Mapping[UUID, str], terms: Terms, span: Span, at: datetime
) -> tuple[dict[str, Member], dict[date, Decimal]]:
    """Each key's posted amount of the period, its history and its running work; and what all posted on each day of it."""
    today = at.date()
    first = min(span[0].date(), today - timedelta(days=MOST_DAYS))
    values: dict[str, Any] = {
        "tenants": list(keys), "keys": list(keys.values()), "measure": terms.measure, "currency": terms.currency,
        "first": first, "last": span[1].date(),
    }  # fmt: skip
    history: dict[str, dict[date, Decimal]] = {}
    posted: dict[str, Decimal] = {}
    days: dict[date, Decimal] = {}
    with connection.cursor() as cursor:
        cursor.execute(DAYS, values)
        rows = cursor.fetchall()
        if terms.measure == "money":
            cursor.execute(CORRECTIONS, values)
            rows += cursor.fetchall()
        cursor.execute(HOLDS, values)
        held = cursor.fetchall()
    for key, day, amount, recurs in rows:
        if day >= span[0].date():
            posted[key] = posted.get(key, ZERO) + amount
            days[day] = days.get(day, ZERO) + amount
        if recurs and day < today:
            own = history.setdefault(key, {})
            own[day] = own.get(day, ZERO) + amount
    running = _running(held, terms, span, at)
    return {
        key: Member(key, posted.get(key, ZERO), history.get(key, {}), running.get(key, {}))
        for key in {*history, *posted, *running}
    }, days


def _running(rows: Sequence[tuple[Any, ...]], terms: Terms, span: Span, at: datetime) -> dict[str, dict[date, Decimal]]:
    found: dict[str, dict[date, Decimal]] = {}
    for key, money, currency, gpus, begins, ends in rows:
        rest = Commitment(money, currency, gpus, begins, max(0, (ends - begins) // A_SECOND))
        own = found.setdefault(key, {})
        for day, amount in running_by_day(terms, rest, span, at).items():
            own[day] = own.get(day, ZERO) + amount
    return found


CURRENCIES = """
SELECT DISTINCT currency FROM billing_tenantday
 WHERE tenant_id = ANY(%(tenants)s) AND day >= %(first)s AND currency <> ''
UNION SELECT DISTINCT currency FROM billing_budgethold
 WHERE tenant_id = ANY(%(tenants)s) AND state = 'pending' AND currency <> ''
"""
DAYS = """
SELECT own.key, d.day, sum(billing_budget_use(%(measure)s, %(currency)s, d.cost, d.currency, d.gpu_milliseconds,
                                              d.gpu_numerator, d.gpu_denominator)), true
  FROM unnest(%(tenants)s::uuid[], %(keys)s::text[]) AS own(tenant_id, key)
  JOIN billing_tenantday AS d ON d.tenant_id = own.tenant_id
 WHERE d.day >= %(first)s AND d.day < %(last)s GROUP BY 1, 2
"""
CORRECTIONS = """
SELECT own.key, e.charge_day, sum(l.amount), coalesce(undone.kind, e.kind) NOT IN ('adjustment', 'credit')
  FROM unnest(%(tenants)s::uuid[], %(keys)s::text[]) AS own(tenant_id, key)
  JOIN billing_ledgeraccount AS a ON a.tenant_id = own.tenant_id AND a.kind = 'tenant_expense'
  JOIN billing_ledgerline AS l ON l.account_id = a.id AND l.currency = %(currency)s
  JOIN billing_ledgerentry AS e ON e.id = l.entry_id AND e.kind IN ('reversal', 'reentry', 'adjustment', 'credit')
  LEFT JOIN billing_ledgerentry AS undone ON undone.id = e.reverses_id
 WHERE e.charge_day >= %(first)s AND e.charge_day < %(last)s
   AND coalesce(undone.kind, e.kind) NOT IN ('idle', 'platform') GROUP BY 1, 2, 4
"""
"""What budgets count too. A credit is posted, but expected of no later day."""
HOLDS = """
SELECT own.key, h.money_an_hour, h.currency, h.gpus, greatest(h.starts_at, metered.until),
       h.starts_at + make_interval(secs => h.seconds)
  FROM unnest(%(tenants)s::uuid[], %(keys)s::text[]) AS own(tenant_id, key)
  JOIN billing_budgethold AS h ON h.tenant_id = own.tenant_id AND h.state = 'pending'
 CROSS JOIN LATERAL (SELECT max(m.metered_until) AS until FROM billing_meter AS m WHERE m.run_id = h.holder_id) AS metered
 ORDER BY h.holder_id
"""
"""What of each running run is not metered yet, up to its deadline."""
