"""Other resources and what GPUs must be, in the submit form."""

import pytest
from django.test import override_settings

from clusters.operations import record_inventory
from federation.models import Job
from federation.web.submit import spec_of_form
from foundation.problems import Invalid
from tests.builders import bind, make_cluster, make_user

from .test_other_resources import RDMA, h100

VALUES = {
    "tenant": "acme",
    "name": "train",
    "image": "registry.example/a:1",
    "count": "2",
    "kind": "none",
    "cpu": "1",
    "memory": "8Gi",
}
WHOLE = {**VALUES, "kind": "whole", "gpus": "1", "count": "1", "strategy": "balanced", "priority_class": "normal"}


def test_an_empty_form_sets_none_of_it():
    spec = spec_of_form({**VALUES, "resources": "\n", "gpu_driver_min": " "})
    assert "resources" not in spec["pod_sets"][0]
    assert not {name for name in spec["constraints"] if name.startswith("gpu_")}


def test_the_form_sets_what_is_typed_in():
    typed = {"resources": "rdma/hca=1\n hugepages-1Gi = 2Gi", "gpu_memory_gib_min": "79", "gpu_cuda_min": " 12.4 "}
    spec = spec_of_form({**WHOLE, **typed, "gpu_architecture": "hopper, blackwell"})
    assert spec["pod_sets"][0]["resources"] == {"rdma/hca": "1", "hugepages-1Gi": "2Gi"}
    assert {name: value for name, value in spec["constraints"].items() if name.startswith("gpu_")} == {
        "gpu_memory_gib_min": 79, "gpu_architecture": ["hopper", "blackwell"], "gpu_cuda_min": "12.4",
    }  # fmt: skip


def test_a_line_that_is_no_amount_is_refused_at_its_control():
    with pytest.raises(Invalid) as refusal:
        spec_of_form({**VALUES, "resources": "rdma/hca"})
    assert [error.field for error in refusal.value.errors] == ["pod_sets[0].resources"]


@pytest.mark.django_db
def test_the_form_submits_them_and_shows_a_refusal_at_its_control(client):
    user = make_user()
    bind(user, "acme")
    client.force_login(user)
    with override_settings(RESOURCES=(RDMA,)):
        record_inventory(make_cluster(name="east").id, [h100("n1", more={RDMA: "1"})], {})
        typed = {"resources": "rdma/hca=1\nexample.com/x=1", "gpu_driver_min": "new"}
        refused = client.post("/jobs/new/", {**WHOLE, **typed}).content.decode()
        assert "jobs can request only these resources besides cpu, memory and gpu: rdma/hca" in refused
        assert "a version as text, such as" in refused
        assert '<details class="card advanced" open>' in refused
        client.post("/jobs/new/", {**WHOLE, "resources": "rdma/hca=1", "gpu_driver_min": "550"})
    stored = Job.objects.get().spec
    assert stored["pod_sets"][0]["resources"] == {RDMA: 1}
    assert stored["constraints"]["gpu_driver_min"] == "550"
    page = client.get(f"/jobs/{Job.objects.get().id}/").content.decode()
    assert "1 rdma/hca" in page
