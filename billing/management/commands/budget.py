"""`manage.py budget`: the budgets with what is spent, held and left in their current periods, for operators."""

import csv
import json
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from billing.api.budgets import show_budgets
from billing.api.spreadsheet import inert
from billing.queries.budgets import visible_budgets
from foundation.commands import GatewayCommand
from foundation.problems import Problem
from tenancy.queries import SYSTEM

COLUMNS = (
    "tenant",
    "amount",
    "unit",
    "period",
    "period_start",
    "period_end",
    "granted",
    "spent",
    "held",
    "left",
    "state",
)


class Command(GatewayCommand):
    help = "Prints the budgets as CSV, as GET /api/v1/budgets shows them, of all tenants or of one with all below it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--tenant", default="", metavar="PATH", help="only this tenant and all below it")
        parser.add_argument("--json", action="store_true", help="print all of it as JSON")

    def handle(self, *args: Any, tenant: str, **options: Any) -> None:
        try:
            budgets = list(visible_budgets(SYSTEM, tenant_path=tenant).order_by("tenant__path", "id"))
        except Problem as problem:
            raise CommandError(problem.detail) from None
        found = show_budgets(budgets)
        if options["json"]:
            self.stdout.write(json.dumps(found, indent=2))
            return
        writer = csv.writer(self.stdout, lineterminator="\n")
        writer.writerow(COLUMNS)
        for one in found:
            money = one["amount"]
            told = (
                {"amount": money["amount"], "unit": money["currency"]}
                if money
                else {"amount": one["gpu_hours"], "unit": "GPU-hours"}
            )
            writer.writerow(
                [inert(str({**one, **told}[name])) if name == "tenant" else {**one, **told}[name] for name in COLUMNS]
            )
