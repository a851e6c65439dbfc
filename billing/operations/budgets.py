"""Sets and removes budgets. A budget counts what its current period already used, and what runs."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from uuid import UUID

from django.db import connection, transaction
from django.db.models.functions import Now

from billing import locks
from billing.engine.budgets import Measure, Terms, in_currency, period_at, periods_between, worst_case
from billing.engine.currencies import CURRENCIES
from billing.models import Budget, BudgetMovement, BudgetPeriod
from billing.models.budgets import MOST_AMOUNT
from billing.queries.budget_rates import pair_of, unknown_rates
from billing.queries.budgets import budget_by_id, commitment_of, terms_of
from foundation.clock import database_now
from foundation.outbox import announce
from foundation.problems import FieldError, Invalid, NotFound
from foundation.transactions import retried
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.operations import record_audit
from tenancy.queries import Actor, NotAllowedHere, permissions_at, tenant_by_path

from .budget_rates import kept_rates

MOST_THRESHOLDS = 10
MOST_PERCENT = 1000
USUAL_THRESHOLDS = (50, 80, 100)
USUAL_FORECAST_THRESHOLDS = (100,)


@dataclass(frozen=True, slots=True)
class WantedBudget:
    """A budget to set. A budget of GPU-hours has no currency; one with `period` dates has `starts_at` and `ends_at`,
    midnights in UTC. `notify_forecast_at` None: as it is, and USUAL_FORECAST_THRESHOLDS of a new budget.
    """

    tenant_path: str
    measure: Measure
    amount: Decimal
    currency: str
    period: str
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    notify_at: tuple[int, ...] = USUAL_THRESHOLDS
    stops_admission: bool = False
    notify_forecast_at: tuple[int, ...] | None = None


@retried
def put_budget(actor: Actor, wanted: WantedBudget) -> tuple[Budget, bool]:
    """The budget after the change, and whether it is new.

    The actor must manage prices one level above the tenant (at an organisation itself). Running work continues if the
    amount is below what is spent and held. Raises NotFound, NotAllowedHere, Invalid.
    """
    tenant = tenant_by_path(actor, wanted.tenant_path)
    require_from_above(actor, tenant)
    _check(wanted)
    with transaction.atomic():
        locks.read_price_book()
        locks.stop_spending_at(tenant.id)
        budget = Budget.objects.filter(
            tenant=tenant,
            measure=wanted.measure,
            period=wanted.period,
            starts_at=wanted.starts_at,
            ends_at=wanted.ends_at,
            removed_at__isnull=True,
        ).first()
        was = None if budget is None else _text(budget)
        if budget is not None and budget.currency != wanted.currency:
            raise Invalid.field("amount", "mixed_currencies", f"this budget is in {budget.currency}: remove it first")
        if budget is None and wanted.measure == "money":
            _refuse_uncountable(tenant, wanted.currency, _counts_from(wanted))
        budget = _new_budget(tenant, wanted) if budget is None else _changed(budget, wanted)
        record_audit(
            actor,
            "budget.put",
            object_kind="budget",
            object_id=budget.id,
            tenant_id=tenant.id,
            detail={"budget": _text(budget), "was": was},
        )
        announce("cycle")
    return budget, was is None


@retried
def delete_budget(actor: Actor, budget_id: UUID) -> None:
    """Removes a budget, which no longer binds its tenant. The journal keeps what was counted."""
    found = budget_by_id(actor, budget_id)
    require_from_above(actor, found.tenant)
    with transaction.atomic():
        locks.stop_spending_at(found.tenant_id)
        if not Budget.objects.filter(id=budget_id, removed_at__isnull=True).update(removed_at=Now(), updated_at=Now()):
            raise NotFound
        record_audit(
            actor,
            "budget.delete",
            object_kind="budget",
            object_id=budget_id,
            tenant_id=found.tenant_id,
            detail={"was": _text(found)},
        )
        announce("cycle")


def require_from_above(actor: Actor, tenant: Tenant) -> None:
    """A budget binds its tenant, so it is set from above, as quotas are."""
    above = tenant.parent or tenant
    if Permission.MANAGE_PRICES not in permissions_at(actor, above):
        raise NotAllowedHere(above, Permission.MANAGE_PRICES)


def _check(wanted: WantedBudget) -> None:
    errors = []
    if not 0 <= wanted.amount <= MOST_AMOUNT:
        errors.append(FieldError("amount", "out_of_range", f"from 0 to {MOST_AMOUNT}"))
    if wanted.period not in Budget.Period.values:
        errors.append(FieldError("period", "unknown_period", f"one of {', '.join(Budget.Period.values)}"))
    for name, given in (("notify_at", wanted.notify_at), ("notify_forecast_at", wanted.notify_forecast_at or ())):
        if len(given) > MOST_THRESHOLDS or not all(1 <= one <= MOST_PERCENT for one in given):
            allowed = f"at most {MOST_THRESHOLDS} percentages from 1 to {MOST_PERCENT}"
            errors.append(FieldError(name, "out_of_range", allowed))
    errors += _faults_of_dates(wanted)
    if errors:
        raise Invalid(errors=errors)


def _faults_of_dates(wanted: WantedBudget) -> list[FieldError]:
    starts_at, ends_at = wanted.starts_at, wanted.ends_at
    if wanted.period != Budget.Period.DATES:
        given = starts_at is not None or ends_at is not None
        return [FieldError("starts_on", "not_for_this_period", "only with the period dates")] if given else []
    if starts_at is None or ends_at is None:
        return [FieldError("starts_on", "required", "give the first and the last day")]
    if starts_at >= ends_at:
        return [FieldError("ends_on", "empty_period", "the last day is before the first")]
    if ends_at <= database_now():
        return [FieldError("ends_on", "in_the_past", "these dates have passed")]
    return []


def _refuse_uncountable(tenant: Tenant, currency: str, counts_from: datetime) -> None:
    """A budget of money counts all prices of its organisation, at rates of exchange into its currency."""
    if currency not in CURRENCIES:
        raise Invalid.field("amount", "unknown_currency", f"{currency[:10]} is no currency of ISO 4217 in use")
    root, day = tenant.path.partition("/")[0], database_now().astimezone(UTC).date()
    if unknown := unknown_rates(root, currency, counts_from, day):
        detail = (
            f"no exchange rate from {' or '.join(unknown)} to {currency} counts on {day}: import reference rates, or set a"
            " rate on the page Currencies"
        )
        raise Invalid.field("amount", "no_exchange_rate", detail)


def _changed(budget: Budget, wanted: WantedBudget) -> Budget:
    """The current and later periods get the new amount; past ones keep theirs."""
    forecast_at = budget.notify_forecast_at if wanted.notify_forecast_at is None else wanted.notify_forecast_at
    Budget.objects.filter(id=budget.id).update(
        amount=wanted.amount,
        notify_at=sorted(set(wanted.notify_at)),
        notify_forecast_at=sorted(set(forecast_at)),
        stops_admission=wanted.stops_admission,
        updated_at=Now(),
    )
    BudgetPeriod.objects.filter(budget=budget, ends_at__gt=Now()).update(amount=wanted.amount)
    return Budget.objects.select_related("tenant").get(id=budget.id)


def _new_budget(tenant: Tenant, wanted: WantedBudget) -> Budget:
    budget = Budget(
        tenant=tenant,
        measure=wanted.measure,
        currency=wanted.currency,
        period=wanted.period,
        starts_at=wanted.starts_at,
        ends_at=wanted.ends_at,
        amount=wanted.amount,
        notify_at=sorted(set(wanted.notify_at)),
        notify_forecast_at=sorted(
            set(USUAL_FORECAST_THRESHOLDS if wanted.notify_forecast_at is None else wanted.notify_forecast_at)
        ),
        stops_admission=wanted.stops_admission,
    )
    terms, now = terms_of(budget), database_now().astimezone(UTC)
    span = period_at(terms, now)
    budget.counts_from = _counts_from(wanted)
    budget.save(force_insert=True)
    if span is not None:
        period = period_of(budget, span)
        with connection.cursor() as cursor:
            cursor.execute(KEEP_RATES, {"period": period.id})
            cursor.execute(OPEN_ENDED_RUNS, {"period": period.id})
            cursor.execute(OPEN_CORRECTIONS, {"budget": budget.id})
    _count_running(budget, now)
    return Budget.objects.select_related("tenant").get(id=budget.id)


def _counts_from(wanted: WantedBudget) -> datetime:
    now = database_now().astimezone(UTC)
    terms = Terms(wanted.measure, wanted.currency, wanted.period, wanted.starts_at, wanted.ends_at)
    span = period_at(terms, now)
    return span[0] if span is not None else wanted.starts_at or now


def period_of(budget: Budget, span: tuple[datetime, datetime]) -> BudgetPeriod:
    """The budget's row of this period, made if need be."""
    return BudgetPeriod.objects.get_or_create(
        budget=budget,
        starts_at=span[0],
        defaults={"ends_at": span[1], "amount": budget.amount, "cap": budget.amount},
    )[0]


OPEN_ENDED_RUNS = """
INSERT INTO billing_budgetmovement (run_id, period_id, kind, held, spent)
SELECT used.run_id, %(period)s, 'open', 0, used.spent FROM billing_budget_used(%(period)s) AS used
 WHERE used.spent > 0 AND NOT EXISTS (
       SELECT 1 FROM billing_budgethold AS h WHERE h.holder_id = used.run_id AND h.state = 'pending')
 ORDER BY used.run_id
"""
USED_BY_RUNNING = """
SELECT used.run_id, used.spent FROM billing_budget_used(%(period)s) AS used
  JOIN billing_budgethold AS h ON h.holder_id = used.run_id AND h.state = 'pending'
"""
KEEP_RATES = "SELECT billing_keep_rates_of_period(%(period)s)"
OPEN_CORRECTIONS = "SELECT billing_open_corrections(%(budget)s)"


def _count_running(budget: Budget, now: datetime) -> None:
    """What running work has spent in the current period, and the rest of its worst case in this and later ones."""
    terms, path = terms_of(budget), budget.tenant.path
    lines = []
    spent: dict[int, dict[UUID, Decimal]] = {}
    holds = [(hold, commitment_of(hold)) for hold in locks.lock_budget_holds_below(path)]
    pairs = {hold.holder_id: pair_of(path, terms, whole, hold.starts_at) for hold, whole in holds}
    rates = kept_rates({pair for pair in pairs.values() if pair is not None})
    for hold, whole in holds:
        pair = pairs[hold.holder_id]
        commitment = whole if pair is None else in_currency(whole, pair.quote, rates[pair])
        for span in periods_between(terms, now, max(now, commitment.ends_at)):
            period = period_of(budget, span)
            if period.id not in spent:
                spent[period.id] = _used_by_running(period)
            used = spent[period.id].get(hold.holder_id, Decimal(0))
            held = max(Decimal(0), worst_case(terms, commitment, span) - used)
            lines.append(
                BudgetMovement(
                    run_id=hold.holder_id, period=period, kind=BudgetMovement.Kind.OPEN, held=held, spent=used
                )
            )
    BudgetMovement.objects.bulk_create(lines)


def _used_by_running(period: BudgetPeriod) -> dict[UUID, Decimal]:
    with connection.cursor() as cursor:
        cursor.execute(USED_BY_RUNNING, {"period": period.id})
        return dict(cursor.fetchall())


def _text(budget: Budget) -> dict[str, object]:
    """A budget as the audit trail shows it."""
    return {
        "measure": budget.measure,
        "amount": format(budget.amount.normalize(), "f"),
        "currency": budget.currency,
        "period": budget.period,
        "starts_on": None if budget.starts_at is None else f"{budget.starts_at:%Y-%m-%d}",
        "notify_at": list(budget.notify_at),
        "notify_forecast_at": list(budget.notify_forecast_at),
        "stops_admission": budget.stops_admission,
    }
