"""What policies of an organisation that begin with a month have in common."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import IntegrityError

from foundation.problems import Conflict


@contextmanager
def in_open_months() -> Iterator[None]:
    """Makes Conflict `month_is_closed` of a policy that would change a month that is closed or closing: the database refuses it."""
    with refused(
        "policy_changes_no_closed_month",
        "That month, or a later one, is closed or closing. Let the policy begin with an open month.",
        code="month_is_closed",
    ):
        yield


@contextmanager
def in_unconverted_months() -> Iterator[None]:
    """Makes Conflict `month_is_converted` of a currency for a month in which amounts were converted: the database refuses it."""
    with refused(
        "currency_changes_no_converted_month",
        "Charges of that month, or of a later one, are already converted. Let the currency begin with a later month.",
        code="month_is_converted",
    ):
        yield


@contextmanager
def refused(constraint: str, detail: str, *, code: str) -> Iterator[None]:
    """Makes a Conflict of what a constraint of the database refuses."""
    try:
        yield
    except IntegrityError as error:
        if getattr(getattr(error.__cause__, "diag", None), "constraint_name", "") != constraint:
            raise
        raise Conflict(detail, code=code) from error
