"""Checks that need a database: `manage.py check --database default`; `migrate` runs them too."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Warning  # noqa: A004 - its name in Django
from django.db import OperationalError, connections

from .rights import excess

HINT = (
    "Use a separate role in DATABASE_URL. Set SWITCHYARD_OWNER_DATABASE_URL to the owner of the tables, for `manage.py"
    " migrate` only: it creates the separate role and grants it only the rights that it needs."
)


def role_has_no_excess(*, databases: Any = None, **_: Any) -> list[CheckMessage]:
    """Warns if the processes' role could disable what the database enforces."""
    found: list[CheckMessage] = []
    for alias in databases or ():
        connection = connections[alias]
        if connection.settings_dict["USER"] != settings.PROCESSES_ROLE:
            continue  # the owner's role, during migrations
        try:
            rights = excess(connection)
        except OperationalError:
            continue
        if rights:
            found.append(
                Warning(f"the role {settings.PROCESSES_ROLE} {', '.join(rights)}", hint=HINT, id="foundation.W001")
            )
    return found
