"""Overrides of budgets: one user requests more for the current period, another one approves it."""

from datetime import datetime
from decimal import Decimal
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from billing import locks
from billing.engine.budgets import period_at
from billing.models import Budget, BudgetOverride, BudgetPeriod
from billing.models.budgets import MOST_AMOUNT
from billing.queries.budgets import budget_by_id, terms_of
from foundation.clock import database_now
from foundation.outbox import announce
from foundation.plain_json import instant
from foundation.problems import Conflict, Invalid, NotFound
from foundation.transactions import retried
from tenancy.engine.roles import Permission
from tenancy.operations import record_audit
from tenancy.queries import Actor, NotAllowedHere, permissions_at

from .budgets import require_from_above

LONGEST_REASON = 500
MAY_ASK = frozenset({Permission.MANAGE_PRICES, Permission.MANAGE_QUOTAS})


@retried
def request_override(
    actor: Actor, budget_id: UUID, *, amount: Decimal, reason: str, expires_at: datetime
) -> BudgetOverride:
    """A request of `amount` more in the current period, until `expires_at`; it changes nothing until it is approved.

    The actor must manage quotas or prices at the budget's tenant. Raises NotFound, NotAllowedHere, Invalid, Conflict
    `budget_not_in_force` outside the budget's dates.
    """
    budget = budget_by_id(actor, budget_id)
    if MAY_ASK.isdisjoint(permissions_at(actor, budget.tenant)):
        raise NotAllowedHere(budget.tenant, Permission.MANAGE_QUOTAS)
    now = database_now()
    if not 0 < amount <= MOST_AMOUNT:
        raise Invalid.field("amount", "out_of_range", f"more than 0, at most {MOST_AMOUNT}")
    if not reason.strip() or len(reason) > LONGEST_REASON or not reason.isprintable():
        raise Invalid.field("reason", "required", f"say why, in one line of at most {LONGEST_REASON} characters")
    if expires_at <= now:
        raise Invalid.field("expires_at", "in_the_past", "this time has passed")
    span = period_at(terms_of(budget), now)
    if span is None:
        raise Conflict("The dates of this budget have not begun or have passed.", code="budget_not_in_force")
    with transaction.atomic():
        locks.stop_spending_at(budget.tenant_id)
        if not Budget.objects.filter(id=budget.id, removed_at__isnull=True).exists():
            raise NotFound
        period, _ = BudgetPeriod.objects.get_or_create(
            budget=budget,
            starts_at=span[0],
            defaults={"ends_at": span[1], "amount": budget.amount, "cap": budget.amount},
        )
        override = BudgetOverride.objects.create(
            period=period,
            amount=amount,
            reason=reason.strip(),
            expires_at=min(expires_at, span[1]),
            requested_by=_user(actor),
            requester_name=actor.name,
        )
        _audit(actor, "budget.request_override", budget, override)
    return override


@retried
def approve_override(actor: Actor, budget_id: UUID, override_id: UUID) -> BudgetOverride:
    """The override, which adds to its period from now until it expires.

    The actor must be allowed to set the budget, and be another user than the requester. Raises NotFound, NotAllowedHere,
    Conflict `same_person`, `already_approved`, `override_expired`.
    """
    budget = budget_by_id(actor, budget_id)
    require_from_above(actor, budget.tenant)
    with transaction.atomic():
        locks.stop_spending_at(budget.tenant_id)
        override = BudgetOverride.objects.filter(id=override_id, period__budget=budget).first()
        if override is None:
            raise NotFound
        if override.requested_by == _user(actor):
            raise Conflict("Another user must approve what you requested.", code="same_person")
        if override.approved_at is not None:
            raise Conflict("This override is approved already.", code="already_approved")
        if override.expires_at <= database_now():
            raise Conflict("This override has expired. Request a new one.", code="override_expired")
        BudgetOverride.objects.filter(id=override.id).update(
            approved_by=actor.user_id, approver_name=actor.name, approved_at=Now()
        )
        # the trigger of the period adds what is granted now
        BudgetPeriod.objects.filter(id=override.period_id).update(amount=F("amount"))
        _audit(actor, "budget.approve_override", budget, override)
        announce("cycle")
    return BudgetOverride.objects.select_related("period").get(id=override.id)


def _user(actor: Actor) -> UUID:
    if actor.user_id is None:
        raise Conflict("Overrides are requested and approved by users.", code="needs_a_user")
    return actor.user_id


def _audit(actor: Actor, action: str, budget: Budget, override: BudgetOverride) -> None:
    record_audit(
        actor,
        action,
        object_kind="budget",
        object_id=budget.id,
        tenant_id=budget.tenant_id,
        detail={
            "override": str(override.id),
            "amount": format(override.amount.normalize(), "f"),
            "reason": override.reason,
            "expires_at": instant(override.expires_at),
        },
    )
