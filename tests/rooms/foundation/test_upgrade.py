"""A database of the first schema, upgraded, is what a new one is: no rule, constraint or index was changed without its migration.

`first_schema.sql.gz` is what `pg_dump` said of a database whose last migrations were the last that `0001_squashed_…` replace. It does
not change.
"""

import gzip
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import connection

from devtools.serve import PROJECT

FIRST = Path(__file__).with_name("first_schema.sql.gz")
CASTS = re.compile(r"::(character varying|text)(\[\])?|[()\s]+")
OURS = "= current_schema()::regnamespace"
PARTS = {
    "columns": (
        "SELECT concat_ws(' ', table_name, column_name, data_type, character_maximum_length, numeric_precision, numeric_scale,"
        " is_nullable, column_default, collation_name, is_identity, is_generated, udt_name) FROM information_schema.columns"
        " WHERE table_schema = current_schema()"
    ),
    "constraints": (
        "SELECT concat_ws(' ', c.relname, con.conname, pg_get_constraintdef(con.oid), con.convalidated)"
        f" FROM pg_constraint AS con JOIN pg_class AS c ON c.oid = con.conrelid WHERE c.relnamespace {OURS}"
    ),
    "indexes": f"SELECT pg_get_indexdef(indexrelid) FROM pg_index JOIN pg_class AS c ON c.oid = indexrelid WHERE relnamespace {OURS}",
    "functions": f"SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace {OURS}",
    "triggers": (
        "SELECT concat_ws(' ', pg_get_triggerdef(t.oid), tgenabled) FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = tgrelid"
        f" WHERE NOT tgisinternal AND relnamespace {OURS}"
    ),
    "tables and sequences": f"SELECT concat_ws(' ', relname, relkind, reloptions) FROM pg_class WHERE relnamespace {OURS}",
    "first rows": (
        "SELECT concat_ws(' ', name, value, description, is_open, is_default) FROM federation_priorityclass"
        " UNION ALL SELECT concat_ws(' ', id, half_life_seconds) FROM quotas_pasthalflife"
    ),
}


@pytest.fixture
def first():
    """The address of a database with the first schema."""
    address = urlsplit(os.environ["DATABASE_URL"])
    name = f"first_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(address.geturl(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}")
        url = address._replace(path=f"/{name}").geturl()
        with psycopg.connect(url, autocommit=True) as session:
            session.execute(gzip.decompress(FIRST.read_bytes()))
        yield url
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def migrated(url):
    done = subprocess.run(
        [sys.executable, "manage.py", "migrate", "--noinput"],
        cwd=PROJECT,
        env={**os.environ, "DATABASE_URL": url},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def described(execute):
    """What the catalog says, by part. PostgreSQL writes a condition in another way once it was dumped, or its column's type changed."""
    found = {part: {row[0] for row in execute(statement).fetchall()} for part, statement in PARTS.items()}
    return {
        part: {text if part == "functions" else CASTS.sub("", text) for text in texts} for part, texts in found.items()
    }


@pytest.mark.django_db
def test_an_upgraded_database_is_what_a_new_one_is(first):
    code, said = migrated(first)
    assert code == 0, said
    with psycopg.connect(first) as session:
        upgraded = described(session.execute)

    def execute(statement):
        cursor = connection.cursor()
        cursor.execute(statement)
        return cursor

    new = described(execute)
    for part in PARTS:
        assert upgraded[part], part
        assert upgraded[part] - new[part] == set(), (
            f"{part} of an upgraded database alone: was it changed without a migration?"
        )
        assert new[part] - upgraded[part] == set(), (
            f"{part} of a new database alone: was it changed without a migration?"
        )


def test_a_database_that_has_some_of_the_merged_migrations_is_left_as_it_is(first):
    with psycopg.connect(first, autocommit=True) as session:
        session.execute("DELETE FROM django_migrations WHERE (app, name) = ('federation', '0027_kept_room')")
        before = session.execute("SELECT app, name FROM django_migrations ORDER BY id").fetchall()
        code, said = migrated(first)
        assert code == 1
        assert said.endswith(
            "CommandError: The database has some of federation's migrations that were merged into one, but not 0027_kept_room. Run"
            " `manage.py migrate` of the last version whose `manage.py showmigrations federation` ends with 0027_kept_room, then"
            " that of this version.\n"
        )
        assert session.execute("SELECT app, name FROM django_migrations ORDER BY id").fetchall() == before
