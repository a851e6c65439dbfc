"""Budgets of attempts to sign in. An attempt is taken before the password is checked, so that parallel guesses cannot
exceed the budget. Budgets are rows, not cache entries: clearing the cache must not make guessing free.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from django.db import connection

from foundation.clock import now
from tenancy.models import SignInTry

WINDOW = timedelta(minutes=15)
_TAKE = """
    INSERT INTO tenancy_signintry AS budget (key, tries, until) VALUES (%(key)s, 1, %(until)s)
    ON CONFLICT (key) DO UPDATE SET
        tries = CASE WHEN budget.until <= %(at)s THEN 1 ELSE budget.tries + 1 END,
        until = CASE WHEN budget.until <= %(at)s THEN excluded.until ELSE budget.until END
     WHERE budget.until <= %(at)s OR budget.tries < %(most)s
    RETURNING tries
"""
_RETURN = "UPDATE tenancy_signintry SET tries = greatest(tries - 1, 0) WHERE key = %s"


def take_try(budgets: Mapping[str, int]) -> bool:
    """Takes one attempt from each budget (its key and its size), or in the end from none.

    Each is taken by a separate statement, the narrowest first. So an exhausted budget affects no wider one, no two wait
    for each other, and a crash in between can only lose an attempt.
    """
    at = now()
    taken: list[str] = []
    for key, most in budgets.items():
        with connection.cursor() as cursor:
            cursor.execute(_TAKE, {"key": key, "at": at, "until": at + WINDOW, "most": most})
            if cursor.fetchone() is None:
                return_try(taken)
                return False
        taken.append(key)
    return True


def return_try(keys: Sequence[str]) -> None:
    """Returns one attempt to each budget: it was no guess."""
    for key in keys:
        with connection.cursor() as cursor:
            cursor.execute(_RETURN, [key])


def refill(key: str) -> None:
    """Refills a budget: its owner has proved their identity."""
    SignInTry.objects.filter(key=key).delete()


def forget_old_tries() -> int:
    """Deletes budgets that are full again; returns their number."""
    return SignInTry.objects.filter(until__lte=now()).delete()[0]
