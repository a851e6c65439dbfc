"""Forecasts of a tenant's month and of a budget's period, from the stored sums of days and the holds of running work."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection
from django.db.models import Q

from billing.engine.budgets import PLACES, Commitment, Span, Terms, in_currency, period_at
from billing.engine.forecast import MOST_DAYS, ZERO, Forecast, Member, forecast, running_by_day
from billing.models import Budget
from foundation.clock import database_now
from foundation.problems import Invalid
from tenancy.models import Tenant
from tenancy.queries import Actor, tenant_by_path

from .budget_rates import Pair, kept_rates_or_known, known_rates
from .budgets import PeriodState, states_at
from .exchange import billing_currency_of
from .usage import DEFAULT_CURRENCY

A_SECOND = timedelta(seconds=1)
STEP = Decimal(1).scaleb(-PLACES)
EXACT = Context(prec=100)


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
class PostedIn:
    """What is posted in a currency, and what that is worth in the one of the forecast, at each day's rate."""

    currency: str
    posted: Decimal
    worth: Decimal


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
    posted_in: tuple[PostedIn, ...] = ()
    """What is posted, by the currency of its price, if there is another one than `currency`."""


def budget_forecast(budget: Budget) -> BudgetForecast:
    """What the current period of the budget is expected to reach. Posted is what the budget counts as spent."""
    at = database_now().astimezone(UTC)
    state = states_at([budget], at)[budget.id]
    if not state.span[0] <= at < state.span[1]:
        return BudgetForecast(state, at)
    below = Q(path=budget.tenant.path) | Q(path__startswith=f"{budget.tenant.path}/")
    keys = dict.fromkeys(Tenant.objects.filter(below).values_list("id", flat=True), "")
    read = _read(keys, state.terms, state.span, at)
    members, days, _ = _members(
        read, _Exchange(budget.tenant.path, state.terms, read, at, kept_rates_or_known), state.span
    )
    member = members.get("") or Member("", ZERO, {}, {})
    member = Member("", state.spent, member.history, member.running)
    past = _past(days, state.spent, state.span, at)
    return BudgetForecast(state, at, past, forecast([member], state.span, at))


def tenant_forecast(actor: Actor, path: str) -> TenantForecast:
    """What the tenant is expected to cost in the current month; in the currency that its organisation is billed in, if it is in one.
    Raises NotFound, Invalid `no_exchange_rate`.
    """
    tenant = tenant_by_path(actor, path)
    at = database_now().astimezone(UTC)
    below = Q(path=tenant.path) | Q(path__startswith=f"{tenant.path}/")
    keys = {
        tenant_id: _member_of(tenant.path, own)
        for tenant_id, own in Tenant.objects.filter(below).values_list("id", "path")
    }
    terms = Terms("money", _currency_of(tenant.path, keys, at), "month")
    span = period_at(terms, at)
    assert span is not None  # a month has no dates
    read = _read(keys, terms, span, at)
    members, days, posted_in = _members(read, _Exchange(tenant.path, terms, read, at, known_rates), span)
    ordered = [members.get(key) or Member(key, ZERO, {}, {}) for key in sorted(set(keys.values()))]
    outlook = forecast(ordered, span, at)
    past = _past(days, outlook.parts.posted, span, at)
    shown = posted_in if {one.currency for one in posted_in} - {terms.currency} else ()
    return TenantForecast(tenant.path, terms.currency, span, at, past, outlook, shown)


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


def _currency_of(path: str, tenants: Iterable[UUID], at: datetime) -> str:
    """The currency that the organisation is billed in this month; otherwise the one of the tenants' costs on the days that are read, and
    of what runs.
    """
    organisation = Tenant.objects.values_list("id", flat=True).get(path=path.partition("/")[0])
    billed = billing_currency_of(organisation, at.date().replace(day=1))
    if billed:
        return billed
    first = at.date() - timedelta(days=MOST_DAYS)
    with connection.cursor() as cursor:
        cursor.execute(CURRENCIES, {"tenants": list(tenants), "first": first})
        found = sorted(row[0] for row in cursor.fetchall())
    if len(found) > 1:
        raise Invalid.field("tenant", "mixed_currencies", f"costs in {' and '.join(found)} cannot be added up")
    return found[0] if found else DEFAULT_CURRENCY


class _Read(NamedTuple):
    """What is stored of days and of running work, in the currencies of the prices."""

    rows: list[tuple[Any, ...]]
    held: list[tuple[Any, ...]]


def _read(keys: Mapping[UUID, str], terms: Terms, span: Span, at: datetime) -> _Read:
    first = min(span[0].date(), at.date() - timedelta(days=MOST_DAYS))
    values: dict[str, Any] = {
        "tenants": list(keys), "keys": list(keys.values()), "measure": terms.measure,
        "first": first, "last": span[1].date(),
    }  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(DAYS, values)
        rows = cursor.fetchall()
        if terms.measure == "money":
            cursor.execute(CORRECTIONS, values)
            rows += cursor.fetchall()
        cursor.execute(HOLDS, values)
        return _Read(rows, cursor.fetchall())


class _Exchange:
    """Amounts in the currency of a forecast, at the rate of their day."""

    def __init__(
        self,
        path: str,
        terms: Terms,
        read: _Read,
        at: datetime,
        rates: Callable[[Collection[Pair]], dict[Pair, Decimal]],
    ) -> None:
        self.terms, self.at = terms, at
        self._root = path.partition("/")[0]
        wanted = {(currency, day) for _, day, currency, _, _ in read.rows}
        wanted |= {(row[2], row[4]) for row in read.held}
        foreign = {pair for pair in wanted if terms.measure == "money" and pair[0] not in {"", terms.currency}}
        self._rates = rates({self._pair(*pair) for pair in foreign})

    def _pair(self, currency: str, day: date) -> Pair:
        return Pair(self._root, currency, self.terms.currency, day)

    def _rate(self, currency: str, day: date) -> Decimal:
        try:
            return self._rates[self._pair(currency, day)]
        except KeyError:
            detail = f"no exchange rate from {currency} to {self.terms.currency} is known: import reference rates"
            raise Invalid.field("tenant", "no_exchange_rate", detail) from None

    def is_foreign(self, currency: str) -> bool:
        """Whether amounts of that currency are converted."""
        return self.terms.measure == "money" and currency not in {"", self.terms.currency}

    def worth(self, amount: Decimal, currency: str, day: date) -> Decimal:
        """The amount in the forecast's currency, rounded as conversions of the ledger are."""
        if not self.is_foreign(currency):
            return amount
        with localcontext(EXACT):
            return (amount * self._rate(currency, day)).quantize(STEP, ROUND_HALF_UP)

    def commitment(self, own: Commitment, began_on: date) -> Commitment:
        """The rest of a run in that currency."""
        if not self.is_foreign(own.currency):
            return own
        return in_currency(own, self.terms.currency, self._rate(own.currency, began_on))


def _members(
    read: _Read, exchange: _Exchange, span: Span
) -> tuple[dict[str, Member], dict[date, Decimal], tuple[PostedIn, ...]]:
    """Each key's posted amount of the period, its history and its running work; what all posted on each day of it; and by currency."""
    today = exchange.at.date()
    history: dict[str, dict[date, Decimal]] = {}
    posted: dict[str, Decimal] = {}
    days: dict[date, Decimal] = {}
    by_currency: dict[str, PostedIn] = {}
    for key, day, currency, amount, recurs in read.rows:
        worth = exchange.worth(amount, currency, day)
        if day >= span[0].date():
            posted[key] = posted.get(key, ZERO) + worth
            days[day] = days.get(day, ZERO) + worth
            known = by_currency.get(currency, PostedIn(currency, ZERO, ZERO))
            by_currency[currency] = PostedIn(currency, known.posted + amount, known.worth + worth)
        if recurs and day < today:
            own = history.setdefault(key, {})
            own[day] = own.get(day, ZERO) + worth
    running = _running(read.held, exchange, span)
    members = {
        key: Member(key, posted.get(key, ZERO), history.get(key, {}), running.get(key, {}))
        for key in {*history, *posted, *running}
    }
    return members, days, tuple(by_currency[currency] for currency in sorted(by_currency) if currency)


def _running(rows: Sequence[tuple[Any, ...]], exchange: _Exchange, span: Span) -> dict[str, dict[date, Decimal]]:
    found: dict[str, dict[date, Decimal]] = {}
    for key, money, currency, gpus, began_on, begins, ends in rows:
        rest = Commitment(money, currency, gpus, begins, max(0, (ends - begins) // A_SECOND))
        own = found.setdefault(key, {})
        for day, amount in running_by_day(
            exchange.terms, exchange.commitment(rest, began_on), span, exchange.at
        ).items():
            own[day] = own.get(day, ZERO) + amount
    return found


CURRENCIES = """
SELECT DISTINCT currency FROM billing_tenantday
 WHERE tenant_id = ANY(%(tenants)s) AND day >= %(first)s AND currency <> ''
UNION SELECT DISTINCT currency FROM billing_budgethold
 WHERE tenant_id = ANY(%(tenants)s) AND state = 'pending' AND currency <> ''
"""
DAYS = """
SELECT own.key, d.day, d.currency, sum(billing_budget_use(%(measure)s, d.currency, d.cost, d.currency, d.gpu_milliseconds,
                                                          d.gpu_numerator, d.gpu_denominator)), true
  FROM unnest(%(tenants)s::uuid[], %(keys)s::text[]) AS own(tenant_id, key)
  JOIN billing_tenantday AS d ON d.tenant_id = own.tenant_id
 WHERE d.day >= %(first)s AND d.day < %(last)s GROUP BY 1, 2, 3
"""
CORRECTIONS = """
SELECT own.key, e.charge_day, l.currency, sum(l.amount), coalesce(undone.kind, e.kind) NOT IN ('adjustment', 'credit')
  FROM unnest(%(tenants)s::uuid[], %(keys)s::text[]) AS own(tenant_id, key)
  JOIN billing_ledgeraccount AS a ON a.tenant_id = own.tenant_id AND a.kind = 'tenant_expense'
  JOIN billing_ledgerline AS l ON l.account_id = a.id
  JOIN billing_ledgerentry AS e ON e.id = l.entry_id AND e.kind IN ('reversal', 'reentry', 'adjustment', 'credit')
  LEFT JOIN billing_ledgerentry AS undone ON undone.id = e.reverses_id
 WHERE e.charge_day >= %(first)s AND e.charge_day < %(last)s
   AND coalesce(undone.kind, e.kind) NOT IN ('idle', 'platform') GROUP BY 1, 2, 3, 5
"""
"""What budgets count too. A credit is posted, but expected of no later day."""
HOLDS = """
SELECT own.key, h.money_an_hour, h.currency, h.gpus, (h.starts_at AT TIME ZONE 'UTC')::date, greatest(h.starts_at, metered.until),
       h.starts_at + make_interval(secs => h.seconds)
  FROM unnest(%(tenants)s::uuid[], %(keys)s::text[]) AS own(tenant_id, key)
  JOIN billing_budgethold AS h ON h.tenant_id = own.tenant_id AND h.state = 'pending'
 CROSS JOIN LATERAL (SELECT max(m.metered_until) AS until FROM billing_meter AS m WHERE m.run_id = h.holder_id) AS metered
 ORDER BY h.holder_id
"""
"""What of each running run is not metered yet, up to its deadline."""
