"""What is looked at with a database at hand: `manage.py check --database default`; `migrate` looks too."""

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Warning  # noqa: A004 - its name in Django
from django.db import OperationalError, connections

from .rights import excess

HINT = (
    "Name a role of its own in DATABASE_URL and the owner of the tables in SWITCHYARD_OWNER_DATABASE_URL, for `manage.py"
    " migrate` alone: it makes that role and gives it no more than it needs."
)


def role_has_no_excess(*, databases: Any = None, **_: Any) -> list[CheckMessage]:
    """Warns when the processes' role could switch off what the database keeps true."""
    found: list[CheckMessage] = []
    for alias in databases or ():
        connection = connections[alias]
        if connection.settings_dict["USER"] != settings.PROCESSES_ROLE:
            continue  # the owner's, while it migrates
        try:
            rights = excess(connection)
        except OperationalError:
            continue
        if rights:
            found.append(
                Warning(f"the role {settings.PROCESSES_ROLE} {', '.join(rights)}", hint=HINT, id="foundation.W001")
            )
    return found
