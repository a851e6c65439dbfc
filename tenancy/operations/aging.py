"""Reports or deletes the room's outdated rows once a minute."""

from .idempotency import forget_old_answers
from .refusals import tell_counted_refusals
from .sign_in_tries import forget_old_tries


def forget_what_is_over() -> None:
    """Responses too old to be repeated, budgets that are full again, and counts of refusals, which become entries."""
    tell_counted_refusals()
    forget_old_tries()
    forget_old_answers()
