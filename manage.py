#!/usr/bin/env python
"""Runs the gateway's management commands."""

import os
import sys
from pathlib import Path

from config.home import take_settings_of_home


def main() -> None:
    take_settings_of_home(os.environ, Path(__file__).resolve().parent)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from django.core.management import execute_from_command_line  # noqa: PLC0415 - settings must be named first
    from django.db import ProgrammingError  # noqa: PLC0415 - likewise

    try:
        execute_from_command_line(sys.argv)
    except ProgrammingError as error:
        from foundation.unmigrated import advice_for  # noqa: PLC0415 - likewise

        # What fails in a migration itself is for its author.
        advice = "" if sys.argv[1:2] == ["migrate"] else advice_for(error)
        if not advice:
            raise
        sys.exit(advice)


if __name__ == "__main__":
    main()
