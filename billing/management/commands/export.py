"""`manage.py export`: a month as files for finance tools, with their schemas and digests."""

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from billing.api.focus_files import file_name, kind_of, pieces, schema_of
from billing.api.journal import JOURNAL, journal_file, journal_pieces
from billing.api.period import period_of
from billing.engine.focus import VERSIONS
from billing.engine.focus_datasets import datasets_of
from billing.operations.exports import note_export
from billing.queries.focus_ledger import accounts_in
from billing.queries.journal import journal_of
from foundation.clock import database_now
from foundation.commands import GatewayCommand
from foundation.files import write_pieces, write_whole
from foundation.problems import Problem
from tenancy.queries import SYSTEM


class Command(GatewayCommand):
    help = (
        "Writes a month as FOCUS: one CSV file for each dataset, the schema metadata of each, and SHA256SUMS. "
        "Files of the same month replace earlier ones."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--month", required=True, help="YYYY-MM, UTC")
        parser.add_argument("--into", required=True, metavar="DIR", type=Path, help="an existing folder")
        parser.add_argument("--tenant", default="", metavar="PATH", help="only this tenant and all below it")
        parser.add_argument("--journal", action="store_true", help="also the journal of each organisation")
        parser.add_argument("--focus", choices=VERSIONS, default=VERSIONS[0], help="the version (default 1.4)")

    def handle(
        self, *args: Any, month: str, into: Path, tenant: str, focus: Any, journal: bool, **options: Any
    ) -> None:
        try:
            start, until = period_of({"month": month}, database_now())
            sums = []
            for dataset in datasets_of(focus):
                name = file_name(dataset, focus, tenant, start.date())
                digest = sha256()
                found = _digested(pieces(SYSTEM, dataset, focus, tenant, start.date()), digest)
                note_export(SYSTEM, kind_of(dataset, focus), tenant, start, until)
                write_pieces(into / name, found)
                columns = json.dumps(schema_of(SYSTEM, dataset, focus, tenant, start.date()), indent=1)
                write_whole(into / f"{name}.schema.json", f"{columns}\n".encode())
                sums.append(f"{digest.hexdigest()}  {name}\n")
                self.stdout.write(name)
            for account in accounts_in(SYSTEM, tenant, start.date()) if journal else ():
                books = journal_of(SYSTEM, account.organisation.path, start.date())
                note_export(SYSTEM, JOURNAL, account.organisation.path, start, until)
                digest = sha256()
                write_pieces(into / journal_file(books), _digested(journal_pieces(books), digest))
                sums.append(f"{digest.hexdigest()}  {journal_file(books)}\n")
                self.stdout.write(journal_file(books))
            write_whole(into / "SHA256SUMS", "".join(sums).encode())
        except Problem as problem:
            raise CommandError("; ".join([problem.detail, *(error.detail for error in problem.errors)])) from problem
        except OSError as error:
            raise CommandError(f"{into}: {error.strerror or error}") from error


def _digested(found: Iterator[bytes], digest: Any) -> Iterator[bytes]:
    for piece in found:
        digest.update(piece)
        yield piece
