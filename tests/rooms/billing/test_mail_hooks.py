"""Alerts are mailed: each once per hook, again until the mail server takes it, over TLS, and only to addresses that agreed."""

import logging
import time
from email.utils import parsedate_to_datetime

import pytest
from django.db.models import F

from billing.drivers import smtp
from billing.models import AddressConfirmation, AlertDelivery, AlertHook
from billing.operations import hooks
from billing.operations.confirmations import confirm_address
from billing.operations.deliveries import attempt, claim_deliveries, deliver_alerts, make_deliveries, settle
from clusters.operations import rekey_credentials
from tenancy.models import AuditEntry
from tenancy.queries import SYSTEM
from tests.apiserver import make_certificate
from tests.smtpserver import DRIBBLE, DROP, GARBAGE, PASSWORD, SLOW, STEPS, smtp_server

from .hooking import LONG, deliver, due_now, reach_half
from .invoicing import closed_month, issued
from .ledgers import priced_cluster
from .mailing import (
    ADDRESS,
    PUBLIC_URL,
    SENDER,
    link_in,
    make_confirmed,
    make_mail_hook,
    set_up_mail,
    text_of_mail,
)

pytestmark = pytest.mark.django_db
BAD = ("450 later", "550 no", "421 closing", DROP, SLOW, DRIBBLE, GARBAGE)


@pytest.fixture
def server(settings):
    with smtp_server() as server:
        set_up_mail(settings, server)
        yield server


@pytest.fixture
def hurried(monkeypatch):
    monkeypatch.setattr(smtp, "MAIL_SECONDS", 1.0)


def states():
    return list(AlertDelivery.objects.exclude(kind="confirmation").order_by("id").values_list("state", "attempts"))


def message_ids(server):
    return [message["Message-ID"] for message in server.messages]


def test_an_alert_is_mailed_once_to_each_confirmed_address_of_its_tenant_and_of_those_above(server):
    for tenant in ("acme", "acme/research", "acme/other"):
        make_confirmed(server, tenant, address=f"finance@{tenant.replace('/', '.')}.example")
    reach_half()
    for _ in range(3):
        deliver()
    assert sorted(to for _, to, _, _ in server.taken) == ["finance@acme.example", "finance@acme.research.example"]
    assert len(set(message_ids(server))) == 2
    assert all(is_tls for *_, is_tls in server.taken)
    assert states() == [("delivered", 1)] * 2
    assert set(AlertDelivery.objects.values_list("last_status", flat=True)) == {250}


def test_a_mail_is_plain_text_with_a_link_and_says_that_a_program_sent_it(server):
    hook = make_confirmed(server)
    reach_half()
    deliver()
    [message], [(sender, to, raw, _)] = server.messages, server.taken
    row = AlertDelivery.objects.exclude(kind="confirmation").get()
    assert (sender, to, message["From"], message["To"]) == (SENDER, ADDRESS, SENDER, ADDRESS)
    assert message["Subject"] == "50 % of the budget for 2026-11-01 to 2098-12-31 is spent: acme/research"
    assert message["Message-ID"] == f"<{row.uid}@gateway.example>"
    assert (message["Auto-Submitted"], message.get_content_type()) == ("auto-generated", "text/plain")
    assert abs(parsedate_to_datetime(message["Date"]).timestamp() - row.created_at.timestamp()) < 60
    text = text_of_mail(message)
    assert text.startswith("acme/research has spent 50 % of its budget for 2026-11-01 to 2098-12-31: 2.50 USD of 5.00")
    assert f"{PUBLIC_URL}/budgets/{row.facts['budget']}/\n" in text
    assert f"{PUBLIC_URL}/budgets/hooks/{hook.id}/\n" in text
    assert max(len(line) for line in raw.splitlines()) < 100


def test_a_document_is_announced_with_a_link_and_not_attached(server):
    closed_month(priced_cluster())
    make_confirmed(server, kinds=("document",))
    document = issued()
    deliver()
    [message] = server.messages
    assert message["Subject"] == f"Invoice {document.number} for 2026-10 is issued: acme"
    assert f"{PUBLIC_URL}/invoices/{document.id}/" in text_of_mail(message)
    assert not message.is_multipart()


@pytest.mark.parametrize("reply", BAD)
@pytest.mark.parametrize("step", STEPS)
def test_whatever_the_server_does_at_any_step_a_mail_is_repeated_as_the_same_until_it_is_taken(
    server, hurried, step, reply
):
    make_confirmed(server)
    reach_half()
    server.script = {step: reply}
    began = time.monotonic()
    deliver()
    assert time.monotonic() - began < 3
    row = AlertDelivery.objects.exclude(kind="confirmation").get()
    assert (row.state, row.attempts) == ("pending", 1), (row.last_status, row.last_error)
    assert row.last_error.startswith("the mail server ")
    assert "what is this" not in row.last_error
    assert AlertHook.objects.get().pause == ""
    if step in ("greet", "ehlo", "starttls"):
        assert "AUTH" not in server.heard, "the password is for TLS alone"
    server.script = {}
    deliver_alerts()
    assert states() == [("pending", 1)], "the next attempt is not due"
    deliver()
    assert states() == [("delivered", 2)]
    arrived = 1 + (step == "end" and reply in (DROP, SLOW, DRIBBLE, GARBAGE))
    assert len(server.taken) == arrived
    assert len(set(message_ids(server))) == 1
    assert len({raw for _, _, raw, _ in server.taken}) == 1


@pytest.mark.parametrize("scheme", ["smtps", "smtp"])
def test_tls_from_the_first_byte_and_no_tls_on_this_host_work_too(settings, scheme):
    with smtp_server(implicit_tls=scheme == "smtps") as server:
        set_up_mail(settings, server, scheme)
        make_confirmed(server)
        reach_half()
        deliver()
        assert [is_tls for *_, is_tls in server.taken] == [scheme == "smtps"]
        assert ("AUTH" in server.heard) == (scheme == "smtps")


def test_without_starttls_or_with_another_authority_neither_password_nor_mail_is_sent(server, settings):
    make_confirmed(server)
    reach_half()
    server.offers_starttls = False
    deliver()
    assert (
        AlertDelivery.objects.exclude(kind="confirmation")
        .get()
        .last_error.endswith("it offers no STARTTLS, or no way to sign in")
    )
    server.offers_starttls, settings.MAIL_CA = True, make_certificate("127.0.0.1")[0]
    deliver()
    assert AlertDelivery.objects.exclude(kind="confirmation").get().last_error.endswith("(SSLCertVerificationError)")
    assert server.taken == []
    assert {"AUTH", "MAIL"}.isdisjoint(server.heard)


def test_an_address_that_is_refused_again_and_again_pauses_its_hook_which_can_be_resumed(server):
    hook = make_confirmed(server)
    reach_half()
    server.script = {"rcpt": "550 no such user"}
    for _ in range(5):
        deliver()
    assert states() == [("pending", 3)]
    assert AlertHook.objects.get().pause == "gone"
    assert AuditEntry.objects.filter(action="hook.pause").count() == 1
    server.script = {}
    hooks.resume_hook(SYSTEM, hook.id)
    deliver_alerts()
    assert states() == [("delivered", 4)]


def test_after_a_day_of_failures_it_is_given_up_and_can_be_mailed_again(server):
    hook = make_confirmed(server)
    reach_half()
    server.script = {"mail": "451 busy"}
    deliver()
    AlertDelivery.objects.update(tried_since=F("tried_since") - LONG)
    deliver()
    assert states() == [("given_up", 2)]
    told = AuditEntry.objects.get(action="hook.give_up")
    assert (told.detail["address"], told.detail["last_error"]) == (ADDRESS, "the mail server refused the message (451)")
    server.script = {}
    row = AlertDelivery.objects.get(state="given_up")
    hooks.deliver_again(SYSTEM, hook.id, row.uid)
    deliver_alerts()
    assert states() == [("delivered", 3)]


def test_one_address_that_is_refused_keeps_no_other_from_its_mail_and_all_take_one_session(server):
    for number in range(5):
        make_confirmed(server, name=f"h{number}", address=f"a{number}@example.com")
    reach_half()
    server.by_recipient, server.sessions = {"a1@example.com": "550 no", "a3@example.com": "450 later"}, 0
    deliver()
    assert sorted(to for _, to, _, _ in server.taken) == ["a0@example.com", "a2@example.com", "a4@example.com"]
    assert server.sessions == 1
    found = dict(AlertDelivery.objects.exclude(kind="confirmation").values_list("hook__address", "last_status"))
    assert found == {"a0@example.com": 250, "a1@example.com": 550, "a2@example.com": 250, "a3@example.com": 450, "a4@example.com": 250}  # fmt: skip


@pytest.mark.parametrize(("reply", "tried"), [("421 closing", 1), (DROP, 5), ("550 no", 5)])
def test_a_server_that_closes_is_left_alone_and_one_that_drops_a_session_gets_another(server, reply, tried):
    for number in range(5):
        make_confirmed(server, name=f"h{number}", address=f"a{number}@example.com")
    reach_half()
    server.script = {"rcpt": reply}
    deliver()
    assert server.heard.count("RCPT") == tried
    assert states() == [("pending", 1)] * 5


def test_a_slow_server_takes_its_time_once_for_all_messages(server, hurried):
    for number in range(5):
        make_confirmed(server, name=f"h{number}", address=f"a{number}@example.com")
    reach_half()
    server.script = {"end": SLOW}
    began = time.monotonic()
    deliver()
    assert time.monotonic() - began < 3
    assert len(server.taken) == 1
    assert states() == [("pending", 1)] * 5


def test_a_worker_that_died_between_mail_and_record_mails_once_more_with_the_same_message_id(server):
    make_confirmed(server)
    reach_half()
    make_deliveries()
    died = claim_deliveries()
    answers = attempt(died)
    deliver_alerts()
    assert len(server.taken) == 1, "the lease protects it"
    deliver()
    settle(died, answers)
    assert len(server.taken) == 2
    assert server.taken[0] == server.taken[1]
    assert states() == [("delivered", 2)]


def test_nothing_but_its_confirmation_goes_to_an_address_that_has_not_agreed(server):
    hook = make_mail_hook()
    cluster = reach_half()
    for _ in range(3):
        deliver()
    [message] = server.messages
    assert message["Subject"] == "Confirm this address for alerts of acme"
    assert message["Auto-Submitted"] == "auto-generated"
    assert hook.deliveries.count() == 1
    confirm_address(link_in(message))
    deliver()
    assert len(server.taken) == 1, "what arose before is not mailed"
    reach_half("acme/two", cluster)
    deliver()
    assert server.messages[1]["Subject"].endswith("acme/two")


def test_a_confirmation_that_fails_is_repeated_with_the_same_link(server):
    make_mail_hook()
    server.script = {"end": DROP}
    deliver()
    server.script = {}
    deliver()
    assert server.taken[0] == server.taken[1]
    confirm_address(link_in(server.messages[0]))
    assert AlertHook.objects.get().confirmed_at is not None


HOSTILE = "\r\nBcc: victim@example.com\r\n\r\n.\r\nMAIL FROM:<x>\u2028\u202e\x00\x85"


def hostile_facts(name):
    return {"tenant": "acme", "at": "2026-11-27T00:00:00.000Z", "flavor": name, "day": "2026-11-26", "currency": "USD",
            "cost": "610.000000000000", "usual": "10.000000000000", "anomaly": "0199a000-0000-7000-8000-000000000000"}  # fmt: skip


@pytest.mark.parametrize(
    "name", [HOSTILE.replace("\x00", ""), "ü€😀" * 3000, "x" * 10_000, "\r\n.\r\n" * 2000, "=?utf-8?q?x?= <b>"]
)
def test_no_name_adds_a_header_a_line_or_a_second_message(server, name):
    hook = make_confirmed(server)
    AlertDelivery.objects.create(hook=hook, kind="anomaly", subject="x", tenant_path="acme", facts=hostile_facts(name))
    deliver()
    [(_, to, raw, _)], [message] = server.taken, server.messages
    assert to == ADDRESS
    assert sorted(message.keys()) == sorted(
        ["Content-Type", "MIME-Version", "Content-Transfer-Encoding", "Subject", "From", "To", "Message-ID", "Date", "Auto-Submitted",
         "X-Auto-Response-Suppress"]
    )  # fmt: skip
    assert len(message["Subject"].strip()) <= 200
    assert "\u202e" not in message["Subject"] + text_of_mail(message)
    assert text_of_mail(message).count("\n") == 6
    assert raw.isascii()
    assert max(len(line) for line in raw.splitlines()) < 100
    assert server.heard.count("MAIL") == 1


def test_secrets_of_mail_are_nowhere_but_sealed(server, settings, caplog):
    caplog.set_level(logging.DEBUG)
    make_mail_hook()
    server.script = {"auth": "535 no"}
    deliver()
    server.script = {}
    deliver()
    secret = link_in(server.messages[0])
    models = (AlertHook, AlertDelivery, AuditEntry, AddressConfirmation)
    texts = repr([list(model.objects.values()) for model in models]) + caplog.text
    assert secret not in texts
    assert PASSWORD not in texts
    assert secret.encode() not in bytes(AlertHook.objects.get().sealed)


def test_rekeying_moves_links_too(server, settings):
    old = settings.KEY_RING
    make_mail_hook()
    new = "later:" + "bm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm5ubm4="
    settings.KEY_RING = f"{new},{old}"
    assert rekey_credentials().moved == 1
    settings.KEY_RING = new
    deliver()
    confirm_address(link_in(server.messages[0]))


def test_a_worker_without_the_settings_says_so(server, settings):
    make_confirmed(server)
    reach_half()
    make_deliveries()
    settings.MAIL_URL = ""
    due_now()
    deliver()
    row = AlertDelivery.objects.exclude(kind="confirmation").get()
    assert (row.state, row.last_error) == ("pending", smtp.NOT_SET)
