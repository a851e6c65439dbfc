"""An alert hook: made, tested and paused on its pages, on a phone and a wide screen."""

import pytest

from billing.models import AlertHook
from billing.operations.deliveries import deliver_alerts
from tests.apiserver import api_server
from tests.rooms.billing.hooking import SECRET_PATH, Receiver
from tests.rooms.billing.mailing import ADDRESS, link_in, set_up_mail
from tests.smtpserver import smtp_server

from .reading import fits, look

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def receiver():
    with api_server(tls=False) as api:
        yield Receiver(api)


def test_a_user_makes_a_hook_sends_a_test_and_sees_it_arrive(window, admin, receiver):
    w = window(reduced_motion="reduce").sign_in(admin)
    w.open("/budgets/")
    w.page.get_by_role("link", name="Alert hooks").click()
    w.page.get_by_label("Tenant").select_option("acme")
    w.page.get_by_label("Name").fill("finance channel with a rather long name")
    w.page.get_by_label("URL").fill(receiver.url(SECRET_PATH))
    w.page.get_by_label("Form").select_option("chat")
    w.page.get_by_role("button", name="Create hook").click()
    secret = w.page.locator("#hook-secret").inner_text()
    assert secret.startswith("swyh_")
    fits(w, w.page.get_by_role("link", name="Send a test"))
    look(w, "made")
    w.page.get_by_role("link", name="Send a test").click()
    w.page.get_by_role("button", name="Send a test").click()
    w.page.get_by_text("This is a test of the alert hook").first.wait_for()
    deliver_alerts()
    w.page.get_by_text("delivered", exact=True).wait_for()
    assert len(receiver.posts) == 1
    fits(w, w.page.get_by_role("button", name="Deliver again"), w.page.get_by_role("button", name="Pause"))
    look(w, "hook")
    assert secret not in w.page.content()
    assert SECRET_PATH not in w.page.content()
    w.page.get_by_role("button", name="Pause").click()
    w.page.get_by_role("button", name="Resume").wait_for()
    assert AlertHook.objects.get().pause == "user"


def test_a_reader_without_an_account_confirms_an_address_and_the_user_sees_it(window, admin, settings):
    w = window(reduced_motion="reduce").sign_in(admin)
    with smtp_server() as server:
        set_up_mail(settings, server)
        w.open("/budgets/hooks/")
        w.page.get_by_label("Tenant").select_option("acme")
        w.page.get_by_label("Name").fill("ledger")
        w.page.get_by_label("Form").select_option("mail")
        w.page.get_by_label("Address").fill(ADDRESS)
        w.page.get_by_role("button", name="Create hook").click()
        w.page.get_by_text(f"A link is mailed to {ADDRESS}").wait_for()
        deliver_alerts()
        w.page.get_by_role("link", name="ledger").first.click()
        w.page.get_by_role("button", name="Send a new link").wait_for()
        fits(w, w.page.get_by_role("button", name="Send a new link"))
        look(w, "unconfirmed")
        reader = window(reduced_motion="reduce")
        reader.open(f"/confirm/address/#{link_in(server.messages[0])}")
        reader.page.get_by_role("button", name="Confirm").wait_for()
        fits(reader, reader.page.get_by_role("button", name="Confirm"))
        look(reader, "confirm")
        assert "#" not in reader.page.url
        reader.page.get_by_role("button", name="Confirm").click()
        reader.page.get_by_role("heading", name="Confirmed").wait_for()
        w.page.get_by_text("confirmed", exact=False).first.wait_for()
        w.page.reload()
        w.page.get_by_role("button", name="Send a test").wait_for()
    assert AlertHook.objects.get().confirmed_at is not None
