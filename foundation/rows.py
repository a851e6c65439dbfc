"""Many new rows in one statement with one parameter.

Django's `bulk_create` compiles an expression for each value and psycopg then reads through a statement of a hundred
thousand placeholders: most of what a batch costs. Here the rows travel as one JSON text that PostgreSQL takes apart.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from django.db import connection
from django.db.models import Field, Model
from django.db.models.expressions import DatabaseDefault


def insert_rows(rows: Sequence[Model]) -> None:
    """Stores new rows of one model, which need not know the keys that the database gives them.

    A column that no row has a value for gets the database's default. JSON fields must hold JSON objects or arrays, and
    there may be no binary fields.
    """
    if not rows:
        return
    meta = rows[0]._meta  # noqa: SLF001 - Django's public API for models
    fields = [field for field in meta.concrete_fields if _has_value(rows[0], field)]
    values = [{field.column: getattr(row, field.attname) for field in fields} for row in rows]
    quote = connection.ops.quote_name
    table, columns = quote(meta.db_table), ", ".join(quote(str(field.column)) for field in fields)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({columns}) SELECT {columns} FROM json_populate_recordset(NULL::{table}, %s::json)",  # noqa: S608 - names of our own tables and columns
            [msgspec.json.encode(values).decode()],
        )


def _has_value(row: Model, field: "Field[Any, Any]") -> bool:
    value = getattr(row, field.attname)
    return not isinstance(value, DatabaseDefault) and not (value is None and field.primary_key)
