"""Recommendations to partition GPUs of a cluster otherwise, on their page."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from clusters.models import Cluster
from federation.queries.partitions import RECENT_DAYS, Recommendation, recommendations
from foundation.pages import check_parameters, show
from tenancy.queries import Actor
from tenancy.web import page


@dataclass(frozen=True, slots=True)
class PartitionsPage:
    """The recommendations for a cluster."""

    cluster: Cluster
    found: Sequence[Recommendation]
    days: int = RECENT_DAYS


@page
def partitions(request: HttpRequest, actor: Actor, cluster_id: UUID) -> HttpResponse:
    """What is recommended for a cluster now."""
    check_parameters(request, ())
    return show(request, "federation/partitions.html", PartitionsPage(*recommendations(actor, cluster_id)))
