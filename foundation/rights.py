"""Two database roles: an owner, which migrates, and the processes' role, which has only the rights for its work.

An attacker who controls a process must not be able to disable a trigger, rewrite the trail or read the server's files.
The rights follow from one list (`settings.TABLE_RIGHTS`) after every migration, so that no table is missed.
"""

from typing import Any

from django.apps import apps
from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper
from psycopg import sql

EVERY_RIGHT = ("SELECT", "INSERT", "UPDATE", "DELETE")
TABLE_RIGHTS = (*EVERY_RIGHT, "TRUNCATE", "TRIGGER", "REFERENCES")


class NoSuchRole(Exception):
    """The role of the processes does not exist, and the owner may not create it; the message names the
    command to run.
    """


def tables(connection: BaseDatabaseWrapper) -> list[str]:
    """The tables of the gateway that exist, by name."""
    models = apps.get_models(include_auto_created=True)
    ours = {model._meta.db_table for model in models if model._meta.managed} | {"django_migrations"}
    return sorted(ours & set(connection.introspection.table_names()))


def rights_on(table: str) -> tuple[str, ...]:
    """The rights of the processes on it."""
    listed: tuple[str, ...] = settings.TABLE_RIGHTS.get(table, EVERY_RIGHT)
    return listed


def make_role(connection: BaseDatabaseWrapper, name: str, password: str) -> None:
    """Creates the role, or sets its password, as far as the owner may; NoSuchRole if it is missing and cannot be
    created.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper OR rolcreaterole FROM pg_roles WHERE rolname = current_user")
        may_make = bool(cursor.fetchone()[0])
        cursor.execute("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = %s)", [name])
        exists = bool(cursor.fetchone()[0])
        if not may_make and not exists:
            raise NoSuchRole(
                f"the role {name} of DATABASE_URL does not exist and the owner cannot create it. Run as an administrator:"
                f" CREATE ROLE \"{name}\" LOGIN PASSWORD '…'"
            )
        if may_make and password:
            verb = sql.SQL("ALTER ROLE" if exists else "CREATE ROLE")
            # As its verifier: the statement may appear in the server's log.
            verifier = _verifier(cursor, name, password)
            cursor.execute(sql.SQL("{} {} LOGIN PASSWORD {}").format(verb, sql.Identifier(name), sql.Literal(verifier)))


def _verifier(cursor: Any, name: str, password: str) -> str:
    driver = cursor.connection.pgconn
    made: bytes = driver.encrypt_password(password.encode(), name.encode(), b"scram-sha-256")
    return made.decode()


def grant(connection: BaseDatabaseWrapper, role: str) -> None:
    """Grants the role the rights of the list, and revokes all others on the gateway's tables from it and
    from PUBLIC.
    """
    to = sql.Identifier(role)
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema(), current_database()")
        schema, database = map(sql.Identifier, cursor.fetchone())
        statements = [
            sql.SQL("REVOKE ALL ON DATABASE {} FROM PUBLIC, {}").format(database, to),
            sql.SQL("GRANT CONNECT ON DATABASE {} TO {}").format(database, to),
            sql.SQL("REVOKE ALL ON SCHEMA {} FROM PUBLIC, {}").format(schema, to),
            sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(schema, to),
        ]
        for table in tables(connection):
            name, rights = sql.Identifier(table), sql.SQL(", ").join(map(sql.SQL, rights_on(table)))
            statements += [
                sql.SQL("REVOKE ALL ON TABLE {} FROM PUBLIC, {}").format(name, to),
                sql.SQL("GRANT {} ON TABLE {} TO {}").format(rights, name, to),
            ]
        cursor.execute(
            "SELECT sequencename FROM pg_sequences WHERE schemaname = current_schema() AND sequenceowner = current_user"
        )
        for (sequence,) in cursor.fetchall():
            statements.append(sql.SQL("GRANT USAGE ON SEQUENCE {} TO {}").format(sql.Identifier(sequence), to))
        for statement in statements:
            cursor.execute(statement)


def give_triggers_their_owners_rights(connection: BaseDatabaseWrapper) -> None:
    """Lets the listed triggers write where the processes may not, with names that no other role can shadow."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT proname, current_schema() FROM pg_proc"
            " WHERE proname = ANY(%s) AND pronamespace = current_schema()::regnamespace",
            [list(settings.OWNERS_TRIGGERS)],
        )
        for name, schema in cursor.fetchall():
            cursor.execute(
                sql.SQL("ALTER FUNCTION {}() SECURITY DEFINER SET search_path = pg_catalog, {}, pg_temp").format(
                    sql.Identifier(name), sql.Identifier(schema)
                )
            )


def excess(connection: BaseDatabaseWrapper) -> list[str]:
    """Rights of the connected role that no process of the gateway needs, as text."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT rolsuper, rolcreaterole, rolcreatedb, rolbypassrls, rolreplication,
                   has_database_privilege(current_database(), 'CREATE'), has_database_privilege(current_database(), 'TEMP'),
                   has_schema_privilege(current_schema(), 'CREATE')
            FROM pg_roles WHERE rolname = current_user
            """
        )
        words = (
            "is a superuser", "can create roles", "can create databases", "bypasses row-level security", "can replicate",
            "can create schemas", "can create temporary tables", "can create tables and functions",
        )  # fmt: skip
        found = [word for word, is_so in zip(words, cursor.fetchone(), strict=True) if is_so]
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relname = ANY(%s) AND relnamespace = current_schema()::regnamespace"
            " AND pg_has_role(relowner, 'MEMBER') ORDER BY relname LIMIT 1",
            [tables(connection)],
        )
        if cursor.fetchone():
            found.append("owns the tables")
        beyond = [
            (table, right) for table in tables(connection) for right in TABLE_RIGHTS if right not in rights_on(table)
        ]
        cursor.execute(
            "SELECT b.table_, b.right_ FROM unnest(%s::text[], %s::text[]) AS b(table_, right_)"
            " WHERE has_table_privilege(b.table_, b.right_) ORDER BY 1, 2 LIMIT 1",
            # Both empty before the first migration.
            [[table for table, _ in beyond], [right for _, right in beyond]],
        )
        found += [f"can {right} on {table}" for table, right in cursor.fetchall()]
    return found
