"""Tenants, roles, access and failure rules, as an admin administers them with mouse and keyboard."""

import pytest
from playwright.sync_api import expect

from federation.models import TenantFailureRules
from tenancy.models import RoleBinding, Tenant
from tests.browser.reading import LOOKS, fits
from tests.builders import bind, make_tenant, make_user

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def member(admin):
    user = make_user("somebody-with-a-rather-long-name@department.example.org")
    bind(user, "acme/research", "submitter")
    return user


@pytest.fixture
def signed_in(window, admin):
    def open_window(**options):
        return window(**options).sign_in(admin)

    return open_window


def test_a_tenant_is_made_and_a_member_gets_changes_and_loses_a_role_there(signed_in, member):
    w = signed_in()
    page = w.page
    w.open(f"/tenants/{Tenant.objects.get(path='acme/research').id}/")
    page.get_by_role("link", name="Add a tenant below").click()
    page.get_by_label("Name").fill("vision")
    page.get_by_role("button", name="Create").click()
    page.get_by_text("acme/research/vision is created").wait_for()
    page.get_by_label("Member").fill(member.email)
    page.get_by_label("Role", exact=True).select_option("viewer")
    page.get_by_role("button", name="Give role").click()
    page.get_by_text("has the role viewer at acme/research/vision").wait_for()
    page.get_by_role("link", name=f"Change the role viewer of {member.email}").click()
    page.get_by_label("Role", exact=True).select_option("manager")
    page.get_by_label("Role expires after").select_option("30")
    page.get_by_role("button", name="Save the role").click()
    page.get_by_text("now has the role manager").wait_for()
    binding = RoleBinding.objects.get(tenant__path="acme/research/vision")
    assert (binding.role, binding.expires_at is None) == ("manager", False)
    summary = page.locator("summary", has_text=f"Remove the role manager of {member.email}")
    summary.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("The role is taken away").wait_for()
    assert not RoleBinding.objects.filter(id=binding.id).exists()


def test_access_is_ended_and_restored_on_the_persons_page(signed_in, member):
    w = signed_in()
    w.open(f"/people/{member.id}/")
    w.page.get_by_text("End their access").click()
    w.page.get_by_role("button", name="End access").click()
    w.page.get_by_text("They cannot sign in").first.wait_for()
    member.refresh_from_db()
    assert not member.is_active
    w.page.get_by_role("button", name="Restore their access").click()
    w.page.get_by_text("They can sign in again").wait_for()


def test_a_failure_rule_is_written_and_its_faults_are_said_at_the_control(signed_in, member):
    w = signed_in()
    page = w.page
    w.open(f"/tenants/{member.role_bindings.get().tenant_id}/")
    page.get_by_role("link", name="Failure rules").click()
    page.get_by_role("link", name="New rule").click()
    page.get_by_label("Name").fill("nccl")
    page.get_by_label("Exit codes").fill("1, 999")
    page.get_by_role("button", name="Save the rule").click()
    expect(page.locator("#e-exit_codes")).to_contain_text("a code from 1 to 255")
    page.get_by_label("Exit codes").fill("1, 134")
    page.get_by_role("button", name="Save the rule").click()
    page.get_by_text("The rule is saved").wait_for()
    assert TenantFailureRules.objects.get().rules[0]["when"] == {"exit_codes": ["1", "134"]} or (
        TenantFailureRules.objects.get().rules[0]["when"] == {"exit_codes": [1, 134]}
    )


OUTSIDE = """() => [...document.querySelectorAll('.confirm[open] > .confirm-box')].filter(box => {
  const at = box.getBoundingClientRect(), by = box.parentElement.querySelector('summary').getBoundingClientRect();
  const reaches = at.left <= by.right && by.left <= at.right;
  return at.left < 0 || at.right > document.documentElement.clientWidth || !reaches;
}).length"""


def test_questions_before_an_act_open_on_the_screen_and_at_their_button(signed_in, admin, member):
    bind(member, "acme", "viewer")
    rules = [{"name": name, "when": {}, "then": "stop"} for name in ("first", "second", "third")]
    tenant = make_tenant("acme/research")
    TenantFailureRules.objects.create(tenant=tenant, rules=rules)
    w = signed_in()
    for path in (
        f"/tenants/{tenant.id}/",
        f"/tenants/{tenant.id}/edit/",
        f"/tenants/{tenant.id}/failure-rules/",
        f"/tenants/{tenant.parent_id}/people/",
        f"/people/{member.id}/",
    ):
        w.open(path)
        count = w.page.locator(".confirm").count()
        assert count, path
        for width, _ in LOOKS:
            w.page.set_viewport_size({"width": width, "height": 900})
            for number in range(count):
                one = w.page.locator(".confirm").nth(number)
                one.locator("summary").click()
                assert w.page.evaluate(OUTSIDE) == 0, (path, number, width)
                one.locator("summary").click()
        fits(w)
