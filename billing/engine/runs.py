"""What the rooms above report to billing about a pod that ran or runs."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

MeterKey: TypeAlias = tuple[UUID, str]
"""Cluster id and the pod's uid."""


@dataclass(frozen=True, slots=True)
class TrueEnd:
    """A cluster's report of the end of a run, which meters may have assumed to be later. `key` is that of one of its meters.
    `is_estimated`: the start of the run, or this end, is not what the cluster reported.
    """

    key: MeterKey
    at: datetime
    is_estimated: bool = False


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """A pod that was observed to run from `started_at` until at least `until_at` (its end, if `is_final`).

    `workload_id` is a job and `run_id` an attempt, both opaque here. Reports show the names as they were at that time.
    `gpu_model` and `sharing` are those of the flavor when the run was placed; a unit whose `sharing` is unknown (empty)
    counts as a whole GPU. `node` is the pod's; empty if it is not known. It certainly ran until `certain_until` (None: not known of any
    of its time); a report of its end may shorten the rest (`TrueEnd`). The work of a final run after `redone_from` was lost and has to be done again (None: none of
    it).
    """

    cluster_id: UUID
    source_uid: str
    tenant_id: UUID
    user_id: UUID
    workload_id: UUID
    run_id: UUID
    flavor: str
    capacity_type: str
    gpu_units: int
    cpu_millicores: int
    started_at: datetime
    until_at: datetime
    is_final: bool
    is_estimated: bool = False
    workload_name: str = ""
    user_name: str = ""
    memory_mib: int = 0
    gpu_model: str = ""
    sharing: str = ""
    redone_from: datetime | None = None
    node: str = ""
    certain_until: datetime | None = None

    @property
    def key(self) -> MeterKey:
        """The key that identifies the same run when it is reported again."""
        return self.cluster_id, self.source_uid
