"""Read-only queries on budgets: what is spent, held and left in a period, and what a cycle must know of them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from uuid import UUID

from django.db.models import Max, Q, QuerySet, Sum
from django.db.models.functions import Now

from billing.engine.budgets import (
    BudgetRefusal,
    Commitment,
    Expectation,
    Measure,
    Span,
    Terms,
    in_currency,
    period_at,
    periods_between,
    shown,
    worst_case,
)
from billing.models import Budget, BudgetAlert, BudgetForecastAlert, BudgetHold, BudgetOverride, BudgetPeriod
from foundation.problems import NotFound
from quotas.engine.borrowing import path_prefixes
from tenancy.queries import Actor, tenant_by_path, visible_tenants

from .budget_rates import Pair, pair_of, rates_now

ZERO = Decimal(0)
SOON = Decimal("0.8")
"""From this part of its amount on, a budget is shown as nearly used."""


@dataclass(frozen=True, slots=True)
class PeriodState:
    """A budget in one of its periods. `limit` is the amount with what overrides add; `left` is never negative."""

    budget_id: UUID
    tenant_path: str
    terms: Terms
    span: Span
    amount: Decimal
    granted: Decimal
    spent: Decimal
    held: Decimal
    stops_admission: bool

    @property
    def limit(self) -> Decimal:
        """The most that may be spent and held."""
        return self.amount + self.granted

    @property
    def left(self) -> Decimal:
        """What new work may still use."""
        return max(ZERO, self.limit - self.spent - self.held)

    @property
    def state(self) -> str:
        """`over`, `used_up`, `nearly_used` or `open`."""
        used = self.spent + self.held
        if used > self.limit:
            return "over"
        if used == self.limit:
            return "used_up"
        return "nearly_used" if used >= SOON * self.limit else "open"


def terms_of(budget: Budget) -> Terms:
    """The row as the engine's value."""
    measure: Measure = "gpu_hours" if budget.measure == Budget.Measure.GPU_HOURS else "money"
    return Terms(measure, budget.currency, budget.period, budget.starts_at, budget.ends_at)


def commitment_of(hold: BudgetHold) -> Commitment:
    """The worst case that the hold was taken for."""
    return Commitment(hold.money_an_hour, hold.currency, hold.gpus, hold.starts_at, hold.seconds)


def standing_budgets() -> QuerySet[Budget]:
    """The budgets that are not removed, root first."""
    return Budget.objects.filter(removed_at__isnull=True).select_related("tenant").order_by("tenant__depth", "id")


def visible_budgets(actor: Actor, *, tenant_path: str = "") -> QuerySet[Budget]:
    """Budgets that the actor may see; with `tenant_path`, those of that tenant and its descendants. Raises NotFound."""
    budgets = Budget.objects.select_related("tenant").filter(removed_at__isnull=True)
    if not tenant_path:
        return budgets.filter(tenant__in=visible_tenants(actor))
    tenant = tenant_by_path(actor, tenant_path)
    return budgets.filter(Q(tenant__path=tenant.path) | Q(tenant__path__startswith=f"{tenant.path}/"))


def budget_by_id(actor: Actor, budget_id: UUID) -> Budget:
    """A budget that the actor may see; otherwise raises NotFound."""
    budget = visible_budgets(actor).filter(id=budget_id).first()
    if budget is None:
        raise NotFound
    return budget


def states_at(budgets: Iterable[Budget], at: datetime) -> dict[UUID, PeriodState]:
    """Each budget in the period that contains `at`; before or after its dates, in the one that it has."""
    spans = {}
    for budget in budgets:
        terms = terms_of(budget)
        span = period_at(terms, at)
        if span is None and terms.starts_at is not None and terms.ends_at is not None:
            span = terms.starts_at, terms.ends_at
        assert span is not None
        spans[budget.id] = (budget, span)
    found = _states(list(spans.values()))
    return {state.budget_id: state for state in found}


def states_between(budgets: Iterable[Budget], start: datetime, until: datetime) -> list[PeriodState]:
    """Each budget in each period that [start, until] touches."""
    return _states([(budget, span) for budget in budgets for span in periods_between(terms_of(budget), start, until)])


def _states(wanted: Sequence[tuple[Budget, Span]]) -> list[PeriodState]:
    if not wanted:
        return []
    rows = {
        (row.budget_id, row.starts_at): row
        for row in BudgetPeriod.objects.filter(budget_id__any_of=[budget.id for budget, _ in wanted])
    }
    granted = granted_now([row.id for row in rows.values()])
    return [_state(budget, span, rows.get((budget.id, span[0])), granted) for budget, span in wanted]


def _state(budget: Budget, span: Span, row: BudgetPeriod | None, granted: Mapping[int, Decimal]) -> PeriodState:
    return PeriodState(
        budget_id=budget.id,
        tenant_path=budget.tenant.path,
        terms=terms_of(budget),
        span=span,
        amount=budget.amount if row is None else row.amount,
        granted=ZERO if row is None else granted.get(row.id, ZERO),
        spent=ZERO if row is None else row.spent,
        held=ZERO if row is None else row.held,
        stops_admission=budget.stops_admission,
    )


def granted_now(period_ids: Collection[int]) -> dict[int, Decimal]:
    """What approved overrides that have not expired add to these periods."""
    if not period_ids:
        return {}
    rows = BudgetOverride.objects.filter(
        period_id__any_of=list(period_ids), approved_at__isnull=False, expires_at__gt=Now()
    )
    return dict(rows.order_by().values_list("period_id").annotate(Sum("amount")))


def stopping_states(start: datetime, until: datetime) -> list[PeriodState]:
    """The budgets that stop admission, in each period that [start, until] touches; root first."""
    return states_between(standing_budgets().filter(stops_admission=True), start, until)


def are_stopping_on(tenant_path: str) -> bool:
    """Whether a budget that stops admission applies to the tenant."""
    return standing_budgets().filter(stops_admission=True, tenant__path__any_of=path_prefixes(tenant_path)).exists()


def refusal_for_good(tenant_path: str, options: Sequence[Commitment]) -> BudgetRefusal | None:
    """None if one of the options fits every stopping budget on the path with nothing spent or held; otherwise why the
    first does not. Only a larger budget helps, not a new period.
    """
    budgets = [
        (budget, terms_of(budget))
        for budget in standing_budgets().filter(stops_admission=True, tenant__path__any_of=path_prefixes(tenant_path))
    ]
    pairs = {
        pair_of(budget.tenant.path, terms, option, option.starts_at) for budget, terms in budgets for option in options
    }
    rates = rates_now({pair for pair in pairs if pair is not None})
    refusals = [_too_small(budgets, option, rates) for option in options]
    return None if not refusals or None in refusals else refusals[0]


LONGEST = {"month": timedelta(days=31), "quarter": timedelta(days=92), "year": timedelta(days=366)}


def _too_small(
    budgets: Sequence[tuple[Budget, Terms]], asked: Commitment, rates: Mapping[Pair, Decimal]
) -> BudgetRefusal | None:
    """Why not; that a run could begin just before a period ends, and divide between two, does not count. Without a rate of exchange,
    it waits for one.
    """
    for budget, terms in budgets:
        pair = pair_of(budget.tenant.path, terms, asked, asked.starts_at)
        option = in_currency(asked, pair.quote, rates[pair]) if pair is not None and pair in rates else asked
        begins = max(option.starts_at, terms.starts_at or option.starts_at)
        longest = LONGEST.get(terms.period)
        span = option.starts_at, option.starts_at + longest if longest else max(begins, terms.ends_at or begins)
        needed = worst_case(terms, option._replace(starts_at=begins) if longest is None else option, span)
        if needed > budget.amount:
            told = f"needs up to {shown(needed, terms)}; the budget of {budget.tenant.path} is {shown(budget.amount, terms)}"
            return BudgetRefusal(budget.id, told)
    return None


def alerts_of(period: Collection[tuple[UUID, datetime]]) -> dict[UUID, list[BudgetAlert]]:
    """The alerts of these periods (budget, start), by budget, the lowest threshold first."""
    found: dict[UUID, list[BudgetAlert]] = defaultdict(list)
    wanted = set(period)
    rows = BudgetAlert.objects.select_related("period").filter(period__budget_id__any_of=[one for one, _ in wanted])
    for row in rows.order_by("percent"):
        if (row.period.budget_id, row.period.starts_at) in wanted:
            found[row.period.budget_id].append(row)
    return found


def forecast_alerts_of(period: Collection[tuple[UUID, datetime]]) -> dict[UUID, list[BudgetForecastAlert]]:
    """The alerts on what is expected of these periods (budget, start), by budget, the lowest threshold first."""
    found: dict[UUID, list[BudgetForecastAlert]] = defaultdict(list)
    wanted = set(period)
    rows = BudgetForecastAlert.objects.select_related("period").filter(
        period__budget_id__any_of=[one for one, _ in wanted]
    )
    for row in rows.order_by("percent"):
        if (row.period.budget_id, row.period.starts_at) in wanted:
            found[row.period.budget_id].append(row)
    return found


def expectation_of(alert: BudgetForecastAlert) -> Expectation:
    """The row as the engine's value."""
    return Expectation(alert.percent, alert.amount, alert.expected, alert.low, alert.high, alert.reached_on)


def highest_alerts() -> dict[tuple[str, str, str], int]:
    """The highest threshold that the current period of each budget has reached, by tenant, measure and kind of period."""
    return _highest(BudgetAlert.objects.all())


def highest_forecast_alerts() -> dict[tuple[str, str, str], int]:
    """The same of what is expected."""
    return _highest(BudgetForecastAlert.objects.all())


def _highest(alerts: "QuerySet[BudgetAlert] | QuerySet[BudgetForecastAlert]") -> dict[tuple[str, str, str], int]:
    current = alerts.filter(
        period__starts_at__lte=Now(), period__ends_at__gt=Now(), period__budget__removed_at__isnull=True
    )
    rows = current.order_by().values_list(
        "period__budget__tenant__path", "period__budget__measure", "period__budget__period"
    )
    found: dict[tuple[str, str, str], int] = {}
    for path, measure, period, percent in rows.annotate(Max("percent")):
        found[path, measure, period] = percent
    return found


def overrides_of(budget: Budget) -> QuerySet[BudgetOverride]:
    """The overrides of a budget, the newest first."""
    return (
        BudgetOverride.objects.filter(period__budget=budget).select_related("period").order_by("-requested_at", "-id")
    )
