"""Clusters whose GPUs are published as ResourceSlices alone, from what the observer sees to what runs there."""

from dataclasses import replace

import pytest
from django.conf import settings

from billing.models import Meter, UsageSegment
from clusters.drivers import Refused
from clusters.drivers.simulated import SimulatedDriver, add_foreign_claim, node_from_manifest, path_of, put_slice
from clusters.engine.resource_slices import SEVERAL_NODES
from clusters.models import Cluster, Flavor, Node
from clusters.operations import register_simulated
from clusters.queries import flavor_summary
from devtools.localfleet.devices import resource_slices
from devtools.localfleet.fleetfile import ClusterSpec, NodeGroup, node_objects
from federation.models import Job, PodRun
from foundation.clock import now
from foundation.problems import Problem
from tests.builders import make_tenant, submit
from tests.live import H100, gpu_job, observe_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("home")]
GPU_NODE = NodeGroup("h100", 1, claimed=True, **H100)


def cluster_of(*groups: NodeGroup, name: str = "east") -> Cluster:
    """A registered simulated cluster whose GPUs are claimed."""
    spec = ClusterSpec(name, "us-east-1", "aws", groups)
    manifests = [node_from_manifest(manifest) for manifest in node_objects(spec)]
    cluster = register_simulated(make_tenant("acme"), name, region="us-east-1", nodes=manifests)
    for manifest in resource_slices(spec):
        put_slice(path_of(settings.HOME, cluster.server), manifest)
    return cluster


def reasons_of(cluster: Cluster) -> list[str]:
    cluster.refresh_from_db()
    return [reason["code"] for reason in cluster.reasons]


def test_gpus_that_are_published_are_seen_and_so_is_what_strangers_hold():
    cluster = cluster_of(GPU_NODE)
    observe_until(lambda: Flavor.objects.filter(cluster=cluster, name="h100-80gb").exists())
    assert Node.objects.get(cluster=cluster).devices == [{"flavor": "h100-80gb", "units": 8}]
    held = [("gpu.nvidia.com", "h100-000", f"gpu-{number}") for number in range(3)]
    add_foreign_claim(path_of(settings.HOME, cluster.server), "theirs", held)
    observe_until(lambda: flavor_summary([cluster], now())[cluster.id][0].count.free == 5)


def test_a_cluster_that_does_not_let_us_see_its_devices_says_so_and_works_on(monkeypatch):
    async def refuse(self):
        raise Refused("resourceslices.resource.k8s.io is forbidden", status=403)
        yield

    cluster = cluster_of(GPU_NODE)
    with monkeypatch.context() as forbidden:
        forbidden.setattr(SimulatedDriver, "watch_slices", refuse)
        observe_until(lambda: reasons_of(cluster) == ["devices_closed"] and cluster.nodes.exists())
        assert cluster.state == "degraded"
        assert "resourceslices.resource.k8s.io is forbidden" in cluster.reasons[0]["message"]
        assert Node.objects.get(cluster=cluster).devices == [{"flavor": "cpu", "units": 0}]
    observe_until(
        lambda: reasons_of(cluster) == [] and Flavor.objects.filter(cluster=cluster, vendor="nvidia").exists()
    )
    assert cluster.state == "ready"


def states_of(*jobs: Job) -> list[str]:
    return [Job.objects.get(id=job.id).state for job in jobs]


def test_a_job_runs_to_its_end_on_gpus_that_it_claims_and_is_metered_like_any_other(submitter):
    cluster = cluster_of(GPU_NODE, NodeGroup("cpu", 1, cpu=64, memory_gib=256))
    observe_until(lambda: Flavor.objects.filter(cluster=cluster, name="h100-80gb", unplaceable="").exists())
    job = submit(submitter, gpu_job("train", gpus=4, seconds=2))
    observe_until(lambda: states_of(job) == ["succeeded"] and UsageSegment.objects.exists())
    run = PodRun.objects.get(attempt__job=job)
    assert (run.node, run.exit_code) == ("h100-000", 0)
    assert run.devices == [f"gpu.nvidia.com/h100-000/gpu-{number}" for number in range(4)]
    meter = Meter.objects.get()
    assert (meter.flavor, meter.gpu_units) == ("h100-80gb", 4)
    assert UsageSegment.objects.get().gpu_milliseconds >= 4 * 2000
    observe_until(lambda: Node.objects.get(cluster=cluster, name="h100-000").used_devices == {})


def test_what_strangers_hold_is_not_given_away_and_what_is_free_is(submitter):
    cluster = cluster_of(GPU_NODE)
    held = [("gpu.nvidia.com", "h100-000", f"gpu-{number}") for number in range(5)]
    add_foreign_claim(path_of(settings.HOME, cluster.server), "theirs", held)
    observe_until(lambda: Node.objects.filter(cluster=cluster).exclude(used_devices={}).exists())
    jobs = [submit(submitter, gpu_job(f"takes-{gpus}", gpus=gpus, seconds=3600)) for gpus in (2, 4, 1)]
    observe_until(lambda: states_of(*jobs) == ["running", "queued", "running"])
    observe_until(lambda: sum(Node.objects.get(cluster=cluster).used_devices.values()) == 8)
    assert sum(Node.objects.get(cluster=cluster).foreign_devices.values()) == 5


def test_a_part_is_claimed_by_its_profile(submitter):
    cluster = cluster_of(replace(GPU_NODE, mig={"1g.10gb": 7}))
    observe_until(lambda: Flavor.objects.filter(cluster=cluster, sharing="mig:1g.10gb").exists())
    spec = gpu_job("slices")
    spec["pod_sets"][0]["gpu"] = {"mig": "1g.10gb", "count": 3}
    job = submit(submitter, spec)
    observe_until(lambda: states_of(job) == ["succeeded"])


def test_a_job_that_only_devices_of_no_one_node_could_serve_is_told_why(submitter):
    cluster = cluster_of(NodeGroup("cpu", 1, cpu=64, memory_gib=256))
    [manifest] = resource_slices(ClusterSpec("east", "", "aws", (GPU_NODE,)))
    del manifest["spec"]["nodeName"]
    put_slice(path_of(settings.HOME, cluster.server), manifest)
    observe_until(lambda: Flavor.objects.filter(cluster=cluster).exclude(unplaceable="").exists())
    with pytest.raises(Problem) as refused:
        submit(submitter, gpu_job())
    assert SEVERAL_NODES in str([error.detail for error in refused.value.errors])


def test_a_job_claims_only_devices_whose_driver_is_new_enough(submitter):
    cluster = cluster_of(replace(GPU_NODE, count=2))
    for manifest, version in zip(resource_slices(ClusterSpec("east", "", "aws", (replace(GPU_NODE, count=2),))),
                                 ("535.104.5", "550.54.15"), strict=True):  # fmt: skip
        for device in manifest["spec"]["devices"]:
            device["attributes"]["driverVersion"] = {"version": version}
        put_slice(path_of(settings.HOME, cluster.server), manifest)
    observe_until(lambda: "550" in str(Node.objects.filter(cluster=cluster).values_list("gpu_facts", flat=True)))
    wanted = {"constraints": {"gpu_driver_min": "550.54"}}
    jobs = [submit(submitter, gpu_job(f"new-{n}", gpus=8, seconds=2) | wanted) for n in range(2)]
    observe_until(lambda: states_of(*jobs) == ["succeeded", "succeeded"])
    assert set(PodRun.objects.values_list("node", flat=True)) == {"h100-001"}
    with pytest.raises(Problem) as refusal:
        submit(submitter, gpu_job("newest") | {"constraints": {"gpu_driver_min": "570"}})
    assert "driver 550.54.15 is older than 570 (1 node)" in str(refusal.value.errors)
