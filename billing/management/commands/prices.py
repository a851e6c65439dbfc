"""`manage.py prices`: plans, applies and exports the price book as a file."""

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from billing.api.price_book import show_price_plan
from billing.operations.price_file import PricePlan, apply_prices, plan_prices
from billing.queries.price_file import price_file
from foundation.commands import GatewayCommand, refused_file
from foundation.problems import Problem
from tenancy.queries import SYSTEM

SIGNS = {"create": "+", "change": "~", "end": "-", "withdraw": "-"}


class Command(GatewayCommand):
    help = "Plans, applies and exports the price book as a YAML file. It acts as the system: all clusters, all rights."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        for verb, told in (("plan", "show what a file would change"), ("apply", "make prices those of a file")):
            one = verbs.add_parser(verb, help=told)
            one.add_argument("file", help="the file; - for standard input")
            one.add_argument(
                "--prune", action="store_true", help="end prices of the file's clusters that the file does not have"
            )
            one.add_argument("--json", action="store_true", help="print the plan as JSON")
            if verb == "apply":
                one.add_argument("--expect", default="", metavar="HASH", help="apply only this plan")
        export = verbs.add_parser("export", help="print the present prices as a file")
        export.add_argument("--cluster", default="", metavar="NAME", help="only of this cluster")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['verb']}")(options)
        except Problem as problem:
            raise refused_file(problem) from None

    def _plan(self, options: dict[str, Any]) -> None:
        plan = plan_prices(SYSTEM, _text(options["file"]), prune=options["prune"])
        self._show(plan, as_json=options["json"])
        if plan.refused:
            raise CommandError(f"{len(plan.refused)} of {len(plan.changes)} changes would be refused")

    def _apply(self, options: dict[str, Any]) -> None:
        plan = apply_prices(SYSTEM, _text(options["file"]), expected=options["expect"], prune=options["prune"])
        self._show(plan, as_json=options["json"])

    def _export(self, options: dict[str, Any]) -> None:
        self.stdout.write(price_file(SYSTEM, options["cluster"]), ending="")

    def _show(self, plan: PricePlan, *, as_json: bool) -> None:
        shown = show_price_plan(plan)
        if as_json:
            self.stdout.write(json.dumps(shown, indent=2))
            return
        for one in shown["changes"]:
            where = " ".join(one[name] for name in ("owner", "cluster", "flavor", "capacity_type") if one[name])
            self.stdout.write(f"{SIGNS[one['action']]} {one['action']} {where} from {one['from']}: {_values(one)}")
            if one["corrected_until"]:
                self.stdout.write(f"    metered usage is corrected until {one['corrected_until']}")
            if one["refusal"]:
                place = f"line {one['line']}, column {one['column']}: " if one["line"] else ""
                self.stdout.write(f"    {place}{one['refusal']['code']}: {one['refusal']['detail']}")
        for rate in shown["kept"]:
            self.stdout.write(f"  {rate} is not in the file and remains")
        self._show_effects(shown)
        self.stdout.write(f"{len(plan.changes)} changes; plan {plan.digest}")

    def _show_effects(self, shown: dict[str, Any]) -> None:
        if shown["effects"] is None:
            self.stdout.write(f"{shown['month']} has too much usage to compute what the prices would have done.")
        for effect in shown["effects"] or ():
            old, new = effect["old"], effect["new"]
            told = f"{effect['tenant']} in {shown['month']}: {old['amount']} {old['currency']} before"
            self.stdout.write(f"{told}, {new['amount']} {new['currency']} after")


def _values(one: dict[str, Any]) -> str:
    """The fields that change, from what to what."""
    before, after = one["before"] or {}, one["after"] or {}
    if not after:
        return json.dumps(before)
    names = [name for name in after if name != "from" and before.get(name) != after[name]]
    return ", ".join(f"{name} {before.get(name) or '-'} → {after[name] or '-'}" for name in names)


def _text(name: str) -> str:
    """The text of a file, or of standard input for `-`."""
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return raw.decode()
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise CommandError(f"{name}: byte {error.start} is not UTF-8") from None
