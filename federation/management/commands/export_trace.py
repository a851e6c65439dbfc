"""`manage.py export_trace`: the jobs that ran recently, as a trace for `manage.py replay`."""

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from federation.queries.history import past_jobs
from foundation import clock
from foundation.commands import GatewayCommand
from foundation.files import write_whole
from simulator.exports import trace_text

MOST_DAYS = 3660


class Command(GatewayCommand):
    help = (
        "Writes jobs that ran and ended in the last days as CSV, for `manage.py replay --trace`. It contains ids, tenants' "
        "paths and digests of names, but no names, images or commands. It changes nothing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--days", type=int, default=30, help="how far back (default 30)")
        parser.add_argument("--out", metavar="FILE", default="-", help="where to write it; `-` (the default) prints it")

    def handle(self, *args: Any, days: int, out: str, **options: Any) -> None:
        if not 1 <= days <= MOST_DAYS:
            raise CommandError(f"--days must be between 1 and {MOST_DAYS}", returncode=2)
        now = clock.now()
        jobs, untold = past_jobs(now - timedelta(days=days), now)
        text = trace_text(jobs)
        if out == "-":
            self.stdout.write(text.decode(), ending="")
        else:
            try:
                write_whole(Path(out), text)
            except OSError as error:
                raise CommandError(f"{out}: {error.strerror or error}") from error
        left_out = (
            f"; {untold} with several pod sets, of several sizes or on slices of GPUs are left out" if untold else ""
        )
        print(f"{len(jobs)} jobs{left_out}", file=sys.stderr)
