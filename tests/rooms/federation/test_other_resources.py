"""Jobs with other resources and with needs of their GPUs, from what a cluster reports to what it is asked."""

from collections import Counter
from collections.abc import Mapping

import pytest
from django.db import IntegrityError, connection, transaction
from django.test import override_settings

from clusters.drivers import NodeSeen
from clusters.engine.inventory import ForeignUse
from clusters.models import Cluster, Node
from clusters.operations import record_inventory
from federation.models import Job, PodRun, RemoteObject
from federation.operations import run_scheduling_cycle
from federation.queries.claimed_attempts import claimed_attempts
from federation.queries.feasibility import NeverFits
from federation.queries.releases import load_releases
from federation.queries.snapshot import load_fleet
from foundation.caches import reset_all
from foundation.clock import now
from foundation.problems import Invalid
from tests.builders import actor_for, bind, make_cluster, make_spec, make_user, submit

pytestmark = pytest.mark.django_db
RDMA, PAGES = "rdma/hca", "hugepages-1Gi"
NOTHING: Mapping[str, str] = {}
NEW, OLD = ("550", "54", "15"), ("535", "104", "05")


@pytest.fixture(autouse=True)
def allowed():
    with override_settings(RESOURCES=(PAGES, RDMA)):
        yield


def h100(name: str, driver: tuple[str, str, str] | None = NEW, more: Mapping[str, str] = NOTHING) -> NodeSeen:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
    if driver:
        labels |= dict(
            zip((f"nvidia.com/cuda.driver.{part}" for part in ("major", "minor", "rev")), driver, strict=True)
        )
    allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8", **more}
    return NodeSeen(name, f"uid-{name}", labels, [], allocatable, True, True)


def cluster_of(*nodes: NodeSeen, **foreign: ForeignUse) -> Cluster:
    made = make_cluster(name="east")
    record_inventory(made.id, nodes, foreign)
    return made


def queued(*, count: int = 1, resources=None, gpus: int = 1, **constraints) -> Job:
    user = make_user()
    bind(user, "acme")
    pod = {"count": count, "gpu": {"count": gpus}, "resources": resources or {}}
    return submit(actor_for(user), {"tenant": "acme", **make_spec(pod=pod, constraints=constraints)})


def placed(job: Job) -> RemoteObject | None:
    run_scheduling_cycle()
    return RemoteObject.objects.filter(attempt__job=job).first()


def free_on(name: str) -> dict[str, int]:
    [cluster] = load_fleet(now())
    return dict(next(node for node in cluster.nodes if node.name == name).free_resources)


def test_a_node_is_stored_with_what_is_allowed_and_known_of_it():
    made = cluster_of(h100("n1", more={RDMA: "4", "example.com/other": "3", PAGES: "8Gi"}), h100("n2", None))
    first, second = Node.objects.filter(cluster=made).order_by("name")
    assert first.resources == {RDMA: 4, PAGES: 8192}
    assert first.gpu_facts == {"h100-80gb": {"memory_mib": 81559, "driver": [550, 54, 15]}}
    assert (second.resources, second.gpu_facts) == ({}, {"h100-80gb": {"memory_mib": 81559}})
    assert first.devices == second.devices == [{"flavor": "h100-80gb", "units": 8}]


def test_a_newer_driver_changes_the_inventory_and_not_the_flavors():
    made = cluster_of(h100("n1", OLD))
    again = record_inventory(made.id, [h100("n1", OLD)], {})
    assert (again.nodes_written, again.version) == (0, 1)
    change = record_inventory(made.id, [h100("n1", NEW)], {})
    assert (change.nodes_written, change.flavors_written, change.flavors_removed, change.version) == (1, 0, 0, 2)


def test_foreign_pods_and_our_own_attempts_leave_the_rest():
    cluster_of(h100("n1", more={RDMA: "4", PAGES: "8Gi"}), n1=ForeignUse(devices={RDMA: 1, PAGES: 1024, "x/y": 7}))
    assert free_on("n1") == {RDMA: 3, PAGES: 7168}
    item = placed(queued(count=2, resources={RDMA: 1, PAGES: "2Gi"}))
    assert (item.resources, item.assumed_nodes) == ({RDMA: 1, PAGES: 2048}, {"n1": 2})
    assert free_on("n1") == {RDMA: 1, PAGES: 3072}


def test_pods_count_where_they_are_and_as_long_as_they_live():
    cluster_of(*(h100(f"n{n}", more={RDMA: "4"}) for n in range(3)))
    item = placed(queued(count=3, resources={RDMA: 2}, gpus=8))
    assert Counter(free_on(f"n{n}")[RDMA] for n in range(3)) == {2: 3}
    RemoteObject.objects.filter(id=item.id).update(cluster_id=item.attempt.cluster_id, uid="seen")
    common = {"attempt": item.attempt, "cluster_id": item.attempt.cluster_id, "phase": "Running", "observed_at": now()}
    common["remote_object"] = item
    for index, node in enumerate(("n0", "n0")):
        PodRun.objects.create(**common, uid=f"u{index}", name=f"p{index}", node=node, index=index, place=index)
    # both on n0; the third is still assumed on a node that holds none of them
    assert free_on("n0")[RDMA] == 0
    assert sorted(free_on(f"n{n}")[RDMA] for n in (1, 2)) == [2, 4]
    PodRun.objects.filter(uid="u0").update(is_gone=True)
    assert free_on("n0")[RDMA] == 2
    RemoteObject.objects.filter(id=item.id).update(outcome="succeeded")
    assert sorted(free_on(f"n{n}")[RDMA] for n in (1, 2)) == [4, 4]


def test_a_resource_that_is_used_up_makes_a_job_wait_with_the_reason():
    cluster_of(h100("n1", more={RDMA: "1"}))
    assert placed(queued(resources={RDMA: 1}))
    waiting = queued(resources={RDMA: 1})
    assert placed(waiting) is None
    waiting.refresh_from_db()
    [reason] = waiting.explanation["clusters"]
    assert (reason["code"], reason["message"]) == (
        "not_enough_free", "needs 1 rdma/hca with 1 GPU on one node; at most 0 is free there",
    )  # fmt: skip


def test_a_run_is_expected_to_give_its_resources_back():
    cluster_of(h100("n1", more={RDMA: "1"}))
    assert placed(queued(resources={RDMA: 1}))
    Job.objects.update(spec=Job.objects.get().spec | {"estimated_seconds": 600})
    reset_all()
    [release] = load_releases(now())
    assert release.resources == ((RDMA, 1),)


def test_what_an_object_uses_never_changes():
    cluster_of(h100("n1", more={RDMA: "1"}))
    item = placed(queued(resources={RDMA: 1}))
    for statement in ("resources = '{}'", """resources = '{"rdma/hca": 0}'"""):
        with pytest.raises(IntegrityError, match="never change"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"UPDATE federation_remoteobject SET {statement} WHERE id = %s", [item.id])
    RemoteObject.objects.filter(id=item.id).update(resources={RDMA: 1}, outcome="succeeded")


def test_an_unknown_resource_is_refused_with_what_the_fleet_has():
    cluster_of(h100("n1", more={PAGES: "2Gi"}))
    with pytest.raises(NeverFits) as refusal:
        queued(resources={RDMA: 1})
    assert "No cluster has rdma/hca. The fleet has hugepages-1Gi." in refusal.value.detail
    codes = {error.field: error.code for error in refusal.value.errors}
    assert codes == {"pod_sets[0].resources.rdma/hca": "unknown_resource", "clusters.east": "no_such_resource"}
    with pytest.raises(Invalid) as invalid:
        queued(resources={"example.com/other": 1})
    [error] = invalid.value.errors
    assert (error.code, "hugepages-1Gi, rdma/hca" in error.detail) == ("not_allowed", True)


def test_a_job_whose_resource_is_taken_off_the_list_waits_and_says_why():
    made = cluster_of(h100("n1", more={RDMA: "1"}))
    job = queued(resources={RDMA: 1})
    with override_settings(RESOURCES=()):
        record_inventory(made.id, [h100("n1", more={RDMA: "1"})], {})
        assert placed(job) is None
    job.refresh_from_db()
    assert job.explanation["clusters"][0]["code"] == "no_such_resource"


def expressions(item, attempt):
    [claimed] = claimed_attempts([attempt.id])
    patch = claimed.template_patch(claimed.objects[0])["spec"]["affinity"]["nodeAffinity"]
    terms = patch["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    return [{(one["key"].removeprefix("nvidia.com/"), one["operator"], *one["values"]) for one in term["matchExpressions"]}
            for term in terms]  # fmt: skip


def test_pods_land_only_on_nodes_whose_labels_say_what_the_job_needs():
    cluster_of(h100("n1", OLD), h100("n2", NEW), h100("n3", None))
    item = placed(queued(gpu_driver_min="550.54", gpu_memory_gib_min=79))
    assert item.assumed_nodes == {"n2": 1}
    product, memory = ("gpu.product", "In", "NVIDIA-H100-80GB-HBM3"), ("gpu.memory", "Gt", "80895")
    assert expressions(item, item.attempt) == [
        {product, memory, ("cuda.driver.major", "Gt", "550")},
        {product, memory, ("cuda.driver.major", "Gt", "549"), ("cuda.driver.major", "Lt", "551"),
         ("cuda.driver.minor", "Gt", "53")},
    ]  # fmt: skip


def test_a_job_without_needs_goes_anywhere():
    cluster_of(h100("n3", None))
    item = placed(queued())
    assert expressions(item, item.attempt) == [{("gpu.product", "In", "NVIDIA-H100-80GB-HBM3")}]


def test_a_need_that_no_cluster_meets_is_refused_with_the_reason():
    cluster_of(h100("n1", OLD))
    with pytest.raises(NeverFits) as refusal:
        queued(gpu_driver_min="550")
    [error] = refusal.value.errors
    assert (error.code, error.detail) == ("gpu_driver_too_old", "has GPU, but driver 535.104.5 is older than 550")
    with pytest.raises(NeverFits) as refusal:
        queued(gpu_cuda_min="12.4")
    assert refusal.value.errors[0].code == "gpu_fact_unknown"


def test_a_job_waits_while_the_only_good_nodes_are_full_and_runs_when_a_driver_is_updated():
    made = cluster_of(h100("n1", OLD), h100("n2", NEW))
    assert placed(queued(gpus=8, gpu_driver_min="550")).assumed_nodes == {"n2": 1}
    waiting = queued(gpus=8, gpu_driver_min="550")
    assert placed(waiting) is None
    waiting.refresh_from_db()
    assert "1 because driver 535.104.5 is older than 550" in waiting.explanation["clusters"][0]["message"]
    record_inventory(made.id, [h100("n1", NEW), h100("n2", NEW)], {})
    assert placed(waiting).assumed_nodes == {"n1": 1}
