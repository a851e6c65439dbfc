"""Sets up the hooks that alerts go to: makes, pauses, tests and deletes them. The signing secret is returned once, by `create_hook`."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from billing import locks
from billing.engine.hooks import FORMS, KINDS, TEST
from billing.models import AlertDelivery, AlertHook
from billing.models.hooks import NAME_LENGTH
from billing.queries.hooks import deliveries_of, hook_by_id
from clusters.drivers import DriverError
from clusters.drivers.hook_servers import hook_address
from clusters.drivers.resolve import key_ring
from clusters.engine.hook_servers import HookServer, read_hook_url
from clusters.engine.sealing import KeyRing, Sealed, seal_bound, unseal_bound
from clusters.operations.rekeying import Rekeying, rekeyed
from foundation.clock import database_now
from foundation.ids import new_id
from foundation.outbox import announce
from foundation.plain_json import instant
from foundation.problems import Conflict, FieldError, Invalid, NotFound
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.operations import record_audit
from tenancy.queries import SYSTEM, Actor, tenant_by_path

MOST_HOOKS = 20
"""Per tenant."""
SECRET_BYTES = 32
ROUTINE = "alert"
State = AlertDelivery.State


@dataclass(frozen=True, slots=True)
class WantedHook:
    """A hook to make. `url` is not shown: the path of a chat's URL is a password."""

    tenant_path: str
    name: str
    url: str = field(repr=False)
    kinds: Sequence[str]
    form: str


def create_hook(actor: Actor, wanted: WantedHook) -> tuple[AlertHook, str]:
    """The hook and its signing secret, which nothing shows again. Alerts from now on go to it.

    The server's name is resolved and judged now, and again for each post. Raises NotFound, NotAllowedHere, Invalid, Conflict
    `hook_exists`, `too_many_hooks`.
    """
    tenant = tenant_by_path(actor, wanted.tenant_path, Permission.MANAGE_HOOKS)
    server = _checked(wanted)
    secret = f"swyh_{secrets.token_urlsafe(SECRET_BYTES)}"
    hook = AlertHook(
        id=new_id(),
        tenant=tenant,
        name=wanted.name,
        server=server.shown,
        kinds=sorted(set(wanted.kinds)),
        form=wanted.form,
        created_by_id=actor.user_id,
        created_by_name=actor.name,
    )
    sealed = seal_bound(key_ring(), binding_of(hook), json.dumps({"url": wanted.url, "secret": secret}).encode())
    hook.key_id, hook.sealed = sealed.key_id, sealed.box
    try:
        with transaction.atomic():
            locks.lock_tenant_of_hooks(tenant.id)
            _refuse_too_many(tenant)
            hook.save(force_insert=True)
            _record(actor, "hook.create", hook)
    except IntegrityError as error:
        if "alert_hook_name_is_unique_in_its_tenant" not in str(error):
            raise
        raise Conflict(f"{tenant.path} already has a hook named {wanted.name}.", code="hook_exists") from None
    return hook_by_id(actor, hook.id), secret


def delete_hook(actor: Actor, hook_id: UUID) -> None:
    """Deletes the hook with its secret and all its deliveries. A post that is under way may still arrive. Raises NotFound."""
    with transaction.atomic():
        hook = _locked(actor, hook_id)
        AlertHook.objects.filter(id=hook.id).delete()
        _record(actor, "hook.delete", hook)


def pause_hook(actor: Actor, hook_id: UUID) -> AlertHook:
    """The hook, to which nothing is posted until it is resumed. Raises NotFound."""
    with transaction.atomic():
        hook = _locked(actor, hook_id)
        if AlertHook.objects.filter(id=hook.id, paused_at=None).update(paused_at=Now(), pause=AlertHook.Pause.USER):
            _record(actor, "hook.pause", hook)
    return hook_by_id(actor, hook_id)


def resume_hook(actor: Actor, hook_id: UUID) -> AlertHook:
    """The hook; what was pending is posted, and what arises from now on. Raises NotFound."""
    with transaction.atomic():
        hook = _locked(actor, hook_id)
        if AlertHook.objects.filter(id=hook.id, paused_at__isnull=False).update(paused_at=None, pause="", since=Now()):
            deliveries_of(hook).filter(state=State.PENDING).update(next_at=Now(), tried_since=Now())
            _record(actor, "hook.resume", hook)
            announce(ROUTINE)
    return hook_by_id(actor, hook_id)


def send_test(actor: Actor, hook_id: UUID) -> AlertDelivery:
    """A delivery of no alert, which is posted within seconds. Raises NotFound, Conflict `hook_paused`, `test_pending`."""
    with transaction.atomic():
        hook = _unpaused(actor, hook_id)
        if deliveries_of(hook).filter(kind=TEST, state=State.PENDING).exists():
            raise Conflict("A test of this hook is still to be delivered.", code="test_pending")
        facts = {"tenant": hook.tenant.path, "hook": hook.name, "at": instant(database_now())}
        delivery = AlertDelivery.objects.create(
            hook=hook, kind=TEST, subject=str(new_id()), tenant_path=hook.tenant.path, facts=facts
        )
        _record(actor, "hook.test", hook)
        announce(ROUTINE)
    return deliveries_of(hook).get(id=delivery.id)


def deliver_again(actor: Actor, hook_id: UUID, uid: UUID) -> AlertDelivery:
    """The delivery, which is posted again with the same id. One that is pending is posted now. Raises NotFound, Conflict
    `hook_paused`.
    """
    with transaction.atomic():
        hook = _unpaused(actor, hook_id)
        changed = (
            deliveries_of(hook)
            .filter(uid=uid)
            .update(
                state=State.PENDING, ended_at=None, last_status=None, last_error="", next_at=Now(), tried_since=Now()
            )
        )
        if not changed:
            raise NotFound
        _record(actor, "hook.deliver_again", hook, {"delivery": str(uid)})
        announce(ROUTINE)
    return deliveries_of(hook).get(uid=uid)


def opened(hook_id: UUID, tenant_id: UUID, sealed: Sealed) -> tuple[HookServer, str]:
    """The server and the signing secret. Raises CannotUnseal."""
    found = json.loads(unseal_bound(key_ring(), _binding(hook_id, tenant_id), sealed))
    return read_hook_url(found["url"]), found["secret"]


def rekey_hooks(ring: KeyRing) -> Rekeying:
    """Seals what is sealed of each hook again under the current key."""
    rows = AlertHook.objects.select_related("tenant")
    return rekeyed(ring, rows, binding_of, lambda hook: f"hook {hook.name} of {hook.tenant.path}")


def binding_of(hook: AlertHook) -> str:
    """What the seal is bound to: moved to another row, it does not open."""
    return _binding(hook.id, hook.tenant_id)


def record_of_hook(action: str, hook: AlertHook, detail: Mapping[str, Any]) -> None:
    """An audit entry of what the gateway did with a hook."""
    _record(SYSTEM, action, hook, detail)


def _binding(hook_id: UUID, tenant_id: UUID) -> str:
    return f"alert hook|{hook_id}|{tenant_id}"


def _checked(wanted: WantedHook) -> HookServer:
    errors = []
    if not (0 < len(wanted.name) <= NAME_LENGTH and wanted.name.isprintable() and wanted.name.strip() == wanted.name):
        errors.append(FieldError("name", "bad_format", f"1 to {NAME_LENGTH} characters in one line"))
    if not wanted.kinds or not set(wanted.kinds) <= set(KINDS):
        errors.append(FieldError("kinds", "unknown_kind", f"one or more of {', '.join(KINDS)}"))
    if wanted.form not in FORMS:
        errors.append(FieldError("form", "unknown_form", f"one of {', '.join(FORMS)}"))
    if errors:
        raise Invalid(errors=errors)
    try:
        server = read_hook_url(wanted.url)
    except ValueError as error:
        raise Invalid.field("url", "bad_url", str(error)) from None
    try:
        hook_address(server)
    except DriverError as error:
        raise Invalid.field("url", "address_not_allowed", error.reason) from None
    return server


def _refuse_too_many(tenant: Tenant) -> None:
    if AlertHook.objects.filter(tenant=tenant).count() >= MOST_HOOKS:
        raise Conflict(f"{tenant.path} can have at most {MOST_HOOKS} hooks.", code="too_many_hooks")


def _locked(actor: Actor, hook_id: UUID) -> AlertHook:
    hook_by_id(actor, hook_id)
    hook = locks.lock_hook(hook_id)
    if hook is None:
        raise NotFound
    return hook


def _unpaused(actor: Actor, hook_id: UUID) -> AlertHook:
    hook = _locked(actor, hook_id)
    if hook.paused_at is not None:
        raise Conflict("The hook is paused. Resume it first.", code="hook_paused")
    return hook


def _record(actor: Actor, action: str, hook: AlertHook, detail: Mapping[str, Any] | None = None) -> None:
    told = {"name": hook.name, "server": hook.server, "kinds": hook.kinds, "form": hook.form, **(detail or {})}
    record_audit(actor, action, object_kind="alert_hook", object_id=hook.id, tenant_id=hook.tenant_id, detail=told)
