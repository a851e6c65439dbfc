"""Migrations that were merged into one: a database has all that it replaces, or none.

Django would migrate a database that has some of them without their room, in silence.
"""

from contextlib import suppress

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.exceptions import NodeNotFoundError
from django.db.migrations.loader import MigrationLoader


def advice_in_part(connection: BaseDatabaseWrapper) -> str:
    """What to do if the database has some of the migrations that were merged, and lacks others; else empty."""
    loader = MigrationLoader(connection, load=False)
    # It raises the error once it has read all that is needed here.
    with suppress(NodeNotFoundError):
        loader.build_graph()
    return "\n".join(
        f"The database has some of {room}'s migrations that were merged into one, but not {', '.join(lacking)}. Run"
        f" `manage.py migrate` of the last version whose `manage.py showmigrations {room}` ends with {last}, then that of"
        " this version."
        for room, last, lacking in lacking_in_part(loader)
    )


def lacking_in_part(loader: MigrationLoader) -> list[tuple[str, str, list[str]]]:
    """(room, the last migration that was merged, those that the database lacks) of each room whose merged migrations it has in
    part.
    """
    found = []
    for (room, _), migration in sorted(loader.replacements.items()):
        gone = [key for key in migration.replaces if key not in loader.disk_migrations]
        lacking = [name for app, name in gone if (app, name) not in loader.applied_migrations]
        if lacking and len(lacking) < len(gone):
            found.append((room, gone[-1][1], lacking))
    return found
