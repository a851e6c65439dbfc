"""Creates, changes and removes the limits of tenants."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple
from uuid import UUID

import msgspec
from django.db import connection, transaction
from django.db.models import Sum
from django.db.models.functions import Now

from clusters.queries import visible_clusters
from foundation.outbox import announce
from foundation.problems import Conflict, FieldError, Invalid, NotFound
from quotas import locks
from quotas.engine.amounts import KINDS, MAX_AMOUNT, format_amount, is_resource
from quotas.engine.borrowing import Line, left
from quotas.engine.holds import CEILING, Borrowing, Limit, overcommitted
from quotas.models import MOST_RECLAIM_SECONDS, HoldMovement, QuotaLimit
from quotas.queries import as_value, limit_by_id, limits_of_organisation
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.operations import record_audit
from tenancy.queries import Actor, NotAllowedHere, permissions_at, tenant_by_path

MAX_SCOPE = 100
"""The maximum number of clusters in one limit."""


class _Line(msgspec.Struct):
    """A line of the journal."""

    hold_id: UUID
    limit_id: UUID
    kind: Literal["take", "end"]
    amount: int


class WantedLimit(NamedTuple):
    """The arguments of `put_limit`."""

    tenant_path: str
    resource: str
    nominal: int
    clusters: Collection[str] = ()
    borrowing: Borrowing = CEILING
    reclaim_after: int | None = None


def put_limit(  # noqa: PLR0913 - what a limit consists of
    actor: Actor,
    tenant_path: str,
    resource: str,
    *,
    nominal: int,
    clusters: Collection[str] = (),
    borrowing: Borrowing = CEILING,
    reclaim_after: int | None = None,
) -> tuple[QuotaLimit, bool]:
    """The limit after the change, and whether it is new. Amounts are in base units; empty `clusters` means the whole
    fleet.

    Running work counts immediately. If the limit is below current use, new jobs wait. Running ones continue; with
    `reclaim_after`, for that many seconds. Then what is held beyond the limit may be taken back, unless the limit is
    raised again. To set a limit, the actor must manage quotas one level above it (at the root itself for an
    organisation). Raises NotFound, NotAllowedHere, Invalid, and Conflict if what it guarantees is not free in the limit
    above.
    """
    tenant = tenant_by_path(actor, tenant_path)
    require_from_above(actor, tenant)
    scope = sorted(set(clusters))
    wanted = {
        "nominal": nominal,
        "borrowing_limit": borrowing.borrowing_limit,
        "lending_limit": borrowing.lending_limit,
    }
    _check_limit(actor, resource, wanted, scope)
    if reclaim_after is not None and not 0 <= reclaim_after <= MOST_RECLAIM_SECONDS:
        raise Invalid.field("reclaim_after", "out_of_range", f"seconds from 0 to {MOST_RECLAIM_SECONDS}, or none")
    with transaction.atomic():
        locks.stop_takers_at(tenant.id)
        limit = QuotaLimit.objects.filter(
            tenant=tenant, resource=resource, clusters=scope, removed_at__isnull=True
        ).first()
        was = None if limit is None else limit.nominal
        chain = locks.lock_above(limit or _new_limit(tenant, resource, scope))
        _check_guarantees(chain, wanted)
        after = QuotaLimit(**wanted, parent_id=chain[0].parent_id)
        is_lowered = after.most < chain[0].most or reclaim_after != chain[0].reclaim_after
        QuotaLimit.objects.filter(id=chain[0].id).update(
            **wanted,
            reclaims=borrowing.reclaims,
            reclaim_after=reclaim_after,
            lowered_by=actor.name if is_lowered else chain[0].lowered_by,
            updated_at=Now(),
        )
        changed = QuotaLimit.objects.select_related("tenant").get(id=chain[0].id)
        _record_put(actor, changed, wanted, was)
        announce("cycle")
        return changed, was is None


def _record_put(actor: Actor, limit: QuotaLimit, wanted: Mapping[str, int | None], was: int | None) -> None:
    amounts = {**wanted, "was": was}
    record_audit(
        actor,
        "quota.put",
        object_kind="quota",
        object_id=limit.id,
        tenant_id=limit.tenant_id,
        detail={
            "resource": limit.resource,
            "clusters": limit.clusters,
            **{
                name: None if amount is None else format_amount(limit.resource, amount)
                for name, amount in amounts.items()
            },
            "reclaims": limit.reclaims,
            "reclaim_after": limit.reclaim_after,
            "surplus": format_amount(limit.resource, limit.surplus),
        },
    )


def delete_limit(actor: Actor, limit_id: UUID) -> None:
    """Removes a limit, which no longer binds its tenant and guarantees nothing. The journal keeps what was taken from it,
    and what still is counts at the next limit above.
    """
    found = limit_by_id(actor, limit_id)
    require_from_above(actor, found.tenant)
    with transaction.atomic():
        locks.stop_takers_at(found.tenant_id)
        limit = locks.lock_branch(limit_id)
        if limit is None:
            raise NotFound
        # Those that borrowed from it may hold less from now on.
        lenders = QuotaLimit.objects.filter(parent=limit_id, reclaim_after__isnull=False).exclude(borrowing_limit=0)
        lenders.update(lowered_by=actor.name)
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


def keep_limits_at(*tenant_ids: UUID) -> None:
    """Until commit, limits on the tenants' paths do not change, and no hold is taken there."""
    locks.stop_takers_at(*tenant_ids)


def require_from_above(actor: Actor, tenant: Tenant) -> None:
    """A limit binds its tenant, so it is set from above: a team's manager cannot raise the limit that the department
    set.
    """
    above = tenant.parent or tenant
    if Permission.MANAGE_QUOTAS not in permissions_at(actor, above):
        raise NotAllowedHere(above, Permission.MANAGE_QUOTAS)


def _check_limit(actor: Actor, resource: str, wanted: Mapping[str, int | None], scope: Sequence[str]) -> None:
    errors = []
    if not is_resource(resource):
        errors.append(FieldError("resource", "unknown_resource", KINDS))
    errors += [
        FieldError(name, "out_of_range", "not a valid amount")
        for name, amount in wanted.items()
        if amount is not None and not 0 <= amount <= MAX_AMOUNT
    ]
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


def _check_guarantees(chain: Sequence[QuotaLimit], wanted: Mapping[str, int | None]) -> None:
    """Refuses amounts that guarantee more than a limit has. `chain` is the limit and those above it, locked.

    No limit may guarantee more to those below it than its nominal amount, and a guarantee counts above from the start:
    what other tenants hold must not be part of it.
    """
    own = chain[0]
    after = QuotaLimit(**{"nominal": own.nominal, **wanted})
    others = limits_of_organisation(own.tenant.path)
    changed = [
        replace(one, nominal=after.nominal, borrowing_limit=after.borrowing_limit, guaranteed=after.guaranteed)
        if one.id == own.id
        else one
        for one in others
    ]
    before = {limit.id: guaranteed for limit, guaranteed in overcommitted(others)}
    on_path = {limit.id for limit in chain}
    for limit, guaranteed in overcommitted(changed):
        if limit.id in on_path and (limit.id == own.id or guaranteed > before.get(limit.id, 0)):
            raise _guarantees_too_much(limit, guaranteed, is_own=limit.id == own.id)
    rise = max(own.held, after.guaranteed) - own.claim
    above = [Line(as_value(limit), limit.held) for limit in chain[1:]]
    if above and rise > 0 and rise > left(above):
        raise guarantee_not_free(as_value(chain[1]), rise, left(above))


def _guarantees_too_much(limit: Limit, guaranteed: int, *, is_own: bool) -> Invalid:
    least = format_amount(limit.resource, guaranteed)
    if is_own:
        return Invalid.field(
            "nominal", "below_guarantees", f"{least} is guaranteed to tenants below it; lower their guarantees first"
        )
    nominal = format_amount(limit.resource, limit.nominal)
    return Invalid.field(
        "lending_limit",
        "guarantees_too_much",
        f"{limit.tenant_path} would guarantee {least} of its {nominal} {limit.resource}; lend more, or raise its limit",
    )


def guarantee_not_free(limit: Limit, rise: int, free: int) -> Conflict:
    """The refusal of a guarantee that is `rise` more of a limit which has `free`."""
    missing, there = (format_amount(limit.resource, amount) for amount in (rise, free))
    return Conflict(
        f"It would guarantee {missing} {limit.resource} more, and other tenants hold all but {there} of the limit of"
        f" {limit.tenant_path}. Lend more, or retry when their work has ended.",
        code="guarantee_not_free",
    )


def _new_limit(tenant: Tenant, resource: str, scope: list[str]) -> QuotaLimit:
    """A limit of the largest amount that counts every pending hold below it.

    It takes over the lines that such holds have at the next limit above, in one statement.
    """
    counted = {
        hold.holder_id: amount
        for hold in locks.lock_pending_below(tenant.path)
        if (amount := hold.amounts.get(resource, 0)) > 0 and (not scope or hold.cluster_name in scope)
    }
    limit = QuotaLimit.objects.create(
        tenant=tenant, resource=resource, clusters=scope, nominal=MAX_AMOUNT, cap=MAX_AMOUNT
    )
    lines = HoldMovement.objects.filter(
        hold_id__any_of=list(counted), limit__resource=resource, limit__clusters=scope
    ).values_list("hold_id", "limit_id", "limit__tenant__path")
    elsewhere: dict[UUID, UUID] = {}
    for holder_id, limit_id, path, _ in lines.annotate(still=Sum("amount")).filter(still__gt=0):
        if path == tenant.path or path.startswith(f"{tenant.path}/"):
            del counted[holder_id]
        else:
            elsewhere[holder_id] = limit_id
    _write_lines(
        [
            *(_Line(holder_id, elsewhere[holder_id], "end", -counted[holder_id]) for holder_id in elsewhere),
            *(_Line(holder_id, limit.id, "take", amount) for holder_id, amount in counted.items()),
        ]
    )
    return limit


def _write_lines(lines: Sequence[_Line]) -> None:
    if lines:
        with connection.cursor() as cursor:
            cursor.execute(
                "INSERT INTO quotas_holdmovement (hold_id, limit_id, kind, amount)"
                " SELECT hold_id, limit_id, kind, amount FROM json_to_recordset(%s::json)"
                " AS line(hold_id uuid, limit_id uuid, kind varchar, amount bigint)",
                [msgspec.json.encode(lines).decode()],
            )
