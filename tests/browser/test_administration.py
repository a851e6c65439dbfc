import pytest
from playwright.sync_api import expect

from clusters.models import Cluster
from quotas.models import QuotaLimit
from tenancy.models import ApiToken
from tests.builders import bind, make_user

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_a_tokens_secret_is_shown_once_and_the_token_can_be_revoked(window, admin):
    w = window().sign_in(admin)
    w.open("/tokens/")
    w.page.get_by_label("Name").fill("ci-pipeline")
    w.page.get_by_role("button", name="Create token").click()
    secret = w.page.locator("#token-secret").inner_text()
    assert secret.startswith("swy_")
    w.open("/tokens/")
    assert secret not in w.page.content()
    w.page.get_by_text("Revoke ci-pipeline").click()
    w.page.get_by_role("button", name="Revoke token").click()
    w.page.get_by_role("status").filter(has_text="revoked").wait_for()
    assert ApiToken.objects.get(user=admin).revoked_at is not None


def test_a_cluster_is_cordoned_and_opened_again(window, admin):
    w = window().sign_in(admin)
    w.open(f"/clusters/{Cluster.objects.get(name='north').id}/")
    w.page.get_by_role("button", name="Cordon").click()
    w.page.get_by_role("status").filter(has_text="takes no new jobs").wait_for()
    assert Cluster.objects.get(name="north").wish == "cordoned"
    w.page.get_by_role("button", name="Uncordon").click()
    w.page.get_by_role("status").filter(has_text="takes new jobs again").wait_for()
    assert Cluster.objects.get(name="north").wish == "open"


def test_who_may_not_manage_clusters_sees_no_button_and_is_refused(window, admin):
    viewer = make_user()
    viewer.set_password("correct-horse-battery")
    viewer.save()
    bind(viewer, "acme", "viewer")
    w = window().sign_in(viewer)
    cluster = Cluster.objects.get(name="north")
    w.open(f"/clusters/{cluster.id}/")
    assert w.page.get_by_role("button", name="Cordon").count() == 0
    token = w.page.locator("input[name=csrfmiddlewaretoken]").first.get_attribute("value")
    answer = w.page.request.post(
        f"{w.address}/clusters/{cluster.id}/cordon/",
        form={"csrfmiddlewaretoken": token},
        headers={"Referer": w.address},
    )
    assert answer.status == 403
    assert Cluster.objects.get(name="north").wish == "open"


def test_a_kubeconfig_that_would_run_a_program_is_refused_at_its_field(window, admin):
    w = window().sign_in(admin)
    w.open("/clusters/register/")
    w.page.get_by_label("Name").fill("evil")
    w.page.get_by_label("Kubeconfig").fill(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
        "clusters: [{name: k, cluster: {server: 'https://203.0.113.7:6443'}}]\n"
        "users: [{name: u, user: {exec: {command: id}}}]\n"
    )
    w.page.get_by_role("button", name="Probe and register").click()
    error = w.page.locator("#e-kubeconfig")
    error.wait_for()
    assert "exec" in error.inner_text()
    assert w.page.get_by_label("Kubeconfig").input_value() == ""
    assert not Cluster.objects.filter(name="evil").exists()


def test_a_server_that_may_not_be_reached_is_refused(window, admin):
    w = window().sign_in(admin)
    w.open("/clusters/register/?by=parts")
    w.page.get_by_label("Name").fill("inside")
    w.page.get_by_label("Server").fill("https://169.254.169.254/")
    w.page.get_by_label("Bearer token").fill("x")
    w.page.get_by_role("button", name="Probe and register").click()
    w.page.get_by_role("alert").wait_for()
    assert w.page.get_by_label("Bearer token").input_value() == ""
    assert not Cluster.objects.filter(name="inside").exists()


def test_a_limit_is_set_changed_and_removed(window, admin):
    w = window().sign_in(admin)
    w.open("/quotas/set/")
    w.page.get_by_label("Tenant").select_option("acme/research")
    w.page.get_by_label("Resource").fill("gpu:H100-80GB")
    w.page.get_by_label("Limit", exact=True).fill("1.5")
    w.page.get_by_role("button", name="Save the limit").click()
    w.page.wait_for_url(f"{w.address}/quotas/")
    assert QuotaLimit.objects.get(tenant__path="acme/research").nominal == 1500
    w.page.get_by_role("link", name="Change gpu:H100-80GB of acme/research").click()
    assert w.page.get_by_label("Limit", exact=True).input_value() == "1.5"
    w.page.get_by_label("Limit", exact=True).fill("lots")
    w.page.get_by_role("button", name="Save the limit").click()
    w.page.locator("#e-nominal").wait_for()
    w.page.get_by_text("Remove this limit").click()
    w.page.get_by_role("button", name="Remove limit").click()
    w.page.get_by_role("status").filter(has_text="removed").wait_for()
    assert not QuotaLimit.objects.filter(tenant__path="acme/research", removed_at=None).exists()


def test_a_price_is_set_and_shown(window, admin):
    w = window().sign_in(admin)
    w.open("/prices/")
    w.page.get_by_label("Flavor").fill("h100")
    w.page.get_by_label("Price per unit-hour").fill("3.9")
    w.page.get_by_role("button", name="Set the price").click()
    w.page.get_by_role("status").filter(has_text="costs 3.9 USD").wait_for()
    expect(w.page.locator("tbody")).to_contain_text("3.90 USD")


def test_a_price_that_is_no_price_is_refused_at_its_field(window, admin):
    w = window().sign_in(admin)
    w.open("/prices/")
    for amount in ("-1", "NaN", "1e400", "free", "0.0000001"):
        w.page.get_by_label("Flavor").fill("h100")
        w.page.get_by_label("Price per unit-hour").fill(amount)
        with w.page.expect_navigation() as navigation:
            w.page.get_by_role("button", name="Set the price").click()
        assert navigation.value.status == 422, amount
        assert w.page.locator("#e-unit_price").is_visible(), amount
