"""Recommended MIG slices, as an administrator of a cluster reads them."""

import pytest

from clusters.models import Cluster
from tests.browser.reading import fits
from tests.builders import actor_for, make_flavor, make_node, submit
from tests.live import gpu_job

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
SLICE = "nvidia.com/mig-1g.10gb"
NAME = "an-inference-service-with-a-rather-long-name"


def test_recommendations_are_read_and_lead_to_the_jobs(window, admin):
    cluster = Cluster.objects.get(name="north")
    make_flavor(cluster, "slice", gpu_memory_mib=10_240, sharing="mig:1g.10gb", resource_name=SLICE)
    make_node(cluster, "sliced", devices=[{"flavor": "slice", "units": 7}], used_devices={SLICE: 7})
    w = window().sign_in(admin)
    w.open(f"/clusters/{cluster.id}/")
    fits(w, w.page.get_by_role("link", name="MIG slices"))
    w.page.get_by_role("link", name="MIG slices").click()
    w.page.get_by_text("Nothing. No job waits for slices").wait_for()
    body = gpu_job(name=NAME) | {"estimated_seconds": 360_000}
    body["pod_sets"][0]["gpu"] = {"mig": "1g.10gb", "count": 2}
    job = submit(actor_for(admin), body | {"tenant": "acme/research"})
    w.page.reload()
    w.page.get_by_text("2 1g.10gb").first.wait_for()
    fits(w, w.page.get_by_role("link", name=NAME))
    w.page.get_by_role("link", name=NAME).click()
    w.page.wait_for_url(f"**/jobs/{job.id}/")
