"""Clusters whose GPUs are published as ResourceSlices alone, from what the observer sees to what runs there."""

import pytest
from django.conf import settings

from clusters.drivers import Refused
from clusters.drivers.simulated import SimulatedDriver, add_foreign_claim, node_from_manifest, path_of, put_slice
from clusters.models import Cluster, Flavor, Node
from clusters.operations import register_simulated
from clusters.queries import flavor_summary
from devtools.localfleet.devices import resource_slices
from devtools.localfleet.fleetfile import ClusterSpec, NodeGroup, node_objects
from tests.builders import make_tenant
from tests.live import H100, observe_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _home(settings, tmp_path):
    """Simulated clusters of these tests alone."""
    settings.HOME = tmp_path


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
    observe_until(lambda: flavor_summary([cluster.id])[cluster.id][0].free == 5)


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
