"""The datasets of FOCUS as CSV files, in pieces."""

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import date
from itertools import chain, islice

from billing.engine import focus, focus_commitments, focus_datasets, focus_exchange
from billing.engine.focus_datasets import Dataset
from billing.queries.focus_commitments import contracts_in
from billing.queries.focus_ledger import accounts_in, billed_in, documents_in, periods_in
from foundation.clock import database_now
from tenancy.queries import Actor

from .spreadsheet import inert

ROWS_AT_ONCE = 500
WRITTEN_AS_THEY_ARE = focus.DECIMALS | focus_exchange.DECIMALS | focus_datasets.NUMBERS | focus_datasets.OBJECTS


def pieces(actor: Actor, dataset: Dataset, version: focus.Version, tenant_path: str, month: date) -> Iterator[bytes]:
    """The file of a month. Raises NotFound for the tenant, and what its first rows raise, before the first piece is taken."""
    accounts = accounts_in(actor, tenant_path, month)
    in_two = any(account.pricing_differs for account in accounts)
    rows: Iterator[Mapping[str, str]] = iter(())
    if dataset == "cost-and-usage":
        charges = billed_in(accounts, tenant_path, month)
        rows = (row for charge in charges for row in focus.rows(charge, version, in_two=in_two))
    elif dataset == "billing-period":
        rows = (focus_datasets.period_row(period) for period in periods_in(accounts, month))
    elif dataset == "invoice-detail":
        rows = (row for one in documents_in(accounts, month) for row in focus_datasets.detail_rows(one))
    else:
        at = database_now()
        rows = (focus_commitments.contract_row(one, at) for one in contracts_in(accounts, month))
    return as_csv(chain(list(islice(rows, 1)), rows), focus_datasets.columns(dataset, version, in_two=in_two))


def schema_of(
    actor: Actor, dataset: Dataset, version: focus.Version, tenant_path: str, month: date
) -> dict[str, object]:
    """The metadata of that file. Raises NotFound for the tenant."""
    accounts = accounts_in(actor, tenant_path, month)
    return focus_datasets.schema(dataset, version, in_two=any(account.pricing_differs for account in accounts))


def kind_of(dataset: Dataset, version: focus.Version) -> str:
    """The name of the export in the audit trail and in file names."""
    return f"focus-{version}" if dataset == "cost-and-usage" else f"focus-{version}-{dataset}"


def file_name(dataset: Dataset, version: focus.Version, tenant_path: str, month: date) -> str:
    """The name of the file of a month."""
    return f"{kind_of(dataset, version)}-{tenant_path.replace('/', '-') or 'all'}-{month:%Y-%m}.csv"


def as_csv(
    rows: Iterable[Mapping[str, str]], columns: tuple[str, ...], texts: Collection[str] | None = None
) -> Iterator[bytes]:
    """A header and the rows. No text can be taken for a formula. `texts`: the columns of text; by default those that are not numbers
    in FOCUS.
    """
    texts = {*columns} - WRITTEN_AS_THEY_ARE if texts is None else texts
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    for number, row in enumerate(rows, start=1):
        writer.writerow([inert(row.get(name, "")) if name in texts else row.get(name, "") for name in columns])
        if not number % ROWS_AT_ONCE:
            yield _taken(text)
    yield _taken(text)


def _taken(text: io.StringIO) -> bytes:
    piece = text.getvalue().encode()
    text.seek(0)
    text.truncate()
    return piece
