"""Budgets of tries to sign in. A try is taken before the password is looked at, so that no number of parallel guesses
gets more than the budget. They are rows, not cache entries: whoever empties the cache must not make guessing free.
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
    """Takes one try from each budget (its key and how many it has), or in the end from none.

    Each is taken by a statement of its own, the narrowest first: a spent one touches no wider one, no two wait for each
    other, and a crash in between can only leave a try too few.
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
    """Gives one try back to each budget: it was no guess."""
    for key in keys:
        with connection.cursor() as cursor:
            cursor.execute(_RETURN, [key])


def refill(key: str) -> None:
    """Fills a budget: its owner has proved to be who they say."""
    SignInTry.objects.filter(key=key).delete()


def forget_old_tries() -> int:
    """Drops budgets that are full again; how many."""
    return SignInTry.objects.filter(until__lte=now()).delete()[0]
