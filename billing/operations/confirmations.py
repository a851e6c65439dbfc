"""Addresses agree to get mail: a one-time link goes to each, and until it is used, nothing else does.

A user may name any address, so confirmations are few: their number is limited for each address and organisation, whatever became of the
hooks. The secret of the newest link is sealed with its hook, since a mail that fails is written again; to find a link, its digest is stored.
"""

import hashlib
import secrets
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from billing import locks
from billing.engine.hooks import CONFIRMATION, MAIL
from billing.models import AddressConfirmation, AlertDelivery, AlertHook
from billing.queries.hooks import deliveries_of, live_confirmation
from foundation.clock import database_now
from foundation.outbox import announce
from foundation.plain_json import instant
from foundation.problems import Conflict, Invalid, NotFound
from tenancy.models import Tenant
from tenancy.queries import Actor

from .hook_rows import ROUTINE, record_hook, record_of_hook, seal_hook, unpaused_hook

LASTS = timedelta(days=7)
SECRET_BYTES = 32
A_DAY = timedelta(days=1)
MOST_A_DAY, MOST_TO_ONE_ADDRESS = 20, 3
"""Confirmations of an organisation within a day: in all, and to one address."""
DEAD = "This link is not valid: it was used or replaced, it has expired, or the alert hook was deleted."


def refuse_without_mail() -> None:
    """Raises Invalid that names the settings without which nothing can be mailed."""
    needed = {
        "SWITCHYARD_MAIL_URL": settings.MAIL_URL,
        "SWITCHYARD_MAIL_FROM": settings.MAIL_FROM,
        "SWITCHYARD_PUBLIC_URL": settings.PUBLIC_URL,
    }
    missing = [name for name, value in needed.items() if not value]
    if missing:
        why = f"this installation sends no mail: an operator sets {' and '.join(missing)} first"
        raise Invalid.field("form", "mail_not_set_up", why)


def send_confirmation(actor: Actor, hook_id: UUID) -> AlertDelivery:
    """The delivery of a new link; earlier ones end. Raises NotFound, Invalid, Conflict `hook_paused`, `nothing_to_confirm`,
    `too_many_confirmations`.
    """
    with transaction.atomic():
        hook = unpaused_hook(actor, hook_id)
        if hook.form != MAIL or hook.confirmed_at is not None:
            raise Conflict("This hook has no address to confirm.", code="nothing_to_confirm")
        locks.lock_tenant_of_hooks(organisation_of(hook.tenant).id)
        delivery = mail_link(actor, hook, new_link(hook))
        AlertHook.objects.filter(id=hook.id).update(key_id=hook.key_id, sealed=hook.sealed)
        record_hook(actor, "hook.send_confirmation", hook)
    return deliveries_of(hook).get(id=delivery.id)


def new_link(hook: AlertHook) -> str:
    """The secret of a new link, sealed with the hook, which the caller saves. Raises Invalid if the installation sends no mail."""
    refuse_without_mail()
    secret = f"swym_{secrets.token_urlsafe(SECRET_BYTES)}"
    seal_hook(hook, {"link": secret})
    return secret


def mail_link(actor: Actor, hook: AlertHook, secret: str) -> AlertDelivery:
    """Mails the hook's new link; earlier ones end. The caller has locked the organisation. Raises Conflict `too_many_confirmations`."""
    organisation = organisation_of(hook.tenant)
    _refuse_too_many(organisation, hook.address)
    _live(hook).update(ended_at=Now())
    deliveries_of(hook).filter(kind=CONFIRMATION, state=AlertDelivery.State.PENDING).delete()
    at = database_now()
    row = AddressConfirmation.objects.create(
        hook=hook,
        organisation_id=organisation.id,
        address=hook.address,
        digest=_digest(secret),
        expires_at=at + LASTS,
    )
    path = hook.tenant.path
    facts = {"tenant": path, "at": instant(at), "until": f"{at + LASTS:%Y-%m-%d %H:%M} UTC", "by": actor.name}
    announce(ROUTINE)
    return AlertDelivery.objects.create(
        hook=hook, kind=CONFIRMATION, subject=str(row.id), tenant_path=path, facts=facts
    )


def open_confirmation(secret: str) -> AddressConfirmation:
    """What a live link confirms; reading it changes nothing. NotFound for any that does not work, whatever the cause."""
    found = live_confirmation(_digest(secret))
    if found is None:
        raise NotFound(DEAD)
    return found


def confirm_address(secret: str) -> AlertHook:
    """The hook, whose address gets the alerts that arise from now on. Of two uses of a link, one wins. Raises NotFound."""
    with transaction.atomic():
        found = open_confirmation(secret)
        hook = locks.lock_hook(found.hook_id) if found.hook_id else None
        if hook is None or not _live(hook).filter(id=found.id, expires_at__gt=Now()).update(used_at=Now()):
            raise NotFound(DEAD)
        AlertHook.objects.filter(id=hook.id).update(confirmed_at=Now(), since=Now())
        deliveries_of(hook).filter(kind=CONFIRMATION, state=AlertDelivery.State.PENDING).delete()
        record_of_hook("hook.confirm", hook, {})
    return hook


def organisation_of(tenant: Tenant) -> Tenant:
    """The organisation that a tenant belongs to."""
    return Tenant.objects.get(path=tenant.path_prefixes[0])


def _refuse_too_many(organisation: Tenant, address: str) -> None:
    since = database_now() - A_DAY
    rows = AddressConfirmation.objects.filter(organisation_id=organisation.id, created_at__gte=since)
    for found, most in ((rows.filter(address=address), MOST_TO_ONE_ADDRESS), (rows, MOST_A_DAY)):
        if found.count() >= most:
            raise Conflict(
                f"Within a day, an organisation can send {MOST_TO_ONE_ADDRESS} confirmations to one address, and {MOST_A_DAY} in all.",
                code="too_many_confirmations",
            )


def _live(hook: AlertHook) -> QuerySet[AddressConfirmation]:
    return AddressConfirmation.objects.filter(hook=hook, used_at__isnull=True, ended_at__isnull=True)


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode(errors="replace")).digest()
