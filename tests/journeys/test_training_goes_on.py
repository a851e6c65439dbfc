"""A training run of two ranks on two nodes loses its node, is suspended, evicted and reclaimed, and goes on elsewhere each
time from its checkpoint: no step is lost or counted twice, and all that ran is billed once.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from devtools.embedded import free_port
from devtools.localfleet import ControlPlane, start_fleet, stop_fleet
from devtools.localfleet.admin import client
from devtools.oracle import read_witness
from devtools.trial import Gateway, start_gateway
from tests.journeys.workload import TEAM, Run, job, prepare, wait_for

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.long, pytest.mark.timeout(900)]
PROGRAM = (Path(__file__).parent / "train.py").read_text()
STEPS = 800
GOES_ON_SECONDS = 150
"""A cluster that ended the job's pods is avoided for a minute."""
NODES = (
    "{name: gpu, count: 3, runs: true, vendor: nvidia, model: NVIDIA-L4, gpus: 4, gpu_memory_mib: 23034, cpu: 8,"
    " memory_gib: 16%s}"
)
FLEET = f"""
clusters:
  - name: owned
    region: local
    nodes:
      - {NODES % ""}
  - name: rented
    region: local
    nodes:
      - {NODES % ", labels: {karpenter.sh/capacity-type: spot}"}
"""


@pytest.fixture(scope="module")
def framework() -> None:
    """What the program imports."""
    if find_spec("jax") is None:
        pytest.fail("JAX is missing: `make test-long` brings it, and so does `uv sync --group frameworks`")


@pytest.fixture(scope="module")
def planes(framework: None, root: Path) -> Iterator[list[ControlPlane]]:
    folder = root / "training"
    folder.mkdir(mode=0o755)
    fleet = folder / "fleet.yaml"
    fleet.write_text(FLEET)
    found = start_fleet(["owned", "rented"], folder / "fleet", fleet_file=fleet, audit=True)
    # One file server for both, as their claims would name it.
    shutil.rmtree(found[1].layout.claims)
    found[1].layout.claims.symlink_to(found[0].layout.claims)
    yield found
    stop_fleet(found)


@pytest.fixture(scope="module")
def gateway(root: Path, planes: list[ControlPlane]) -> Iterator[Gateway]:
    port = free_port()
    running = start_gateway(
        root / "training" / "home",
        SWITCHYARD_PORT=str(port),
        SWITCHYARD_PUBLIC_URL=f"http://127.0.0.1:{port}",
        SWITCHYARD_JOB_EGRESS="127.0.0.0/8",
    )
    try:
        for plane in planes:
            running.register(plane)
        prepare(running)
        yield running
    finally:
        running.stop(quickly=True)


@pytest.fixture(scope="module")
def folder(gateway: Gateway, planes: list[ControlPlane]) -> Path:
    """Where the team's runs keep what they write, on both clusters."""
    [team] = gateway.request("GET", "/tenants", params={"path": TEAM}).json()["items"]
    for cluster in gateway.items("/clusters"):
        storage = {"name": "shared", "claim": "shared-data", "mode": "read_write", "prefix": "tenants/{tenant}"}
        gateway.create(f"/clusters/{cluster['id']}/storages", {**storage, "tenant": TEAM})
    first = Run(gateway)
    for plane in planes:
        spec = job(f"first-on-{plane.name}", labels={}, constraints={"clusters": [plane.name]})
        spec["pod_sets"][0]["command"] = ["true"]
        first.submit(spec)
    first.wait_until_all_ended()  # now both clusters have the team's namespace
    namespace = f"swy-vision-{team['id'].replace('-', '')[-8:]}"
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    for plane in planes:
        with client(plane) as http:
            made = {"metadata": {"name": "shared-data"}, "spec": claim}
            http.post(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", json=made).raise_for_status()
    return planes[0].layout.claims / namespace / "shared-data" / "tenants" / team["id"] / "run"


class Training:
    """The job, as the gateway and the file server show it."""

    def __init__(self, gateway: Gateway, planes: list[ControlPlane], folder: Path) -> None:
        self.gateway, self.folder = gateway, folder
        self.planes = {plane.name: plane for plane in planes}
        spec = job("train", count=2, gpu={"count": 4}, reports=True, labels={})
        spec["pod_sets"][0] |= {
            "command": ["python", "-c", PROGRAM], "cpu": "4", "memory": "4Gi", "shm": "2Gi",
            "mounts": [{"storage": "shared", "path": "/out", "sub_path": "run", "read_only": False}],
        }  # fmt: skip
        self.run = Run(gateway)
        self.id = self.run.submit(spec)

    def shown(self):
        return self.gateway.get(f"/jobs/{self.id}")

    def attempts(self):
        return sorted(self.gateway.items(f"/jobs/{self.id}/attempts"), key=lambda attempt: attempt["number"])

    def losses(self) -> list[float]:
        try:
            return list(json.loads((self.folder / "checkpoint.json").read_text())["losses"])
        except FileNotFoundError:
            return []

    def goes_on(self, more: int = 15) -> str:
        """Waits for further steps; the cluster on which they are made."""
        until, deadline = len(self.losses()) + more, time.monotonic() + GOES_ON_SECONDS
        while len(self.losses()) < until and not self._has_ended():
            assert time.monotonic() < deadline, f"it does not reach step {until}: {self.why()}"
            time.sleep(0.2)
        assert not self._has_ended(), self.why()
        return str(self.attempts()[-1]["cluster"])

    def _has_ended(self) -> bool:
        return self.shown()["state"] in {"succeeded", "failed", "cancelled"}

    def why(self) -> str:
        logs = self.gateway.get(f"/jobs/{self.id}/logs")["items"]
        return "\n".join([json.dumps(self.shown()["reason"]), json.dumps(logs), *(pod["text"] or "" for pod in logs)])

    def pods(self, cluster: str):
        with client(self.planes[cluster]) as http:
            answer = http.get("/api/v1/pods", params={"labelSelector": f"switchyard.dev/job={self.id}"})
            return answer.raise_for_status().json()["items"]


def lose_a_node(training: Training, cluster: str) -> None:
    """Its pods are killed after 40 s, and nobody stops them first."""
    node = training.pods(cluster)[1]["spec"]["nodeName"]
    with client(training.planes[cluster]) as http:
        http.delete(f"/api/v1/nodes/{node}").raise_for_status()


def evict(training: Training, cluster: str) -> None:
    """As `kubectl drain` does, and a cloud that reclaims a spot node."""
    metadata = training.pods(cluster)[0]["metadata"]
    with client(training.planes[cluster]) as http:
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/eviction"
        named = {"name": metadata["name"], "namespace": metadata["namespace"]}
        http.post(path, json={"apiVersion": "policy/v1", "kind": "Eviction", "metadata": named}).raise_for_status()


def suspend_for_a_while(training: Training) -> None:
    training.gateway.create(f"/jobs/{training.id}/suspend", {})
    wait_for(lambda: training.shown()["state"] == "suspended", "it is suspended")
    at = len(training.losses())
    time.sleep(1)
    assert len(training.losses()) == at, "nothing of it runs"
    training.gateway.create(f"/jobs/{training.id}/resume", {})


def expected_losses() -> list[float]:
    """Of a run that nothing interrupts, by NumPy alone."""
    truth = np.array([3.0, -2.0, 0.5], dtype=np.float32)
    inputs = [np.random.default_rng(rank).normal(size=(256, 3)).astype(np.float32) for rank in range(2)]
    weights, losses = np.zeros(3, dtype=np.float32), []
    for _ in range(STEPS):
        missed = [each @ weights - each @ truth for each in inputs]
        losses.append(float(np.mean([(one**2).mean() for one in missed])))
        slopes = [2 * each.T @ one / len(each) for each, one in zip(inputs, missed, strict=True)]
        weights = weights - np.float32(0.005) * np.mean(slopes, axis=0)
    return losses


def test_a_training_run_goes_on_elsewhere_whatever_ends_its_pods(gateway, planes, folder):
    training = Training(gateway, planes, folder)
    first = training.goes_on()
    lose_a_node(training, first)
    second = training.goes_on()
    assert second != first, "the cluster that lost a node is avoided"
    suspend_for_a_while(training)
    third = training.goes_on()
    evict(training, third)
    training.goes_on()
    training.run.wait_until_all_ended()
    assert training.run.states() == {training.id: "succeeded"}, training.why()

    kept = (folder / "checkpoint.json").read_bytes()
    assert np.allclose(json.loads(kept)["losses"], expected_losses(), rtol=1e-3, atol=1e-6)
    assert f"digest {hashlib.sha256(kept).hexdigest()}" in training.why()
    attempts = training.attempts()
    assert [attempt["state"] for attempt in attempts] == ["preempted", "preempted", "preempted", "succeeded"]
    lost, reclaimed = (
        "spot" if cluster == "rented" else cause for cluster, cause in ((first, "node_lost"), (third, "preempted"))
    )
    assert [attempt["end_reason"] for attempt in attempts] == [lost, "suspended", reclaimed, "completed"]
    assert training.shown()["progress"]["step"] == STEPS

    training.run.wait_until_settled()
    verdict = training.run.verdict(read_witness({plane.name: plane.layout.audit_log for plane in planes}))
    assert verdict.is_clean, verdict
