"""The recurring routines, and how often each runs."""

from typing import Any

ROUTINES: dict[str, dict[str, Any]] = {
    "cycle": {
        "task": "federation.tasks.run_scheduling_cycle",
        "inline": "federation.operations.run_scheduling_cycle",
        "queue": "cycle",
        "every_seconds": 5,
        "gather_seconds": 0.4,  # more jobs per round cost less each; the first after a pause does not wait
    },
    "expect": {
        "task": "federation.tasks.expect_starts",
        "inline": "federation.operations.expect_starts",
        "queue": "bill",  # nothing there is urgent
        "every_seconds": 10,
    },
    "dispatch": {
        "task": "federation.tasks.dispatch_attempts",
        "inline": "federation.operations.dispatch_attempts",
        "in_turns": True,
        "queue": "dispatch",
        "every_seconds": 2,
        "gather_seconds": 0.05,  # a cycle announces it, so it already comes in batches
    },
    "examine": {
        "task": "federation.tasks.examine_failures",
        "inline": "federation.operations.examine_failures",
        "queue": "observe",
        "every_seconds": 10,
    },
    "weigh": {
        "task": "federation.tasks.weigh_failures",
        "inline": "federation.operations.weigh_failures",
        "queue": "observe",
        "every_seconds": 30,
    },
    "relocate": {
        "task": "federation.tasks.relocate_jobs",
        "inline": "federation.operations.relocate_jobs",
        "queue": "observe",
        "every_seconds": 15,
    },
    "prepull": {
        "task": "federation.tasks.keep_images",
        "inline": "federation.operations.keep_images",
        "queue": "observe",
        "every_seconds": 5,
    },
    "stage": {
        "task": "federation.tasks.stage_data",
        "inline": "federation.operations.stage_data",
        "queue": "observe",
        "every_seconds": 5,
    },
    "settle": {
        "task": "federation.tasks.settle_attempts",
        "inline": "federation.operations.settle_attempts",
        "queue": "observe",
        "every_seconds": 10,
    },
    "sweep": {
        "task": "federation.tasks.sweep",
        "inline": "federation.operations.sweep",
        "queue": "observe",
        "every_seconds": 5,
    },
    "reconcile": {
        "task": "federation.tasks.reconcile_clusters",
        "inline": "federation.operations.compare_clusters",
        "in_turns": True,
        "queue": "observe",
        "every_seconds": 2,  # few clusters at a time: each has its own time for comparison in its upkeep
    },
    "accrue": {
        "task": "federation.tasks.accrue_running",
        "inline": "federation.operations.accrue_running",
        "queue": "bill",
        "every_seconds": 900,
    },
    "post": {
        "task": "billing.tasks.post_ledger",
        "inline": "billing.operations.periods.keep_ledger",
        "in_turns": True,
        "queue": "bill",
        "every_seconds": 300,
    },
    "foresee": {
        "task": "billing.tasks.foresee_budgets",
        "inline": "billing.operations.forecasts.foresee_budgets",
        "queue": "notify",
        "every_seconds": 3600,
    },
    "inspect": {
        "task": "billing.tasks.inspect_spending",
        "inline": "billing.operations.anomalies.inspect_spending",
        "queue": "notify",
        "every_seconds": 86_400,
    },
    "alert": {
        "task": "billing.tasks.deliver_alerts",
        "inline": "billing.operations.deliveries.deliver_alerts",
        "in_turns": True,
        "queue": "notify",
        "every_seconds": 15,
    },
    "measure": {
        "task": "federation.tasks.measure_utilisation",
        "inline": "federation.operations.measure_utilisation",
        "in_turns": True,
        "queue": "notify",
        "every_seconds": 300,
    },
    "advise": {
        "task": "federation.tasks.find_recommendations",
        "inline": "federation.operations.find_recommendations",
        "queue": "notify",
        "every_seconds": 86_400,
    },
    "prove": {
        "task": "federation.tasks.prove_books",
        "inline": "federation.operations.prove_books",
        "queue": "notify",
        "every_seconds": 86_400,
    },
    "anchor": {
        "task": "tenancy.tasks.anchor_audit",
        "inline": "tenancy.operations.anchor_audit",
        "queue": "notify",
        "every_seconds": 60,
    },
    "forget": {
        "task": "tenancy.tasks.forget_what_is_over",
        "inline": "tenancy.operations.forget_what_is_over",
        "queue": "notify",
        "every_seconds": 60,
    },
}
"""Rung by announcements of the same name, and at least once per `every_seconds`. `inline` is what the bell runs itself while no
worker responds. All workers do `in_turns` routines side by side.
"""
