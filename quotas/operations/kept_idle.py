"""Counts what is kept idle for tenants as used by them."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from foundation.clock import database_now
from quotas.models import KeptIdle

SHORTEST = timedelta(minutes=1)


class Idle(NamedTuple):
    """What is kept idle for a tenant now, in base units by resource; it counts until `until` at the latest."""

    tenant_id: UUID
    amounts: Mapping[str, int]
    until: datetime


def keep_idle(idle: Mapping[UUID, Idle]) -> None:
    """From now on, this is kept idle, by holder; for all others it ends. An amount that changes is written when the row is a minute
    old, so that rounds that follow each other closely do not fill the table.
    """
    with transaction.atomic():
        recent = database_now() - SHORTEST
        standing = {one.holder_id: one for one in KeptIdle.objects.filter(ended_at=None)}
        stays = {
            holder
            for holder, one in standing.items()
            if holder in idle and (one.amounts == dict(idle[holder].amounts) or one.created_at > recent)
        }
        over = [one.id for holder, one in standing.items() if holder not in stays]
        if over:
            KeptIdle.objects.filter(id__any_of=over, ended_at=None).update(ended_at=Now())
        KeptIdle.objects.bulk_create(
            KeptIdle(holder_id=holder, tenant_id=one.tenant_id, amounts=dict(one.amounts), until_at=one.until)
            for holder, one in idle.items()
            if holder not in stays and any(one.amounts.values())
        )


def end_idle(holders: Collection[UUID]) -> None:
    """Nothing is kept idle for these holders any more."""
    KeptIdle.objects.filter(holder_id__any_of=list(holders), ended_at=None).update(ended_at=Now())
