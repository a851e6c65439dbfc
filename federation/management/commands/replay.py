"""`manage.py replay`: takes recorded decisions again."""

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from federation.engine.cycle import decide
from federation.engine.recording import RecordingError, decisions_text, snapshot_of
from foundation import strict_json
from foundation.files import write_whole


class Command(BaseCommand):
    help = (
        "Takes the decisions of a recorded cycle again, byte for byte: `manage.py snapshot` wrote the file. "
        "Needs no database. Exit codes: 0 done, 1 a file cannot be used, 2 wrong arguments."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--snapshot", metavar="FILE", required=True, help="a file that `manage.py snapshot` wrote")
        parser.add_argument("--out", metavar="FILE", default="-", help="where to write; `-` (the default) prints")

    def handle(self, *args: Any, snapshot: str, out: str, **options: Any) -> None:
        text = decisions_text(decide(_snapshot(snapshot)))
        if out == "-":
            self.stdout.write(text.decode(), ending="")
            return
        try:
            write_whole(Path(out), text)
        except OSError as error:
            raise CommandError(f"{out}: {error.strerror or error}") from error


def _snapshot(name: str) -> Any:
    try:
        return snapshot_of(strict_json.loads(Path(name).read_bytes()))
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror or error}") from error
    except (strict_json.MalformedJSON, RecordingError) as error:
        raise CommandError(f"{name}: {error}") from error
