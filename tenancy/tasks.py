"""Celery's doors of this room."""

from celery import shared_task

from foundation.routines import run_exclusively

from . import operations


@shared_task(queue="notify")
def forget_old_answers() -> None:
    """Drops answers kept for repeated requests once they are too old to be repeated."""
    run_exclusively("forget", operations.forget_old_answers)


@shared_task(queue="notify")
def anchor_audit() -> None:
    """Reads what is new in the audit trail and writes its head down outside the database."""
    run_exclusively("anchor", operations.anchor_audit)
