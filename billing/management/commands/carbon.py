"""`manage.py carbon`: plans and applies a CSV file of what energy and emissions are computed from."""

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from billing.operations.carbon import CarbonPlan, Origin, apply_carbon, plan_carbon
from foundation.commands import GatewayCommand, refused_file
from foundation.problems import Problem
from tenancy.queries import SYSTEM

MOST_SHOWN = 20


class Command(GatewayCommand):
    help = (
        "Plans and applies a CSV file of grid intensities, rated power, sites of clusters, or measured energy. The same file again"
        " changes nothing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        for verb, words in (("plan", "show what a file would change"), ("apply", "add the rows of a file")):
            one = verbs.add_parser(verb, help=words)
            one.add_argument("file", help="the file; - for standard input")
            one.add_argument("--organisation", default="", metavar="PATH", help="only for this one (default: for all)")
            if verb == "apply":
                one.add_argument("--source", required=True, help="where the numbers are from")
                one.add_argument("--licence", default="", help="under which they may be used; required for intensities")
                one.add_argument(
                    "--corrects", action="store_true", help="other numbers for the same replace known ones"
                )
                one.add_argument("--expect", default="", metavar="HASH", help="apply only this plan")

    def handle(self, *args: Any, **options: Any) -> None:
        text = _text(options["file"])
        try:
            if options["verb"] == "plan":
                self._show(plan_carbon(SYSTEM, options["organisation"], text))
                return
            origin = Origin(options["source"], options["licence"])
            plan = apply_carbon(
                SYSTEM, options["organisation"], text, origin, expected=options["expect"], corrects=options["corrects"]
            )
            self._show(plan)
        except Problem as problem:
            raise refused_file(problem) from None

    def _show(self, plan: CarbonPlan) -> None:
        for one in plan.changes[:MOST_SHOWN]:
            was = "" if one.before is None else f", before {_words(one.before)}"
            self.stdout.write(f"{'+' if one.before is None else '~'} {one.key}: {_words(one.number)}{was}")
        if len(plan.changes) > MOST_SHOWN:
            self.stdout.write(f"… and {len(plan.changes) - MOST_SHOWN} more")
        added = len(plan.changes) - len(plan.corrections)
        self.stdout.write(f"{plan.kind}: {added} added, {len(plan.corrections)} corrected, {plan.known} known.")
        self.stdout.write(f"Hash: {plan.digest}")


def _words(number: tuple[object, ...]) -> str:
    return " ".join("-" if each is None else str(each) for each in number)


def _text(name: str) -> str:
    if name == "-":
        return sys.stdin.read()
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{name}: {error}") from error
