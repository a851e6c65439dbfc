"""`manage.py import_exchange_rates`: reference rates of exchange from a file, for one organisation or for all."""

from argparse import ArgumentParser
from datetime import date
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from billing.operations.exchange import import_reference_rates
from foundation.commands import GatewayCommand
from foundation.problems import Problem
from tenancy.queries import SYSTEM


class Command(GatewayCommand):
    help = (
        "Imports reference rates of exchange from a CSV file in the format of the European Central Bank (eurofxref-hist.csv). "
        "Known rates are left; the same file again changes nothing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--organisation", default="", metavar="PATH", help="only for this one (default: for all)")
        parser.add_argument("--source", default="ECB", help="where the rates are from (default ECB)")
        parser.add_argument("--since", type=date.fromisoformat, metavar="YYYY-MM-DD", help="leave out earlier days")
        parser.add_argument("--corrects", action="store_true", help="other rates for the same days replace known ones")

    def handle(
        self, *args: Any, file: Path, organisation: str, source: str, since: date | None, corrects: bool, **options: Any
    ) -> None:
        try:
            text = file.read_text(encoding="utf-8")
            found = import_reference_rates(SYSTEM, organisation, text, source, since=since, corrects=corrects)
        except Problem as problem:
            raise CommandError("; ".join([problem.detail, *(error.detail for error in problem.errors)])) from problem
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{file}: {error}") from error
        self.stdout.write(f"{found.added} rates added, {found.corrected} corrected, {found.known} known.")
