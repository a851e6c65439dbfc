"""Budgets that stop admission, as a cycle sees them."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal
from uuid import UUID


@dataclass(frozen=True, slots=True)
class BudgetWindow:
    """A budget in one of its periods, [starts_at, ends_at). `limit` is the amount with what overrides add."""

    starts_at: datetime
    ends_at: datetime
    limit: Decimal
    spent: Decimal = Decimal(0)
    held: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class BudgetState:
    """A budget of money (in `currency`) or of GPU-hours, in each period that a queued job could run in."""

    id: UUID
    tenant_path: str
    measure: Literal["money", "gpu_hours"]
    currency: str
    period: str
    windows: tuple[BudgetWindow, ...]
    rates: tuple[tuple[str, Decimal], ...] = ()
    """What one unit of each other currency of the fleet's prices is worth in its own today, as far as known."""
