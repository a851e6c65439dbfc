"""The topology domain that the engine chose, on its way to the cluster, and what is true when pods settle elsewhere in it."""

import pytest

from clusters.drivers import connections
from clusters.models import Cluster, Node
from clusters.queries import domains, driver_of
from federation import operations
from federation.models import Attempt, Job, PodRun
from federation.queries.claimed_attempts import claimed_attempts
from federation.queries.snapshot import load_fleet
from foundation.clock import now
from tests.builders import make_cluster, make_flavor, make_node, submit
from tests.live import gpu_job, observe_until, simulated_cluster

pytestmark = pytest.mark.django_db(transaction=True)
ZONE, BLOCK, RACK = (
    "topology.kubernetes.io/zone",
    "cloud.provider.com/topology-block",
    "cloud.provider.com/topology-rack",
)


@pytest.fixture
def racks(home) -> Cluster:
    """Two racks of three nodes with eight GPUs each."""
    return simulated_cluster("east", 6, zone="z", block="b1", rack="r{rack}", nodes_per_rack=3)


def gang(name: str, count: int, level: str, mode: str, **fields) -> dict:
    return gpu_job(name, count=count, **fields) | {"topology": {"level": level, "mode": mode}}


def placed(submitter, spec) -> Attempt:
    job = submit(submitter, spec)
    operations.run_scheduling_cycle()
    return Attempt.objects.get(job=job)


def stranger(cluster: Cluster, namespace: str, node: str) -> None:
    """Somebody else's pod that takes all GPUs of a node."""
    driver = driver_of(cluster.id)

    async def make() -> None:
        await driver.ensure_namespace(namespace, {})
        amounts = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "8"}
        pod = {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [{"name": "main", "image": "foreign:1", "resources": {"requests": amounts}}],
        }
        template = {"metadata": {"annotations": {"sim.switchyard.dev/run-seconds": "never"}}, "spec": pod}
        await driver.create_job(
            {"metadata": {"name": f"at-{node}", "namespace": namespace}, "spec": {"template": template}}
        )

    connections.run(make(), 5)


def test_a_required_rack_is_told_by_its_whole_path(racks, submitter):
    attempt = placed(submitter, gang("train", 2, "rack", "required"))
    assert attempt.domain == "z/b1/r1"
    assert attempt.remote_objects.get().domain_selectors == [{ZONE: "z", BLOCK: "b1", RACK: "r1"}]


def test_a_required_rack_is_told_even_when_one_node_holds_the_job(racks, submitter):
    attempt = placed(submitter, gang("small", 1, "rack", "required"))
    assert attempt.remote_objects.get().domain_selectors == [{ZONE: "z", BLOCK: "b1", RACK: "r1"}]


def test_a_preferred_rack_that_holds_too_little_widens_to_what_holds_it(racks, submitter):
    attempt = placed(submitter, gang("wide", 5, "rack", "preferred"))
    assert attempt.domain == "z/b1"
    assert attempt.remote_objects.get().domain_selectors == [{ZONE: "z", BLOCK: "b1"}]


@pytest.mark.parametrize("spec", [gang("one", 1, "rack", "preferred"), gang("node", 1, "node", "required"), gpu_job()])
def test_what_one_node_holds_has_no_domain_besides_its_node(racks, submitter, spec):
    assert placed(submitter, spec).remote_objects.get().domain_selectors == []


def test_a_rack_that_nobody_labelled_leaves_a_single_node_exact(cluster, submitter):
    attempt = placed(submitter, gang("blind", 1, "rack", "required", seconds=1))
    assert attempt.remote_objects.get().domain_selectors == []
    observe_until(lambda: Job.objects.filter(state="succeeded").exists())
    assert PodRun.objects.get().node == next(iter(attempt.remote_objects.get().assumed_nodes))


def test_pods_that_find_their_node_taken_settle_in_the_domain_and_are_counted_where_they_are(racks, submitter):
    attempt = placed(submitter, gang("train", 2, "rack", "required", seconds=600))
    assumed = set(attempt.remote_objects.get().assumed_nodes)
    lost, kept = sorted(assumed)
    stranger(racks, attempt.namespace, lost)
    observe_until(lambda: Job.objects.filter(state="running").exists())
    true = set(PodRun.objects.values_list("node", flat=True))
    [other] = true - assumed
    rack = {node.name for node in Node.objects.filter(cluster=racks) if node.labels[RACK] == "r1"}
    assert true == {kept, other}
    assert true <= rack
    observe_until(lambda: Node.objects.get(cluster=racks, name=lost).foreign_devices)
    [fleet] = load_fleet(now())
    free = {node.name: sum(node.free.values()) for node in fleet.nodes}
    assert {name for name, units in free.items() if units == 0} == {lost, kept, other}


def test_a_gang_finds_no_place_outside_the_domain_it_must_keep(racks, submitter):
    attempt = placed(submitter, gang("train", 3, "rack", "required", seconds=600))
    stranger(racks, attempt.namespace, next(iter(attempt.remote_objects.get().assumed_nodes)))
    observe_until(lambda: PodRun.objects.exclude(node="").count() == 2)
    assert PodRun.objects.filter(node="").count() == 1


def test_nodes_of_one_rack_that_are_labelled_in_two_ways_are_all_selected():
    cluster = make_cluster()
    make_flavor(cluster)
    own = "topology.switchyard.dev/rack"
    for name, labels, rack in (
        ("a", {RACK: "r1"}, "r1"),
        ("b", {own: "r1"}, "r1"),
        ("c", {own: "r2", RACK: "r1"}, "r2"),
        ("d", {}, ""),
    ):
        make_node(cluster, name, labels=labels, domain=["", "", rack, name, ""])
    found = domains()[cluster.id]
    assert found.selectors("rack", "a") == found.selectors("rack", "b") == ({RACK: "r1", f"!{own}": "*"}, {own: "r1"})
    assert found.selectors("rack", "c") == ({own: "r2"},)
    assert found.selectors("rack", "d") == found.selectors("zone", "a") == found.selectors("rack", "gone") == ()
    assert domains()[cluster.id] is found
    make_node(cluster, "e", labels={own: "r2"}, domain=["", "", "r2", "e", ""])
    assert domains()[cluster.id] is not found


@pytest.mark.parametrize(
    ("topology", "label"),
    [
        ({"level": "rack", "mode": "required"}, RACK),
        ({"level": "node", "mode": "preferred"}, "kubernetes.io/hostname"),
        ({"level": "clique", "mode": "preferred"}, ""),
        ({}, ""),
    ],
)
def test_kueue_is_told_where_it_runs_and_nowhere_else(racks, submitter, topology, label):
    attempt = placed(submitter, gpu_job(count=2) | ({"topology": topology} if topology else {}))
    [item] = attempt.remote_objects.all()
    assert item.topology_label == label

    def told() -> dict:
        [claimed] = claimed_attempts([attempt.id])
        annotations = claimed.manifest(claimed.objects[0])["spec"]["template"]["metadata"]["annotations"]
        return {key: value for key, value in annotations.items() if "kueue" in key}

    assert told() == {}
    Cluster.objects.update(has_kueue=True)
    assert told() == ({f"kueue.x-k8s.io/podset-{topology['mode']}-topology": label} if label else {})
