"""Records which thresholds of budgets are expected to be reached. It only informs: admission never reads an alert."""

from datetime import date
from typing import Any

from django.db import IntegrityError, connection, transaction

from billing import locks
from billing.engine.forecast import Forecast
from billing.models import Budget
from billing.queries.budgets import PeriodState, standing_budgets
from billing.queries.forecasts import budget_forecast

from .budgets import period_of
from .failures import FirstFailure


def foresee_budgets() -> None:
    """Forecasts every budget with thresholds on its forecast, and records those that are expected to be reached. Errors of
    one budget keep no other from its alerts; the first one is raised at the end.
    """
    failure = FirstFailure()
    for budget in standing_budgets().filter(notify_forecast_at__len__gt=0):
        with failure.kept(f"the budget {budget.id} was not forecast"):
            foresee_budget(budget)
    failure.raise_it()


def foresee_budget(budget: Budget) -> int:
    """How many alerts were recorded. With too little history there are none: what runs until its deadline is no forecast."""
    found = budget_forecast(budget)
    outlook = found.outlook
    if outlook is None or not outlook.has_history:
        return 0
    days = _reached(budget, found.state, outlook)
    if not days:
        return 0
    try:
        with transaction.atomic():
            period = period_of(budget, found.state.span)
            locks.lock_budget_periods([period.id])
            with connection.cursor() as cursor:
                cursor.execute(RECORD, _values(period.id, found.state, outlook, days))
                return int(cursor.rowcount)
    except IntegrityError as error:
        if getattr(getattr(error.__cause__, "diag", None), "constraint_name", "") in CHANGED_MEANWHILE:
            return 0
        raise


def _reached(budget: Budget, state: PeriodState, outlook: Forecast) -> dict[int, date]:
    """The thresholds that are expected to be reached, with the day of each."""
    found = {}
    if outlook.parts.total > 0:
        for percent in budget.notify_forecast_at:
            day = outlook.reaches(state.amount * percent / 100)
            if day is not None:
                found[percent] = day
    return found


def _values(period_id: int, state: PeriodState, outlook: Forecast, days: dict[int, date]) -> dict[str, Any]:
    return {
        "period": period_id, "percents": list(days), "days": list(days.values()), "amount": state.amount,
        "spent": state.spent, "expected": outlook.parts.total, "low": outlook.low, "high": outlook.high,
    }  # fmt: skip


CHANGED_MEANWHILE = frozenset({"forecast_alert_is_of_a_threshold", "budget_period_begins_empty"})
"""The budget was changed or removed after it was read; the next run forecasts what it is then."""
RECORD = """
INSERT INTO billing_budgetforecastalert (period_id, percent, spent, amount, expected, low, high, reached_on)
SELECT p.id, reached.percent, %(spent)s, p.amount, %(expected)s, %(low)s, %(high)s, reached.day
  FROM billing_budgetperiod AS p, unnest(%(percents)s::smallint[], %(days)s::date[]) AS reached(percent, day)
 WHERE p.id = %(period)s AND p.amount = %(amount)s AND NOT EXISTS (
       SELECT 1 FROM billing_budgetalert AS a WHERE a.period_id = p.id AND a.percent = reached.percent)
 ORDER BY reached.percent ON CONFLICT (period_id, percent) DO NOTHING
"""
"""A threshold that was reached already needs no forecast."""
