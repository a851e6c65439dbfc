"""Recommendations to partition GPUs of a cluster otherwise, over HTTP and on their page, from the queue and the fleet as stored."""

import pytest

from clusters.models import Cluster, Node
from federation.models import Attempt, Job
from federation.queries.partitions import MOST_JOBS
from tests.builders import bearer, bind, make_cluster, make_flavor, make_node, make_tenant, make_user, submit

pytestmark = pytest.mark.django_db
SLICE = "nvidia.com/mig-1g.10gb"


@pytest.fixture
def east():
    make_tenant("acme/team")
    cluster = make_cluster("acme", "east")
    make_flavor(cluster)
    make_flavor(cluster, "slice", gpu_memory_mib=10_240, sharing="mig:1g.10gb", resource_name=SLICE)
    make_flavor(cluster, "cpu", vendor="", gpu_model="", gpu_memory_mib=0, resource_name="")
    make_node(cluster, "whole-1", devices=[{"flavor": "h100", "units": 1}])
    make_node(cluster, "sliced", devices=[{"flavor": "slice", "units": 7}], used_devices={SLICE: 7})
    make_node(cluster, "cpus", devices=[{"flavor": "cpu", "units": 0}])
    return cluster


def sliced_job(submitter, name="train", **fields):
    pod = {
        "name": "main",
        "image": "registry.example/train:1",
        "cpu": "1",
        "memory": "1Gi",
        "gpu": {"mig": "1g.10gb", "count": 2},
    }
    return submit(
        submitter, {"tenant": "acme/team", "name": name, "pod_sets": [pod], "estimated_seconds": 36_000} | fields
    )


def ask(client, cluster, user=None):
    if user is None:
        user = make_user()
        bind(user, "acme", "admin")
    return client.get(f"/api/v1/clusters/{cluster.id}/partitions", headers=bearer(user))


def test_an_idle_node_is_recommended_with_the_jobs_that_start_and_nothing_is_changed(client, east, submitter):
    job = sliced_job(submitter)
    before = list(Node.objects.order_by("id").values())
    [found] = ask(client, east).json()["items"]
    assert found == {
        "node": "whole-1",
        "gpu_model": "H100-80GB",
        "now": [{"profile": "whole", "count": 1}],
        "then": [[{"profile": "1g.10gb", "count": 2}]],
        "drain_first": False,
        "jobs": [{"id": str(job.id), "name": "train", "tenant": "acme/team"}],
        "gained_gpu_hours": "2.857",
        "cost_gpu_hours": "0.167",
    }
    assert list(Node.objects.order_by("id").values()) == before
    assert not Attempt.objects.exists()
    assert Job.objects.get().state == "queued"


def test_without_jobs_that_wait_for_slices_nothing_is_recommended(client, east, submitter):
    assert ask(client, east).json() == {"items": []}
    sliced_job(submitter)
    Node.objects.filter(name="sliced").update(used_devices={SLICE: 5})
    Cluster.objects.update(inventory_version=99)
    assert ask(client, east).json() == {"items": []}, "two slices are free"


@pytest.mark.parametrize(
    "changes", [{"is_ready": False}, {"is_schedulable": False}, {"used_devices": {"nvidia.com/gpu": 1}}]
)
def test_a_node_that_is_closed_or_whose_only_gpu_is_in_use_is_left_alone(client, east, submitter, changes):
    sliced_job(submitter)
    Node.objects.filter(name="whole-1").update(**changes)
    Cluster.objects.update(inventory_version=99)
    assert ask(client, east).json() == {"items": []}


def test_a_cluster_that_is_cordoned_gets_no_recommendation(client, east, submitter):
    sliced_job(submitter)
    Cluster.objects.update(wish="cordoned")
    assert ask(client, east).json() == {"items": []}


def test_only_those_who_manage_the_cluster_see_it(client, east, submitter):
    sliced_job(submitter)
    for role, path, status in (
        ("viewer", "acme", 403),
        ("manager", "acme", 403),
        ("admin", "acme/team", 403),
        ("admin", "globex", 404),
    ):
        user = make_user()
        bind(user, path, role)
        answer = ask(client, east, user)
        assert answer.status_code == status
        assert "whole-1" not in answer.content.decode()
        client.force_login(user)
        assert client.get(f"/clusters/{east.id}/partitions/").status_code == status
        client.logout()


def test_hostile_queues_break_nothing(client, east, submitter, monkeypatch):
    monkeypatch.setattr("federation.queries.partitions.MOST_JOBS", 3)
    for number in range(5):
        sliced_job(submitter, f"job-{number}")
    [found] = ask(client, east).json()["items"]
    assert len(found["jobs"]) <= 3 < MOST_JOBS
    assert ask(client, make_cluster("acme", "empty")).json() == {"items": []}


def test_the_page_shows_it(client, east, submitter):
    user = make_user()
    bind(user, "acme", "admin")
    client.force_login(user)
    page = f"/clusters/{east.id}/partitions/"
    assert b"Nothing. No job waits for slices" in client.get(page).content
    job = sliced_job(submitter, "train")
    shown = client.get(page).content.decode()
    assert "whole-1" in shown
    assert "2 1g.10gb" in shown
    assert f"/jobs/{job.id}/" in shown
    assert f'href="{page}"' in client.get(f"/clusters/{east.id}/").content.decode()
    assert client.get(page, {"x": "%00"}).status_code == 400
