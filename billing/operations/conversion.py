"""Converts what the ledger charges into the currency that an organisation is billed in, and again when a rate is corrected.

The caller holds the price book, which rates of exchange wait for.
"""

from django.db import IntegrityError, transaction

from billing import locks
from billing.engine.conversion import EXPENSE, conversion_of, foreign_currencies
from billing.engine.ledger import Entry, reversal_of
from billing.models import ConversionDay, LedgerEntry
from billing.queries.exchange import (
    Convertible,
    billing_currency_of,
    charges_of_day,
    convertible,
    exchange_rate,
    has_billing_currency,
)
from foundation.transactions import retried
from foundation.turns import Turn, endless_turn

from .entries import period_for, write
from .failures import done_in_turn

UNPOSTED = "ledger_is_what_segments_cost"
"""What the database says of charges of a day that must be posted again first: a price was corrected since, or use was reported."""


def convert_new(entry: Entry) -> None:
    """Converts an entry that was just posted. Without a rate it remains as it is, and its day waits for one."""
    if not any(line.account.startswith(EXPENSE) for line in entry.lines) or not has_billing_currency(
        entry.organisation_id
    ):
        return
    month = period_for(entry.organisation_id, entry.charge_day)[1]
    currency = billing_currency_of(entry.organisation_id, month)
    if not currency or not foreign_currencies(entry, currency):
        return
    row = LedgerEntry.objects.select_related("period", "reverses").prefetch_related("lines__account").get(key=entry.key)
    if not _convert(convertible(row)):
        _mark(ConversionDay(organisation_id=entry.organisation_id, day=entry.charge_day))


def _mark(day: ConversionDay) -> None:
    """The day waits. A mark writes the row even if it is there, so it waits for a worker that converts the day now: that one may
    not see the entry that the mark is for, and removes the row.
    """
    ConversionDay.objects.bulk_create(
        [day], update_conflicts=True, unique_fields=["organisation", "day"], update_fields=["day"]
    )


def convert_days(turn: Turn | None = None) -> int:
    """Converts the days that wait for it; the number of those that are done. Another worker may have a day, and a day without
    a rate remains. A day that fails keeps no other from being converted; its error is raised at the end.
    """
    waiting = ConversionDay.objects.order_by("day", "id").values_list("id", "organisation_id")
    rows = ((id_, f"the charges of {whose} in the row {id_} were not converted") for id_, whose in waiting)
    return done_in_turn(turn or endless_turn(), rows, convert_day)


@retried
def convert_day(id_: int) -> bool:
    """Whether all charges of a waiting day are converted now, at the rates that count. False if another worker has it, or if the
    day must be posted first: it waits for that.
    """
    try:
        with transaction.atomic():
            return _convert_charges(id_)
    except IntegrityError as error:
        if getattr(getattr(error.__cause__, "diag", None), "constraint_name", "") == UNPOSTED:
            return False
        raise


def _convert_charges(id_: int) -> bool:
    """Converts those of a day in the caller's transaction."""
    locks.read_price_book()
    row = locks.claim_conversion_day(id_)
    if row is None:
        return False
    converted = [_convert(convertible(one)) for one in charges_of_day(row.organisation_id, row.day)]
    if all(converted):
        row.delete()
    return all(converted)


def _convert(of: Convertible) -> bool:
    """Whether nothing is left to do. What a closed month did not convert, or converted into another currency, remains."""
    if of.is_closed and of.standing is None:
        return True
    organisation_id = of.row.organisation_id
    month = period_for(organisation_id, of.row.charge_day)[1]
    currency = billing_currency_of(organisation_id, month)
    before = of.standing_month and billing_currency_of(organisation_id, of.standing_month)
    if not currency or (of.is_standing_closed and before != currency):
        return True
    rates = {}
    for foreign in sorted(foreign_currencies(of.entry, currency)):
        rate = exchange_rate(organisation_id, foreign, currency, of.row.charge_day)
        if rate is None:
            return False
        rates[foreign] = rate
    if rates:
        _post(of, conversion_of(of.entry, currency, rates, of.count + 1))
    return True


def _post(of: Convertible, wanted: Entry) -> None:
    if of.standing is not None:
        if sorted(of.standing.lines, key=lambda line: line.order) == sorted(wanted.lines, key=lambda line: line.order):
            return
        write(reversal_of(of.standing))
    write(wanted)
