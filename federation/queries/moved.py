"""Where a job that is moved may run for ten minutes: not where it was, and only on the clusters that its user named."""

from collections.abc import Collection, Mapping
from uuid import UUID

from clusters.models import Cluster
from placement.values.model import ClusterRefusal
from placement.values.reason_codes import ReasonCode

AWAY = "the job was moved away from it; it may run there again ten minutes after it was stopped"
ELSEWHERE = "the job was moved to other clusters by name; it may run there ten minutes after it was stopped"


def moved_away(cluster_id: UUID) -> ClusterRefusal:
    """Keeps a job from the cluster that it was moved away from."""
    return ClusterRefusal(cluster_id, AWAY, ReasonCode.MOVED_AWAY)


def kept_to(named: Collection[UUID], refusals: Mapping[UUID, ClusterRefusal]) -> dict[UUID, ClusterRefusal]:
    """The refusals, by cluster, of a job that is moved to the clusters named: of all others, and of these those that are not
    about an earlier move. Without names, the refusals as they are.
    """
    if not named:
        return dict(refusals)
    kept = {
        cluster_id: one
        for cluster_id, one in refusals.items()
        if cluster_id not in named or one.code != ReasonCode.MOVED_AWAY
    }
    others = Cluster.objects.exclude(id__in=named).values_list("id", flat=True)
    elsewhere = {other: ClusterRefusal(other, ELSEWHERE, ReasonCode.MOVED_ELSEWHERE) for other in others}
    return elsewhere | kept
