"""`manage.py snapshot`: one cycle's complete input as JSON, for `manage.py replay --snapshot`."""

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from federation.queries.queue import QUEUE_DEPTH
from federation.queries.snapshot import load_snapshot
from foundation import clock
from foundation.commands import GatewayCommand
from foundation.files import write_whole
from placement.answers.recording import snapshot_text, without_image_names, without_users


class Command(GatewayCommand):
    help = (
        "Exports the input of the next scheduling cycle: queue, fleet with its free capacity, limits and prices, but no "
        "names of images, commands, environments or credentials. It changes nothing. "
        "`manage.py replay --snapshot FILE` makes the same decisions from it, on any host."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--out", metavar="FILE", default="-", help="where to write it; `-` (the default) prints it")
        parser.add_argument(
            "--depth", type=int, default=QUEUE_DEPTH, help=f"number of queued jobs, default {QUEUE_DEPTH}"
        )

    def handle(self, *args: Any, out: str, depth: int, **options: Any) -> None:
        if depth < 0:
            raise CommandError("--depth cannot be negative", returncode=2)
        snapshot = without_users(without_image_names(load_snapshot(clock.now(), depth)))
        text = snapshot_text(snapshot)
        if out == "-":
            self.stdout.write(text.decode(), ending="")
            return
        try:
            write_whole(Path(out), text)
        except OSError as error:
            raise CommandError(f"{out}: {error.strerror or error}") from error
        print(
            f"{out}: {len(snapshot.queue)} queued jobs, {len(snapshot.clusters)} clusters, {len(text)} bytes",
            file=sys.stderr,
        )
