"""Whether the installation is in a standstill, and what must be resolved before dispatch may open."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import connection
from django.db.models import Count, F, Max, Sum, TextField
from django.db.models.expressions import Func

from clusters.models import Cluster
from federation.models import DISPATCH_IS_OPEN, ComparedCluster, Standstill
from tenancy.queries import Actor, require_operator

HISTORY_CHANGED = "The gateway's database was restored, or another server took over"
"""The reason of a standstill that the gateway begins itself."""
UNKNOWN_PART = "?"


@dataclass(frozen=True, slots=True)
class Found:
    """What the comparisons of a cluster show of lost commits."""

    cluster: str
    adopted: int
    """Attempts that were taken in, or whose release was forgotten."""
    vanished: int
    """Objects of live attempts that may have run and are gone."""


@dataclass(frozen=True, slots=True)
class Left:
    """What prevents dispatch, by cluster name."""

    uncompared: tuple[str, ...]
    strangers: tuple[tuple[str, int], ...]
    """Objects that may run and belong to no known attempt."""
    found: tuple[Found, ...] = ()

    @property
    def is_nothing(self) -> bool:
        """Whether every cluster was compared and everything that runs is known: then an operator may resume without a note."""
        return not self.uncompared and not self.strangers

    @property
    def is_clean(self) -> bool:
        """Whether moreover no comparison shows that commits were lost."""
        return self.is_nothing and not self.found


@dataclass(frozen=True, slots=True)
class Standing:
    """The standstill as operators see it; `began_at` is None while dispatch is open."""

    began_at: datetime | None
    reason: str
    left: Left
    is_closed: bool
    """Whether nothing is dispatched. That begins before the standstill does if the database's history has changed."""
    needs_operator: bool
    """Whether only an operator can end it; otherwise the gateway does, when every cluster was compared and nothing was found."""
    is_history_known: bool
    """Whether PostgreSQL reveals its history, so that the gateway can notice a restore or a failover."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a comparison depends on: it counts only if they are the same before the list and after it."""

    history: str
    """The database's own, now."""
    accepted: str | None
    """The history that the gateway accepted last; None before the first."""
    standstill_id: int | None
    needs_operator: bool
    is_settling: bool
    """Whether calls of before may still reach clusters, so that it is too early to compare."""

    @property
    def is_changed(self) -> bool:
        """Whether the database's history is not the accepted one: dispatch is closed."""
        return self.accepted not in (None, self.history)

    def is_still(self, now: "Circumstances") -> bool:
        """Whether these are the same standstill, if any, and the same history."""
        return (self.history, self.accepted, self.standstill_id) == (now.history, now.accepted, now.standstill_id)

    @property
    def is_history_known(self) -> bool:
        """Whether PostgreSQL reveals all parts of it."""
        return UNKNOWN_PART not in self.history.split("/")


CIRCUMSTANCES = """
SELECT federation_database_history(), accepted.accepted, standstill.id, coalesce(standstill.needs_operator, false),
       coalesce(standstill.compare_from > now(), false)
  FROM (SELECT) AS one
  LEFT JOIN federation_databasehistory AS accepted ON true
  LEFT JOIN federation_standstill AS standstill ON standstill.ended_at IS NULL
"""
IS_OPEN = f"SELECT {DISPATCH_IS_OPEN}"


def circumstances() -> Circumstances:
    """The database's history and the open standstill, in one statement."""
    with connection.cursor() as cursor:
        cursor.execute(CIRCUMSTANCES)
        return Circumstances(*cursor.fetchone())


def is_dispatch_closed() -> bool:
    """Whether a standstill is open, or must begin because the database's history has changed."""
    with connection.cursor() as cursor:
        cursor.execute(IS_OPEN)
        return not cursor.fetchone()[0]


def standing_for(actor: Actor) -> Standing:
    """The standstill; for operators only, because it names clusters of every organisation."""
    require_operator(actor, "see and end a standstill")
    return standing()


def standing() -> Standing:
    """The standstill, for commands on the host."""
    now, standstill = circumstances(), open_standstill()
    return Standing(
        began_at=standstill.began_at if standstill else None,
        reason=standstill.reason if standstill else HISTORY_CHANGED if now.is_changed else "",
        left=left_of(standstill) if standstill else Left((), ()),
        is_closed=standstill is not None or now.is_changed,
        needs_operator=standstill is not None and standstill.needs_operator,
        is_history_known=now.is_history_known,
    )


def open_standstill() -> Standstill | None:
    """The standstill that has not ended, if any."""
    return Standstill.objects.filter(ended_at=None).first()


def left_of(standstill: Standstill) -> Left:
    """What the comparisons since its beginning have left for operators. Those with an earlier history do not count."""
    compared = ComparedCluster.objects.filter(standstill=standstill)
    present = compared.filter(history=Func(function="federation_database_history", output_field=TextField()))
    uncompared = Cluster.objects.filter(removed_at=None).exclude(id__in=present.values("cluster_id")).order_by("name")
    registered = compared.filter(cluster__removed_at=None).order_by("cluster__name")
    strange = registered.filter(strangers__gt=0).values_list("cluster__name", "strangers")
    found = registered.annotate(sum=F("adopted") + F("vanished")).filter(sum__gt=0)
    return Left(
        tuple(uncompared.values_list("name", flat=True)),
        tuple(strange),
        tuple(Found(*row) for row in found.values_list("cluster__name", "adopted", "vanished")),
    )


def comparisons_in_standstills() -> dict[UUID, tuple[int, int]]:
    """By cluster, in how many standstills it was compared, and how many runs were taken in then. When that changes, what was
    reported of its pods before may be lost.
    """
    rows = ComparedCluster.objects.values_list("cluster_id").annotate(Count("id"), Sum("adopted"))
    return {cluster_id: (count, adopted) for cluster_id, count, adopted in rows}


def answered_for_at(cluster_id: UUID) -> datetime | None:
    """When an operator last opened dispatch after a standstill in which this cluster was compared, and so answered for
    what ran there; None if never. The gateway answers for nothing when it opens dispatch itself.
    """
    ended = ComparedCluster.objects.filter(
        cluster_id=cluster_id, standstill__ended_at__isnull=False, standstill__needs_operator=True
    )
    found: datetime | None = ended.aggregate(at=Max("standstill__ended_at"))["at"]
    return found
