"""Which of two contents under one key remains: the posted one, or the one that was offered later."""

from datetime import date
from decimal import Decimal, InvalidOperation
from uuid import UUID

from .ledger import Entry, Line, reversal_of

HEAD_FIELDS = 11
"""Of an entry's canonical text."""


class NotReadable(ValueError):
    """The text is not the canonical text of an adjustment. Its argument says why."""


def replacement(conflict_id: UUID, posted: Entry, offered: str) -> tuple[Entry, Entry]:
    """The entries that put the offered content in the place of the posted one: a reversal, and the content under a new key.

    Only for adjustments, because the entries of a day of usage are what its segments cost. Raises NotReadable.
    """
    entry = adjustment_of(offered)
    if posted.kind != entry.kind or posted.key != entry.key or posted.organisation_id != entry.organisation_id:
        raise NotReadable("the two contents are not of one adjustment")
    resolved = Entry(
        f"resolved/{conflict_id}", entry.kind, entry.organisation_id, entry.charge_day, entry.lines, reason=entry.reason
    )
    return reversal_of(posted), resolved


def adjustment_of(text: str) -> Entry:
    """The adjustment with this canonical text. Raises NotReadable."""
    head, *rows = text.split("\n")
    fields = head.split("\t")
    if len(fields) != HEAD_FIELDS or fields[1] != "adjustment":
        raise NotReadable("the offered content is not an adjustment")
    key, kind, organisation, *_, day, _, _, reason = fields
    try:
        lines = tuple(Line(account, currency, Decimal(amount)) for account, currency, amount in map(_columns, rows))
        entry = Entry(key, kind, UUID(organisation), date.fromisoformat(day), lines, reason=reason)
        if entry.text == text:
            return entry
    except (ValueError, InvalidOperation):
        pass
    raise NotReadable("the offered content is not the canonical text of an entry")


def _columns(row: str) -> list[str]:
    return row.split("\t")
