"""Copies of datasets, as those who manage them use the pages, and the page of a job that waits for one."""

import pytest

from clusters.models import Cluster, Dataset, StagingPlan
from clusters.operations.datasets import Location, create_dataset
from clusters.operations.storages import WantedStorage, create_storage
from federation.models import StageIn
from foundation.clock import now
from tenancy.queries import SYSTEM
from tests.browser.reading import fits

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
NAME = "a-dataset-with-a-rather-long-name.2012_revision-14"


@pytest.fixture(autouse=True)
def staged(admin, settings):
    settings.STAGE_IMAGE = "registry.example/busybox:1"
    cluster = Cluster.objects.get(name="north")
    for name, mode in (("archive", "read_only"), ("fast", "read_write")):
        create_storage(SYSTEM, cluster.id, WantedStorage(name=name, claim=name, mode=mode))
    create_dataset(SYSTEM, "acme", NAME, size_bytes=2**37, locations=[Location("eu-1")])
    return cluster


def test_a_copy_is_planned_started_watched_stopped_and_forgotten(window, admin, staged):
    w = window().sign_in(admin)
    dataset = Dataset.objects.get()
    w.open(f"/datasets/{dataset.id}/")
    w.page.get_by_role("link", name="Copies").click()
    w.page.get_by_text("It is not copied to any cluster").wait_for()
    w.page.get_by_role("combobox", name="Cluster").fill("north")
    w.page.get_by_label("From storage").fill("archive")
    w.page.get_by_label("Source path").fill("../up")
    w.page.get_by_label("To storage").fill("fast")
    w.page.get_by_label("Target path").fill("data/imagenet")
    w.page.get_by_role("button", name="Add").click()
    w.page.locator("#e-source_path").wait_for()
    fits(w, w.page.get_by_role("button", name="Add"))
    w.page.get_by_label("Source path").fill("in/imagenet")
    w.page.get_by_role("button", name="Add").click()
    w.page.get_by_role("status").filter(has_text="now get it on north").wait_for()
    w.page.get_by_role("button", name="Copy now north").click()
    w.page.get_by_role("status").filter(has_text="is being copied to north").wait_for()
    told = "cp: cannot open '<b>x</b>': Permission denied"
    StageIn.objects.update(failures=3, outcome="failed", ended_at=now(), message=told)
    w.open(f"/datasets/{dataset.id}/staging/")
    w.page.get_by_text(told).wait_for()
    fits(w, w.page.get_by_role("button", name="Retry north"))
    w.page.get_by_role("button", name="Retry north").click()
    fits(w, w.page.get_by_role("button", name="Stop north"))
    w.page.get_by_role("button", name="Stop north").click()
    w.page.get_by_role("status").filter(has_text="is stopped").wait_for()
    w.open(f"/clusters/{staged.id}/")
    w.page.get_by_role("link", name="Data", exact=True).click()
    w.page.get_by_role("heading", name=NAME).wait_for()
    fits(w)
    w.open(f"/datasets/{dataset.id}/staging/")
    w.page.get_by_text("Remove north").click()
    fits(w, w.page.get_by_role("button", name="Remove plan"))
    w.page.get_by_role("button", name="Remove plan").click()
    w.page.get_by_role("status").filter(has_text="is removed").wait_for()
    assert not StagingPlan.objects.exists()
