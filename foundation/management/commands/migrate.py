"""`manage.py migrate`: Django's own, as the owner of the tables, and then the rights of the role the processes run as."""

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import connections

from foundation import rights


class Command(migrate.Command):
    help = f"{migrate.Command.help} Connects with SWITCHYARD_OWNER_DATABASE_URL if it is set."

    def execute(self, *args: Any, **options: Any) -> str | None:
        """From the first look at the database on as the owner, and for this command alone."""
        connection = connections[options["database"]]
        self.processes = {name: connection.settings_dict[name] for name in settings.OWNER_DATABASE}
        if not settings.OWNER_DATABASE:
            return super().execute(*args, **options)
        connection.close()
        connection.settings_dict.update(settings.OWNER_DATABASE)
        try:
            return super().execute(*args, **options)
        finally:
            connection.close()
            connection.settings_dict.update(self.processes)

    def handle(self, *args: Any, **options: Any) -> None:
        super().handle(*args, **options)
        if options["plan"] or options["check_unapplied"]:
            return
        connection = connections[options["database"]]
        rights.give_triggers_their_owners_rights(connection)
        if self.processes and self.processes["USER"] != settings.OWNER_DATABASE["USER"]:
            try:
                rights.make_role(connection, self.processes["USER"], self.processes["PASSWORD"])
            except rights.NoSuchRole as missing:
                raise CommandError(str(missing)) from None
            rights.grant(connection, self.processes["USER"])
