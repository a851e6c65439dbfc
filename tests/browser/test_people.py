"""One-time links, invitations and the account, as people use them."""

import pytest
from playwright.sync_api import expect

from foundation.clock import now
from tenancy.models import OneTimeLink, User
from tests.browser.conftest import PASSWORD
from tests.browser.reading import fits
from tests.builders import bind, make_token, make_user

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
NEW = "another horse battery"


@pytest.fixture
def member(admin):
    user = make_user("member@example.org")
    bind(user, "acme/research", "submitter")
    return user


def shown_link(w):
    return w.page.locator("#link-secret").inner_text().strip()


def test_somebody_new_is_invited_and_joins_with_a_password_of_their_own(window, admin, member):
    w = window().sign_in(admin)
    w.open(f"/tenants/{member.role_bindings.get().tenant_id}/")
    w.page.get_by_role("link", name="People", exact=True).click()
    w.page.get_by_text("No pending invitations").wait_for()
    w.page.get_by_label("Email").fill("new@example.org")
    w.page.get_by_label("Role", exact=True).select_option("submitter")
    w.page.get_by_role("button", name="Create invitation").click()
    link = shown_link(w)
    w.page.get_by_text("new@example.org is invited").wait_for()
    guest = window()
    asked = []
    guest.page.on("request", lambda request: asked.append((request.url, request.headers.get("referer", ""))))
    guest.page.goto(link)
    guest.page.get_by_role("heading", name="Join acme/research").wait_for()
    assert guest.page.url == f"{guest.address}/sign-in/link/"
    secret = link.partition("#")[2]
    assert not [one for one in asked if secret in "".join(one)]
    guest.page.get_by_label("New password").fill(NEW)
    guest.page.get_by_label("Confirm password").fill(NEW)
    guest.page.get_by_role("button", name="Create account and join").click()
    guest.page.get_by_text("Your account is ready").wait_for()
    guest.sign_in_by_form(User.objects.get(email="new@example.org"), NEW)
    guest.page.wait_for_url(f"{guest.address}/")
    w.open(w.page.url.removeprefix(w.address))
    w.page.get_by_text("No pending invitations").wait_for()
    expect(w.page.get_by_role("link", name="new@example.org")).to_have_count(1)


def test_an_admin_makes_a_link_and_its_owner_sets_a_password(window, admin, member):
    w = window().sign_in(admin)
    w.open(f"/people/{member.id}/")
    w.page.get_by_role("button", name="Create a one-time link").click()
    link = shown_link(w)
    expect(w.page.get_by_role("button", name="Copy the link")).to_be_visible()
    owner = window(java_script_enabled=False)  # without script the link is pasted
    owner.page.goto(link)
    owner.page.get_by_label("Your link").fill(link)
    owner.page.get_by_role("button", name="Continue").click()
    owner.page.get_by_label("New password").fill("short")
    owner.page.get_by_label("Confirm password").fill("short")
    owner.page.get_by_role("button", name="Set password").click()
    owner.page.get_by_text("This password is too short").wait_for()
    owner.page.get_by_label("New password").fill(NEW)
    owner.page.get_by_label("Confirm password").fill(NEW)
    owner.page.get_by_role("button", name="Set password").click()
    owner.page.get_by_text("Your password is set").wait_for()
    owner.page.goto(link)
    owner.page.get_by_label("Your link").fill(link)
    owner.page.get_by_role("button", name="Continue").click()
    owner.page.get_by_text("This link is not valid").wait_for()


def test_a_password_change_signs_the_other_window_out(window, admin):
    make_token(admin)
    other, w = window().sign_in(admin), window().sign_in(admin)
    for one in (other, w):
        one.open("/")
    w.page.get_by_role("link", name=admin.email).click()
    w.page.get_by_label("Current password").fill(PASSWORD)
    w.page.get_by_label("New password").fill(NEW)
    w.page.get_by_label("Confirm password").fill(NEW)
    w.page.get_by_role("button", name="Change password").click()
    w.page.get_by_text("one API token is revoked").wait_for()
    other.page.wait_for_url("**/login/**")  # by its next poll, every few seconds
    w.page.get_by_label("Also revoke my API tokens").check()
    w.page.get_by_role("button", name="Sign out everywhere else").click()
    w.page.get_by_text("You are signed out everywhere else").wait_for()


def test_the_pages_of_people_fit_the_screen(window, admin, member):
    OneTimeLink.objects.create(
        purpose="invitation",
        prefix="swyl_test",
        digest=b"x" * 32,
        email="somebody-with-a-rather-long-name@department.example.org",
        tenant=member.role_bindings.get().tenant,
        role="submitter",
        expires_at=now().replace(year=now().year + 1),
    )
    w = window().sign_in(admin)
    tenant = member.role_bindings.get().tenant_id
    for path in ("/account/", f"/tenants/{tenant}/people/", f"/people/{member.id}/", "/sign-in/link/"):
        w.open(path)
        fits(w)
