"""What the database refused, and why."""

import psycopg


def constraint_of(refusal: BaseException) -> str:
    """The constraint or trigger that one of Django's database errors names; empty if it names none."""
    assert isinstance(refusal.__cause__, psycopg.Error), refusal
    return refusal.__cause__.diag.constraint_name or ""
