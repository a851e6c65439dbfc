"""A real cluster whose only GPU node is tainted for its GPUs, as clouds taint them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.localfleet import ControlPlane
from devtools.localfleet.admin import client
from devtools.trial import Gateway
from tests.journeys.workload import job, joined, wait_for

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(300)]
FLEET = """
clusters:
  - name: tainted
    region: eu-west-1
    nodes:
      - name: gpu
        count: 1
        vendor: nvidia
        model: NVIDIA-L4
        gpus: 4
        gpu_memory_mib: 23034
        cpu: 32
        memory_gib: 128
        taints: [{key: nvidia.com/gpu, value: present, effect: NoSchedule}]
      - {name: cpu, count: 1, cpu: 4, memory_gib: 16}
"""


@pytest.fixture(scope="module")
def plane(root: Path, gateway: Gateway) -> Iterator[ControlPlane]:
    with joined(gateway, root / "tainted", FLEET) as found:
        yield found


def submitted(gateway: Gateway, name: str, cpu: str, **more) -> str:
    spec = job(name, constraints={"clusters": ["tainted"]}, **more)
    spec["pod_sets"][0]["cpu"] = cpu
    return gateway.create("/jobs", spec)["id"]


def nodes_of_pods(plane: ControlPlane) -> dict[str, str]:
    with client(plane) as http:
        items = http.get("/api/v1/pods").raise_for_status().json()["items"]
    return {pod["metadata"]["labels"]["switchyard.dev/job"]: pod["spec"].get("nodeName", "") for pod in items}


def test_a_cpu_job_is_kept_off_a_tainted_gpu_node_and_is_told_why(gateway: Gateway, plane: ControlPlane):
    gpu = submitted(gateway, "gpu", "1", gpu={"count": 1}, seconds=600)
    small = submitted(gateway, "small", "2", seconds=600)
    large = submitted(gateway, "large", "16", seconds=600)
    for job_id in (gpu, small):
        wait_for(lambda job_id=job_id: gateway.get(f"/jobs/{job_id}")["state"] == "running", "it runs")
    wait_for(lambda: gateway.get(f"/jobs/{large}")["reason"], "the large job says why it waits")
    told = gateway.get(f"/jobs/{large}")
    assert (told["state"], told["reason"]["code"]) == ("queued", "waiting_for_capacity")
    assert "1 with taint nvidia.com/gpu=present:NoSchedule" in told["reason"]["message"]
    explained = gateway.get(f"/jobs/{large}/explanation")["clusters"]
    assert [entry["code"] for entry in explained if entry["cluster"] == "tainted"] == ["tainted"]
    assert nodes_of_pods(plane) == {gpu: "gpu-000", small: "cpu-000"}

    with client(plane) as http:
        answer = http.patch(
            "/api/v1/nodes/gpu-000",
            json={"spec": {"taints": None}},
            headers={"Content-Type": "application/merge-patch+json"},
        )
        answer.raise_for_status()
    wait_for(lambda: gateway.get(f"/jobs/{large}")["state"] == "running", "it runs once the taint is gone")
    assert nodes_of_pods(plane)[large] == "gpu-000"
