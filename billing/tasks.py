"""Celery's entry points. A message only says "work now": tasks have no arguments, find the rows themselves, and may run
twice.
"""

from celery import shared_task

from foundation.routines import run_in_turns

from .operations import periods


@shared_task(queue="bill")
def post_ledger() -> None:
    """Posts the cost of ended days to the ledger and closes months, together with other workers."""
    run_in_turns("post", periods.keep_ledger)
