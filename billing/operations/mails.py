"""Writes the mail of a delivery: its addresses, the page that it leads to, and for a confirmation the one-time link."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.conf import settings
from django.urls import reverse

from billing.engine.hooks import ANOMALY, CONFIRMATION, DOCUMENT, FORECAST, SPENT
from billing.engine.mail import Envelope, Mail, mail_of
from billing.models import AlertHook
from clusters.engine.sealing import Sealed

from .hook_rows import opened_link

PAGES = {SPENT: ("budget", "budget"), FORECAST: ("budget", "budget"), ANOMALY: ("anomaly", "anomaly"), DOCUMENT: ("invoice", "invoice")}  # fmt: skip
"""For each kind of alert, the page that shows it, and the fact with the id of the row."""


def written_mail(hook: AlertHook, delivery_id: UUID, kind: str, facts: Mapping[str, Any]) -> Mail:
    """The mail of a delivery to the hook's address. Raises CannotUnseal."""
    hook_page = address_of("alert-hook", hook.id)
    envelope = Envelope(settings.MAIL_FROM, hook.address, hook.name, hook_page, _link(hook, kind, facts) or hook_page)
    return mail_of(envelope, delivery_id, kind, facts)


def address_of(page: str, *ids: object) -> str:
    """The public address of a page of the gateway."""
    return f"{settings.PUBLIC_URL}{reverse(page, args=ids)}"


def _link(hook: AlertHook, kind: str, facts: Mapping[str, Any]) -> str:
    """The secret of a confirmation follows the `#`, which browsers send to no server; empty for what no page shows."""
    if kind == CONFIRMATION:
        secret = opened_link(hook.id, hook.tenant_id, Sealed(hook.key_id, bytes(hook.sealed)))
        return f"{address_of('confirm-address')}#{secret}"
    if kind not in PAGES:
        return ""
    page, fact = PAGES[kind]
    return address_of(page, facts[fact])
