"""Column lists from the models, and inserts of many rows with one statement and one parameter.

Django's `bulk_create` compiles an expression for each value, and psycopg then parses a statement with a hundred
thousand placeholders: that is most of a batch's cost. Here the rows travel as one JSON text that PostgreSQL unpacks.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from django.db import connection
from django.db.models import Field, Model
from django.db.models.expressions import DatabaseDefault
from psycopg.types.range import Range


def columns_of(model: type[Model], *, without: Collection[str] = ()) -> tuple[str, ...]:
    """The columns of a model in its order, for a statement written by hand. LookupError if one of `without` is unknown."""
    columns = [str(field.column) for field in model._meta.concrete_fields]
    if unknown := set(without).difference(columns):
        raise LookupError(f"{model.__name__} has no columns {sorted(unknown)}")
    return tuple(column for column in columns if column not in without)


def insertion(model: type[Model], columns: Iterable[str], *, alias: str = "") -> str:
    """The text of an INSERT that gets its rows from two parameters (`as_parameters`); a clause such as ON CONFLICT may
    follow.
    """
    table = connection.ops.quote_name(model._meta.db_table)
    named = ", ".join(connection.ops.quote_name(column) for column in columns)
    return (
        f"INSERT INTO {table}{alias and f' AS {alias}'} ({named}) SELECT {named}"
        f" FROM json_populate_recordset(json_populate_record(NULL::{table}, %s::json), %s::json)"
    )


def as_parameters(alike: Mapping[str, object], rows: Sequence[Mapping[str, object]]) -> list[str]:
    """The parameters of an `insertion`: values by column that all rows share, and each row's own."""
    return [msgspec.json.encode(given, enc_hook=_as_text).decode() for given in (alike, rows)]


def _as_text(value: object) -> str:
    if not isinstance(value, Range):
        raise NotImplementedError(f"a {type(value).__name__} has no form in JSON")
    lower, upper = ("" if bound is None else f'"{bound}"' for bound in (value.lower, value.upper))
    return "empty" if value.isempty else f"{value.bounds[0]}{lower},{upper}{value.bounds[1]}"


def insert_rows(rows: Sequence[Model]) -> None:
    """Inserts new rows of one model; it does not return the keys that the database generates.

    A column without a value in any row gets the database's default. JSON fields must contain JSON objects or arrays,
    and binary fields are not supported.
    """
    if not rows:
        return
    fields = _given(rows[0])
    _insert(rows[0], fields, {}, [{str(field.column): getattr(row, field.attname) for field in fields} for row in rows])


def insert_missing(row: Model) -> Any:
    """Inserts the row unless it violates a unique constraint, also one that another transaction is about to fulfil, for which
    it waits. The key that the database generates; None if nothing was inserted.
    """
    fields = _given(row)
    columns = [str(field.column) for field in fields]
    key = connection.ops.quote_name(str(row._meta.pk.column))
    values = {column: getattr(row, field.attname) for column, field in zip(columns, fields, strict=True)}
    with connection.cursor() as cursor:
        cursor.execute(
            f"{insertion(type(row), columns)} ON CONFLICT DO NOTHING RETURNING {key}", as_parameters(values, [{}])
        )
        found = cursor.fetchone()
    return found and found[0]


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
    statement = insertion(type(one), (str(field.column) for field in fields))
    with connection.cursor() as cursor:
        cursor.execute(statement, as_parameters(alike, rows))


def _given(row: Model) -> list["Field[Any, Any]"]:
    return [field for field in row._meta.concrete_fields if _has_value(row, field)]


def _has_value(row: Model, field: "Field[Any, Any]") -> bool:
    value = getattr(row, field.attname)
    return not isinstance(value, DatabaseDefault) and not (value is None and field.primary_key)
