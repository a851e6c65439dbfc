"""Counts what is kept idle for tenants as used by them."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from quotas.models import KeptIdle


class Idle(NamedTuple):
    """What is kept idle for a tenant now, in base units by resource; it counts until `until` at the latest."""

    tenant_id: UUID
    amounts: Mapping[str, int]
    until: datetime


def keep_idle(idle: Mapping[UUID, Idle]) -> None:
    """From now on, exactly this is kept idle, by holder. Rows whose amounts did not change are not written."""
    with transaction.atomic():
        standing = {one.holder_id: one for one in KeptIdle.objects.filter(ended_at=None)}
        same = {
            holder for holder, one in standing.items() if holder in idle and one.amounts == dict(idle[holder].amounts)
        }
        over = [one.id for holder, one in standing.items() if holder not in same]
        if over:
            KeptIdle.objects.filter(id__any_of=over, ended_at=None).update(ended_at=Now())
        KeptIdle.objects.bulk_create(
            KeptIdle(holder_id=holder, tenant_id=one.tenant_id, amounts=dict(one.amounts), until_at=one.until)
            for holder, one in idle.items()
            if holder not in same and any(one.amounts.values())
        )
