"""What to do when a statement names a table, column or function that the database does not have (yet)."""

from django.db import DatabaseError, ProgrammingError, connection

from .health import is_migrated
from .merged import advice_in_part

MISSING = frozenset({"42P01", "42703", "42883", "3F000"})
"""PostgreSQL's codes: no such table, column, function, schema."""
ADVICE = "The database lacks migrations of this version. Run `manage.py migrate`, then repeat this command."


def advice_for(error: ProgrammingError) -> str:
    """The advice for an error that missing migrations explain; empty if the database has all, so that it is a defect."""
    if getattr(error.__cause__, "sqlstate", "") not in MISSING:
        return ""
    try:
        return "" if is_migrated() else advice_in_part(connection) or ADVICE
    except DatabaseError:
        return ""
