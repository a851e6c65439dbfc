"""Imports reference rates, sets rates by hand, and sets the currency that an organisation is billed in."""

from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from django.db import transaction

from billing import locks
from billing.engine.currencies import CURRENCIES
from billing.engine.reference_rates import BASE, NotReferenceRates, ReferenceRate, read_reference_rates
from billing.models import BillingCurrency, ExchangeRate
from billing.queries.sharing import organisation_at
from foundation.clock import database_now
from foundation.outbox import announce
from foundation.problems import Conflict, Invalid
from foundation.rows import insert_rows
from foundation.transactions import retried
from tenancy.models import Tenant
from tenancy.operations import record_audit
from tenancy.queries import Actor

from .dated_policies import in_open_months, in_unconverted_months

AT_A_TIME = 5_000
MOST_DAYS = 366
"""Of a rate that is set by hand."""
Kind = ExchangeRate.Kind


@dataclass(frozen=True, slots=True)
class Imported:
    """How many rates of a file are new, correct another one, or were known."""

    added: int
    corrected: int
    known: int


@dataclass(frozen=True, slots=True)
class NewRate:
    """One unit of `base` is worth `rate` of `quote` in [valid_from, valid_until), for one organisation."""

    organisation: str
    base: str
    quote: str
    rate: Decimal
    valid_from: date
    valid_until: date
    reason: str


def set_billing_currency(actor: Actor, path: str, effective_from: date, currency: str) -> BillingCurrency:
    """The currency of an organisation's documents from a month on. The month's charges are converted soon.

    Raises NotFound, NotAllowedHere, Invalid (`unknown_currency`), Conflict (`month_is_closed`, `month_is_converted`).
    """
    organisation = organisation_at(actor, path, may_close=True)
    _known_currency("currency", currency)
    with in_unconverted_months(), in_open_months(), transaction.atomic():
        locks.rewrite_price_book()
        row = BillingCurrency.objects.create(
            organisation=organisation, effective_from=effective_from, currency=currency,
            made_by_id=actor.user_id, made_by_name=actor.name,
        )  # fmt: skip
        record_audit(
            actor, "billing_currency.set", object_kind="billing_currency", object_id=str(row.id), tenant_id=organisation.id,
            detail={"from": f"{effective_from:%Y-%m}", "currency": currency},
        )  # fmt: skip
        announce("post")
    row.refresh_from_db()
    return row


def set_exchange_rate(actor: Actor, wanted: NewRate) -> ExchangeRate:
    """The rate, which counts for its days before all reference rates. What was converted on these days is converted again.

    Raises NotFound, NotAllowedHere, Invalid (`unknown_currency`, `same_currency`, `out_of_range`, `empty_period`).
    """
    organisation = organisation_at(actor, wanted.organisation, may_close=True)
    _known_currency("base", wanted.base)
    _known_currency("quote", wanted.quote)
    if wanted.base == wanted.quote:
        raise Invalid.field("quote", "same_currency", "give two currencies")
    if not 0 < (wanted.valid_until - wanted.valid_from).days <= MOST_DAYS:
        raise Invalid.field("valid_until", "empty_period", f"a day after valid_from, at most {MOST_DAYS} days")
    if not 0 < wanted.rate < 10**12 or wanted.rate != round(wanted.rate, 12):
        raise Invalid.field("rate", "out_of_range", "above 0, with up to 12 decimals")
    with transaction.atomic():
        locks.rewrite_price_book()
        row = ExchangeRate.objects.create(
            organisation=organisation, kind=Kind.OVERRIDE, base=wanted.base, quote=wanted.quote, rate=wanted.rate,
            valid_from=wanted.valid_from, valid_until=wanted.valid_until, source="set by hand", reason=wanted.reason,
            made_by_id=actor.user_id, made_by_name=actor.name,
        )  # fmt: skip
        record_audit(
            actor, "exchange_rate.set", object_kind="exchange_rate", object_id=str(row.id), tenant_id=organisation.id,
            detail={
                "rate": f"1 {wanted.base} = {wanted.rate:f} {wanted.quote}", "from": f"{wanted.valid_from}",
                "until": f"{wanted.valid_until}", "reason": wanted.reason,
            },
        )  # fmt: skip
        announce("post")
    row.refresh_from_db()
    return row


@retried
def import_reference_rates(
    actor: Actor, path: str, text: str, source: str, *, since: date | None = None, corrects: bool = False
) -> Imported:
    """Imports a file in the format of the European Central Bank for one organisation; an empty path: for all, which only the
    platform itself may. A rate that is known is left as it is; another rate for the same day needs `corrects`.

    Raises NotFound, NotAllowedHere, Invalid (`bad_format`, `in_the_future`), Conflict `rate_differs`.
    """
    organisation = organisation_at(actor, path, may_close=True) if path or actor.user_id is not None else None
    try:
        rates = list(read_reference_rates(text, since))
    except NotReferenceRates as error:
        raise Invalid.field("rates", "bad_format", str(error)) from error
    if any(one.day > database_now().date() for one in rates):
        raise Invalid.field("rates", "in_the_future", "reference rates are of days that have begun")
    with transaction.atomic():
        locks.rewrite_price_book()
        known = _known(organisation, rates)
        new = [one for one in rates if one.rate != known.get((one.day, one.currency))]
        differing = [one for one in new if (one.day, one.currency) in known]
        if differing and not corrects:
            first = differing[0]
            was = known[first.day, first.currency].normalize()
            raise Conflict(
                f"{len(differing)} rates differ from those that count, such as {first.currency} on {first.day}: {first.rate}"
                f" and {was:f}. Say that the file corrects them.",
                code="rate_differs",
            )
        for start in range(0, len(new), AT_A_TIME):
            insert_rows([_row(actor, organisation, one, source) for one in new[start : start + AT_A_TIME]])
        found = Imported(len(new) - len(differing), len(differing), len(rates) - len(new))
        if new:
            _record_import(actor, organisation, found, source, rates)
            announce("post")
    return found


def _record_import(
    actor: Actor, organisation: Tenant | None, found: Imported, source: str, rates: list[ReferenceRate]
) -> None:
    days = [one.day for one in rates]
    record_audit(
        actor, "exchange_rates.import", object_kind="exchange_rate", object_id="",
        tenant_id=organisation.id if organisation else None,
        detail={
            "source": source, "added": found.added, "corrected": found.corrected, "known": found.known,
            "from": f"{min(days)}", "to": f"{max(days)}",
        },
    )  # fmt: skip


def _known(organisation: Tenant | None, rates: list[ReferenceRate]) -> dict[tuple[date, str], Decimal]:
    if not rates:
        return {}
    days = [one.day for one in rates]
    rows = ExchangeRate.objects.filter(
        kind=Kind.REFERENCE, organisation=organisation, valid_from__gte=min(days), valid_from__lte=max(days)
    )
    return {(day, quote): rate for day, quote, rate in rows.order_by("id").values_list("valid_from", "quote", "rate")}


def _row(actor: Actor, organisation: Tenant | None, one: ReferenceRate, source: str) -> ExchangeRate:
    return ExchangeRate(
        organisation=organisation, kind=Kind.REFERENCE, base=BASE, quote=one.currency, rate=one.rate, valid_from=one.day,
        source=source, made_by_id=actor.user_id, made_by_name=actor.name,
    )  # fmt: skip


def _known_currency(field: str, code: str) -> None:
    if code not in CURRENCIES:
        raise Invalid.field(field, "unknown_currency", f"{code[:10]!r} is no currency of ISO 4217 that is in use")
