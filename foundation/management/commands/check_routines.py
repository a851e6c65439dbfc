"""`manage.py check_routines`: whether the bell rings and its routines run; a health probe."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import OperationalError, connection

from foundation.commands import GatewayCommand

SILENCE_ALLOWED = "10 periods, and at least 2 minutes"


class Command(GatewayCommand):
    help = (
        f"Shows when each routine last showed life, and fails if one has been silent for more than {SILENCE_ALLOWED}."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("names", nargs="*", help="routines to check (default: all)")

    def handle(self, **options: Any) -> None:
        routines: dict[str, dict[str, Any]] = settings.ROUTINES
        wanted = options["names"] or list(routines)
        if unknown := set(wanted) - set(routines):
            raise CommandError(f"no such routine: {', '.join(sorted(unknown))}; there are {', '.join(routines)}")
        try:
            ages = _ages(wanted)
        except OperationalError:
            # A probe must not restart a process because the database is unavailable.
            self.stdout.write("the database does not answer: the routines cannot be checked")
            return
        silent = []
        for name in wanted:
            age = ages.get(name)
            self.stdout.write(f"{name}: {'never ran' if age is None else f'{age:.0f} s ago'}")
            if age is not None and age > max(120, 10 * routines[name]["every_seconds"]):
                silent.append(name)
        if silent:
            raise CommandError(f"silent: {', '.join(silent)}")


def _ages(names: list[str]) -> dict[str, float]:
    with connection.cursor() as cursor:
        cursor.execute(
            # A worker in the middle of a turn shows its presence.
            "SELECT name, EXTRACT(EPOCH FROM clock_timestamp() - GREATEST(started_at, beat_at))::float8"
            " FROM foundation_routine WHERE name = ANY(%s) AND COALESCE(started_at, beat_at) IS NOT NULL",
            [names],
        )
        return dict(cursor.fetchall())
