"""The only writers of quota: they take and end holds in batches, and create, change and remove limits."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal
from uuid import UUID

import msgspec
from django.db import connection, transaction
from django.db.models import Case, Q, Value, When
from django.db.models.functions import Now

from clusters.queries import visible_clusters
from foundation.outbox import announce
from foundation.problems import Conflict, FieldError, Invalid, NotFound
from tenancy.engine.roles import Permission
from tenancy.locks import keep_tenants_in_place
from tenancy.models import Tenant
from tenancy.operations import record_audit
from tenancy.queries import Actor, NotAllowedHere, permissions_at, tenant_by_path

from . import locks
from .engine.amounts import MAX_AMOUNT, format_amount, is_resource
from .engine.holds import HoldRefusal as HoldRefusal
from .engine.holds import HoldRequest as HoldRequest
from .engine.holds import Take, grant, path_prefixes
from .models import Hold, HoldMovement, PastHalfLife, QuotaLimit
from .queries import as_value, limit_by_id

MAX_SCOPE = 100
"""The maximum number of clusters in one limit."""


def take_holds(requests: Sequence[HoldRequest]) -> dict[UUID, HoldRefusal | None]:
    """The outcome for each holder (None: held). Requests are decided in order, so earlier requests win.

    Locks all affected limits in one pass, then inserts the holds and the journal lines with one statement, in the
    caller's transaction or its own. Each holder gets its whole request at every limit from root to leaf, or nothing.
    """
    with transaction.atomic():
        places = keep_tenants_in_place(
            {prefix for request in requests for prefix in path_prefixes(request.tenant_path)}
        )
        limits = locks.lock_limits(set(places.values()), {name for request in requests for name in request.amounts})
        outcomes = _refused_before_counting(requests, places)
        counted = [request for request in requests if request.holder_id not in outcomes]
        granted, takes = grant(counted, [as_value(limit) for limit in limits])
        _write_holds([request for request in counted if granted[request.holder_id] is None], takes)
    outcomes.update(granted)
    return {request.holder_id: outcomes[request.holder_id] for request in requests}


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
    if not PastHalfLife.objects.filter(id=1, half_life_seconds=seconds).exists():
        PastHalfLife.objects.bulk_create(
            [PastHalfLife(id=1, half_life_seconds=seconds)],
            update_conflicts=True,
            unique_fields=["id"],
            update_fields=["half_life_seconds"],
        )


def put_limit(
    actor: Actor, tenant_path: str, resource: str, *, nominal: int, clusters: Collection[str] = ()
) -> tuple[QuotaLimit, bool]:
    """The limit after the change, and whether it is new. Amounts are in base units; empty `clusters` means the whole
    fleet.

    Running work counts immediately. If the limit is below current use, running jobs continue and new ones wait. To set
    a limit, the actor must manage quotas one level above it (at the root itself for an organisation). Raises NotFound,
    NotAllowedHere, Invalid.
    """
    tenant = tenant_by_path(actor, tenant_path)
    _require_from_above(actor, tenant)
    scope = sorted(set(clusters))
    _check_limit(actor, resource, nominal, scope)
    with transaction.atomic():
        locks.stop_takers_at(tenant.id)
        limit = QuotaLimit.objects.filter(
            tenant=tenant, resource=resource, clusters=scope, removed_at__isnull=True
        ).first()
        was = None if limit is None else limit.nominal
        limit = limit or _new_limit(tenant, resource, scope, nominal)
        QuotaLimit.objects.filter(id=limit.id).update(nominal=nominal, updated_at=Now())
        record_audit(
            actor,
            "quota.put",
            object_kind="quota",
            object_id=limit.id,
            tenant_id=tenant.id,
            detail={
                "resource": resource,
                "clusters": scope,
                "nominal": format_amount(resource, nominal),
                "was": None if was is None else format_amount(resource, was),
            },
        )
        announce("cycle")
        return QuotaLimit.objects.select_related("tenant").get(id=limit.id), was is None


def delete_limit(actor: Actor, limit_id: UUID) -> None:
    """Removes a limit, which no longer binds its tenant. The journal keeps what was taken from it."""
    found = limit_by_id(actor, limit_id)
    _require_from_above(actor, found.tenant)
    with transaction.atomic():
        locks.stop_takers_at(found.tenant_id)
        limit = locks.lock_limit(limit_id)
        if limit is None:
            raise NotFound
        if limit.movements.exists():
            QuotaLimit.objects.filter(id=limit_id).update(removed_at=Now(), updated_at=Now())
        else:
            limit.delete()
        record_audit(
            actor,
            "quota.delete",
            object_kind="quota",
            object_id=limit_id,
            tenant_id=found.tenant_id,
            detail={
                "resource": found.resource,
                "clusters": found.clusters,
                "was": format_amount(found.resource, found.nominal),
            },
        )
        announce("cycle")


def keep_holders_in_place(sender: object, *, tenant: Tenant, **_: object) -> None:  # noqa: ARG001 - a signal's receiver
    """Refuses to move a tenant while it or a descendant holds quota: those holds count at limits on the old path."""
    locks.stop_takers_at(tenant.id)
    below = Q(tenant__path=tenant.path) | Q(tenant__path__startswith=f"{tenant.path}/")
    if Hold.objects.filter(below, state=Hold.State.PENDING).exists():
        raise Conflict(
            f"{tenant.path} has work that holds quota. Move the tenant when that work has ended.",
            code="tenant_holds_quota",
        )


def _refused_before_counting(
    requests: Sequence[HoldRequest], places: Mapping[UUID, str]
) -> dict[UUID, HoldRefusal | None]:
    """Refusals that need no limit: a holder that already has a hold, and a tenant that is no longer at the requested
    path.
    """
    known = set(
        Hold.objects.filter(holder_id__any_of=[request.holder_id for request in requests]).values_list(
            "holder_id", flat=True
        )
    )
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
            " INSERT INTO quotas_hold (holder_id, tenant_id, cluster_name, amounts, state)"
            " SELECT holder_id, tenant_id, cluster_name, amounts, 'pending'"
            " FROM json_populate_recordset(NULL::quotas_hold, %s::json))"
            " INSERT INTO quotas_holdmovement (hold_id, limit_id, kind, amount)"
            " SELECT holder_id, limit_id, 'take', amount FROM json_to_recordset(%s::json)"
            " AS take(holder_id uuid, limit_id uuid, amount bigint)",
            [_json_text(granted), _json_text(takes)],
        )


def _json_text(rows: Sequence[HoldRequest] | Sequence[Take]) -> str:
    """One parameter for a whole batch: psycopg is much slower with arrays."""
    return msgspec.json.encode(rows).decode()


def _give_back(holder_ids: Sequence[UUID]) -> None:
    """Writes the line that reverses each take; the journal's trigger changes the counters."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO quotas_holdmovement (hold_id, limit_id, kind, amount)"
            " SELECT hold_id, limit_id, 'end', -amount FROM quotas_holdmovement"
            " WHERE hold_id = ANY(%s) AND kind = 'take'",
            [list(holder_ids)],
        )


def _require_from_above(actor: Actor, tenant: Tenant) -> None:
    """A limit binds its tenant, so it is set from above: a team's manager cannot raise the limit that the department
    set.
    """
    above = tenant.parent or tenant
    if Permission.MANAGE_QUOTAS not in permissions_at(actor, above):
        raise NotAllowedHere(above, Permission.MANAGE_QUOTAS)


def _check_limit(actor: Actor, resource: str, nominal: int, scope: Sequence[str]) -> None:
    errors = []
    if not is_resource(resource):
        errors.append(FieldError("resource", "unknown_resource", "one of gpu, gpu:MODEL, cpu, memory"))
    if not 0 <= nominal <= MAX_AMOUNT:
        errors.append(FieldError("nominal", "out_of_range", "not a valid amount"))
    if len(scope) > MAX_SCOPE:
        errors.append(FieldError("clusters", "out_of_range", f"at most {MAX_SCOPE} clusters"))
    else:
        known = set(visible_clusters(actor).filter(name__in=scope).values_list("name", flat=True)) if scope else set()
        errors += [
            FieldError("clusters", "unknown_cluster", f"there is no cluster {name}")
            for name in scope
            if name not in known
        ]
    if errors:
        raise Invalid(errors=errors)


def _new_limit(tenant: Tenant, resource: str, scope: list[str], nominal: int) -> QuotaLimit:
    """A limit that already counts every pending hold below it, even if their sum exceeds `nominal`."""
    counted = [
        (hold.holder_id, amount)
        for hold in locks.lock_pending_below(tenant.path)
        if (amount := hold.amounts.get(resource, 0)) > 0 and (not scope or hold.cluster_name in scope)
    ]
    room = max(nominal, sum(amount for _, amount in counted))
    limit = QuotaLimit.objects.create(tenant=tenant, resource=resource, clusters=scope, nominal=room, cap=room)
    HoldMovement.objects.bulk_create(
        HoldMovement(hold_id=holder_id, limit_id=limit.id, kind=HoldMovement.Kind.TAKE, amount=amount)
        for holder_id, amount in counted
    )
    return limit
