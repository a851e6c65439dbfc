"""What the tests of mail share: hooks with an address, confirmed or not, and the link in a mail."""

import re

from billing.models import AlertHook
from billing.operations.confirmations import confirm_address
from billing.operations.hooks import WantedHook, create_hook
from tenancy.queries import SYSTEM
from tests.builders import make_tenant

from .hooking import KINDS, deliver

ADDRESS, SENDER = "finance@example.com", "switchyard@gateway.example"
PUBLIC_URL = "https://switchyard.example"
LINK = re.compile(r"https://switchyard\.example/confirm/address/#(swym_[\w-]+)")


def set_up_mail(settings, server, scheme="smtp+tls"):
    """The gateway mails by this server."""
    settings.MAIL_URL, settings.MAIL_FROM, settings.MAIL_CA = server.url(scheme), SENDER, server.ca_pem
    settings.PUBLIC_URL = PUBLIC_URL


def make_mail_hook(tenant="acme", name="finance", *, kinds=KINDS, address=ADDRESS, actor=SYSTEM):
    make_tenant(tenant)
    return create_hook(actor, WantedHook(tenant, name, "", kinds, "mail", address))[0]


def text_of_mail(message):
    return message.get_content().replace("\r\n", "\n")


def link_in(message):
    return LINK.search(text_of_mail(message))[1]


def make_confirmed(server, tenant="acme", name="finance", **fields):
    """A hook whose address has agreed; what was mailed for that is forgotten."""
    hook = make_mail_hook(tenant, name, **fields)
    deliver()
    confirm_address(link_in(server.messages[-1]))
    server.taken.clear()
    server.heard.clear()
    return AlertHook.objects.get(id=hook.id)
