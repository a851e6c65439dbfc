"""The room's Celery tasks."""

from celery import shared_task

from foundation.routines import run_exclusively

from . import operations


@shared_task(queue="notify")
def forget_what_is_over() -> None:
    """Deletes outdated rows, and writes counted refusals to the audit trail."""
    run_exclusively("forget", operations.forget_what_is_over)


@shared_task(queue="notify")
def anchor_audit() -> None:
    """Verifies the new part of the audit trail and records its head outside the database."""
    run_exclusively("anchor", operations.anchor_audit)
