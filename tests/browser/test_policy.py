"""Nothing that a page does is stopped by the policy it is sent with: the policy is as strict as it can be, and no stricter.

`test_pages.py` opens every page of ours, for an admin and for an operator: what the policy stops there fails these tests.
"""

import time

import pytest
from django.contrib import admin as site
from django.urls import reverse

from .test_pages import SETTLED, SMALL, every_path

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def pages_of_the_admin():
    """Its lists, its forms to add and to change, with one of what there is, its histories."""
    yield from (reverse("admin:index"), reverse("admin:password_change"))
    for model in site.site._registry:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        yield reverse(f"{name}_changelist")
        yield reverse(f"{name}_add")
        one = model._default_manager.first()
        if one is not None:
            yield from (reverse(f"{name}_{view}", args=[one.pk]) for view in ("change", "history", "delete"))


def test_no_page_of_the_operators_admin_does_what_its_policy_stops(window, superuser):
    every_path(superuser)
    w = window(**SMALL).sign_in(superuser)
    for path in pages_of_the_admin():
        assert w.open(path).status in {200, 403}, path
        w.page.evaluate(SETTLED)


def test_the_api_reference_works_under_the_policy(window, admin):
    w = window().sign_in(admin)
    assert w.open("/api/v1/docs/").status == 200
    w.page.locator('[data-tag="audit"]').click()
    operation = w.page.locator('.opblock-get:has([data-path="/api/v1/audit"])')
    operation.locator("button").first.click()
    operation.get_by_role("button", name="Try it out").click()
    operation.get_by_role("button", name="Execute").click()
    operation.locator(".live-responses-table .response-col_status").get_by_text("200").first.wait_for()


def test_refusals_are_shown_under_the_policy(window, admin):
    w = window().sign_in(admin)
    for path in ("/no/such/page/", "/api/v1/nothing", "/.well-known/security.txt", "/robots.txt", "/admin/nothing/"):
        w.open(path)
    w.page.set_content("")
    assert w.post_without_token("/tokens/") == 403


def test_a_refused_form_is_a_page_of_ours(window, admin):
    w = window().sign_in(admin)
    w.open("/tokens/")
    w.page.evaluate("document.querySelectorAll('[name=csrfmiddlewaretoken]').forEach(field => field.value = 'x')")
    w.page.get_by_label("Name").fill("x")
    w.page.get_by_role("button", name="Create token").click()
    w.page.get_by_role("heading", level=1, name="Not sent").wait_for()


def test_a_script_that_got_into_a_page_does_not_run(window, admin):
    """The watch itself works: what is planted is stopped, and told."""
    w = window().sign_in(admin)
    w.open("/")
    w.page.evaluate("""() => {
      const inline = document.createElement("script"); inline.textContent = "window.hacked = 1"; document.body.append(inline);
      const painted = document.createElement("p"); painted.innerHTML = "<b style='color:red' onclick='window.hacked = 1'>x</b>"; document.body.append(painted);
      painted.firstChild.click();  // newer browsers look at the attribute only now
      const sent = fetch("https://elsewhere.example/").catch(() => 0); return sent;
    }""")
    assert w.page.evaluate("window.hacked") is None
    stopped = {f"stopped by {one}" for one in ("script-src-elem", "style-src-attr", "connect-src", "script-src-attr")}
    deadline = time.monotonic() + 10
    # The browser reports an attribute after the script that planted it has ended.
    while untold := {one for one in stopped if not any(one in trouble for trouble in w.troubles)}:
        assert time.monotonic() < deadline, (untold, w.troubles)
        w.page.wait_for_timeout(50)
    w.troubles.clear()
