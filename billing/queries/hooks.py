"""Hooks of alerts: those that an actor manages, and what was delivered to each."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from billing.engine.hooks import CONFIRMATION, text_of
from billing.models import AddressConfirmation, AlertDelivery, AlertHook
from foundation.problems import NotFound
from tenancy.engine.roles import Permission
from tenancy.queries import Actor, tenant_by_path, visible_tenants

MOST_SHOWN = 50


@dataclass(frozen=True, slots=True)
class DeliveryLine:
    """A delivery as pages show it."""

    uid: UUID
    text: str
    state: str
    attempts: int
    told: str
    """What the last attempt met."""
    next_at: datetime | None
    created_at: datetime
    ended_at: datetime | None
    can_repeat: bool
    """Not a confirmation: a new one has a new link."""


def managed_hooks(actor: Actor, tenant_path: str = "") -> QuerySet[AlertHook]:
    """The hooks of tenants where the actor may manage them; with `tenant_path`, of that one and those below it. Raises NotFound."""
    rows = AlertHook.objects.select_related("tenant").defer("sealed", "key_id")
    rows = rows.filter(tenant__in=visible_tenants(actor, Permission.MANAGE_HOOKS))
    if tenant_path:
        tenant = tenant_by_path(actor, tenant_path)
        rows = rows.filter(Q(tenant=tenant) | Q(tenant__path__startswith=f"{tenant.path}/"))
    return rows


def managed_paths(actor: Actor) -> tuple[str, ...]:
    """Paths of the tenants where the actor may manage hooks."""
    return tuple(visible_tenants(actor, Permission.MANAGE_HOOKS).order_by("path").values_list("path", flat=True))


def hook_by_id(actor: Actor, hook_id: UUID) -> AlertHook:
    """The hook; NotFound for users who may not manage it, whether or not it exists."""
    hook = managed_hooks(actor).filter(id=hook_id).first()
    if hook is None:
        raise NotFound
    return hook


def deliveries_of(hook: AlertHook) -> QuerySet[AlertDelivery]:
    """What was or is to be delivered to the hook."""
    return AlertDelivery.objects.filter(hook=hook)


def live_confirmation(digest: bytes) -> AddressConfirmation | None:
    """The confirmation whose link has this digest, with its hook, if it was not used or replaced and has not expired."""
    rows = AddressConfirmation.objects.select_related("hook__tenant")
    live = rows.filter(digest=digest, used_at__isnull=True, ended_at__isnull=True, expires_at__gt=Now())
    return live.filter(hook__isnull=False).first()


def delivery_lines(hook: AlertHook) -> tuple[DeliveryLine, ...]:
    """The newest deliveries."""
    return tuple(_line(row) for row in deliveries_of(hook).order_by("-id")[:MOST_SHOWN])


def _line(row: AlertDelivery) -> DeliveryLine:
    status = "" if row.last_status is None else f"{row.last_status}"
    return DeliveryLine(
        uid=row.uid,
        text=text_of(row.kind, row.facts),
        state=row.state,
        attempts=row.attempts,
        told=row.last_error or status,
        next_at=row.next_at if row.state == AlertDelivery.State.PENDING else None,
        created_at=row.created_at,
        ended_at=row.ended_at,
        can_repeat=row.kind != CONFIRMATION,
    )
