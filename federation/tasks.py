"""Celery's entry points. A message only says "work now": tasks have no arguments, claim rows themselves, and may run
twice.
"""

from celery import shared_task

from foundation.routines import run_exclusively, run_in_turns

from . import operations


@shared_task(queue="cycle")
def run_scheduling_cycle() -> None:
    """Places what can be placed."""
    run_exclusively("cycle", operations.run_scheduling_cycle)


@shared_task(queue="bill")
def expect_starts() -> None:
    """Computes when waiting jobs are expected to start."""
    run_exclusively("expect", operations.expect_starts)


@shared_task(queue="dispatch")
def dispatch_attempts() -> None:
    """Visits clusters with due attempts, together with other workers."""
    run_in_turns("dispatch", operations.dispatch_attempts)


@shared_task(queue="observe")
def examine_failures() -> None:
    """Judges failed attempts whose diagnosis needs their clusters."""
    run_exclusively("examine", operations.examine_failures)


@shared_task(queue="observe")
def weigh_failures() -> None:
    """Finds nodes that make jobs fail, and makes retries wait while too much fails."""
    run_exclusively("weigh", operations.weigh_failures)


@shared_task(queue="observe")
def relocate_jobs() -> None:
    """Moves jobs that would soon be stopped where they run."""
    run_exclusively("relocate", operations.relocate_jobs)


@shared_task(queue="observe")
def settle_attempts() -> None:
    """Posts the usage of ended attempts and ends their holds."""
    run_exclusively("settle", operations.settle_attempts)


@shared_task(queue="observe")
def reconcile_clusters() -> None:
    """Compares due clusters with the rows, together with other workers."""
    run_in_turns("reconcile", operations.compare_clusters)


@shared_task(queue="observe")
def sweep() -> None:
    """Handles clusters that stopped answering or reconnected, and attempts that do not start."""
    run_exclusively("sweep", operations.sweep)


@shared_task(queue="bill")
def accrue_running() -> None:
    """Updates the usage of long jobs."""
    run_exclusively("accrue", operations.accrue_running)


@shared_task(queue="notify", time_limit=7200, soft_time_limit=7000)
def prove_books() -> None:
    """Recomputes the part of the ledger that has changed since the last proof."""
    run_exclusively("prove", operations.prove_books)


@shared_task(queue="observe")
def stage_data() -> None:
    """Copies datasets to storages of clusters, for the jobs that wait for them."""
    run_exclusively("stage", operations.stage_data)


@shared_task(queue="observe")
def keep_images() -> None:
    """Pulls images to the nodes that should have them."""
    run_exclusively("prepull", operations.keep_images)


@shared_task(queue="notify")
def measure_utilisation() -> None:
    """Asks the Prometheus of clusters what the GPUs of jobs did, together with other workers."""
    run_in_turns("measure", operations.measure_utilisation)


@shared_task(queue="notify")
def find_recommendations() -> None:
    """Finds what is recommended to the tenants of each organisation."""
    run_exclusively("advise", operations.find_recommendations)
