"""The current state in numbers: waiting jobs by reason, live attempts by cluster, and lags."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Count, Min

from billing.queries.budgets import highest_alerts, highest_forecast_alerts
from clusters.models import AvoidedNode, Cluster
from federation.engine.lifecycle import JobState
from federation.models import LIVE_ATTEMPT_STATES, Attempt, Job
from federation.queries.failure_rates import brakes
from federation.queries.standstill import circumstances
from foundation import clock
from foundation.models import OutboxMessage, Routine
from tenancy.queries import audit_watch


@dataclass(frozen=True, slots=True)
class Standing:
    """One reading of the database. Lags are in seconds; a cluster that was never seen has none."""

    queued_by_reason: Mapping[str, int]
    live_by_cluster_and_state: Mapping[tuple[str, str], int]
    pending_holds: int
    unsettled_attempts: int
    attempts_in_trouble: int
    book_findings: int
    negative_node_hours: int
    books_proven_age_seconds: float
    outbox_messages: int
    outbox_lag_seconds: float
    observer_lag_seconds: Mapping[str, float]
    cluster_findings: frozenset[tuple[str, str]]
    """The names of clusters, and the codes of what stands against each."""
    routine_age_seconds: Mapping[str, float]
    retry_brakes: Mapping[str, int]
    """By cluster; the empty name is the brake on all of them."""
    avoided_nodes: Mapping[str, int]
    budget_alerts: Mapping[tuple[str, str, str], int]
    """The highest threshold reached, by tenant, measure and kind of period."""
    budget_forecast_alerts: Mapping[tuple[str, str, str], int]
    """The highest that is expected to be reached."""
    audit_position: int
    audit_hash: str
    audit_checked_age_seconds: float
    audit_has_fault: bool
    is_dispatch_closed: bool
    needs_operator: bool
    """Whether only an operator can open dispatch again."""
    is_history_known: bool
    """Whether PostgreSQL reveals its history, by which the gateway notices restores and failovers."""


def standing() -> Standing:
    """Twelve small queries, each over live rows."""
    at = clock.now()
    queued = Job.objects.filter(state=JobState.QUEUED).values("reason_code").annotate(n=Count("*")).order_by()
    live = (
        Attempt.objects.filter(state__in=LIVE_ATTEMPT_STATES)
        .values("cluster__name", "state")
        .annotate(n=Count("*"))
        .order_by()
    )
    outbox = OutboxMessage.objects.aggregate(n=Count("*"), oldest=Min("created_at"))
    seen = Cluster.objects.exclude(last_seen_at=None).values_list("name", "last_seen_at", "reasons")
    finished = Routine.objects.exclude(finished_at=None).values_list("name", "finished_at")
    avoided = AvoidedNode.objects.filter(ended_at=None).values("cluster__name").annotate(n=Count("*")).order_by()
    watch, now = audit_watch(), circumstances()
    return Standing(
        queued_by_reason={row["reason_code"]: row["n"] for row in queued},
        live_by_cluster_and_state={(row["cluster__name"], row["state"]): row["n"] for row in live},
        **_money(),
        outbox_messages=outbox["n"],
        outbox_lag_seconds=_age(at, outbox["oldest"]),
        observer_lag_seconds={name: _age(at, last) for name, last, _ in seen},
        cluster_findings=frozenset((name, reason["code"]) for name, _, reasons in seen for reason in reasons),
        routine_age_seconds={name: _age(at, last) for name, last in finished},
        retry_brakes={brake.cluster: 1 for brake in brakes()},
        avoided_nodes={row["cluster__name"]: row["n"] for row in avoided},
        budget_alerts=highest_alerts(),
        budget_forecast_alerts=highest_forecast_alerts(),
        audit_position=watch.position,
        audit_hash=bytes(watch.hash).hex(),
        audit_checked_age_seconds=_age(at, watch.checked_at),
        audit_has_fault=bool(watch.fault),
        is_dispatch_closed=now.standstill_id is not None or now.is_changed,
        needs_operator=now.needs_operator,
        is_history_known=now.is_history_known,
    )


MONEY = """
SELECT (SELECT count(*) FROM quotas_hold WHERE state = 'pending'),
       (SELECT count(*) FROM federation_attempt WHERE settled_at IS NULL AND finished_at IS NOT NULL),
       (SELECT count(*) FROM federation_attempt WHERE settle_error <> ''),
       coalesce((SELECT found FROM federation_bookproof ORDER BY id DESC LIMIT 1), 0),
       (SELECT count(*) FROM billing_negativenodehour WHERE state = 'open'),
       coalesce((SELECT extract(epoch FROM now() - began_at) FROM federation_bookproof ORDER BY id DESC LIMIT 1), 0)::float
"""


def _money() -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute(MONEY)
        names = (
            "pending_holds",
            "unsettled_attempts",
            "attempts_in_trouble",
            "book_findings",
            "negative_node_hours",
            "books_proven_age_seconds",
        )
        return dict(zip(names, cursor.fetchone(), strict=True))


def _age(at: datetime, since: datetime | None) -> float:
    return 0.0 if since is None else max((at - since).total_seconds(), 0.0)
