import pytest
from playwright.sync_api import expect

from tenancy.models import AuditEntry
from tests.browser.conftest import PASSWORD

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
REFUSAL = "Email or password is wrong"


def test_a_person_signs_in_and_out(window, admin):
    w = window().sign_in_by_form(admin)
    w.page.wait_for_url(f"{w.address}/")
    expect(w.page.get_by_role("heading", level=1)).to_have_text("Overview")
    w.page.get_by_role("button", name="Sign out").click()
    w.page.wait_for_url(f"{w.address}/login/")
    w.open("/jobs/")
    assert w.page.url == f"{w.address}/login/?next=/jobs/"
    actions = AuditEntry.objects.filter(actor_name=admin.email).values_list("action", flat=True)
    assert list(actions) == ["session.start", "session.end"]


def test_a_wrong_password_an_unknown_email_and_a_locked_account_get_the_same_answer(window, admin):
    w = window()
    answers = set()
    for email, password in [(admin.email, "wrong"), ("nobody@example.org", "wrong")]:
        w.open("/login/")
        w.page.get_by_label("Email").fill(email)
        w.page.get_by_label("Password").fill(password)
        with w.page.expect_navigation() as navigation:
            w.page.get_by_role("button", name="Sign in").click()
        answers.add((navigation.value.status, w.page.get_by_role("alert").inner_text()))
    for _ in range(4):
        w.sign_in_by_form(admin, "wrong")
        w.page.get_by_role("alert").wait_for()
    w.sign_in_by_form(admin, PASSWORD)
    answers.add((401, w.page.get_by_role("alert").inner_text()))
    assert len(answers) == 1
    assert REFUSAL in next(iter(answers))[1]
    w.open("/")
    assert "/login/" in w.page.url


def test_signing_in_leads_only_to_our_own_pages(window, admin):
    w = window()
    w.open("/login/?next=https://evil.example/")
    w.page.get_by_label("Email").fill(admin.email)
    w.page.get_by_label("Password").fill(PASSWORD)
    w.page.get_by_role("button", name="Sign in").click()
    w.page.wait_for_url(f"{w.address}/")


def test_signing_in_leads_back_to_the_page_that_was_asked_for(window, admin):
    w = window()
    w.open("/quotas/?tenant=acme")
    w.page.get_by_label("Email").fill(admin.email)
    w.page.get_by_label("Password").fill(PASSWORD)
    w.page.get_by_role("button", name="Sign in").click()
    w.page.wait_for_url(f"{w.address}/quotas/?tenant=acme")


def test_a_post_without_the_forms_token_is_refused(window, admin):
    w = window().sign_in(admin)
    w.open("/")
    for path in ("/logout/", "/jobs/new/", "/tokens/", "/quotas/set/", "/clusters/register/", "/prices/"):
        assert w.post_without_token(path) == 403, path
