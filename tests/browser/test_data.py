"""Datasets, egress prices and the submit form's advanced part, as people use them."""

import pytest
from playwright.sync_api import expect

from billing.models import EgressPrice
from clusters.models import Cluster, Dataset
from federation.models import Job
from tests.browser.test_jobs import fill

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("quotes_look_anew"),
]


def test_a_dataset_is_recorded_priced_named_and_forgotten(window, admin):
    Cluster.objects.filter(name="north").update(region="eu-1")
    w = window(width=390).sign_in(admin)
    w.open("/datasets/")
    w.page.get_by_label("Tenant").select_option("acme/research")
    w.page.get_by_label("Name").fill("imagenet")
    w.page.get_by_label("Size").fill("150Gi")
    w.page.get_by_label("In regions").fill("us-east")
    w.page.get_by_role("button", name="Record dataset").click()
    w.page.get_by_role("status").filter(has_text="imagenet is recorded").wait_for()
    w.open("/prices/")
    w.page.get_by_role("link", name="Egress").click()
    w.page.get_by_label("From region").fill("us-*")
    w.page.get_by_label("To region").fill("eu-1")
    w.page.get_by_label("Price per GiB").fill("0.02")
    w.page.get_by_role("button", name="Set the price").click()
    w.page.get_by_role("status").filter(has_text="costs 0.02 USD").wait_for()
    w.open("/jobs/new/")
    w.page.locator(".advanced > summary").click()
    fill(w)
    w.page.get_by_label("Tenant").select_option("acme/research")
    w.page.get_by_label("Data it reads").fill("imagenet")
    w.page.locator("#offers").get_by_text("150Gi of imagenet from us-east for 3.00 USD").wait_for()
    expect(w.page.get_by_label("Throughput by GPU model")).to_be_visible()
    assert w.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    w.page.get_by_role("button", name="Submit the job").click()
    w.page.get_by_role("status").filter(has_text="is queued").wait_for()
    assert Job.objects.get().spec["data"] == [{"name": "imagenet", "read": None}]
    w.open("/datasets/")
    w.page.get_by_role("link", name="Change imagenet").click()
    w.page.get_by_label("Size").fill("lots")
    w.page.get_by_role("button", name="Save the dataset").click()
    w.page.locator("#e-size").wait_for()
    w.page.get_by_text("Remove this dataset").click()
    w.page.get_by_role("button", name="Remove dataset").click()
    w.page.get_by_role("status").filter(has_text="is removed").wait_for()
    assert not Dataset.objects.exists()
    w.open("/prices/egress/")
    w.page.get_by_text("End the price from us-* to eu-1").click()
    w.page.get_by_role("button", name="End price").click()
    w.page.get_by_role("status").filter(has_text="is ended").wait_for()
    assert EgressPrice.objects.get().valid.upper is not None


def test_a_secret_is_stored_used_by_a_job_and_deleted(window, admin):
    w = window(width=390).sign_in(admin)
    w.open("/tenants/")
    w.page.get_by_role("link", name="research").first.click()
    w.page.get_by_role("link", name="Secrets").click()
    w.page.get_by_label("Name", exact=True).fill("hf-token")
    w.page.get_by_label("Value").fill("canary")
    w.page.get_by_role("button", name="Store secret").click()
    w.page.get_by_role("status").filter(has_text="hf-token is stored").wait_for()
    assert "canary" not in w.page.content()
    place = w.page.url
    w.open("/jobs/new/")
    w.page.locator(".advanced > summary").click()
    fill(w)
    w.page.get_by_label("Tenant").select_option("acme/research")
    w.page.get_by_label("Secrets", exact=True).fill("HF_TOKEN=no-such-secret")
    w.page.get_by_role("button", name="Submit the job").click()
    w.page.locator("#e-secrets").filter(has_text="no secret of that name").wait_for()
    w.page.get_by_label("Secrets", exact=True).fill("HF_TOKEN=hf-token")
    assert w.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    w.page.get_by_role("button", name="Submit the job").click()
    w.page.get_by_role("status").filter(has_text="is queued").wait_for()
    assert Job.objects.get().spec["pod_sets"][0]["secrets"] == [{"secret": "hf-token", "env": "HF_TOKEN"}]
    w.page.goto(place)
    w.page.get_by_text("Delete hf-token").click()
    w.page.get_by_role("button", name="Delete secret").click()
    w.page.get_by_role("status").filter(has_text="hf-token is deleted").wait_for()
    w.page.get_by_text("No secrets yet").wait_for()


def test_the_advanced_part_opens_by_keyboard_and_where_something_is_wrong_in_it(window, admin):
    w = window(width=390).sign_in(admin)
    w.open("/jobs/new/")
    summary = w.page.locator(".advanced > summary")
    assert not w.page.get_by_label("Data it reads").is_visible()
    summary.focus()
    w.page.keyboard.press("Enter")
    w.page.get_by_label("Data it reads").fill("no-such-data")
    fill(w)
    w.page.get_by_role("button", name="Submit the job").click()
    expect(w.page.locator("#e-data")).to_contain_text("no dataset of that name")
    expect(w.page.get_by_label("Data it reads")).to_be_visible()
    assert w.page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
