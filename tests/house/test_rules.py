"""Functions and triggers of the database: written once, each in its room, and the database has them as they are written."""

import re

import pytest
from django.db import connection

from foundation.rules import STATEMENT, installing, rules, written

from .source import ROOT

LONGEST = 400
FILES = sorted(ROOT.glob("*/sql/*.sql"))
MIGRATIONS = sorted(ROOT.glob("*/migrations/0*"))
RULE = re.compile(r"\bCREATE\s+(OR\s+REPLACE\s+|CONSTRAINT\s+)*(FUNCTION|TRIGGER)\b", re.IGNORECASE)
REMARK = re.compile(r"--[^\n]*\n|\s")


def name(path):
    return path.relative_to(ROOT).as_posix().replace("/sql/", "/")


WRITTEN = {name(path): written(name(path)) for path in FILES}


def test_a_file_of_rules_has_whole_statements_and_nothing_else():
    assert FILES
    for path in FILES:
        text = path.read_text()
        first = STATEMENT.search(text)
        assert first is not None, path
        assert not REMARK.sub("", text[: first.start()]), f"{path} begins with something that is no rule"
        for rule, statement in WRITTEN[name(path)].items():
            assert statement.count("$$") % 2 == 0, f"{path}: {rule}"
            assert REMARK.sub("", f"{statement}\n").endswith(";"), f"{path}: {rule} is not all of it"
        assert len(text.splitlines()) <= LONGEST, f"split {path}"


def test_a_function_is_written_once_in_the_room_that_its_name_begins_with():
    functions = [(rule, file) for file, found in WRITTEN.items() for rule in found if rule.startswith("FUNCTION ")]
    assert len(dict(functions)) == len(functions)
    assert [(rule, file) for rule, file in functions if not rule.startswith(f"FUNCTION {file.split('/')[0]}_")] == []


def test_no_migration_writes_a_function_or_a_trigger():
    found = [str(path.relative_to(ROOT)) for path in MIGRATIONS if RULE.search(path.read_text())]
    assert not found, f"write it in ROOM/sql/, and install it with foundation.rules: {found}"


@pytest.mark.django_db
def test_the_database_has_each_rule_as_it_is_written_and_no_other():
    with connection.cursor() as cursor:
        cursor.execute("SELECT proname, prosrc FROM pg_proc WHERE pronamespace = current_schema()::regnamespace")
        bodies = dict(cursor.fetchall())
        cursor.execute(
            "SELECT tgname, relname FROM pg_trigger JOIN pg_class AS c ON c.oid = tgrelid"
            " WHERE NOT tgisinternal AND relnamespace = current_schema()::regnamespace"
        )
        triggers = set(cursor.fetchall())
    texts = {rule: text for found in WRITTEN.values() for rule, text in found.items() if rule.startswith("FUNCTION ")}
    assert bodies.keys() == {rule.partition(" ")[2] for rule in texts}
    assert [name for name, body in bodies.items() if f"${body}$" not in texts[f"FUNCTION {name}"]] == []
    assert triggers == {
        (rule.partition(" ")[2], table)
        for found in WRITTEN.values()
        for rule, text in found.items()
        if rule.startswith("TRIGGER ")
        for table in re.findall(r"^CREATE [^;]*? ON (\w+)", text, re.MULTILINE)
    }


@pytest.mark.django_db
def test_a_rule_that_is_named_is_installed_again_alone_and_over_what_there_is():
    path, function, trigger = "federation/kept_room.sql", "federation_guard_room", "federation_guard_kept_room"
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$"
        )
        for names in ((f"FUNCTION {function}",), (f"TRIGGER {trigger}",), ()):
            cursor.execute(installing(path, *names))
        cursor.execute("SELECT prosrc FROM pg_proc WHERE proname = %s", [function])
        assert "RAISE EXCEPTION" in cursor.fetchone()[0]
    assert "TRIGGER" not in installing(path, f"FUNCTION {function}").replace("RETURNS trigger", "")
    with pytest.raises(LookupError, match=r"kept_room\.sql has no FUNCTION no_such, TRIGGER neither"):
        rules(path, "TRIGGER neither", "FUNCTION no_such")


@pytest.mark.django_db
def test_every_file_can_be_installed_again_constraint_triggers_too():
    with connection.cursor() as cursor:
        for path in WRITTEN:
            cursor.execute(installing(path))
