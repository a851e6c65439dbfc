"""Whether the installation is in a standstill, and what must be resolved before dispatch may open."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Max

from clusters.models import Cluster
from federation.models import ComparedCluster, Standstill
from tenancy.queries import Actor, require_operator


@dataclass(frozen=True, slots=True)
class Left:
    """What prevents dispatch, by cluster name."""

    uncompared: tuple[str, ...]
    strangers: tuple[tuple[str, int], ...]
    """Objects that may run and belong to no known attempt."""

    @property
    def is_nothing(self) -> bool:
        """Whether every cluster was compared and everything that runs is known."""
        return not self.uncompared and not self.strangers


@dataclass(frozen=True, slots=True)
class Standing:
    """The standstill as operators see it; `began_at` is None while dispatch is open."""

    began_at: datetime | None
    reason: str
    left: Left


def standing_for(actor: Actor) -> Standing:
    """The standstill; for operators only, because it names clusters of every organisation."""
    require_operator(actor, "see and end a standstill")
    standstill = open_standstill()
    if standstill is None:
        return Standing(None, "", Left((), ()))
    return Standing(standstill.began_at, standstill.reason, left_of(standstill))


def open_standstill() -> Standstill | None:
    """The standstill that has not ended, if any."""
    return Standstill.objects.filter(ended_at=None).first()


def left_of(standstill: Standstill) -> Left:
    """What the comparisons since its beginning have left for operators."""
    compared = ComparedCluster.objects.filter(standstill=standstill)
    known = compared.values("cluster_id")
    uncompared = Cluster.objects.filter(removed_at=None).exclude(id__in=known).order_by("name")
    strange = compared.filter(strangers__gt=0, cluster__removed_at=None).order_by("cluster__name")
    return Left(
        tuple(uncompared.values_list("name", flat=True)), tuple(strange.values_list("cluster__name", "strangers"))
    )


def answered_for_at(cluster_id: UUID) -> datetime | None:
    """When an operator last opened dispatch after a standstill in which this cluster was compared, and so answered for
    what ran there; None if never.
    """
    ended = ComparedCluster.objects.filter(cluster_id=cluster_id, standstill__ended_at__isnull=False)
    found: datetime | None = ended.aggregate(at=Max("standstill__ended_at"))["at"]
    return found
