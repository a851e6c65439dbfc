"""`manage.py standstill`: prevents a restored installation from running anything twice."""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from federation.operations.restoration import begin_standstill, open_dispatch
from federation.queries.standstill import Left, Standing, standing
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
        self._report(standing())

    def _report(self, now: Standing) -> None:
        if not now.is_history_known:
            self.stdout.write(
                "PostgreSQL does not reveal its history: after a restore or a failover, begin a standstill by hand."
            )
        if now.began_at is None:
            closed = f"Dispatch is closed: {now.reason}. The gateway begins a standstill within seconds."
            self.stdout.write(closed if now.is_closed else "Dispatch is open.")
            return
        self.stdout.write(f"Dispatch is closed since {now.began_at:%Y-%m-%d %H:%M:%S} UTC: {now.reason}")
        for line in _lines(now.left):
            self.stdout.write(f"  {line}")
        if not now.needs_operator:
            self.stdout.write("  The gateway opens dispatch when every cluster was compared and nothing was found.")
        elif now.left.is_nothing:
            self.stdout.write("  Every cluster was compared and nothing is left: `manage.py standstill open`")


def _lines(left: Left) -> list[str]:
    lines = [f"{name}: not compared yet" for name in left.uncompared]
    lines += [f"{name}: {count} objects that may run and belong to no known attempt" for name, count in left.strangers]
    for one in left.found:
        if one.adopted:
            lines.append(f"{one.cluster}: {one.adopted} runs that the database had forgotten were adopted")
        if one.vanished:
            lines.append(f"{one.cluster}: {one.vanished} objects of live attempts are gone")
    return lines
