"""Network attachments, as the administrators of a cluster use its page, and as a job names them in the submit form."""

import pytest
from playwright.sync_api import expect

from clusters.models import Cluster, Network
from tests.browser.reading import fits

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
LONG = "an-attachment-with-a-rather-long-name-of-sixty-three-characters"


def test_a_network_is_declared_and_removed(window, admin):
    cluster = Cluster.objects.get(name="north")
    w = window().sign_in(admin)
    w.open(f"/clusters/{cluster.id}/")
    w.page.get_by_text("The pods of jobs have only the cluster's own network here").wait_for()
    w.page.get_by_label("Network name").fill("rdma")
    w.page.get_by_label("Definition").fill("kube-system/host")
    w.page.get_by_label("Its namespace").fill("fabric")
    w.page.get_by_role("button", name="Declare network").click()
    w.page.locator("#e-network_definition").wait_for()
    expect(w.page.get_by_label("Network name")).to_have_value("rdma")
    fits(w, w.page.get_by_role("button", name="Declare network"))
    w.page.get_by_label("Definition").fill(LONG)
    w.page.get_by_role("button", name="Declare network").click()
    w.page.get_by_role("status").filter(has_text="can use the network rdma").wait_for()
    assert Network.objects.get().definition == LONG
    w.page.get_by_text(LONG).wait_for()
    fits(w, w.page.get_by_text("Remove rdma"))
    link = w.page.get_by_role("link", name="cluster-access.yaml with these networks")
    expect(link).to_have_attribute("href", f"/clusters/access.yaml?cluster={cluster.id}")
    w.page.get_by_text("Remove rdma").click()
    fits(w, w.page.get_by_role("button", name="Remove network"))
    w.page.get_by_role("button", name="Remove network").click()
    w.page.get_by_role("status").filter(has_text="rdma is removed").wait_for()
    assert not Network.objects.exists()


def test_the_submit_form_names_networks_and_shows_which_is_missing(window, admin):
    w = window().sign_in(admin)
    w.open("/jobs/new/")
    w.page.get_by_text("Advanced: secrets, storages, networks").click()
    w.page.get_by_label("Networks").fill("rdma, Not A Name")
    w.page.get_by_label("Name", exact=True).fill("train")
    w.page.get_by_label("Image").first.fill("registry.example/train:1")
    w.page.get_by_role("button", name="Submit").first.click()
    w.page.locator("#e-networks").wait_for()
    expect(w.page.get_by_label("Networks")).to_have_value("rdma, Not A Name")
