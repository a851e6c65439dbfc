"""A job names networks that administrators declared; nothing that a user writes reaches the annotation that attaches them."""

from copy import deepcopy
from uuid import UUID

import pytest

from clusters.engine.declared import by_name
from clusters.engine.networks import MOST_NETWORKS, KnownNetwork
from federation.engine.intake.manifest import read_manifest
from federation.engine.intake.normal_form import request_of, shape_of, spec_json
from federation.engine.intake.reading import Refused
from federation.engine.intake.spec import Rules
from federation.engine.intake.spec_reading import read_spec
from federation.engine.objects.networks import ANNOTATION, lay_networks, promised_network
from federation.engine.objects.rendering import Devices, render_job
from placement.cycle.cycle import decide
from placement.values.networks import NetworkNeed
from placement.values.reason_codes import ReasonCode
from tests.builders import make_spec
from tests.engine.fleets import cluster, flavor, job, node, snapshot
from tests.engine.test_rendering import identity

HOSTILE = [
    "", " ", "a,b", "a/b", "kube-system/a", "a@eth0", '[{"name":"a"}]', '{"name": "a"}', "[", "{", "a\nb", "a\n", "a b", "A", "-a", "a-",
    "a.b", "a_b", "a\x00", "\u0430", "é", "a\u202e", "*", "..", "../a", "a;b", '"a"', "a:b", "a" * 64, "%2c", "a%00",
]  # fmt: skip
ONE, TWO = UUID(int=1), UUID(int=2)


def known(name="rdma", cluster_id=ONE, tenant="acme/ml", owner="acme", definition="rdma-net", namespace=""):
    return KnownNetwork(cluster_id, owner, tenant, name, definition, namespace)


def stored(*networks):
    return spec_json(read_spec(make_spec(pod={"networks": list(networks)}), Rules()))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_name_is_refused_by_its_field(text):
    with pytest.raises(Refused) as refused:
        read_spec(make_spec(pod={"networks": ["rdma", text]}), Rules())
    assert {fault.field for fault in refused.value.faults} == {"pod_sets[0].networks[1]"}


@pytest.mark.parametrize(
    "given",
    [
        "rdma",
        {"rdma": "net1"},
        [["rdma"]],
        [{"name": "rdma", "namespace": "kube-system"}],
        [None],
        [1],
        ["rdma", "rdma"],
        [f"n{n}" for n in range(MOST_NETWORKS + 1)],
    ],
)
def test_only_a_short_list_of_different_names_is_read(given):
    with pytest.raises(Refused) as refused:
        read_spec(make_spec(pod={"networks": given}), Rules())
    assert all(fault.field.startswith("pod_sets[0].networks") for fault in refused.value.faults)


def test_names_keep_their_order_and_specs_without_any_their_bytes():
    assert stored("storage", "rdma")["pod_sets"][0]["networks"] == ["storage", "rdma"]
    assert "networks" not in stored()["pod_sets"][0]
    assert stored() == spec_json(read_spec(make_spec(), Rules()))


def test_jobs_that_name_other_networks_are_of_another_shape():
    shapes = {shape_of(stored(*names)) for names in ((), ("rdma",), ("storage",), ("rdma", "storage"))}
    assert len(shapes) == 4
    request = request_of(stored("storage", "rdma"), job_id=ONE, tenant_path="acme", shape="s")
    assert request.constraints.networks == (NetworkNeed("rdma"), NetworkNeed("storage"))


def rendered(*promised):
    spec = stored("rdma")
    found = render_job(spec, 0, identity(), Devices())
    before = deepcopy(found)
    lay_networks(found["spec"]["template"], [promised_network(one) for one in promised])
    return before, found


@pytest.mark.parametrize(
    ("promised", "text"),
    [
        ([known()], "rdma-net"),
        ([known(namespace="fabric")], "fabric/rdma-net"),
        ([known(namespace="fabric"), known("storage", definition="nfs")], "fabric/rdma-net,nfs"),
        ([known(), known("again")], "rdma-net,rdma-net"),
    ],
)
def test_the_pods_get_one_annotation_and_nothing_else(promised, text):
    before, after = rendered(*promised)
    template = after["spec"]["template"]
    assert template["metadata"].pop("annotations") == {ANNOTATION: text}
    assert after == before
    assert "annotations" not in after["metadata"]


def test_without_networks_nothing_is_rendered():
    before, after = rendered()
    assert before == after
    assert ANNOTATION not in str(after)


def test_the_annotation_does_not_replace_others():
    template = {"metadata": {"annotations": {"switchyard.dev/hosts": "a"}}}
    lay_networks(template, [promised_network(known())])
    assert template["metadata"]["annotations"] == {"switchyard.dev/hosts": "a", ANNOTATION: "rdma-net"}


@pytest.mark.parametrize("where", ["job", "template"])
def test_a_manifest_sets_no_annotation(where):
    noted = {"annotations": {ANNOTATION: "kube-system/host"}}
    container = {"name": "c", "image": "a", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    template = {
        "metadata": noted if where == "template" else {},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    metadata = {"name": "a", **(noted if where == "job" else {})}
    manifest = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}
    with pytest.raises(Refused, match="annotations"):
        read_manifest(manifest, {}, Rules())


@pytest.mark.parametrize("key", [ANNOTATION, "k8s.v1.cni.cncf.io/networks-status", "cni.projectcalico.org/ipAddrs"])
def test_a_label_does_not_become_an_annotation(key):
    try:
        spec = spec_json(read_spec({**make_spec(), "labels": {key: "x"}}, Rules()))
    except Refused:
        return
    assert key not in str(render_job(spec, 0, identity(), Devices())["spec"]["template"])


@pytest.mark.parametrize(
    ("tenant", "serves"),
    [("acme/ml", True), ("acme/ml/vision", True), ("acme", False), ("acme/mlx", False), ("globex/ml", False)],
)
def test_a_network_serves_its_tenant_and_those_below(tenant, serves):
    assert known().serves(tenant) is serves
    assert not known(owner="globex").serves(tenant)


def test_networks_are_found_by_name_and_cluster():
    here, there = known(), known(cluster_id=TWO)
    assert by_name([here, there, known("storage")])["rdma"] == {ONE: here, TWO: there}


def test_a_job_runs_only_where_all_its_networks_are_and_reads_which_one_a_cluster_lacks():
    of = flavor()
    clusters = [cluster(n, [node(f"n{n}", of)], [of]) for n in (1, 2)]
    both, second = NetworkNeed("rdma", (ONE, TWO)), NetworkNeed("storage", (TWO,))
    (placement,) = decide(snapshot(clusters, [job(networks=(both, second))])).placements
    assert placement.cluster == "c2"
    (wait,) = decide(snapshot(clusters[:1], [job(networks=(both, second))])).waits
    (reason,) = wait.per_cluster
    assert wait.code == reason.code == ReasonCode.NETWORK_MISSING
    assert reason.is_for_good
    assert reason.message == "has no network storage that the job's tenant may use"
    assert wait.message == f"c1 {reason.message}"
    full = cluster(2, [node("n2", of, free=0)], [of])
    (wait,) = decide(snapshot([clusters[0], full], [job(networks=(both, second))])).waits
    assert wait.code == "waiting_for_capacity"
