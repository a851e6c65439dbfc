"""Nodes that a job avoids for a while, because it failed there."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from federation.models import Diagnosis


def avoided_nodes(now: datetime, ids: Sequence[UUID]) -> Mapping[UUID, tuple[tuple[UUID, str], ...]]:
    """By job, the nodes (each with its cluster) that failure rules make it avoid."""
    found: dict[UUID, set[tuple[UUID, str]]] = defaultdict(set)
    rows = Diagnosis.objects.filter(attempt__job_id__any_of=ids, avoid="node", avoid_until__gt=now).exclude(node="")
    for job_id, cluster_id, node in rows.values_list("attempt__job_id", "attempt__cluster_id", "node"):
        found[job_id].add((cluster_id, node))
    return {job_id: tuple(sorted(nodes, key=str)) for job_id, nodes in found.items()}
