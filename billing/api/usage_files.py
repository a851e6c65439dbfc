"""A month's charges as CSV, XLSX and Parquet: written a piece at a time, so that their size does not matter."""

import csv
import io
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from typing import IO, Any

import xlsxwriter

from billing.engine.usage_file import COLUMNS, PLACES, Value, text

from .spreadsheet import inert

Rows = Iterable[Sequence[Value]]
About = Mapping[str, str]
"""What a file is of: filters, period, when it was made."""
SHEET_ROWS = 1_000_000
"""Of a sheet with data; a spreadsheet has at most 1,048,576."""
GROUP_ROWS = 20_000
"""Of a row group of Parquet, which is held in memory."""
PIECE = 64 * 1024
MONEY_DIGITS = 38
MEDIA = {
    "csv": "text/csv; charset=utf-8",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "parquet": "application/vnd.apache.parquet",
}


def has_parquet() -> bool:
    """Whether the extra `parquet` is installed."""
    return find_spec("pyarrow") is not None


def csv_pieces(rows: Rows, about: About) -> Iterator[bytes]:
    """The file in pieces, sent while it is read. CSV has no place for `about`: its name and columns say it."""
    del about
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(COLUMNS)
    for some in _some(rows, 500):
        writer.writerows(
            [_cell(kind, value) for kind, value in zip(COLUMNS.values(), row, strict=True)] for row in some
        )
        yield buffer.getvalue().encode()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue().encode()


def xlsx_pieces(rows: Rows, about: About) -> Iterator[bytes]:
    """A workbook: what it is of, then as many sheets as the rows need. Money is a number for sums, and exact as text."""

    def write(file: IO[bytes]) -> None:
        options = {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
        with xlsxwriter.Workbook(file, options) as book:
            first = book.add_worksheet("About")
            for number, (label, said) in enumerate(about.items()):
                first.write_string(number, 0, label)
                first.write_string(number, 1, said)
            header = [*COLUMNS, "cost_exact"]
            for number, some in enumerate(_sheets(rows)):
                sheet = book.add_worksheet(f"Usage {number + 1}" if number else "Usage")
                for column, name in enumerate(header):
                    sheet.write_string(0, column, name)
                for at, row in enumerate(some, 1):
                    for column, (name, value) in enumerate(zip(COLUMNS, row, strict=True)):
                        _write(sheet, at, column, value)
                        if name == "cost":
                            sheet.write_string(at, len(COLUMNS), text(value))

    return _from_a_file(write)


def parquet_pieces(rows: Rows, about: About) -> Iterator[bytes]:
    """Money as decimal128(38, 12), integers exact; `about` is in the schema's metadata."""
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    types = {
        "text": arrow.string(),
        "integer": arrow.decimal128(MONEY_DIGITS, 0),
        "money": arrow.decimal128(MONEY_DIGITS, PLACES),
    }
    schema = arrow.schema([(name, types[kind]) for name, kind in COLUMNS.items()], metadata=dict(about))

    def write(file: IO[bytes]) -> None:
        with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
            for some in _some(rows, GROUP_ROWS):
                columns = [
                    arrow.array([_decimal(value) for value in column], type=field.type)
                    for column, field in zip(zip(*some, strict=True), schema, strict=True)
                ]
                writer.write_table(arrow.Table.from_arrays(columns, schema=schema))

    return _from_a_file(write)


def _decimal(value: Value) -> Value:
    if isinstance(value, Decimal):
        return value.quantize(Decimal(1).scaleb(-PLACES))
    return Decimal(value) if isinstance(value, int) else value


def _cell(kind: str, value: Value) -> str:
    return inert(text(value)) if kind == "text" else text(value)


def _write(sheet: Any, at: int, column: int, value: Value) -> None:
    if isinstance(value, str):
        sheet.write_string(at, column, value)
    elif value is not None:
        sheet.write_number(at, column, value)


def _some(rows: Rows, most: int) -> Iterator[list[Sequence[Value]]]:
    left = iter(rows)
    while some := list(islice(left, most)):
        yield some


def _sheets(rows: Rows) -> Iterator[Iterator[Sequence[Value]]]:
    """Rows by sheet, one sheet at least. Each must be read before the next."""
    left = iter(rows)
    yield islice(left, SHEET_ROWS)
    for row in left:
        yield _begun(row, islice(left, SHEET_ROWS - 1))


def _begun(row: Sequence[Value], others: Iterator[Sequence[Value]]) -> Iterator[Sequence[Value]]:
    yield row
    yield from others


def _from_a_file(write: Callable[[IO[bytes]], None]) -> Iterator[bytes]:
    """What `write` wrote into a temporary file, which is never in memory as a whole."""
    with tempfile.TemporaryFile(prefix="switchyard-export-") as file:
        write(file)
        file.seek(0)
        while piece := file.read(PIECE):
            yield piece


PIECES: Mapping[str, Callable[[Rows, About], Iterator[bytes]]] = {
    "csv": csv_pieces,
    "xlsx": xlsx_pieces,
    "parquet": parquet_pieces,
}
