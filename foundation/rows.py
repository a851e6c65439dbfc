"""Inserts many rows with one statement and one parameter.

Django's `bulk_create` compiles an expression for each value, and psycopg then parses a statement with a hundred
thousand placeholders: that is most of a batch's cost. Here the rows travel as one JSON text that PostgreSQL unpacks.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from django.db import connection
from django.db.models import Field, Model
from django.db.models.expressions import DatabaseDefault


def insert_rows(rows: Sequence[Model]) -> None:
    """Inserts new rows of one model; it does not return the keys that the database generates.

    A column without a value in any row gets the database's default. JSON fields must contain JSON objects or arrays,
    and binary fields are not supported.
    """
    if not rows:
        return
    fields = _given(rows[0])
    _insert(rows[0], fields, {}, [{str(field.column): getattr(row, field.attname) for field in fields} for row in rows])


def insert_like(template: Model, rows: Sequence[Mapping[str, object]]) -> None:
    """Inserts a row for each mapping from columns to values, with the template's values in all other columns.

    For batches in which most columns are equal: an instance per row costs more than all the rest. Every mapping names
    the same columns; the rules for values of `insert_rows` apply here too.
    """
    if not rows:
        return
    fields = _given(template)
    columns = {str(field.column): field for field in fields if field.column not in rows[0]}
    alike = {column: getattr(template, field.attname) for column, field in columns.items()}
    _insert(template, fields, alike, rows)


def _insert(
    one: Model, fields: Sequence["Field[Any, Any]"], alike: Mapping[str, object], rows: Sequence[Mapping[str, object]]
) -> None:
    quote = connection.ops.quote_name
    table = quote(one._meta.db_table)  # noqa: SLF001 - Django's public API for models
    columns = ", ".join(quote(str(field.column)) for field in fields)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({columns}) SELECT {columns}"  # noqa: S608 - names of our own tables and columns
            f" FROM json_populate_recordset(json_populate_record(NULL::{table}, %s::json), %s::json)",
            [msgspec.json.encode(alike).decode(), msgspec.json.encode(rows).decode()],
        )


def _given(row: Model) -> list["Field[Any, Any]"]:
    return [field for field in row._meta.concrete_fields if _has_value(row, field)]  # noqa: SLF001 - Django's public API for models


def _has_value(row: Model, field: "Field[Any, Any]") -> bool:
    value = getattr(row, field.attname)
    return not isinstance(value, DatabaseDefault) and not (value is None and field.primary_key)
