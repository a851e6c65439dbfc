"""The option `--expires` of commands that create a token."""

from argparse import ArgumentTypeError
from datetime import datetime, timedelta

from django.core.management.base import CommandParser

from foundation.clock import now
from tenancy.operations.tokens import USUAL_DAYS

MOST_DAYS = 3660
NEVER = "never"


def add_expiry(parser: CommandParser, condition: str = "") -> None:
    """Adds the option. `condition` says when it applies."""
    parser.add_argument(
        "--expires",
        type=_days,
        metavar="DAYS",
        help=f"{condition}after how many days the token expires, or `{NEVER}` (default {USUAL_DAYS})",
    )


def expiry_of(days: int | None) -> datetime | None:
    """When a token created now expires; None: never."""
    days = USUAL_DAYS if days is None else days
    return now() + timedelta(days=days) if days else None


def _days(text: str) -> int:
    """A number of days; 0 stands for never."""
    if text == NEVER:
        return 0
    if not (text.isdecimal() and len(text) <= len(str(MOST_DAYS)) and 1 <= int(text) <= MOST_DAYS):
        raise ArgumentTypeError(f"a number of days from 1 to {MOST_DAYS}, or {NEVER}")
    return int(text)
