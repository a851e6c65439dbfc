"""Corrects usage that was assumed, once a cluster reports when its pods ended.

Running pods are metered ahead of their end, and a pod whose end was not seen until the latest time at which it can have ended. A
later report takes back what was assumed and did not run (`billing.operations.correct_ends`).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import billing.operations
from billing.operations import TrueEnd
from federation.engine.unseen import WHY, unseen_uid
from federation.locks import keep_from_being_settled
from federation.models import Attempt, PodRun
from federation.queries.metering import true_ends

from . import figures, transitions

WORDS = "The usage of attempt {} was assumed to the latest possible end of its pods, and is corrected to the end that its cluster reports."


def correct_ends_of(attempt_ids: Collection[UUID]) -> None:
    """Corrects these attempts, whose locks the caller holds. What agrees with the reports stays as it is."""
    pods = PodRun.objects.filter(attempt_id__in=list(attempt_ids), started_at__isnull=False, finished_at__isnull=False)
    _correct(true_ends(pods))


@dataclass(frozen=True, slots=True)
class LateEnd:
    """The end of a pod of an attempt that was settled before, as its cluster reports it."""

    attempt_id: UUID
    object_id: int
    index: int
    uid: str
    at: datetime


def correct_assumed_runs(cluster_id: UUID, reported: Sequence[LateEnd]) -> None:
    """Corrects the ends of runs that were assumed from their ended Job (`unseen`), when one of the pods is reported after all:
    of several pods of an index, the last one. What was assumed of its start remains: its Job's.
    """
    assumed = PodRun.objects.filter(attempt_id__in={one.attempt_id for one in reported}, reason=WHY)
    known = set(assumed.values_list("uid", flat=True)) if reported else set()
    latest_last = sorted(reported, key=lambda one: one.at)
    ends = {uid: one for one in latest_last for uid in (one.uid, unseen_uid(one.object_id, one.index)) if uid in known}
    keep_from_being_settled({one.attempt_id for one in ends.values()})
    _correct([TrueEnd((cluster_id, uid), one.at, is_estimated=True) for uid, one in ends.items()])


def _correct(ends: Sequence[TrueEnd]) -> None:
    corrected = billing.operations.correct_ends(ends)
    if corrected:
        told = Attempt.objects.filter(id__in=corrected).values_list("id", "job_id", "number")
        transitions.tell("corrected", {(job_id, id_): WORDS.format(number) for id_, job_id, number in told})
        figures.CORRECTED.inc(len(corrected))
