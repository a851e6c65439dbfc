"""The months of the ledger as the pages show them, as frozen values."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

from django.db.models import Sum

from billing.models import LedgerLine, LedgerPeriod, PeriodReopening
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, permissions_at

from .invoices import CHARGED
from .periods import Item, checklist, period_by_id, visible_periods

MOST_PERIODS = 120
TITLES = {
    "month_ended": "The month has ended",
    "earlier_periods": "Earlier months are closed",
    "fully_metered": "All its runs are metered",
    "posted": "The ledger has counted all its days",
    "split": "Every hour of its commitments is used or unused",
    "priced": "All its time has a price",
    "converted": "All its charges are in the billing currency",
    "no_conflicts": "No conflict of postings is open",
    "no_disputes": "No dispute of a document is open",
    "no_negative_idle": "No pool has negative idle that is not accepted",
    "reconciled": "Invoices of providers agree with the ledger",
    "proven": "The proof of the ledger finds no error",
}
"""By the names of a checklist's items."""


@dataclass(frozen=True, slots=True)
class PeriodRow:
    """A month of an organisation. `amounts` are what its tenants owe by its entries, by currency."""

    id: UUID
    organisation: str
    month: date
    state: str
    amounts: tuple[tuple[Decimal, str], ...]
    closed_by: str
    closed_at: datetime | None
    checksum: str
    revision: int


@dataclass(frozen=True, slots=True)
class PeriodDetail:
    """A month with what is missing before it can close, and the request to reopen it."""

    row: PeriodRow
    items: tuple[tuple[str, Item], ...]
    reopening: PeriodReopening | None
    may_close: bool
    may_approve: bool

    @property
    def lacks_only_prices(self) -> bool:
        """Whether it could close if time without a price is accepted."""
        return [item.name for _, item in self.items if item.keeps_open] == ["priced"]

    @property
    def is_ready(self) -> bool:
        """Whether its checklist is fulfilled."""
        return not any(item.keeps_open for _, item in self.items)


def period_rows(actor: Actor) -> tuple[PeriodRow, ...]:
    """The latest months of the organisations that the actor may see as a whole."""
    periods = list(visible_periods(actor).order_by("-month", "organisation__path")[:MOST_PERIODS])
    return _rows(periods)


def period_detail(actor: Actor, period_id: UUID) -> PeriodDetail:
    """One month. Raises NotFound."""
    period = period_by_id(actor, period_id)
    is_closed = period.state == LedgerPeriod.State.CLOSED
    items = () if is_closed else checklist(period)
    waiting = PeriodReopening.objects.filter(period=period, revision=period.revision, approved_at=None).first()
    may_close = Permission.CLOSE_PERIOD in permissions_at(actor, period.organisation)
    return PeriodDetail(
        row=_rows([period])[0],
        items=tuple((TITLES[item.name], item) for item in items),
        reopening=waiting if is_closed else None,
        may_close=may_close,
        may_approve=may_close and waiting is not None and waiting.requested_by_id != actor.user_id,
    )


def _rows(periods: list[LedgerPeriod]) -> tuple[PeriodRow, ...]:
    amounts: dict[UUID, list[tuple[Decimal, str]]] = defaultdict(list)
    expenses = LedgerLine.objects.filter(entry__period__in=periods, account__kind__in=CHARGED).values_list(
        "entry__period_id", "currency"
    )
    for period_id, currency, amount in expenses.annotate(amount=Sum("amount")).order_by("currency"):
        amounts[period_id].append((amount, currency))
    return tuple(
        PeriodRow(
            id=one.id,
            organisation=one.organisation.path,
            month=one.month,
            state=one.state,
            amounts=tuple([each for each in amounts[one.id] if each[0]] or amounts[one.id]),
            closed_by=one.closing_by_name,
            closed_at=one.closed_at,
            checksum=one.checksum,
            revision=one.revision,
        )
        for one in periods
    )
