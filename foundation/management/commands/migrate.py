"""`manage.py migrate`: Django's own, as the owner of the tables; then sets the rights of the processes' role.

It has its own time limits. It waits only briefly for a lock, because every other query on that table queues behind it,
and then retries. A statement may take long: building an index is not a request.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import sleep
from typing import Any

from django.conf import settings
from django.core.checks import Tags
from django.core.management.base import CommandError
from django.core.management.commands import migrate
from django.db import DatabaseError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from foundation import rights
from foundation.clock import monotonic
from foundation.commands import GatewayCommand
from foundation.merged import advice_in_part
from foundation.migration_state import Executor

LOCKED = {"55P03": "a lock was not available", "40P01": "a deadlock"}
TOO_LONG = "57014"
PAUSE_SECONDS = 1.0
migrate.MigrationExecutor = Executor  # type: ignore[attr-defined]


class Command(migrate.Command):
    help = f"{migrate.Command.help} Connects with SWITCHYARD_OWNER_DATABASE_URL if it is set."

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Connects as the owner from the first database access on, for this command only."""
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

    def check(self, *args: Any, **options: Any) -> None:
        """Of the database and of security only, as for the other commands."""
        super().check(*args, **{"tags": [Tags.database, *GatewayCommand.requires_system_checks], **options})

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrates, with retries while a lock is not available: completed migrations remain, the rest is repeated."""
        give_up_at = monotonic() + settings.MIGRATE_RETRY_SECONDS
        while True:
            try:
                with _time_limits(connections[options["database"]]):
                    return self._migrate(*args, **options)
            except OperationalError as error:
                self._judge(error, left_seconds=give_up_at - monotonic())
            sleep(PAUSE_SECONDS)

    def _judge(self, error: OperationalError, left_seconds: float) -> None:
        """Returns if a retry is worthwhile."""
        code = getattr(error.__cause__, "sqlstate", "")
        if code == TOO_LONG:
            raise CommandError(
                f"a statement took longer than SWITCHYARD_MIGRATE_STATEMENT_SECONDS ({settings.MIGRATE_STATEMENT_SECONDS} s)"
            ) from error
        if code not in LOCKED:
            raise error
        if left_seconds <= 0:
            raise CommandError(
                f"{LOCKED[code]} for SWITCHYARD_MIGRATE_RETRY_SECONDS ({settings.MIGRATE_RETRY_SECONDS} s): {error}\n"
                "pg_stat_activity shows which session holds it. End that session and run migrate again."
            ) from error
        self.stdout.write(f"{LOCKED[code]}; trying again for {left_seconds:.0f} s")
        self.stdout.flush()

    def _migrate(self, *args: Any, **options: Any) -> None:
        if advice := advice_in_part(connections[options["database"]]):
            raise CommandError(advice)
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


@contextmanager
def _time_limits(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """The session's time limits for migrations, in place of the processes' limits."""
    limits = {"lock_timeout": settings.MIGRATE_LOCK_SECONDS, "statement_timeout": settings.MIGRATE_STATEMENT_SECONDS}
    with connection.cursor() as cursor:
        for name, seconds in limits.items():
            cursor.execute("SELECT set_config(%s, %s, false)", [name, f"{seconds}s"])
    try:
        yield
    finally:
        # A lost session has no limits to reset.
        with suppress(DatabaseError), connection.cursor() as cursor:
            for name in limits:
                cursor.execute(f"RESET {name}")
