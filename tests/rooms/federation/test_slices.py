"""TPU slices of several hosts, from the labels of their nodes to what their cluster is told."""

import pytest

from clusters.drivers import NodeSeen
from clusters.models import Cluster
from clusters.operations import record_inventory
from federation.models import Attempt
from federation.operations import run_scheduling_cycle
from federation.queries.claimed_attempts import claimed_attempts
from tests.builders import actor_for, bind, make_cluster, make_spec, make_user, submit

pytestmark = pytest.mark.django_db
POOL = "cloud.google.com/gke-nodepool"


def host(pool: str, number: int) -> NodeSeen:
    labels = {
        "kubernetes.io/hostname": f"{pool}-{number}",
        "cloud.google.com/gke-accelerator-count": "4",
        POOL: pool,
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "cloud.google.com/gke-tpu-topology": "4x4",
    }
    taint = {"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110", "google.com/tpu": "4"}
    return NodeSeen(f"{pool}-{number}", f"uid-{pool}-{number}", labels, [taint], allocatable, True, True)


@pytest.fixture
def cluster() -> Cluster:
    """Two slices of four hosts."""
    made = make_cluster(name="tpus")
    record_inventory(made.id, [host(pool, number) for pool in ("pool-a", "pool-b") for number in range(4)], {})
    return made


def attempt_of(cluster: Cluster, count: int, **fields) -> Attempt:
    user = make_user()
    bind(user, "acme")
    gpu = {"count": 4, "vendor": "google"}
    queued = submit(actor_for(user), {"tenant": "acme", **make_spec(pod={"count": count, "gpu": gpu}, **fields)})
    run_scheduling_cycle()
    return Attempt.objects.get(job=queued)


@pytest.mark.parametrize("count", [1, 4])
def test_pods_on_a_slice_must_keep_to_it_though_the_job_asked_for_nothing(cluster, count):
    attempt = attempt_of(cluster, count)
    made = attempt.remote_objects.get()
    pools = {name.rpartition("-")[0] for name in made.assumed_nodes}
    assert (made.flavor, len(pools)) == ("tpu-v6e-slice-4x4", 1)
    [claimed] = claimed_attempts([attempt.id])
    [item] = claimed.objects
    affinity = claimed.template_patch(item)["spec"]["affinity"]["nodeAffinity"]
    [term] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {"key": POOL, "operator": "In", "values": sorted(pools)} in term["matchExpressions"]
    spec = claimed.manifest(item)["spec"]["template"]["spec"]
    assert spec["tolerations"] == [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert spec["containers"][0]["resources"]["limits"]["google.com/tpu"] == "4"


def test_a_wider_domain_that_the_job_requires_does_not_let_it_leave_the_slice(cluster):
    attempt = attempt_of(cluster, 4, topology={"level": "zone", "mode": "required"})
    [selector] = attempt.remote_objects.get().domain_selectors
    assert selector[POOL] in {"pool-a", "pool-b"}
