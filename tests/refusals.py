"""What the database refused, and why."""

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction
from psycopg.errors import InsufficientPrivilege

NO_RIGHT = "no right"


def constraint_of(refusal: BaseException) -> str:
    """The constraint or trigger that one of Django's database errors names; empty if it names none."""
    assert isinstance(refusal.__cause__, psycopg.Error), refusal
    return refusal.__cause__.diag.constraint_name or ""


def refusal_of(statement: str) -> str:
    """The constraint or trigger that refuses a statement; NO_RIGHT if the role may not run it. The statement must be refused."""
    with pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    return NO_RIGHT if isinstance(refused.value.__cause__, InsufficientPrivilege) else constraint_of(refused.value)
