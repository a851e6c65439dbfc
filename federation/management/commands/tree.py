"""`manage.py tree`: plans, applies and exports the tenant tree as a file, and converts manifests of Kueue to one."""

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from federation.api.tree import show_plan
from federation.engine.intake.reading import Refused
from federation.engine.tree.kueue import import_kueue
from federation.operations.tree import TreePlan, apply_tree, label_of, plan_tree
from federation.queries.tree import tree_file
from foundation.commands import GatewayCommand, refused_file
from foundation.problems import Problem
from tenancy.queries import SYSTEM

SIGNS = {"create": "+", "change": "~", "remove": "-"}


class Command(GatewayCommand):
    help = "Plans, applies and exports the tenant tree as a YAML file. It acts as the system: all tenants, all rights."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        for verb, told in (("plan", "show what a file would change"), ("apply", "make the tree equal to a file")):
            one = verbs.add_parser(verb, help=told)
            one.add_argument("file", help="the file; - for standard input")
            one.add_argument("--prune", action="store_true", help="remove tenants that the file does not have")
            one.add_argument("--json", action="store_true", help="print the plan as JSON")
            if verb == "apply":
                one.add_argument("--expect", default="", metavar="HASH", help="apply only this plan")
        export = verbs.add_parser("export", help="print the present tree as a file")
        export.add_argument("path", nargs="*", help="tenants to print, with all below them; without: everything")
        self._add_import(verbs.add_parser("import-kueue", help="convert manifests of Kueue to a file"))

    def _add_import(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "file", nargs="+", help="manifests, such as kubectl get -o yaml prints; - for standard input"
        )
        parser.add_argument("--below", default="", metavar="PATH", help="put all of it below this tenant")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['verb'].replace('-', '_')}")(options)
        except Problem as problem:
            raise refused_file(problem) from None
        except Refused as refused:
            raise CommandError("\n".join(fault.detail for fault in refused.faults)) from None

    def _plan(self, options: dict[str, Any]) -> None:
        plan = plan_tree(SYSTEM, _text(options["file"]), prune=options["prune"])
        self._show(plan, as_json=options["json"])
        if plan.refused:
            raise CommandError(f"{len(plan.refused)} of {len(plan.changes)} changes would be refused")

    def _apply(self, options: dict[str, Any]) -> None:
        plan = apply_tree(SYSTEM, _text(options["file"]), expected=options["expect"], prune=options["prune"])
        self._show(plan, as_json=options["json"])

    def _export(self, options: dict[str, Any]) -> None:
        self.stdout.write(tree_file(SYSTEM, options["path"]), ending="")

    def _import_kueue(self, options: dict[str, Any]) -> None:
        imported = import_kueue([(name, _text(name)) for name in options["file"]], below=options["below"])
        self.stdout.write(imported.text, ending="")
        for warning in imported.warnings:
            self.stderr.write(f"warning: {warning}")

    def _show(self, plan: TreePlan, *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(show_plan(plan), indent=2))
            return
        for one in plan.changes:
            change = one.change
            self.stdout.write(f"{SIGNS[change.action]} {label_of(change)}{_values(change.before, change.after)}")
            for note in (one.refusal, one.consequence):
                if note is not None:
                    where = f"{change.mark}: " if change.mark and note is one.refusal else ""
                    self.stdout.write(f"    {where}{note.code}: {note.detail}")
        for path in plan.kept:
            self.stdout.write(f"  {path} is not in the file and remains")
        self.stdout.write(f"{len(plan.changes)} changes; plan {plan.digest}")


def _values(before: Any, after: Any) -> str:
    """The fields that change, from what to what."""
    names = [
        name for name in {**(before or {}), **(after or {})} if (before or {}).get(name) != (after or {}).get(name)
    ]
    shown = [f"{name} {_one(before, name)}→ {_one(after, name)}" for name in names]
    return f": {', '.join(shown)}" if shown and before is not None and after is not None else _all(after)


def _all(value: Any) -> str:
    return "" if value is None else f": {json.dumps(value, ensure_ascii=False)}"


def _one(value: Any, name: str) -> str:
    return f"{json.dumps((value or {}).get(name), ensure_ascii=False)} "


def _text(name: str) -> str:
    """The text of a file, or of standard input for `-`."""
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
        return raw.decode()
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise CommandError(f"{name}: byte {error.start} is not UTF-8") from None
