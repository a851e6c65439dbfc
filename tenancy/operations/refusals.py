"""Refusals of strangers in the audit trail: the first per minute and source as an entry, all further ones as a count.

Regardless of their number, a minute leaves at most two entries for each of MOST_SOURCES sources and two for all others.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from foundation.clock import now
from foundation.requests import current_source
from tenancy.locks import hold_refusal_counts
from tenancy.queries import SYSTEM

from .audit import record_audit

MOST_SOURCES = 100
_COUNT = """
    UPDATE tenancy_refusalcount SET count = count + 1, last_at = %(at)s
     WHERE minute_at = %(minute)s AND action = %(action)s AND source IS NOT DISTINCT FROM %(source)s
"""
_BEGIN = """
    INSERT INTO tenancy_refusalcount (minute_at, action, source, count, last_at)
    VALUES (%(minute)s, %(action)s, %(source)s, 0, %(at)s)
"""
_SOURCES = "SELECT count(*) FROM tenancy_refusalcount WHERE minute_at = %(minute)s AND action = %(action)s"
_CLOSE = """
    DELETE FROM tenancy_refusalcount WHERE minute_at < %s RETURNING minute_at, action, host(source), count, last_at
"""


def note_stranger_refused(action: str, *, object_kind: str, detail: Mapping[str, Any]) -> None:
    """Records the refusal of an unknown caller: as an entry, or by incrementing a count."""
    at = now()
    place: dict[str, Any] = {"at": at, "minute": _minute(at), "action": action, "source": current_source.get()}
    with transaction.atomic():
        if _counted(place):
            return
        hold_refusal_counts()
        if _counted(place):
            return
        with connection.cursor() as cursor:
            cursor.execute(_SOURCES, place)
            if cursor.fetchone()[0] >= MOST_SOURCES:
                place["source"] = None
                if _counted(place):
                    return
            cursor.execute(_BEGIN, place)
        record_audit(SYSTEM, action, object_kind=object_kind, detail=detail, outcome="refused")
        _tell_counts(at, object_kind)


def tell_counted_refusals() -> None:
    """Turns the counts of past minutes into entries."""
    with transaction.atomic():
        _tell_counts(now(), "user")


def _minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def _counted(place: Mapping[str, Any]) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(_COUNT, place)
        return bool(cursor.rowcount)


def _tell_counts(at: datetime, object_kind: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(_CLOSE, [_minute(at)])
        closed = cursor.fetchall()
    for minute, action, source, count, last_at in closed:
        if not count:
            continue
        told = {"further": count, "from": minute.isoformat(), "to": last_at.isoformat(), "others": source is None}
        reset = current_source.set(source)
        try:
            record_audit(SYSTEM, action, object_kind=object_kind, detail=told, outcome="refused")
        finally:
            current_source.reset(reset)
