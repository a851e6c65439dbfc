"""Reads what providers billed: CSV files with the columns `cluster,month,reference,amount,currency` and, if wanted, `note`."""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

from .currencies import CURRENCIES

COLUMNS = ("cluster", "month", "reference", "amount", "currency")
MOST_CHARACTERS = 2_000_000
MOST_ROWS = 10_000
CLUSTER_LENGTH, REFERENCE_LENGTH, NOTE_LENGTH = 63, 120, 500
YEARS = range(2000, 2200)
MONTH = re.compile(r"([0-9]{4})-(0[1-9]|1[0-2])")
AMOUNT = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,12})?")
Cells = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class BilledLine:
    """What a provider billed for a cluster, by name, in a month, under its own reference. A credit is negative."""

    cluster: str
    month: date
    reference: str
    amount: Decimal
    currency: str
    note: str = ""
    line: int = field(default=0, compare=False)
    """Of the file."""

    @property
    def key(self) -> tuple[str, date, str]:
        """A file has each once."""
        return self.cluster, self.month, self.reference


class NotProviderInvoices(ValueError):
    """The text is no such file. The argument says in which line and column, and what is wrong."""


def read_provider_invoices(text: str) -> tuple[BilledLine, ...]:
    """The lines of a file, in its order. Raises NotProviderInvoices."""
    if len(text) > MOST_CHARACTERS:
        raise NotProviderInvoices(f"a file has at most {MOST_CHARACTERS} characters")
    rows = _rows(text.removeprefix("\ufeff"))
    head = tuple(cell.strip() for cell in next(rows, (1, []))[1])
    if head not in {COLUMNS, (*COLUMNS, "note")}:
        raise NotProviderInvoices(f"line 1: the columns are {','.join(COLUMNS)} and, if wanted, note")
    found: dict[tuple[str, date, str], BilledLine] = {}
    for line, cells in rows:
        if not any(cells):
            continue
        if len(cells) != len(head):
            raise NotProviderInvoices(f"line {line}: it has {len(cells)} columns, not {len(head)}")
        try:
            row = _line(dict(zip(head, (cell.strip() for cell in cells), strict=True)), line)
        except NotProviderInvoices as error:
            raise NotProviderInvoices(f"line {line}, {error}") from None
        if row.key in found:
            raise NotProviderInvoices(
                f"line {line}, column reference: {row.reference[:40]!r} is there twice for this cluster and month"
            )
        found[row.key] = row
        if len(found) > MOST_ROWS:
            raise NotProviderInvoices(f"line {line}: a file has at most {MOST_ROWS} lines")
    if not found:
        raise NotProviderInvoices("line 2: the file has no lines")
    return tuple(found.values())


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise NotProviderInvoices(f"line {reader.line_num}: {error}") from error


def _line(cells: Cells, line: int) -> BilledLine:
    currency = cells["currency"]
    cluster = _text(cells, "cluster", CLUSTER_LENGTH)
    month = _month(cells["month"])
    reference = _text(cells, "reference", REFERENCE_LENGTH)
    amount = _amount(cells["amount"])
    if currency not in CURRENCIES:
        raise NotProviderInvoices(f"column currency: {currency[:20]!r} is no currency of ISO 4217 that is in use")
    note = _text(cells, "note", NOTE_LENGTH) if cells.get("note") else ""
    return BilledLine(cluster, month, reference, amount, currency, note, line)


def _text(cells: Cells, column: str, most: int) -> str:
    text = cells[column]
    if not text or len(text) > most or not text.isprintable():
        raise NotProviderInvoices(f"column {column}: give 1 to {most} printable characters")
    return text


def _month(text: str) -> date:
    match = MONTH.fullmatch(text)
    if match is None or int(match[1]) not in YEARS:
        raise NotProviderInvoices(f"column month: {text[:20]!r} is no month such as 2026-10")
    return date(int(match[1]), int(match[2]), 1)


def _amount(text: str) -> Decimal:
    if not AMOUNT.fullmatch(text) or not Decimal(text):
        raise NotProviderInvoices(
            f"column amount: {text[:40]!r} is no amount such as 1200.50, or -3.25 for a credit, with up to 12 decimals"
        )
    return Decimal(text)
