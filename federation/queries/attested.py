"""Administrators' attestations of a cluster, and the runs there that may need one."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Max
from django.db.models.functions import Now

from clusters.engine.health import TOO_MANY_VANISHED
from clusters.models import ClusterEvent
from federation.models import LIVE_ATTEMPT_STATES, Attempt

LACKS_MANY = f"""cluster.reasons @> '[{{"code": "{TOO_MANY_VANISHED}"}}]'"""
"""A condition in a statement on `cluster`: it lacks too many objects of released attempts, and people must first find out what
still runs there. It would confirm that anything is gone, so nothing released is stopped there unless a user asks for it.
"""
VANISHED = "attested.vanished"
"""The kind of the cluster's event that attests the objects missing in its list."""
HOLDS_FOR = timedelta(hours=1)
MOST_RUNS = 500


@dataclass(frozen=True, slots=True)
class Word:
    """An attestation, and its scope: objects that were released before it."""

    at: datetime
    message: str


@dataclass(frozen=True, slots=True)
class LiveRun:
    """An attempt on a cluster that has not ended."""

    attempt_id: UUID
    number: int
    state: str
    job_id: UUID
    job: str
    tenant: str
    released_at: datetime | None
    seen_at: datetime | None
    """When its pods were last reported."""


def word_on_vanished(cluster_id: UUID) -> Word | None:
    """The newest attestation that the cluster's missing objects are gone; None if it is older than an hour."""
    events = ClusterEvent.objects.filter(cluster_id=cluster_id, kind=VANISHED, at__gt=Now() - HOLDS_FOR)
    newest = events.order_by("-at").values_list("at", "message").first()
    return None if newest is None else Word(*newest)


def live_runs(cluster_id: UUID) -> Sequence[LiveRun]:
    """The attempts that have not ended on a cluster, the oldest first."""
    rows = Attempt.objects.filter(cluster_id=cluster_id, state__in=LIVE_ATTEMPT_STATES).order_by("id")
    columns = rows.annotate(seen_at=Max("pods__observed_at")).values_list(
        "id", "number", "state", "job_id", "job__name", "job__tenant__path", "released_at", "seen_at"
    )
    return tuple(LiveRun(*row) for row in columns[:MOST_RUNS])
