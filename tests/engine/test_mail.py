"""Mail as values: the operator's server, addresses, and messages that no name can break."""

import unicodedata
from datetime import UTC, datetime
from uuid import UUID

import pytest
from django.core.exceptions import ImproperlyConfigured
from hypothesis import given
from hypothesis import strategies as st

from billing.engine.mail import (
    BREAKING,
    MOST_SUBJECT_LENGTH,
    Envelope,
    MailServer,
    check_address,
    mail_of,
    one_line,
    read_mail_url,
)
from config import environment

ENVELOPE = Envelope("gateway@example.com", "finance@example.com", "h", "https://g/h", "https://g/l#secret")
ID = UUID(int=7)
AT = "2026-11-27T12:00:00.000Z"


@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("smtps://mail.example.com", MailServer("mail.example.com", 465, is_tls=True)),
        (
            "smtp+tls://u:p%40%2F%3A@mail.example.com:2525",
            MailServer("mail.example.com", 2525, False, True, "u", "p@/:"),
        ),
        (
            "smtp+tls://u%40example.com:canary@10.0.0.5/",
            MailServer("10.0.0.5", 587, False, True, "u@example.com", "canary"),
        ),
        ("smtp://127.0.0.1", MailServer("127.0.0.1", 25)),
        ("smtp://[::1]:2525", MailServer("::1", 2525)),
        ("smtps://[2001:db8::1]", MailServer("2001:db8::1", 465, is_tls=True)),
    ],
)
def test_a_url_is_read(url, server):
    assert read_mail_url(url) == server
    assert server.password == "" or server.password not in repr(server)


@pytest.mark.parametrize(
    "url",
    [
        "mail.example.com", "http://mail.example.com", "smtp://mail.example.com:25", "smtp://u:p@127.0.0.1", "smtps://u@mail.example.com",
        "smtps://:p@mail.example.com", "smtps://mail.example.com:0", "smtps://mail.example.com:99999", "smtps://mail.example.com/x",
        "smtps://mail.example.com?x=1", "smtps://mail.example.com#x", "smtps://", "smtps://u:canary%0d%0a@mail.example.com", "smtps://ma il",
        "smtps://u:canary@mail.exämple.com", "smtps://[::1",
    ],
)  # fmt: skip
def test_a_wrong_url_stops_the_boot_without_being_repeated(monkeypatch, url):
    monkeypatch.setenv("SWITCHYARD_MAIL_URL", url)
    with pytest.raises(ImproperlyConfigured, match=r"^SWITCHYARD_MAIL_URL: must ") as stopped:
        environment.checked("SWITCHYARD_MAIL_URL", "", read_mail_url)
    assert "canary" not in str(stopped.value)


@pytest.mark.parametrize(
    "sender", ["gateway", "Gateway <g@example.com>", "g@example.com\nBcc: x@example.com", "g@localhost"]
)
def test_a_wrong_sender_stops_the_boot(monkeypatch, sender):
    monkeypatch.setenv("SWITCHYARD_MAIL_FROM", sender)
    with pytest.raises(ImproperlyConfigured, match=r"^SWITCHYARD_MAIL_FROM: must "):
        environment.checked("SWITCHYARD_MAIL_FROM", "", check_address)


@pytest.mark.parametrize(
    "address",
    [
        "f@example.com",
        "first.last+tag@mail.example.co.uk",
        "o'neil@example.com",
        "F@EXAMPLE.COM",
        "a_b-c@x-y.example",
        "f@xn--exmple-cua.com",
    ],
)
def test_addresses_as_people_have_them_are_accepted(address):
    check_address(address)


@given(st.text(), st.text(max_size=300), st.text(max_size=300))
def test_whatever_names_are_a_subject_is_one_line_and_a_body_has_as_many_as_ever(name, hook, tenant):
    facts = {
        "tenant": tenant,
        "at": AT,
        "flavor": name,
        "day": "2026-11-26",
        "currency": "USD",
        "cost": "6",
        "usual": "1",
    }
    mail = mail_of(Envelope("g@example.com", "f@example.com", hook, "P", "L"), ID, "anomaly", facts)
    assert len(mail.subject) <= MOST_SUBJECT_LENGTH
    assert mail.subject == one_line(mail.subject)
    assert len(mail.body.splitlines()) == 6
    assert mail == mail_of(
        Envelope("g@example.com", "f@example.com", hook, "P", "L"), ID, "anomaly", dict(reversed(facts.items()))
    )


@given(st.text())
def test_one_line_has_no_character_that_breaks_it_and_is_what_it_makes_of_itself(text):
    line = one_line(text)
    assert line.splitlines() in ([], [line])
    assert BREAKING.isdisjoint(unicodedata.category(one) for one in line)
    assert one_line(line) == line


def test_each_kind_has_a_subject_and_a_confirmation_names_no_hook():
    facts = {"tenant": "acme", "at": AT, "by": "eve\r\n@example.com", "until": "2026-12-04 12:00 UTC"}
    mail = mail_of(ENVELOPE, ID, "confirmation", facts)
    assert mail.subject == "Confirm this address for alerts of acme"
    assert mail.body.splitlines()[0] == (
        "eve @example.com asks for alerts of acme, and of all tenants below it, to be mailed to this address."
    )
    assert "https://g/l#secret" in mail.body
    assert (mail.message_id, mail.at) == (f"<{ID}@example.com>", datetime(2026, 11, 27, 12, tzinfo=UTC))
    assert "secret" not in repr(mail) + repr(ENVELOPE)
    assert (
        mail_of(ENVELOPE, ID, "test", {"tenant": "acme", "hook": "h", "at": AT}).subject
        == "Test of the alert hook h of acme"
    )
