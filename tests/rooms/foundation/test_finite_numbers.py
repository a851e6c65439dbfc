"""No numeric column takes what is not a number: in PostgreSQL `NaN >= 0` is true."""

import pytest
from django.apps import apps
from django.db import DataError, IntegrityError, connection, models, transaction

pytestmark = pytest.mark.django_db
ROOMS = ("billing", "clusters", "federation", "foundation", "quotas", "tenancy")
COLUMNS = [
    (model._meta.db_table, field.column)
    for room in ROOMS
    for model in apps.get_app_config(room).get_models()
    for field in model._meta.local_concrete_fields
    if isinstance(field, models.DecimalField | models.FloatField)
]
NUMBERS = ("0", "0.5", "1", "100")
"""Each column takes at least one of them."""
NO_NUMBERS = ("NaN", "Infinity", "-Infinity")


def takes(cursor, column: str, value: str) -> bool:
    """Whether a row of `copy` with this alone passes the checks."""
    try:
        with transaction.atomic():
            cursor.execute(f'INSERT INTO copy ("{column}") VALUES (%s)', [value])
    except (DataError, IntegrityError):
        return False
    return True


@pytest.mark.parametrize("table", dict.fromkeys(table for table, _ in COLUMNS))
def test_no_numeric_column_takes_what_is_not_a_number(table):
    with connection.cursor() as cursor:
        cursor.execute(f'CREATE TEMPORARY TABLE copy (LIKE "{table}" INCLUDING CONSTRAINTS) ON COMMIT DROP')
        cursor.execute(NOT_NULL, [table])
        for (name,) in cursor.fetchall():
            cursor.execute(f'ALTER TABLE copy ALTER COLUMN "{name}" DROP NOT NULL')
        cursor.execute(OF_SEVERAL_COLUMNS, [table])
        for (name,) in cursor.fetchall():
            cursor.execute(f'ALTER TABLE copy DROP CONSTRAINT "{name}"')
        for column in (column for of, column in COLUMNS if of == table):
            assert any(takes(cursor, column, number) for number in NUMBERS), f"{table}.{column} takes no number alone"
            taken = [value for value in NO_NUMBERS if takes(cursor, column, value)]
            assert not taken, f"{table}.{column} takes {taken}"
        cursor.execute("DROP TABLE copy")


OF_SEVERAL_COLUMNS = """
SELECT conname FROM pg_constraint
WHERE conrelid = %s::regclass AND contype = 'c' AND cardinality(conkey) > 1 AND conname NOT LIKE '%%\\_numbers\\_are\\_finite'
"""
"""Checks that may refuse a number because another column has none."""
NOT_NULL = (
    "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND attnotnull AND NOT attisdropped"
)


def test_every_numeric_column_of_the_database_is_one_of_a_model():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()"
            " AND data_type IN ('numeric', 'double precision', 'real') AND split_part(table_name, '_', 1) = ANY(%s)",
            [list(ROOMS)],
        )
        assert sorted(cursor.fetchall()) == sorted(COLUMNS)
