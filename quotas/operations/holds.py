"""Takes and ends holds in batches, and counts past use."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal
from uuid import UUID

import msgspec
from django.db import connection, transaction
from django.db.models import Case, Value, When
from django.db.models.functions import Now

from quotas import locks
from quotas.engine.amounts import MAX_AMOUNT
from quotas.engine.borrowing import path_prefixes
from quotas.engine.holds import HoldRefusal, HoldRequest, Take, asked_at, grant
from quotas.engine.reserving import Reserved
from quotas.models import Hold, PastHalfLife
from quotas.queries import as_value, current_limits, reserved_states
from tenancy.locks import keep_tenants_in_place

from .user_limits import lock_users_of


def take_holds(requests: Sequence[HoldRequest]) -> dict[UUID, HoldRefusal | None]:
    """The outcome for each holder (None: held). Requests are decided in order, so earlier requests win.

    Locks the limits, the counts of users and those of classes that may change, then inserts the holds and the journal lines with one statement, in the
    caller's transaction or its own. Each holder gets its whole request under every limit on its path, or nothing.
    """
    with transaction.atomic():
        places = keep_tenants_in_place(
            {prefix for request in requests for prefix in path_prefixes(request.tenant_path)}
        )
        reserved = reserved_states({one for request in requests for one in _reserved_ids(request)})
        paths = {prefix for one in reserved.values() for prefix in path_prefixes(one.tenant_path)}
        resources = {name for request in requests for name in request.amounts}
        found = current_limits({*places.values(), *paths}, resources)
        asked = [*requests, *_whole_paths(requests, reserved)]
        limits = locks.lock_rising(found, asked_at(asked, [as_value(limit) for limit in found]))
        reserved = reserved_states(reserved.keys())  # what is used of it may have changed before the limits were locked
        outcomes = _refused_before_counting(requests, places)
        counted = [request for request in requests if request.holder_id not in outcomes]
        per_user = lock_users_of(counted, set(places.values()))
        judged = (*(as_value(limit) for limit in limits), *locks.lock_limits_of_classes(counted))
        granted, takes = grant(counted, judged, per_user, list(reserved.values()))
        _write_holds([request for request in counted if granted[request.holder_id] is None], takes)
    outcomes.update(granted)
    return {request.holder_id: outcomes[request.holder_id] for request in requests}


def _reserved_ids(request: HoldRequest) -> tuple[UUID, ...]:
    return request.beside if request.within_id is None else (*request.beside, request.within_id)


def _whole_paths(requests: Sequence[HoldRequest], reserved: Mapping[UUID, Reserved]) -> list[HoldRequest]:
    """Requests so large that the limits on the whole paths are locked: for work that leaves room for reserved quota, and for
    that quota. Otherwise work within guarantees would change what is unused of it meanwhile.
    """
    found = [
        replace(request, amounts=dict.fromkeys(request.amounts, MAX_AMOUNT)) for request in requests if request.beside
    ]
    for one in {one_id for request in requests for one_id in request.beside} & reserved.keys():
        kept = reserved[one]
        amounts = dict.fromkeys(dict(kept.reserved), MAX_AMOUNT)
        found.append(HoldRequest(kept.id, kept.id, kept.tenant_path, kept.cluster, amounts))
    return found


def end_holds(endings: Mapping[UUID, Literal["posted", "voided"]]) -> int:
    """The number of holds ended by this call: posted if the work ran, voided if not. A hold that has ended does not
    change.
    """
    with transaction.atomic():
        pending = locks.lock_pending(endings.keys())
        _give_back(pending)
        posted = [holder_id for holder_id in pending if endings[holder_id] == "posted"]
        state = Case(When(holder_id__any_of=posted, then=Value(Hold.State.POSTED)), default=Value(Hold.State.VOIDED))
        # in one statement, whose trigger locks the past use of all tenants in one order
        Hold.objects.filter(holder_id__any_of=pending, state=Hold.State.PENDING).update(state=state, ended_at=Now())
    return len(pending)


def keep_half_life(seconds: int) -> None:
    """Counts past use with this half-life. If it differs from before, all past use is counted again from the holds."""
    with connection.cursor() as cursor:  # in SQL, because each cycle runs it
        cursor.execute(
            "SELECT EXISTS (SELECT FROM quotas_pasthalflife WHERE id = 1 AND half_life_seconds = %s)", [seconds]
        )
        (is_kept,) = cursor.fetchone()
    if not is_kept:
        PastHalfLife.objects.bulk_create(
            [PastHalfLife(id=1, half_life_seconds=seconds)],
            update_conflicts=True,
            unique_fields=["id"],
            update_fields=["half_life_seconds"],
        )


def _refused_before_counting(
    requests: Sequence[HoldRequest], places: Mapping[UUID, str]
) -> dict[UUID, HoldRefusal | None]:
    """Refusals that need no limit: a holder that already has a hold, and a tenant that is no longer at the requested
    path.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT holder_id FROM quotas_hold WHERE holder_id = ANY(%s)", [[request.holder_id for request in requests]]
        )
        known = {holder_id for (holder_id,) in cursor.fetchall()}
    refused: dict[UUID, HoldRefusal | None] = {}
    for request in requests:
        if request.holder_id in known:
            refused[request.holder_id] = HoldRefusal("already_held", "this holder has a hold, or had one")
        elif places.get(request.tenant_id) != request.tenant_path:
            refused[request.holder_id] = HoldRefusal("tenant_moved", f"{request.tenant_path} is no longer that tenant")
    return refused


def _write_holds(granted: Sequence[HoldRequest], takes: Sequence[Take]) -> None:
    """Writes in one statement. At its end, the database checks that each hold counts at every limit that
    applies to it.
    """
    if not granted:
        return
    with connection.cursor() as cursor:
        cursor.execute(
            "WITH held AS ("
            " INSERT INTO quotas_hold (holder_id, tenant_id, user_id, class_name, within_id, cluster_name, amounts, state)"
            " SELECT holder_id, tenant_id, user_id, class_name, within_id, cluster_name, amounts, 'pending'"
            " FROM json_populate_recordset(NULL::quotas_hold, %s::json))"
            " INSERT INTO quotas_holdmovement (hold_id, limit_id, kind, amount)"
            " SELECT holder_id, limit_id, 'take', amount FROM json_to_recordset(%s::json)"
            " AS take(holder_id uuid, limit_id uuid, amount bigint)",
            [_json_text(granted), _json_text(takes)],
        )


def _give_back(holder_ids: Sequence[UUID]) -> None:
    """Writes the line that reverses each take that still counts; the journal's trigger changes the counters."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO quotas_holdmovement (hold_id, limit_id, kind, amount)"
            " SELECT hold_id, limit_id, 'end', -sum(amount) FROM quotas_holdmovement"
            " WHERE hold_id = ANY(%s) GROUP BY hold_id, limit_id HAVING sum(amount) > 0",
            [list(holder_ids)],
        )


def _json_text(rows: Sequence[HoldRequest] | Sequence[Take]) -> str:
    """One parameter for a whole batch: psycopg is much slower with arrays."""
    return msgspec.json.encode(rows).decode()
