"""Numbers of tables are numbers: PostgreSQL takes `NaN` as greater than every number, so that `NaN >= 0` is true."""

from functools import reduce
from operator import and_
from typing import Any

from django.db.models import BooleanField, CheckConstraint, Func, Q


class IsFinite(Func):
    """Whether a numeric column is neither NaN nor infinite; null if it is null."""

    template = "(%(expressions)s NOT IN ('NaN', 'Infinity', '-Infinity'))"
    output_field: Any = BooleanField()


def finite(name: str, *fields: str) -> CheckConstraint:
    """The constraint that these columns of a table are finite, or null."""
    return CheckConstraint(condition=reduce(and_, (Q(IsFinite(field)) for field in fields)), name=name)
