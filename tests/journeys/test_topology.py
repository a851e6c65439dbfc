"""Gangs of eight whole nodes on a real control plane with two racks of eight: where their pods really come to sit."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from devtools.localfleet import ControlPlane
from devtools.localfleet.admin import client
from devtools.trial import Gateway
from federation.engine.objects.ranks import GATE, INDEX_LABEL
from tests.journeys.workload import job, wait_for

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(600)]
GPU = {"count": 8, "models": ["H100-80GB"]}
RACK, BLOCK = "cloud.provider.com/topology-rack", "cloud.provider.com/topology-block"
STRANGERS = "/apis/batch/v1/namespaces/default/jobs"


@dataclass
class Landed:
    """A running gang, as the API server tells it."""

    affinity: dict[str, Any]
    racks: list[str]
    """Of its pods, in the order of their indices."""
    nodes: set[str]
    domain: str
    policies: dict[str, Any]
    """The NetworkPolicies around it, by name."""
    gates: list[Any]
    """What its pods were made to wait for."""


def gang(gateway: Gateway, name: str, mode: str) -> str:
    """The id of a gang of eight pods with eight GPUs each that runs until it is cancelled."""
    topology = {"level": "rack", "mode": mode}
    return str(gateway.create("/jobs", job(name, count=8, gpu=GPU, seconds=3600, topology=topology))["id"])


def landed(gateway: Gateway, plane: ControlPlane, job_id: str) -> Landed:
    """Waits until all pods run and reads the Job, its pods and their nodes back."""
    wait_for(lambda: gateway.get(f"/jobs/{job_id}")["state"] == "running", f"{job_id} runs")
    attempt = gateway.get(f"/jobs/{job_id}")["attempt"]
    where = attempt["object"]
    with client(plane) as http:
        made = http.get(f"/apis/batch/v1/namespaces/{where['namespace']}/jobs/{where['name']}").json()
        chosen = {"labelSelector": f"batch.kubernetes.io/job-name={where['name']}"}

        def pods() -> list[dict[str, Any]]:
            found = http.get(f"/api/v1/namespaces/{where['namespace']}/pods", params=chosen).json()["items"]
            return [pod for pod in found if pod["status"]["phase"] == "Running"]

        wait_for(lambda: len(pods()) == 8, "eight pods run")
        in_order = sorted(pods(), key=lambda pod: int(pod["metadata"]["labels"][INDEX_LABEL]))
        nodes = [pod["spec"]["nodeName"] for pod in in_order]
        racks = [http.get(f"/api/v1/nodes/{node}").json()["metadata"]["labels"][RACK] for node in nodes]
        found = http.get(f"/apis/networking.k8s.io/v1/namespaces/{where['namespace']}/networkpolicies").json()["items"]
        policies = {policy["metadata"]["name"]: policy["spec"] for policy in found}
    spec = made["spec"]["template"]["spec"]
    gates, affinity = spec.get("schedulingGates", []), spec["affinity"]["nodeAffinity"]
    return Landed(affinity, racks, set(nodes), attempt["placement"]["domain"], policies, gates)


def values(expressions: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {one["key"]: one["values"] for one in expressions}


def cancel(gateway: Gateway, job_id: str) -> None:
    gateway.create(f"/jobs/{job_id}/cancel", {})
    wait_for(lambda: gateway.get(f"/jobs/{job_id}")["state"] == "cancelled", "it is cancelled")


def free_nodes(gateway: Gateway) -> int:
    """How many H100s of the cluster are free, in nodes."""
    east = next(cluster for cluster in gateway.items("/clusters") if cluster["name"] == "east")
    return int(sum(flavor["free"] for flavor in east["flavors"] if flavor["gpu_model"] == "H100-80GB") / 8)


@pytest.fixture
def east(gateway: Gateway, planes: list[ControlPlane]) -> ControlPlane:
    wait_for(lambda: free_nodes(gateway) == 16, "the racks are empty")
    return planes[0]


@pytest.fixture
def strangers(gateway: Gateway, east: ControlPlane) -> Iterator[list[str]]:
    """Somebody else's pods take one node in each rack."""
    nodes = ["h100-000", "h100-008"]
    amounts = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "8"}
    with client(east) as http:
        for node in nodes:
            pod = {
                "restartPolicy": "Never",
                "nodeSelector": {"kubernetes.io/hostname": node},
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "main", "image": "foreign:1", "resources": {"limits": amounts}}],
            }
            template = {"metadata": {"annotations": {"sim.switchyard.dev/run-seconds": "3600"}}, "spec": pod}
            body = {"metadata": {"name": f"at-{node}"}, "spec": {"template": template}}
            http.post(STRANGERS, json=body).raise_for_status()
        wait_for(lambda: free_nodes(gateway) == 14, "the strangers are seen")
        yield nodes
        remove_strangers(east, nodes)


def remove_strangers(east: ControlPlane, nodes: list[str]) -> None:
    with client(east) as http:
        for node in nodes:
            http.delete(f"{STRANGERS}/at-{node}", params={"propagationPolicy": "Background"})


def test_a_gang_lands_inside_one_rack_and_is_told_the_rack_rather_than_its_nodes(gateway: Gateway, east: ControlPlane):
    job_id = gang(gateway, "together", "required")
    found = landed(gateway, east, job_id)
    assert len(found.nodes) == 8
    assert len(set(found.racks)) == 1
    assert found.gates == []
    assert found.domain == f"us-east-1a/b1/{found.racks[0]}"
    [term] = found.affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert set(term) == {"matchExpressions"}
    told = values([one for one in term["matchExpressions"] if one["operator"] == "In"])
    assert (told[RACK], told[BLOCK]) == ([found.racks[0]], ["b1"])
    assert "kubernetes.io/hostname" not in told
    [wish] = found.affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert set(values(wish["preference"]["matchExpressions"])["kubernetes.io/hostname"]) == found.nodes
    assert found.policies["switchyard"]["podSelector"] == {}
    attempt = gateway.get(f"/jobs/{job_id}")["attempt"]
    mates = {"matchLabels": {"switchyard.dev/attempt": attempt["id"]}}
    assert found.policies[attempt["object"]["name"]]["ingress"] == [{"from": [{"podSelector": mates}]}]
    cancel(gateway, job_id)


def test_without_such_a_rack_required_waits_and_says_so_while_preferred_widens(
    gateway: Gateway, east: ControlPlane, strangers: list[str]
):
    strict = gang(gateway, "strict", "required")
    wait_for(lambda: gateway.get(f"/jobs/{strict}")["reason"]["code"] == "waiting_for_capacity", "it is told to wait")
    told = {one["cluster"]: one for one in gateway.get(f"/jobs/{strict}/explanation")["clusters"]}
    assert told["east"]["code"] == "topology_not_met"
    assert "needs 8 pods inside one rack" in told["east"]["message"]
    assert "has room for 7" in told["east"]["message"]

    wide = gang(gateway, "wide", "preferred")
    found = landed(gateway, east, wide)
    assert set(found.racks) == {"r1", "r2"}
    assert found.gates == [{"name": GATE}]
    assert sum(one != other for one, other in pairwise(found.racks)) == 1, found.racks
    assert found.domain == "us-east-1a/b1"
    assert not found.nodes & set(strangers)
    [term] = found.affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert not {RACK, BLOCK} & {one["key"] for one in term["matchExpressions"]}
    nodes, domain = found.affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert set(values(nodes["preference"]["matchExpressions"])["kubernetes.io/hostname"]) == found.nodes
    assert values(domain["preference"]["matchExpressions"])[BLOCK] == ["b1"]
    assert nodes["weight"] > domain["weight"]
    assert gateway.get(f"/jobs/{strict}")["state"] == "queued"

    cancel(gateway, wide)
    remove_strangers(east, strangers)
    assert len(set(landed(gateway, east, strict).racks)) == 1
    cancel(gateway, strict)
