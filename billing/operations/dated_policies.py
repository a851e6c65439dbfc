"""What policies of an organisation that begin with a month have in common."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import IntegrityError

from foundation.problems import Conflict


@contextmanager
def in_open_months() -> Iterator[None]:
    """Makes Conflict `month_is_closed` of a policy that would change a month that is closed or closing: the database refuses it."""
    try:
        yield
    except IntegrityError as error:
        if _constraint(error) != "policy_changes_no_closed_month":
            raise
        raise Conflict(
            "That month, or a later one, is closed or closing. Let the policy begin with an open month.",
            code="month_is_closed",
        ) from error


@contextmanager
def in_unconverted_months() -> Iterator[None]:
    """Makes Conflict `month_is_converted` of a currency for a month in which amounts were converted: the database refuses it."""
    try:
        yield
    except IntegrityError as error:
        if _constraint(error) != "currency_changes_no_converted_month":
            raise
        detail = "Charges of that month, or of a later one, are already converted. Let the currency begin with a later month."
        raise Conflict(detail, code="month_is_converted") from error


def _constraint(error: IntegrityError) -> str:
    return str(getattr(getattr(error.__cause__, "diag", None), "constraint_name", ""))
