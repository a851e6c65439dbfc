"""Celery's doors of this room."""

from celery import shared_task

from foundation.routines import run_exclusively

from . import operations


@shared_task(queue="notify")
def forget_what_is_over() -> None:
    """Drops what was kept for a while, and tells counted refusals in the audit trail."""
    run_exclusively("forget", operations.forget_what_is_over)


@shared_task(queue="notify")
def anchor_audit() -> None:
    """Reads what is new in the audit trail and writes its head down outside the database."""
    run_exclusively("anchor", operations.anchor_audit)
