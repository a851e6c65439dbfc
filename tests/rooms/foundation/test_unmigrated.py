"""Operators' commands on a database before `migrate`: here, sessions whose schema is empty."""

import pytest
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, connection, transaction
from django.db.migrations.recorder import MigrationRecorder

import manage
from foundation.health import is_migrated
from foundation.merged import advice_in_part
from foundation.unmigrated import ADVICE, advice_for

pytestmark = pytest.mark.django_db(transaction=True)
COMMANDS = (
    ("standstill", "begin"), ("standstill", "status"), ("standstill", "open"), ("verify_audit",), ("prove_ledger",),
    ("bootstrap", "--organisation", "acme", "--admin", "you@acme.example"), ("add_user", "you@acme.example"),
    ("rekey_credentials",), ("check_routines",), ("snapshot",), ("export_trace",),
)  # fmt: skip


@pytest.fixture
def empty_schema(monkeypatch):
    """Connections see a schema without any table, as before the first migration."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA nothing_migrated")
    options = connection.settings_dict["OPTIONS"]
    connection.close()
    with monkeypatch.context() as patch:
        patch.setitem(options, "options", f"{options['options']} -c search_path=nothing_migrated")
        yield
        connection.close()
    with connection.cursor() as cursor:
        cursor.execute("DROP SCHEMA nothing_migrated CASCADE")


def run(monkeypatch, *words):
    monkeypatch.setattr(manage, "take_settings_of_home", lambda *_: None)
    monkeypatch.setattr("sys.argv", ["manage.py", *words])
    manage.main()


@pytest.mark.usefixtures("empty_schema")
def test_every_command_that_operators_run_first_says_to_migrate(monkeypatch, capsys):
    for words in COMMANDS:
        with pytest.raises(SystemExit) as stopped:
            run(monkeypatch, *words)
        assert stopped.value.code == ADVICE, words
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("empty_schema")
def test_an_error_of_a_migration_itself_is_not_replaced_by_the_advice_to_migrate(monkeypatch):
    def broken(*_, **__):
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM a_table_that_a_migration_forgot")

    monkeypatch.setattr("foundation.management.commands.migrate.Command.handle", broken)
    with pytest.raises(ProgrammingError, match="a_table_that_a_migration_forgot"):
        run(monkeypatch, "migrate")


@pytest.mark.parametrize(
    "statement",
    ["SELECT * FROM no_such_table", "SELECT no_such_column FROM tenancy_tenant", "SELECT no_such_function()"],
)
def test_a_defect_on_a_migrated_database_keeps_its_traceback(monkeypatch, statement):
    def broken(*_, **__):
        with connection.cursor() as cursor:
            cursor.execute(statement)

    assert is_migrated()
    monkeypatch.setattr("federation.management.commands.standstill.Command.handle", broken)
    with pytest.raises(ProgrammingError):
        run(monkeypatch, "standstill", "begin")


def test_a_database_that_lacks_one_migration_is_told_from_one_that_lacks_none(monkeypatch):
    error = ProgrammingError("relation does not exist")
    error.__cause__ = type("Missing", (Exception,), {"sqlstate": "42P01"})()
    assert advice_for(error) == ""
    with transaction.atomic():
        MigrationRecorder(connection).migration_qs.filter(app="federation").delete()
        assert advice_for(error) == ADVICE
        error.__cause__ = type("Other", (Exception,), {"sqlstate": "42501"})()
        assert advice_for(error) == ""
        transaction.set_rollback(True)


LAST = {
    "tenancy": "0002_weight",
    "clusters": "0010_nodes_of_images",
    "quotas": "0008_kept_idle",
    "billing": "0012_currencies",
    "federation": "0027_kept_room",
}


@pytest.mark.parametrize("room", LAST)
def test_a_database_that_has_some_of_the_merged_migrations_is_refused_with_what_to_do(room, client):
    """Django alone continues without this room, or names a node of its graph."""
    assert advice_in_part(connection) == ""
    with transaction.atomic():
        MigrationRecorder(connection).migration_qs.filter(app=room, name=LAST[room]).delete()
        assert not is_migrated()
        assert client.get("/readyz").json()["database"] == "not_migrated"
        error = ProgrammingError("relation does not exist")
        error.__cause__ = type("Missing", (Exception,), {"sqlstate": "42P01"})()
        assert advice_for(error) == advice_in_part(connection)
        with pytest.raises(CommandError, match=f"last version whose .* {room}` ends with {LAST[room]}, then"):
            call_command("migrate", "--noinput")
        transaction.set_rollback(True)


def test_a_database_that_has_none_of_a_rooms_merged_migrations_can_continue():
    with transaction.atomic():
        MigrationRecorder(connection).migration_qs.filter(app="federation").delete()
        assert advice_in_part(connection) == ""
        assert not is_migrated()
        transaction.set_rollback(True)


def test_a_database_with_every_migration_of_before_and_none_of_ours_is_up_to_date():
    with transaction.atomic():
        MigrationRecorder(connection).migration_qs.filter(name__contains="_squashed_").delete()
        assert advice_in_part(connection) == ""
        assert is_migrated()
        transaction.set_rollback(True)
