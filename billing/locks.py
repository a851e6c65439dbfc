"""The locking functions of this room. They use one order: the price book, then meters by id."""

from collections.abc import Collection
from uuid import UUID

from django.db import connection
from django.db.models import Q

from .models import Meter

PRICE_BOOK_LOCK = 0x53575950  # "SWYP"


def read_price_book() -> None:
    """Blocks price changes until commit; any number of readers proceed concurrently."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock_shared(%s)", [PRICE_BOOK_LOCK])


def rewrite_price_book() -> None:
    """Waits for all transactions that rate, and blocks new ones until commit, so that no price changes
    under a segment.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [PRICE_BOOK_LOCK])


def lock_meters(keys: Collection[tuple[UUID, str]]) -> list[Meter]:
    """The meters of these pods (cluster, uid), locked until commit, by id."""
    wanted = Q(pk__in=[])
    uids_by_cluster: dict[UUID, list[str]] = {}
    for cluster_id, source_uid in keys:
        uids_by_cluster.setdefault(cluster_id, []).append(source_uid)
    for cluster_id, uids in uids_by_cluster.items():
        wanted |= Q(cluster_id=cluster_id, source_uid__in=uids)
    return list(Meter.objects.filter(wanted).order_by("id").select_for_update(no_key=True))
