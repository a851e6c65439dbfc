"""`manage.py cost`: the usage report of a month, for operators."""

import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from billing.api.period import period_of
from billing.api.shapes import show_usage
from billing.api.spreadsheet import usage_csv
from billing.queries import usage_report
from foundation.clock import database_now
from foundation.commands import GatewayCommand
from foundation.plain_json import encode
from foundation.problems import Problem
from tenancy.queries import SYSTEM


class Command(GatewayCommand):
    help = "Prints usage and cost of a month as CSV, as GET /api/v1/usage does, of all tenants or of one with all below it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--month", metavar="YYYY-MM", help="UTC; default: the current one")
        parser.add_argument("--tenant", default="", metavar="PATH", help="only this tenant and all below it")
        parser.add_argument(
            "--by",
            default="tenant",
            metavar="GROUPS",
            help="tenant, cluster, flavor, user, job, day, month; comma-separated",
        )
        parser.add_argument("--carbon", action="store_true", help="with energy and emissions")
        parser.add_argument(
            "--as-is", action="store_true", help="under the current paths of tenants, not those of then"
        )
        parser.add_argument("--json", action="store_true", help="print all of it as JSON")

    def handle(self, *args: Any, month: str | None, tenant: str, by: str, carbon: bool, **options: Any) -> None:
        try:
            start, until = period_of({"month": month} if month else {}, database_now())
            words = [word for word in by.split(",") if word]
            report = usage_report(SYSTEM, tenant, start, until, words, with_carbon=carbon, as_is=options["as_is"])
        except Problem as problem:
            raise CommandError("; ".join([problem.detail, *(error.detail for error in problem.errors)])) from None
        shown = show_usage(report)
        if options["json"]:
            self.stdout.write(json.dumps(json.loads(encode(shown)), indent=2))
            return
        self.stdout.write(usage_csv(shown, report.columns), ending="")
        if not report.is_complete:
            self.stderr.write("Not complete: some of it still runs, or is not recorded yet.")
