"""Celery's doors. A message only says "look now": tasks carry nothing, claim rows by themselves, and may run twice."""

from typing import Any

from celery import shared_task

from foundation.routines import run_exclusively

from . import operations


@shared_task(queue="cycle")
def run_scheduling_cycle(**_: Any) -> None:
    """Places what can be placed."""
    run_exclusively("cycle", operations.run_scheduling_cycle)


@shared_task(queue="bill")
def foretell_starts(**_: Any) -> None:
    """Tells those who wait when they may expect to start."""
    run_exclusively("foretell", operations.foretell_starts)


@shared_task(queue="dispatch")
def dispatch_attempts(**_: Any) -> None:
    """Visits clusters for attempts that are due. Not exclusive: claims keep workers apart."""
    run_exclusively("dispatch", operations.dispatch_attempts)


@shared_task(queue="observe")
def settle_attempts(**_: Any) -> None:
    """Turns what ran into usage and ends holds."""
    run_exclusively("settle", operations.settle_attempts)


@shared_task(queue="observe")
def reconcile_clusters(**_: Any) -> None:
    """Compares rows with clusters."""
    run_exclusively("reconcile", operations.reconcile_clusters)


@shared_task(queue="observe")
def sweep(**_: Any) -> None:
    """Follows clusters that fell silent or came back, and attempts that do not start."""
    run_exclusively("sweep", operations.sweep)


@shared_task(queue="bill")
def accrue_running(**_: Any) -> None:
    """Brings the usage of long jobs up to date."""
    run_exclusively("accrue", operations.accrue_running)
