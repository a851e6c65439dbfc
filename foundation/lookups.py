"""A lookup whose SQL text does not depend on the number of values, so that the statement is prepared once.

Django's `__in` writes one placeholder per value: every length is another statement.
"""

from typing import Any

from django.db.models import Lookup


class AnyOf(Lookup):
    """`field__any_of=values`: as `__in`, with one placeholder for all values."""

    lookup_name = "any_of"
    prepare_rhs = False

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        left, parameters = self.process_lhs(compiler, connection)
        field = self.lhs.output_field
        values = [field.get_db_prep_value(value, connection) for value in self.rhs]
        return f"{left} = ANY(%s::{field.cast_db_type(connection)}[])", [*parameters, values]
