"""What the pages of budgets show, as frozen values."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db.models import QuerySet

from billing.engine.budgets import expectation_message, period_name
from billing.models import Budget, BudgetAlert, BudgetForecastAlert, BudgetOverride
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.queries import Actor, visible_tenants

from .budget_exchange import ForeignCharge, foreign_charges, total_difference
from .budgets import (
    PeriodState,
    alerts_of,
    expectation_of,
    forecast_alerts_of,
    overrides_of,
    states_at,
    visible_budgets,
)


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """A budget with its figures in its current period. `unit` is its currency, or `GPU-hours`."""

    id: UUID
    tenant_id: UUID
    tenant: str
    path: str
    unit: str
    period: str
    ends_at: datetime
    amount: Decimal
    granted: Decimal
    limit: Decimal
    spent: Decimal
    held: Decimal
    left: Decimal
    state: str
    stops_admission: bool
    notify_at: tuple[int, ...]
    alerts: tuple[BudgetAlert, ...]
    notify_forecast_at: tuple[int, ...]
    forecast_alerts: tuple[tuple[BudgetForecastAlert, str], ...]
    may_edit: bool
    foreign: tuple[ForeignCharge, ...] = ()
    difference: Decimal | None = None
    """Of the rates that count now to those that the budget kept; None without other currencies."""


@dataclass(frozen=True, slots=True)
class OverrideRow:
    """An override of a budget. `state` is `pending`, `active` or `expired`."""

    id: UUID
    amount: Decimal
    reason: str
    expires_at: datetime
    requested_by: str
    approved_by: str
    state: str
    may_approve: bool


def budget_rows(actor: Actor, among: QuerySet[Tenant], at: datetime) -> tuple[BudgetRow, ...]:
    """The budgets of the tenants in `among`, in the order of the tree."""
    budgets = list(visible_budgets(actor).filter(tenant__in=among))
    ordered = sorted(budgets, key=lambda one: (one.tenant.path.split("/"), one.measure, one.period, str(one.id)))
    return _rows(actor, ordered, at)


def budget_row(actor: Actor, budget: Budget, at: datetime) -> BudgetRow:
    """One budget."""
    charges = foreign_charges(states_at([budget], at).values()).get(budget.id, ())
    return replace(_rows(actor, [budget], at)[0], foreign=charges, difference=total_difference(charges))


def override_rows(actor: Actor, budget: Budget, at: datetime) -> tuple[OverrideRow, ...]:
    """The overrides of a budget, the newest first."""
    may_edit = budget.tenant.path in editable_budgets(actor)
    return tuple(_override(one, actor, at, may_edit=may_edit) for one in overrides_of(budget)[:100])


def editable_budgets(actor: Actor) -> tuple[str, ...]:
    """Paths of tenants whose budgets the actor may set: one level below where they manage prices, and organisations."""
    managed = set(visible_tenants(actor, Permission.MANAGE_PRICES).values_list("path", flat=True))
    return tuple(sorted(path for path in managed if "/" not in path or path.rpartition("/")[0] in managed))


def _rows(actor: Actor, budgets: Sequence[Budget], at: datetime) -> tuple[BudgetRow, ...]:
    states = states_at(budgets, at)
    periods = [(id_, state.span[0]) for id_, state in states.items()]
    alerts, expected = alerts_of(periods), forecast_alerts_of(periods)
    editable = set(editable_budgets(actor))
    return tuple(
        _row(
            budget,
            states[budget.id],
            alerts.get(budget.id, []),
            expected.get(budget.id, []),
            may_edit=budget.tenant.path in editable,
        )
        for budget in budgets
    )


def _row(
    budget: Budget,
    state: PeriodState,
    alerts: Sequence[BudgetAlert],
    expected: Sequence[BudgetForecastAlert],
    *,
    may_edit: bool,
) -> BudgetRow:
    return BudgetRow(
        id=budget.id,
        tenant_id=budget.tenant_id,
        tenant=budget.tenant.name,
        path=budget.tenant.path,
        unit=budget.currency or "GPU-hours",
        period=period_name(state.terms, state.span),
        ends_at=state.span[1],
        amount=state.amount,
        granted=state.granted,
        limit=state.limit,
        spent=state.spent,
        held=state.held,
        left=state.left,
        state=state.state,
        stops_admission=budget.stops_admission,
        notify_at=tuple(budget.notify_at),
        alerts=tuple(alerts),
        notify_forecast_at=tuple(budget.notify_forecast_at),
        forecast_alerts=tuple(
            (one, expectation_message(state.terms, state.span, expectation_of(one))) for one in expected
        ),
        may_edit=may_edit,
    )


def _override(one: BudgetOverride, actor: Actor, at: datetime, *, may_edit: bool) -> OverrideRow:
    is_expired = one.expires_at <= at
    is_open = one.approved_at is None and not is_expired
    return OverrideRow(
        id=one.id,
        amount=one.amount,
        reason=one.reason,
        expires_at=one.expires_at,
        requested_by=one.requester_name,
        approved_by=one.approver_name,
        state="expired" if is_expired else "pending" if is_open else "active",
        may_approve=is_open and may_edit and one.requested_by != actor.user_id,
    )
