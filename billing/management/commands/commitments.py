"""`manage.py commitments`: plans and applies a file of commitments, and prints the report of a month."""

import json
import sys
from datetime import date
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from billing.api.commitments import report_csv, show_plan, show_report
from billing.operations.commitments import Plan, apply_commitments, plan_commitments
from billing.queries.commitment_report import commitment_report
from foundation.clock import database_now
from foundation.commands import GatewayCommand, refused_file
from foundation.problems import Problem
from tenancy.queries import SYSTEM

SIGNS = {"create": "+", "change": "~", "withdraw": "-"}


class Command(GatewayCommand):
    help = "Plans and applies a YAML file of an organisation's commitments, and prints how much of them was used in a month."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        for verb, words in (("plan", "show what a file would change"), ("apply", "make commitments those of a file")):
            one = verbs.add_parser(verb, help=words)
            one.add_argument("organisation", help="its path")
            one.add_argument("file", help="the file; - for standard input")
            one.add_argument("--json", action="store_true", help="print the plan as JSON")
            if verb == "apply":
                one.add_argument("--expect", default="", metavar="HASH", help="apply only this plan")
        report = verbs.add_parser("report", help="print a month as CSV")
        report.add_argument("organisation", help="its path")
        report.add_argument("--month", type=_month, metavar="YYYY-MM", help="default: the current one")
        report.add_argument("--json", action="store_true", help="print all of it as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['verb']}")(options)
        except Problem as problem:
            raise refused_file(problem) from None

    def _plan(self, options: dict[str, Any]) -> None:
        self._show(plan_commitments(SYSTEM, options["organisation"], _text(options["file"])), as_json=options["json"])

    def _apply(self, options: dict[str, Any]) -> None:
        text = _text(options["file"])
        plan = apply_commitments(SYSTEM, options["organisation"], text, options["expect"])
        self._show(plan, as_json=options["json"])

    def _report(self, options: dict[str, Any]) -> None:
        report = commitment_report(
            SYSTEM, options["organisation"], options["month"] or database_now().date().replace(day=1)
        )
        text = json.dumps(show_report(report), indent=2) + "\n" if options["json"] else report_csv(report)
        self.stdout.write(text, ending="")

    def _show(self, plan: Plan, *, as_json: bool) -> None:
        shown = show_plan(plan)
        if as_json:
            self.stdout.write(json.dumps(shown, indent=2))
            return
        for one in plan.changes:
            before = one.before or {}
            changed = [
                f"{name} {value}" for name, value in one.after.items() if before.get(name) != value and name != "name"
            ]
            self.stdout.write(f"{SIGNS[one.action]} {one.name}: {', '.join(changed)}")
        if not plan.changes:
            self.stdout.write("Nothing changes.")
            return
        self.stdout.write(
            f"In {plan.month:%Y-%m}, unused: {shown['unused_before']} before, {shown['unused_after']} after."
        )
        self.stdout.write(f"Hash: {plan.digest}")


def _month(text: str) -> date:
    return date.fromisoformat(f"{text}-01")


def _text(name: str) -> str:
    if name == "-":
        return sys.stdin.read()
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{name}: {error}") from error
