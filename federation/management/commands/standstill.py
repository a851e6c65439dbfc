"""`manage.py standstill`: prevents a restored installation from running anything twice."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from federation.operations.restoration import begin_standstill, open_dispatch
from federation.queries.standstill import left_of, open_standstill
from foundation.commands import GatewayCommand
from foundation.problems import Conflict
from tenancy.queries import SYSTEM


class Command(GatewayCommand):
    """An operator begins it before the processes start on a restored or promoted database, and ends it by hand."""

    help = (
        "Run `begin` before the gateway starts on a database that was restored or lost commits: it pauses placement and "
        "dispatch until every cluster is compared. `status` shows what is left. `open` resumes dispatch when nothing is "
        "left, or in any case with --answer-for NOTE."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("act", choices=["begin", "status", "open"])
        parser.add_argument("--reason", default="The database was restored.", help="with `begin`: why")
        parser.add_argument(
            "--answer-for", default="", metavar="NOTE", help="with `open`: why what is left does not matter"
        )

    def handle(self, *args: Any, act: str, reason: str, answer_for: str, **options: Any) -> None:
        if act == "begin":
            begin_standstill(SYSTEM, reason)
        elif act == "open":
            try:
                open_dispatch(SYSTEM, answer_for)
            except Conflict as conflict:
                raise CommandError(str(conflict.detail)) from conflict
        standing = open_standstill()
        if standing is None:
            self.stdout.write("Dispatch is open.")
            return
        left = left_of(standing)
        self.stdout.write(f"Dispatch is closed since {standing.began_at:%Y-%m-%d %H:%M:%S} UTC: {standing.reason}")
        for name in left.uncompared:
            self.stdout.write(f"  {name}: not compared yet")
        for name, count in left.strangers:
            self.stdout.write(f"  {name}: {count} objects that may run and belong to no known attempt")
        if left.is_nothing:
            self.stdout.write("  Every cluster was compared and nothing is left: `manage.py standstill open`")
