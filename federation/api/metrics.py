"""/metrics of the web process: what its requests counted, and the state of the database at this moment.

`foundation.scraping` says who may read it, and serves what the other processes counted.
"""

from collections.abc import Iterator

from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_GET
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from federation.operations import figures  # noqa: F401 - its counters register themselves
from federation.queries.figures import Standing, standing
from foundation.figures import counted
from foundation.scraping import may_scrape


class StandingCollector(Collector):
    """Asks the database once a scrape."""

    def collect(self) -> Iterator[Metric]:
        """The gauges."""
        yield from _gauges(standing())


def _gauges(now: Standing) -> Iterator[Metric]:
    queued = GaugeMetricFamily("switchyard_jobs_queued", "Queued jobs by why they wait.", labels=["reason"])
    for reason, jobs in sorted(now.queued_by_reason.items()):
        queued.add_metric([reason], jobs)
    yield queued
    live = GaugeMetricFamily(
        "switchyard_attempts_live", "Live attempts by cluster and state.", labels=["cluster", "state"]
    )
    for (cluster, state), attempts in sorted(now.live_by_cluster_and_state.items()):
        live.add_metric([cluster, state], attempts)
    yield live
    yield GaugeMetricFamily("switchyard_holds_pending", "Holds on quota not yet ended.", value=now.pending_holds)
    yield GaugeMetricFamily(
        "switchyard_attempts_unsettled", "Ended attempts whose usage is not posted yet.", value=now.unsettled_attempts
    )
    yield GaugeMetricFamily(
        "switchyard_attempts_in_trouble",
        "Attempts whose usage cannot be recorded; their job's events say why.",
        value=now.attempts_in_trouble,
    )
    yield GaugeMetricFamily(
        "switchyard_book_findings",
        "Errors found by the last proof of the ledger; `manage.py prove_ledger` lists them.",
        value=now.book_findings,
    )
    yield GaugeMetricFamily(
        "switchyard_negative_node_hours",
        "Hours of nodes for which jobs paid more than the node cost, not yet decided.",
        value=now.negative_node_hours,
    )
    yield GaugeMetricFamily(
        "switchyard_books_proven_age_seconds", "Since the ledger was last proven.", value=now.books_proven_age_seconds
    )
    yield GaugeMetricFamily("switchyard_outbox_messages", "Wake-ups not yet delivered.", value=now.outbox_messages)
    yield GaugeMetricFamily("switchyard_outbox_lag_seconds", "Age of the oldest wake-up.", value=now.outbox_lag_seconds)
    yield from _cluster_gauges(now)
    age = GaugeMetricFamily("switchyard_routine_age_seconds", "Since a routine last finished.", labels=["routine"])
    for routine, seconds in sorted(now.routine_age_seconds.items()):
        age.add_metric([routine], seconds)
    yield age
    yield from _failure_gauges(now)
    yield from _budget_gauges(now)
    yield from _audit_gauges(now)
    yield from _standstill_gauges(now)


def _standstill_gauges(now: Standing) -> Iterator[Metric]:
    """Whether dispatch is closed, and whether the gateway would notice that it must be."""
    yield GaugeMetricFamily(
        "switchyard_dispatch_closed",
        "1 while nothing is placed or dispatched, because the database was restored or an operator paused it.",
        value=int(now.is_dispatch_closed),
    )
    yield GaugeMetricFamily(
        "switchyard_dispatch_needs_operator",
        "1 while only an operator can open dispatch again.",
        value=int(now.needs_operator),
    )
    yield GaugeMetricFamily(
        "switchyard_database_history_known",
        "0 if PostgreSQL does not reveal its history: then only operators notice a restore or a failover.",
        value=int(now.is_history_known),
    )


def _cluster_gauges(now: Standing) -> Iterator[Metric]:
    """When each cluster last answered, and what stands against it."""
    lag = GaugeMetricFamily("switchyard_observer_lag_seconds", "Since a cluster last answered.", labels=["cluster"])
    for cluster, seconds in sorted(now.observer_lag_seconds.items()):
        lag.add_metric([cluster], seconds)
    yield lag
    against = GaugeMetricFamily(
        "switchyard_cluster_findings",
        "1 while a finding stands against a cluster, by cluster and code.",
        labels=["cluster", "code"],
    )
    for found_on, code in sorted(now.cluster_findings):
        against.add_metric([found_on, code], 1)
    yield against


def _budget_gauges(now: Standing) -> Iterator[Metric]:
    """The thresholds that budgets have reached, and those that they are expected to reach."""
    spent = GaugeMetricFamily(
        "switchyard_budget_alert_percent",
        "The highest threshold that a budget's current period has reached.",
        labels=["tenant", "measure", "period"],
    )
    for names, percent in sorted(now.budget_alerts.items()):
        spent.add_metric(names, percent)
    yield spent
    expected = GaugeMetricFamily(
        "switchyard_budget_forecast_alert_percent",
        "The highest threshold that a budget's current period was expected to reach.",
        labels=["tenant", "measure", "period"],
    )
    for names, percent in sorted(now.budget_forecast_alerts.items()):
        expected.add_metric(names, percent)
    yield expected


def _failure_gauges(now: Standing) -> Iterator[Metric]:
    """What the failures of attempts led to."""
    brakes = GaugeMetricFamily(
        "switchyard_retry_brake",
        "1 while retries wait on a cluster, because too many attempts failed there; without a name, on all clusters.",
        labels=["cluster"],
    )
    for cluster, is_pulled in sorted(({"": 0} | dict(now.retry_brakes)).items()):
        brakes.add_metric([cluster], is_pulled)
    yield brakes
    avoided = GaugeMetricFamily(
        "switchyard_nodes_avoided", "Nodes that jobs avoid because they made jobs fail.", labels=["cluster"]
    )
    for cluster, nodes in sorted(now.avoided_nodes.items()):
        avoided.add_metric([cluster], nodes)
    yield avoided


def _audit_gauges(now: Standing) -> Iterator[Metric]:
    """The audit trail's anchor: a copy outside the database, which its owner cannot change."""
    head = GaugeMetricFamily(
        "switchyard_audit_head_info", "The audit trail's last anchored head.", labels=["position", "hash"]
    )
    head.add_metric([str(now.audit_position), now.audit_hash], 1)
    yield head
    yield GaugeMetricFamily(
        "switchyard_audit_position", "Position of that head; it never goes back.", value=now.audit_position
    )
    yield GaugeMetricFamily(
        "switchyard_audit_faults", "1 while the audit trail fails its check.", value=int(now.audit_has_fault)
    )
    yield GaugeMetricFamily(
        "switchyard_audit_checked_age_seconds", "Since the trail was last checked.", value=now.audit_checked_age_seconds
    )


@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    """All figures; absent (404) for those who may not have them."""
    if not may_scrape(request.META):
        raise Http404
    return HttpResponse(_all(), content_type=CONTENT_TYPE_LATEST)


def web_figures() -> bytes:
    """All figures, for the web process's metrics port: outside a request, nothing else looks after the connection."""
    try:
        return _all()
    finally:
        connection.close()


def _all() -> bytes:
    registry = CollectorRegistry()
    registry.register(StandingCollector())
    return generate_latest(registry) + counted()
