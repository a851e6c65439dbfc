"""Celery's entry points. A message only says "work now": tasks have no arguments, find the rows themselves, and may run
twice.
"""

from celery import shared_task

from foundation.routines import run_exclusively, run_in_turns

from .operations import anomalies, deliveries, forecasts, periods


@shared_task(queue="bill")
def post_ledger() -> None:
    """Posts the cost of ended days to the ledger and closes months, together with other workers."""
    run_in_turns("post", periods.keep_ledger)


@shared_task(queue="notify")
def foresee_budgets() -> None:
    """Records which thresholds of budgets are expected to be reached."""
    run_exclusively("foresee", forecasts.foresee_budgets)


@shared_task(queue="notify")
def inspect_spending() -> None:
    """Finds days on which a team spent unusually much."""
    run_exclusively("inspect", anomalies.inspect_spending)


@shared_task(queue="notify")
def deliver_alerts() -> None:
    """Posts alerts to the hooks of tenants, together with other workers."""
    run_in_turns("alert", deliveries.deliver_alerts)
