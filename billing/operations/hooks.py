"""Sets up the hooks that alerts go to: makes, pauses, tests and deletes them. The signing secret is returned once, by `create_hook`."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from billing import locks
from billing.engine.hooks import CONFIRMATION, FORMS, KINDS, MAIL, TEST
from billing.engine.mail import check_address
from billing.models import AlertDelivery, AlertHook
from billing.models.hooks import NAME_LENGTH
from billing.queries.hooks import deliveries_of, hook_by_id
from clusters.drivers import DriverError
from clusters.drivers.hook_servers import hook_address
from clusters.engine.hook_servers import read_hook_url
from clusters.engine.sealing import KeyRing
from clusters.operations.rekeying import Rekeying, rekeyed
from foundation.clock import database_now
from foundation.ids import new_id
from foundation.outbox import announce
from foundation.plain_json import instant
from foundation.problems import Conflict, FieldError, Invalid, NotFound
from tenancy.engine.roles import Permission
from tenancy.models import Tenant
from tenancy.queries import Actor, tenant_by_path

from .confirmations import mail_link, new_link, organisation_of, refuse_without_mail
from .hook_rows import ROUTINE, binding_of, locked_hook, record_hook, seal_hook, unpaused_hook

MOST_HOOKS = 20
"""Per tenant."""
SECRET_BYTES = 32
State = AlertDelivery.State


@dataclass(frozen=True, slots=True)
class WantedHook:
    """A hook to make: of a server at `url`, or with the form `mail` of an `address`. `url` is not shown: the path of a chat's URL is a
    password.
    """

    tenant_path: str
    name: str
    url: str = field(repr=False)
    kinds: Sequence[str]
    form: str
    address: str = ""


def create_hook(actor: Actor, wanted: WantedHook) -> tuple[AlertHook, str]:
    """The hook and its signing secret, which nothing shows again; mail has none. Alerts from now on go to it, to an address only once it is
    confirmed.

    The server's name is resolved and judged now, and again for each post. Raises NotFound, NotAllowedHere, Invalid, Conflict
    `hook_exists`, `too_many_hooks`, `too_many_confirmations`.
    """
    tenant = tenant_by_path(actor, wanted.tenant_path, Permission.MANAGE_HOOKS)
    hook = AlertHook(
        id=new_id(),
        tenant=tenant,
        name=wanted.name,
        server=_checked(wanted),
        address=wanted.address,
        kinds=sorted(set(wanted.kinds)),
        form=wanted.form,
        created_by_id=actor.user_id,
        created_by_name=actor.name,
    )
    try:
        secret = _make(actor, hook, wanted.url)
    except IntegrityError as error:
        if "alert_hook_name_is_unique_in_its_tenant" not in str(error):
            raise
        raise Conflict(f"{tenant.path} already has a hook named {wanted.name}.", code="hook_exists") from None
    return hook_by_id(actor, hook.id), secret


def delete_hook(actor: Actor, hook_id: UUID) -> None:
    """Deletes the hook with its secret and all its deliveries. A post that is under way may still arrive. Raises NotFound."""
    with transaction.atomic():
        hook = locked_hook(actor, hook_id)
        AlertHook.objects.filter(id=hook.id).delete()
        record_hook(actor, "hook.delete", hook)


def pause_hook(actor: Actor, hook_id: UUID) -> AlertHook:
    """The hook, to which nothing is posted until it is resumed. Raises NotFound."""
    with transaction.atomic():
        hook = locked_hook(actor, hook_id)
        if AlertHook.objects.filter(id=hook.id, paused_at=None).update(paused_at=Now(), pause=AlertHook.Pause.USER):
            record_hook(actor, "hook.pause", hook)
    return hook_by_id(actor, hook_id)


def resume_hook(actor: Actor, hook_id: UUID) -> AlertHook:
    """The hook; what was pending is posted, and what arises from now on. Raises NotFound."""
    with transaction.atomic():
        hook = locked_hook(actor, hook_id)
        if AlertHook.objects.filter(id=hook.id, paused_at__isnull=False).update(paused_at=None, pause="", since=Now()):
            deliveries_of(hook).filter(state=State.PENDING).update(next_at=Now(), tried_since=Now())
            record_hook(actor, "hook.resume", hook)
            announce(ROUTINE)
    return hook_by_id(actor, hook_id)


def send_test(actor: Actor, hook_id: UUID) -> AlertDelivery:
    """A delivery of no alert, which is posted within seconds. Raises NotFound, Conflict `hook_paused`,
    `address_unconfirmed`, `test_pending`.
    """
    with transaction.atomic():
        hook = _confirmed(actor, hook_id)
        if deliveries_of(hook).filter(kind=TEST, state=State.PENDING).exists():
            raise Conflict("A test of this hook is still to be delivered.", code="test_pending")
        facts = {"tenant": hook.tenant.path, "hook": hook.name, "at": instant(database_now())}
        delivery = AlertDelivery.objects.create(
            hook=hook, kind=TEST, subject=str(new_id()), tenant_path=hook.tenant.path, facts=facts
        )
        record_hook(actor, "hook.test", hook)
        announce(ROUTINE)
    return deliveries_of(hook).get(id=delivery.id)


def deliver_again(actor: Actor, hook_id: UUID, uid: UUID) -> AlertDelivery:
    """The delivery, which is posted again with the same id. One that is pending is posted now. Raises NotFound, Conflict
    `hook_paused`, `address_unconfirmed`. A confirmation is not found: a new one has a new link.
    """
    with transaction.atomic():
        hook = _confirmed(actor, hook_id)
        changed = (
            deliveries_of(hook)
            .filter(uid=uid)
            .exclude(kind=CONFIRMATION)
            .update(
                state=State.PENDING, ended_at=None, last_status=None, last_error="", next_at=Now(), tried_since=Now()
            )
        )
        if not changed:
            raise NotFound
        record_hook(actor, "hook.deliver_again", hook, {"delivery": str(uid)})
        announce(ROUTINE)
    return deliveries_of(hook).get(uid=uid)


def rekey_hooks(ring: KeyRing) -> Rekeying:
    """Seals what is sealed of each hook again under the current key."""
    rows = AlertHook.objects.select_related("tenant")
    return rekeyed(ring, rows, binding_of, lambda hook: f"hook {hook.name} of {hook.tenant.path}")


@transaction.atomic
def _make(actor: Actor, hook: AlertHook, url: str) -> str:
    """The signing secret; empty for mail, whose link is mailed instead."""
    counted = {organisation_of(hook.tenant).id} if hook.form == MAIL else set()
    for tenant_id in sorted({*counted, hook.tenant_id}):
        locks.lock_tenant_of_hooks(tenant_id)
    _refuse_too_many(hook.tenant)
    if hook.form == MAIL:
        link = new_link(hook)
        hook.save(force_insert=True)
        mail_link(actor, hook, link)
        secret = ""
    else:
        secret = f"swyh_{secrets.token_urlsafe(SECRET_BYTES)}"
        seal_hook(hook, {"url": url, "secret": secret})
        hook.save(force_insert=True)
    record_hook(actor, "hook.create", hook)
    return secret


def _checked(wanted: WantedHook) -> str:
    """The server as it is shown; empty for mail."""
    errors = []
    if not (0 < len(wanted.name) <= NAME_LENGTH and wanted.name.isprintable() and wanted.name.strip() == wanted.name):
        errors.append(FieldError("name", "bad_format", f"1 to {NAME_LENGTH} characters in one line"))
    if not wanted.kinds or not set(wanted.kinds) <= set(KINDS):
        errors.append(FieldError("kinds", "unknown_kind", f"one or more of {', '.join(KINDS)}"))
    if wanted.form not in FORMS:
        errors.append(FieldError("form", "unknown_form", f"one of {', '.join(FORMS)}"))
    unwanted = ("url", wanted.url) if wanted.form == MAIL else ("address", wanted.address)
    if unwanted[1]:
        errors.append(FieldError(unwanted[0], "not_of_this_form", f"not with the form {wanted.form}"))
    if errors:
        raise Invalid(errors=errors)
    return _checked_address(wanted.address) if wanted.form == MAIL else _checked_server(wanted.url)


def _checked_address(address: str) -> str:
    refuse_without_mail()
    try:
        check_address(address)
    except ValueError as error:
        raise Invalid.field("address", "bad_address", str(error)) from None
    return ""


def _checked_server(url: str) -> str:
    try:
        server = read_hook_url(url)
    except ValueError as error:
        raise Invalid.field("url", "bad_url", str(error)) from None
    try:
        hook_address(server)
    except DriverError as error:
        raise Invalid.field("url", "address_not_allowed", error.reason) from None
    return server.shown


def _refuse_too_many(tenant: Tenant) -> None:
    if AlertHook.objects.filter(tenant=tenant).count() >= MOST_HOOKS:
        raise Conflict(f"{tenant.path} can have at most {MOST_HOOKS} hooks.", code="too_many_hooks")


def _confirmed(actor: Actor, hook_id: UUID) -> AlertHook:
    hook = unpaused_hook(actor, hook_id)
    if hook.form == MAIL and hook.confirmed_at is None:
        raise Conflict("The address is not confirmed yet.", code="address_unconfirmed")
    return hook
