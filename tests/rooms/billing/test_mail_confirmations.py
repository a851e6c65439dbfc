"""An address agrees by a link that works once; a user who names other people's addresses sends them a few confirmations and nothing else."""

from datetime import timedelta

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.models import F

from billing.models import AddressConfirmation, AlertDelivery, AlertHook
from billing.operations import confirmations, hooks
from billing.operations.confirmations import confirm_address, open_confirmation, send_confirmation
from billing.operations.deliveries import deliver_alerts, forget_deliveries
from foundation.problems import Conflict, Invalid, NotFound
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.builders import bind, make_tenant, make_user
from tests.refusals import constraint_of
from tests.smtpserver import smtp_server

from .hooking import deliver, reach_half
from .mailing import ADDRESS, link_in, make_confirmed, make_mail_hook, set_up_mail, text_of_mail

pytestmark = pytest.mark.django_db
PAGE = "/confirm/address/"


@pytest.fixture
def server(settings):
    with smtp_server() as server:
        set_up_mail(settings, server)
        yield server


@pytest.fixture
def finance():
    make_tenant("acme/research")
    user = make_user("fin@example.org")
    bind(user, "acme", "finance")
    return user


def mailed_link(server):
    deliver()
    return link_in(server.messages[-1])


def body(**changes):
    return {"tenant": "acme", "name": "finance", "form": "mail", "address": ADDRESS, "kinds": ["anomaly"]} | changes


def test_a_hook_that_mails_is_made_confirmed_and_tested_over_http(call, finance, server, client):
    status, made = call(finance, "post", "/alert-hooks", body())
    assert status == 201
    assert {name: made[name] for name in ("form", "server", "address", "confirmed_at", "secret")} == {
        "form": "mail", "server": None, "address": ADDRESS, "confirmed_at": None, "secret": None,
    }  # fmt: skip
    own = f"/alert-hooks/{made['id']}"
    assert call(finance, "post", f"{own}/test")[1]["code"] == "address_unconfirmed"
    deliver_alerts()
    [listed] = call(finance, "get", f"{own}/deliveries")[1]["items"]
    assert (listed["kind"], listed["state"], listed["last_status"]) == ("confirmation", "delivered", 250)
    assert call(finance, "post", f"{own}/deliveries/{listed['id']}/again")[1]["code"] == "address_unconfirmed"
    secret = link_in(server.messages[0])
    assert secret not in repr(call(finance, "get", f"{own}/deliveries"))
    assert (
        client.post(PAGE, {"link": f"https://switchyard.example{PAGE}#{secret}", "step": "confirm"}).status_code == 200
    )
    assert call(finance, "get", own)[1]["confirmed_at"] is not None
    assert call(finance, "post", f"{own}/deliveries/{listed['id']}/again")[0] == 404
    assert call(finance, "post", f"{own}/confirmation")[1]["code"] == "nothing_to_confirm"
    assert call(finance, "post", f"{own}/test")[0] == 202
    deliver()
    assert server.messages[1]["Subject"] == "Test of the alert hook finance of acme"
    actions = AuditEntry.objects.filter(action__startswith="hook.").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["hook.create", "hook.confirm", "hook.test"]


def test_a_link_is_seen_without_being_used_and_confirms_once(client, server):
    make_mail_hook()
    secret = mailed_link(server)
    assert client.get(PAGE).status_code == client.head(PAGE).status_code == 200
    shown = client.post(PAGE, {"link": f"x#{secret}"}).content.decode()
    assert ADDRESS in shown
    assert "acme" in shown
    assert AlertHook.objects.get().confirmed_at is None
    for status in (200, 404):
        assert client.post(PAGE, {"link": secret, "step": "confirm"}).status_code == status
    assert AddressConfirmation.objects.filter(used_at__isnull=False).count() == 1


def dead_by_replacement(hook):
    send_confirmation(SYSTEM, hook.id)


def dead_by_age(hook):
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE billing_addressconfirmation DISABLE TRIGGER USER")
        cursor.execute("UPDATE billing_addressconfirmation SET expires_at = now() - interval '1 second'")
        cursor.execute("ALTER TABLE billing_addressconfirmation ENABLE TRIGGER USER")


def dead_by_deletion(hook):
    hooks.delete_hook(SYSTEM, hook.id)


@pytest.mark.parametrize("kill", [dead_by_replacement, dead_by_age, dead_by_deletion])
def test_a_link_that_was_replaced_has_expired_or_lost_its_hook_does_not_work(server, kill):
    hook = make_mail_hook()
    secret = mailed_link(server)
    kill(hook)
    for use in (open_confirmation, confirm_address):
        with pytest.raises(NotFound):
            use(secret)
    assert not AlertHook.objects.filter(confirmed_at__isnull=False).exists()


@pytest.mark.parametrize("secret", ["", "swym_", "swym_" + "x" * 43, "\ud800", "é" * 600, "%00", "'--"])
def test_no_other_text_is_a_link(server, secret):
    make_mail_hook()
    with pytest.raises(NotFound):
        confirm_address(secret)


def test_guesses_are_limited_by_address(client, server):
    make_mail_hook()
    secret = mailed_link(server)
    statuses = [client.post(PAGE, {"link": "swym_x"}).status_code for _ in range(22)]
    assert statuses == [404] * 20 + [429] * 2
    assert client.post(PAGE, {"link": secret}).status_code == 429
    assert client.post(PAGE, {"link": secret}, REMOTE_ADDR="10.1.1.1").status_code == 200


def test_a_link_of_one_hook_confirms_no_other_with_the_same_address(server):
    one = make_mail_hook()
    secret = mailed_link(server)
    other = make_mail_hook(name="other")
    confirm_address(secret)
    assert AlertHook.objects.get(id=one.id).confirmed_at is not None
    assert AlertHook.objects.get(id=other.id).confirmed_at is None


def test_an_address_gets_few_confirmations_a_day_even_if_hooks_are_deleted_and_made_again(server):
    for number in range(confirmations.MOST_TO_ONE_ADDRESS):
        hook = make_mail_hook(("acme", "acme/a", "acme/b")[number])
        deliver()
        hooks.delete_hook(SYSTEM, hook.id)
    with pytest.raises(Conflict) as refused:
        make_mail_hook("acme/c")
    assert refused.value.code == "too_many_confirmations"
    assert not AlertHook.objects.exists()
    assert len(server.taken) == confirmations.MOST_TO_ONE_ADDRESS
    make_mail_hook("globex")
    AddressConfirmation.objects.update(created_at=F("created_at") - timedelta(days=1))
    make_mail_hook("acme/c")


def test_an_organisation_sends_few_confirmations_a_day_to_all_addresses(server, monkeypatch):
    monkeypatch.setattr(confirmations, "MOST_A_DAY", 2)
    for number in range(2):
        make_mail_hook(name=f"h{number}", address=f"a{number}@example.com")
    with pytest.raises(Conflict):
        make_mail_hook(name="h2", address="a2@example.com")
    first = AlertHook.objects.order_by("name")[0]
    with pytest.raises(Conflict):
        send_confirmation(SYSTEM, first.id)


def test_a_new_link_replaces_a_mail_that_is_pending(server):
    hook = make_mail_hook()
    send_confirmation(SYSTEM, hook.id)
    secret = mailed_link(server)
    assert len(server.taken) == 1
    confirm_address(secret)


def test_a_confirmation_carries_no_text_that_its_sender_chose_freely(server):
    make_mail_hook(name="BUY NOW http://evil.example")
    deliver()
    assert "BUY NOW" not in text_of_mail(server.messages[0]) + server.messages[0]["Subject"]


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        (("MAIL_URL",), "SWITCHYARD_MAIL_URL"),
        (("MAIL_FROM",), "SWITCHYARD_MAIL_FROM"),
        (("PUBLIC_URL",), "SWITCHYARD_PUBLIC_URL"),
        (("MAIL_URL", "MAIL_FROM"), "SWITCHYARD_MAIL_URL and SWITCHYARD_MAIL_FROM"),
    ],
)
def test_without_a_setting_no_hook_that_mails_is_made_and_the_setting_is_named(
    call, finance, server, settings, missing, named
):
    for name in missing:
        setattr(settings, name, "")
    status, refused = call(finance, "post", "/alert-hooks", body())
    assert status == 422
    [error] = refused["errors"]
    assert (error["field"], error["code"]) == ("form", "mail_not_set_up")
    assert f"sets {named} first" in error["detail"]
    assert not AlertHook.objects.exists()


@pytest.mark.parametrize(
    "address",
    [
        "finance", "finance@localhost", "@example.com", "a@b@example.com", "Finance <f@example.com>", "f@example.com,g@example.com", "f@exämple.com",
        "ü@example.com", "f@example.com ", "f @example.com", '"f x"@example.com', "f@[127.0.0.1]", "f@127.0.0.1", ".f@example.com", "f..g@example.com",
        "f@-example.com", "f@example.com>", f"{'x' * 65}@example.com", f"f@{'x.' * 125}com", "f@example.com;", "f(comment)@example.com",
    ],
)  # fmt: skip
def test_only_one_bare_address_is_accepted(server, address):
    with pytest.raises(Invalid) as refused:
        make_mail_hook(address=address)
    assert [(error.field, error.code) for error in refused.value.errors] == [("address", "bad_address")]
    assert not AlertHook.objects.exists()


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"address": "f@example.com\r\nBcc: g@example.com"}, "address", "out_of_range"),
        ({"address": "x"}, "address", "bad_address"),
        ({"url": "https://example.com/x"}, "url", "not_of_this_form"),
        ({"form": "json", "url": "https://example.com/x"}, "address", "not_of_this_form"),
    ],
)
def test_a_wrong_field_is_named(call, finance, server, changes, field, code):
    status, refused = call(finance, "post", "/alert-hooks", body(**changes))
    assert (status, [(one["field"], one["code"]) for one in refused["errors"]]) == (422, [(field, code)])


def test_foreigners_cannot_ask_for_a_link(call, server):
    hook = make_mail_hook()
    stranger = make_user()
    bind(stranger, "globex", "admin")
    assert call(stranger, "post", f"/alert-hooks/{hook.id}/confirmation")[0] == 404
    viewer = make_user()
    bind(viewer, "acme", "viewer")
    assert call(viewer, "post", f"/alert-hooks/{hook.id}/confirmation")[0] == 404


def test_the_pages_make_a_hook_that_mails_and_send_a_new_link(client, finance, server):
    client.force_login(finance)
    form = {"tenant": "acme", "name": "ledger", "url": "", "address": ADDRESS, "form": "mail", "kinds": "all"}
    made = client.post("/budgets/hooks/", form).content.decode()
    assert f"A link is mailed to {ADDRESS}" in made
    hook = AlertHook.objects.get()
    page = f"/budgets/hooks/{hook.id}/"
    shown = client.get(page).content.decode()
    assert "not confirmed: no alert is mailed" in shown
    assert "Send a test" not in shown
    assert client.post(f"{page}confirmation/").status_code == 302
    confirm_address(mailed_link(server))
    shown = client.get(page).content.decode()
    assert "Send a test" in shown
    assert "/again/" not in shown, "a confirmation is not repeated"
    refused = client.post("/budgets/hooks/", form | {"name": "x", "address": "bad"})
    assert refused.status_code == 422
    assert "must be one address such as" in refused.content.decode()


BORN_CONFIRMED = """
INSERT INTO billing_alerthook (id, tenant_id, name, server, address, confirmed_at, key_id, sealed, kinds, form, created_by_name, pause)
SELECT gen_random_uuid(), tenant_id, 'x', '', 'victim@example.com', now(), key_id, sealed, kinds, 'mail', 'x', '' FROM billing_alerthook
"""
ATTACKS = [
    ("UPDATE billing_alerthook SET address = 'victim@example.com'", "hook_keeps_its_address"),
    ("UPDATE billing_alerthook SET form = 'json'", "hook_keeps_its_address"),
    ("UPDATE billing_alerthook SET server = 'https://example.com'", "alert_hook_has_a_server_or_an_address"),
    ("UPDATE billing_alerthook SET confirmed_at = now()", "address_is_confirmed_by_its_link"),
    ("UPDATE billing_alertdelivery SET kind = 'anomaly'", "only_confirmed_addresses_get_alerts"),
    ("INSERT INTO billing_alertdelivery (hook_id, kind, subject, tenant_path, facts) SELECT id, 'anomaly', 'x', 'acme', '{}' FROM billing_alerthook",
     "only_confirmed_addresses_get_alerts"),
    ("UPDATE billing_addressconfirmation SET address = 'victim@example.com'", "confirmation_works_once"),
    ("UPDATE billing_addressconfirmation SET expires_at = expires_at + interval '1 day'", "confirmation_works_once"),
    ("UPDATE billing_addressconfirmation SET used_at = expires_at + interval '1 s'", "confirmation_works_once"),
    ("UPDATE billing_addressconfirmation SET used_at = now(), ended_at = now()", "address_confirmation_ends_one_way"),
    ("UPDATE billing_addressconfirmation SET digest = 'x'", "confirmation_works_once"),
    ("INSERT INTO billing_addressconfirmation (hook_id, organisation_id, address, digest, expires_at) SELECT hook_id, organisation_id, address, 'x', now() FROM billing_addressconfirmation",
     "address_confirmation_digest_is_sha256"),
    ("INSERT INTO billing_addressconfirmation (hook_id, organisation_id, address, digest, expires_at) SELECT hook_id, organisation_id, address, sha256('x'), now() FROM billing_addressconfirmation",
     "one_live_confirmation_per_hook"),
    (BORN_CONFIRMED, "address_is_confirmed_by_its_link"),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "constraint"), ATTACKS)
def test_the_database_refuses_whatever_would_mail_to_an_address_that_did_not_agree(server, statement, constraint):
    make_mail_hook()
    assert _refused(statement) == constraint


LATER = [
    ("UPDATE billing_alerthook SET confirmed_at = NULL", "address_is_confirmed_by_its_link"),
    ("UPDATE billing_alerthook SET confirmed_at = confirmed_at + interval '1 s'", "address_is_confirmed_by_its_link"),
    ("UPDATE billing_addressconfirmation SET used_at = NULL", "confirmation_works_once"),
]


@pytest.mark.parametrize(("statement", "constraint"), LATER)
def test_what_was_confirmed_stays(server, statement, constraint):
    make_confirmed(server)
    assert _refused(statement) == constraint


def test_a_server_gets_no_confirmation_in_raw_sql(server):
    make_confirmed(server)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO billing_alerthook (id, tenant_id, name, server, key_id, sealed, kinds, form, created_by_name, pause)"
            " SELECT gen_random_uuid(), tenant_id, 'x', 'https://x.example', key_id, sealed, kinds, 'json', 'x', '' FROM billing_alerthook"
        )
    statement = (
        "INSERT INTO billing_alertdelivery (hook_id, kind, subject, tenant_path, facts)"
        " SELECT id, 'confirmation', 'x', 'acme', '{}' FROM billing_alerthook WHERE form = 'json'"
    )
    assert _refused(statement) == "only_confirmed_addresses_get_alerts"


def _refused(statement):
    with pytest.raises(DatabaseError) as refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    return constraint_of(refused.value)


def test_old_confirmations_are_forgotten_and_what_they_confirmed_stays(server):
    make_confirmed(server)
    AddressConfirmation.objects.update(created_at=F("created_at") - timedelta(days=91))
    forget_deliveries()
    assert not AddressConfirmation.objects.exists()
    reach_half()
    deliver()
    assert len(server.taken) == 1
    assert AlertDelivery.objects.filter(state="delivered", kind="budget_spent").exists()
