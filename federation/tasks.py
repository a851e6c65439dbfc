"""Celery's doors. A message only says "look now": tasks carry nothing, claim rows by themselves, and may run twice."""

from celery import shared_task

from foundation.routines import run_exclusively, run_in_turns

from . import operations


@shared_task(queue="cycle")
def run_scheduling_cycle() -> None:
    """Places what can be placed."""
    run_exclusively("cycle", operations.run_scheduling_cycle)


@shared_task(queue="bill")
def expect_starts() -> None:
    """Tells those who wait when they may expect to start."""
    run_exclusively("expect", operations.expect_starts)


@shared_task(queue="dispatch")
def dispatch_attempts() -> None:
    """Visits clusters for attempts that are due, beside other workers."""
    run_in_turns("dispatch", operations.dispatch_attempts)


@shared_task(queue="observe")
def settle_attempts() -> None:
    """Turns what ran into usage and ends holds."""
    run_exclusively("settle", operations.settle_attempts)


@shared_task(queue="observe")
def reconcile_clusters() -> None:
    """Compares rows with those clusters that are due for it, beside other workers."""
    run_in_turns("reconcile", operations.compare_clusters)


@shared_task(queue="observe")
def sweep() -> None:
    """Follows clusters that fell silent or came back, and attempts that do not start."""
    run_exclusively("sweep", operations.sweep)


@shared_task(queue="bill")
def accrue_running() -> None:
    """Brings the usage of long jobs up to date."""
    run_exclusively("accrue", operations.accrue_running)


@shared_task(queue="notify", time_limit=7200, soft_time_limit=7000)
def prove_books() -> None:
    """Works the books out again, as far as they have changed since the last proof."""
    run_exclusively("prove", operations.prove_books)
