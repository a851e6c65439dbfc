"""Rates of exchange, the currencies that organisations are billed in, and what is not converted yet."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet

from billing.engine.conversion import CONVERSION, Rate
from billing.engine.ledger import Entry, ShareOf
from billing.engine.months import next_month
from billing.models import BillingCurrency, ConversionDay, ExchangeRate, LedgerEntry
from foundation.problems import NotFound
from tenancy.queries import Actor, visible_tenants

from .charges import entry_of

MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Convertible:
    """A posted entry whose charges are converted: whether its period is closed, the conversion that counts and the month of that
    one's period, and how many conversions it has had.
    """

    row: LedgerEntry
    entry: Entry
    is_closed: bool
    standing: Entry | None
    standing_month: date | None
    is_standing_closed: bool
    count: int


def billing_currency_of(organisation_id: UUID, month: date) -> str:
    """The currency of an organisation's documents of a month; empty: those of the prices."""
    rows = BillingCurrency.objects.filter(organisation=organisation_id, effective_from__lte=month)
    return rows.order_by("-effective_from", "-id").values_list("currency", flat=True).first() or ""


def has_billing_currency(organisation_id: UUID) -> bool:
    """Whether an organisation has, or had, one in any month."""
    return BillingCurrency.objects.filter(organisation=organisation_id).exists()


def exchange_rate(organisation_id: UUID, base: str, quote: str, day: date) -> Rate | None:
    """What one unit of `base` is worth in `quote` on a day, for an organisation; None if no rate is known."""
    with connection.cursor() as cursor:
        cursor.execute(RATE, [organisation_id, base, quote, day])
        found = cursor.fetchone()
    return None if found is None else Rate(*found)


def convertible(row: LedgerEntry) -> Convertible:
    """A posted entry, with its conversions."""
    conversions = LedgerEntry.objects.filter(converts=row).select_related(
        "period", "reverses", "converts", "reversed_by"
    )
    found = list(conversions.prefetch_related("lines__account").order_by("id"))
    standing = next((one for one in found if not hasattr(one, "reversed_by")), None)
    place = ShareOf(row.cluster_id, row.flavor, row.tenant_path, row.tenant_id)
    return Convertible(
        row, entry_of(row, place), row.period.state == "closed",
        None if standing is None else entry_of(standing, place),
        None if standing is None else standing.period.month,
        standing is not None and standing.period.state == "closed",
        len(found),
    )  # fmt: skip


def charges_of_day(organisation_id: UUID, day: date) -> list[LedgerEntry]:
    """The entries of a day that charge tenants, without conversions, in the order of posting."""
    rows = LedgerEntry.objects.filter(organisation=organisation_id, charge_day=day).exclude(kind=CONVERSION)
    rows = rows.exclude(reverses__kind=CONVERSION).filter(lines__account__kind="tenant_expense").distinct()
    return list(rows.select_related("period", "reverses", "converts").prefetch_related("lines__account").order_by("id"))


def unconverted(period_id: UUID, organisation_id: UUID, month: date) -> list[str]:
    """What of a period is not converted: sentences that say which rate is missing, or that conversions are being made."""
    currency = billing_currency_of(organisation_id, month)
    if not currency:
        return []
    with connection.cursor() as cursor:
        cursor.execute(UNCONVERTED, [period_id])
        missing = cursor.fetchall()
    found = [
        f"{base} to {currency} on {day}"
        for base, day in missing
        if exchange_rate(organisation_id, base, currency, day) is None
    ]
    if found:
        return [no_rate_for(found)]
    waiting = ConversionDay.objects.filter(organisation=organisation_id, day__lt=next_month(month)).count()
    return [f"Days whose charges are not converted yet: {waiting or len(missing)}."] if waiting or missing else []


def no_rate_for(found: Sequence[str]) -> str:
    """Says that these rates, such as `USD to EUR on 2026-10-31`, are missing."""
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    named = ", ".join(found[:MOST_NAMED])
    return f"No exchange rate for {named}{more}: import reference rates of that week, or set a rate for these days."


def visible_rates(actor: Actor) -> QuerySet[ExchangeRate]:
    """The rates of the organisations that the actor sees as a whole, and those for all."""
    own = Q(organisation__isnull=True) | Q(organisation__in=visible_tenants(actor))
    return ExchangeRate.objects.filter(own).select_related("organisation")


def visible_billing_currencies(actor: Actor) -> QuerySet[BillingCurrency]:
    """The billing currencies of the organisations that the actor sees as a whole."""
    return BillingCurrency.objects.filter(organisation__in=visible_tenants(actor)).select_related("organisation")


def rate_by_id(actor: Actor, rate_id: int) -> ExchangeRate:
    """The rate. NotFound if the actor may not see it."""
    found = visible_rates(actor).filter(id=rate_id).first()
    if found is None:
        raise NotFound
    return found


RATE = "SELECT rate, rate_day, source FROM billing_exchange_rate(%s, %s, %s, %s)"
UNCONVERTED = "SELECT currency, day FROM billing_unconverted(%s) ORDER BY day, currency"
