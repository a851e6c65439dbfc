"""`manage.py import_provider_invoices`: what providers billed for an organisation's clusters, from a file."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from billing.operations.reconciliation import import_provider_invoices
from foundation.commands import GatewayCommand
from foundation.problems import Problem
from tenancy.queries import SYSTEM


class Command(GatewayCommand):
    help = (
        "Imports what providers billed from a CSV file with the columns cluster,month,reference,amount,currency and, if wanted, "
        "note: all lines or none. The same file again changes nothing."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--organisation", required=True, metavar="PATH", help="that has the clusters")

    def handle(self, *args: Any, file: Path, organisation: str, **options: Any) -> None:
        try:
            found = import_provider_invoices(SYSTEM, organisation, file.read_text(encoding="utf-8"))
        except Problem as problem:
            raise CommandError("; ".join([problem.detail, *(error.detail for error in problem.errors)])) from problem
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{file}: {error}") from error
        self.stdout.write(found.summary)
