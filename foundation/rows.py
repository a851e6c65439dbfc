"""Many new rows in one statement with one parameter.

Django's `bulk_create` compiles an expression for each value and psycopg then reads through a statement of a hundred
thousand placeholders: most of what a batch costs. Here the rows travel as one JSON text that PostgreSQL takes apart.
"""

from collections.abc import Mapping, Sequence
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
    fields = _given(rows[0])
    _insert(rows[0], fields, {}, [{str(field.column): getattr(row, field.attname) for field in fields} for row in rows])


def insert_like(template: Model, rows: Sequence[Mapping[str, object]]) -> None:
    """Stores a row for each mapping from columns to values, with the template's values in all other columns.

    For batches of which most columns are alike: an instance a row costs more than all the rest. Every mapping names the
    same columns; what is said of values at `insert_rows` holds here too.
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
