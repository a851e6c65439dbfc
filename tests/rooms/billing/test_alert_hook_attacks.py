"""What the database refuses of alert hooks, whoever writes, and what a seal is bound to."""

import pytest
from django.db import DatabaseError, connection, transaction

from billing.models import AlertDelivery, AlertHook
from billing.operations.deliveries import make_deliveries
from clusters.operations import rekey_credentials
from tests.apiserver import api_server
from tests.refusals import constraint_of

from .hooking import Receiver, deliver, make_hook, reach_half

pytestmark = pytest.mark.django_db


@pytest.fixture
def receiver():
    with api_server(tls=False) as api:
        yield Receiver(api)


def test_a_seal_opens_on_its_own_row_alone(receiver):
    hook, _ = make_hook(receiver)
    other, _ = make_hook(receiver, name="other")
    AlertHook.objects.filter(id=hook.id).update(sealed=AlertHook.objects.get(id=other.id).sealed)
    reach_half()
    deliver()
    assert AlertDelivery.objects.get(hook=hook).last_error == "the signing secret cannot be opened"
    assert AlertDelivery.objects.get(hook=other).state == "delivered"


def test_rekeying_moves_hooks_too(receiver, settings):
    old = settings.KEY_RING
    make_hook(receiver)
    new = "later:" + "bm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm4="
    settings.KEY_RING = f"{new},{old}"
    assert rekey_credentials().moved == 1
    settings.KEY_RING = new
    reach_half()
    deliver()
    assert AlertDelivery.objects.get().state == "delivered"


TWICE = """
INSERT INTO billing_alertdelivery (hook_id, kind, subject, tenant_path, facts)
SELECT hook_id, kind, subject, tenant_path, facts FROM billing_alertdelivery
"""
XML = """
INSERT INTO billing_alerthook (id, tenant_id, name, server, key_id, sealed, kinds, form, created_by_name, pause)
SELECT gen_random_uuid(), tenant_id, 'other', server, key_id, sealed, kinds, 'xml', created_by_name, pause FROM billing_alerthook
"""
ATTACKS = [
    ("UPDATE billing_alertdelivery SET state = 'delivered'", "alert_delivery_ends_with_a_time"),
    (
        "UPDATE billing_alertdelivery SET state = 'delivered', ended_at = now(), attempts = 1",
        "delivered_means_accepted",
    ),
    ("UPDATE billing_alertdelivery SET kind = 'gossip'", "alert_delivery_has_a_known_kind"),
    ("UPDATE billing_alerthook SET kinds = '{}'", "alert_hook_has_known_kinds"),
    ("UPDATE billing_alerthook SET kinds = '{test}'", "alert_hook_has_known_kinds"),
    (XML, "alert_hook_has_a_known_form"),
    ("UPDATE billing_alerthook SET form = 'chat'", "hook_keeps_its_address"),
    ("UPDATE billing_alerthook SET paused_at = now()", "alert_hook_says_why_it_is_paused"),
    (
        TWICE,
        "an_alert_is_delivered_once_per_hook",
    ),
]


@pytest.mark.parametrize(("statement", "constraint"), ATTACKS)
def test_the_database_refuses(receiver, statement, constraint):
    make_hook(receiver)
    reach_half()
    make_deliveries()
    with pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert constraint_of(refused.value) == constraint
