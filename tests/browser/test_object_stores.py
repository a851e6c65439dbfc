"""Object stores, as the administrators of a cluster use its page, and the access keys of a tenant."""

import pytest

from clusters.models import Cluster, Storage, TenantSecret
from tenancy.models import Tenant
from tests.browser.reading import fits

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
LONG = "https://an-object-store-with-a-rather-long-name.storage.region-1.example.com"


def test_an_object_store_is_declared_and_removed(window, admin):
    cluster = Cluster.objects.get(name="north")
    w = window().sign_in(admin)
    w.open(f"/clusters/{cluster.id}/")
    w.page.get_by_label("Object store").fill("s3")
    w.page.get_by_label("Endpoint").fill("http://s3.example")
    w.page.get_by_label("Bucket", exact=True).fill("datasets")
    w.page.get_by_label("Secret").fill("s3-key")
    w.page.get_by_role("button", name="Declare object store").click()
    w.page.locator("#e-store_endpoint").wait_for()
    assert w.page.get_by_label("Bucket", exact=True).input_value() == "datasets"
    fits(w, w.page.get_by_role("button", name="Declare object store"))
    w.page.get_by_label("Endpoint").fill(LONG)
    w.page.get_by_role("button", name="Declare object store").click()
    w.page.get_by_role("status").filter(has_text="can be copied from s3").wait_for()
    assert Storage.objects.get().endpoint == LONG
    w.page.get_by_text(LONG).wait_for()
    fits(w, w.page.get_by_text("Remove s3"))
    w.page.get_by_text("Remove s3").click()
    fits(w, w.page.get_by_role("button", name="Remove storage"))
    w.page.get_by_role("button", name="Remove storage").click()
    w.page.get_by_role("status").filter(has_text="s3 is removed").wait_for()
    assert not Storage.objects.exists()


def test_an_access_key_is_stored_and_not_shown(window, admin):
    w = window(width=390).sign_in(admin)
    w.open(f"/tenants/{Tenant.objects.get(path='acme').id}/secrets/")
    w.page.get_by_label("Name", exact=True).fill("s3-key")
    w.page.get_by_label("Kind").select_option("access_key")
    w.page.get_by_label("Access key id").fill("AKIAcanary")
    w.page.get_by_label("Secret access key").fill("canary key")
    w.page.get_by_role("button", name="Store secret").click()
    w.page.locator("#e-key_secret").wait_for()
    assert w.page.get_by_label("Access key id").input_value() == ""
    w.page.get_by_label("Access key id").fill("AKIAcanary")
    w.page.get_by_label("Secret access key").fill("canary-key")
    w.page.get_by_role("button", name="Store secret").click()
    w.page.get_by_role("status").filter(has_text="s3-key is stored").wait_for()
    w.page.get_by_text("copies from object stores").wait_for()
    assert "canary" not in w.page.content()
    assert w.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert TenantSecret.objects.get().kind == "access_key"
