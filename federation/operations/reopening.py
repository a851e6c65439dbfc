"""Reopens settled attempts of which a pod runs or has run after all, so that it is metered, and takes back what was metered
beyond an end that is reported now.

Their holds have ended and remain ended. A closed meter remains closed too: usage that it does not count gets a new
meter.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import F
from django.db.models.functions import Coalesce, Now

import billing.queries
from federation.locks import keep_from_being_settled
from federation.models import Attempt, PodRun
from foundation.outbox import announce

from . import figures, transitions
from .lost_work import record_lost_work
from .true_ends import correct_ends_of

MOST_PARTS = 100


@dataclass(frozen=True, slots=True)
class Changed:
    """A started pod with new information."""

    attempt_id: UUID
    uid: str


def reopen_settled(cluster_id: UUID, changed: Sequence[Changed]) -> None:
    """Reopens the attempts whose usage the changed pods add to, in the transaction that recorded the pods. Settlement
    and this transaction exclude each other: either settlement sees the pods, or this transaction sees the settlement.
    """
    settled = set(keep_from_being_settled({change.attempt_id for change in changed}))
    if not settled:
        return
    uids = [change.uid for change in changed if change.attempt_id in settled]
    pods = list(PodRun.objects.filter(cluster_id=cluster_id, uid__any_of=uids, attempt_id__in=settled))
    closed = billing.queries.closed_until(cluster_id, [pod.meter_uid for pod in pods])
    opened = set()
    for pod in pods:
        counted_until = closed.get(pod.meter_uid)
        if counted_until is not None:
            is_over = pod.is_gone if pod.finished_at is None else pod.finished_at <= counted_until
            if is_over or pod.part >= MOST_PARTS:
                continue
            PodRun.objects.filter(id=pod.id).update(part=F("part") + 1, resumed_at=counted_until)
        opened.add(pod.attempt_id)
    correct_ends_of(settled - opened)
    _open(opened)
    # what is known now may say that an attempt lost other work, or none
    record_lost_work(settled)


def _open(attempt_ids: set[UUID]) -> None:
    if not attempt_ids:
        return
    rows = Attempt.objects.filter(id__in=attempt_ids, settled_at__isnull=False)
    told = list(rows.values_list("id", "job_id", "number"))
    rows.update(settled_at=None, settle_at=None, reopened_at=Coalesce("reopened_at", Now()))
    words = "A pod of attempt {} was reported after its usage had been settled; the pod is metered too."
    transitions.tell("reopened", {(job_id, id_): words.format(number) for id_, job_id, number in told})
    figures.REOPENED.inc(len(told))
    announce("settle")
