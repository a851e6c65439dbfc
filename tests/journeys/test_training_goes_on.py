"""A training run on two nodes, with two ranks on each, loses a node, is suspended and evicted, and leaves a drained cluster and a
spot node that is about to be taken away. Each time it goes on elsewhere from its checkpoint: no step is lost or counted twice, and
all that ran is billed once.
"""

import hashlib
import json
import re
import shutil
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from devtools.embedded import free_port
from devtools.localfleet import ControlPlane, start_fleet, stop_fleet
from devtools.localfleet.admin import client, taint
from devtools.oracle import read_witness
from devtools.trial import Gateway, start_gateway
from federation.engine.relocation import TERMINATION_TAINTS
from tests.journeys.workload import TEAM, Run, job, prepare, wait_for
from tests.recipes import SCRIPTS

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.long, pytest.mark.timeout(900)]
PROGRAM = (Path(__file__).parent / "train.py").read_text()
NODES_OF_RUN, PER_NODE = 2, 2
RANKS = NODES_OF_RUN * PER_NODE
INTERRUPTED_STEPS, MOVED_STEPS = 800, 500
"""Enough that a run has not ended before it is interrupted as often as it is to be."""
GOES_ON_SECONDS = 150
"""A cluster that ended the job's pods is avoided for a minute."""
NODES = (
    "{name: gpu, count: 4, runs: true, vendor: nvidia, model: NVIDIA-L4, gpus: 4, gpu_memory_mib: 23034, cpu: 8,"
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
    """The team's part of a storage that both clusters have."""
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
    return planes[0].layout.claims / namespace / "shared-data" / "tenants" / team["id"]


class Training:
    """The job, as the gateway and the file server show it."""

    def __init__(
        self, gateway: Gateway, planes: list[ControlPlane], folder: Path, name: str, steps: int, **more
    ) -> None:
        self.gateway, self.folder, self.steps = gateway, folder / name, steps
        self.planes = {plane.name: plane for plane in planes}
        spec = job(name, count=NODES_OF_RUN, gpu={"count": 4}, reports=True, labels={}, **more)
        spec["pod_sets"][0] |= {
            "command": ["bash", "-c", SCRIPTS["/opt/ranks.sh"], "/opt/ranks.sh", "python", "-c", PROGRAM],
            "env": {"PER_POD": str(PER_NODE), "STEPS": str(steps)},
            "cpu": "4", "memory": "4Gi", "shm": "2Gi",
            "mounts": [{"storage": "shared", "path": "/out", "sub_path": name, "read_only": False}],
        }  # fmt: skip
        self.run = Run(gateway)
        self.id = self.run.submit(spec)

    def shown(self):
        return self.gateway.get(f"/jobs/{self.id}")

    def attempts(self):
        return sorted(self.gateway.items(f"/jobs/{self.id}/attempts"), key=lambda attempt: attempt["number"])

    def moves(self) -> list[tuple[str, str]]:
        """Of each move the cause and the state."""
        return [(move["cause"], move["state"]) for move in self.gateway.items(f"/jobs/{self.id}/moves")]

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

    def log(self) -> str:
        """What its last run wrote."""
        return "".join(pod["text"] or "" for pod in self.gateway.get(f"/jobs/{self.id}/logs")["items"])

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


def wish(gateway: Gateway, cluster: str, action: str) -> None:
    """An administrator cordons, drains or uncordons it."""
    [found] = [one for one in gateway.items("/clusters") if one["name"] == cluster]
    gateway.create(f"/clusters/{found['id']}/{action}", {})


def announce_the_end(training: Training, cluster: str) -> str:
    """The node that a cloud takes away two minutes later: its handler of spot notices taints it, as that of AWS does."""
    node = str(training.pods(cluster)[0]["spec"]["nodeName"])
    key = TERMINATION_TAINTS[0]
    taint(training.planes[cluster], node, {"key": key, "value": "event", "effect": "NoSchedule"})
    return node


def expected_losses(steps: int) -> list[float]:
    """Of a run that nothing interrupts, by NumPy alone."""
    truth = np.array([3.0, -2.0, 0.5], dtype=np.float32)
    inputs = [np.random.default_rng(rank).normal(size=(256, 3)).astype(np.float32) for rank in range(RANKS)]
    weights, losses = np.zeros(3, dtype=np.float32), []
    for _ in range(steps):
        missed = [each @ weights - each @ truth for each in inputs]
        losses.append(float(np.mean([(one**2).mean() for one in missed])))
        slopes = [2 * each.T @ one / len(each) for each, one in zip(inputs, missed, strict=True)]
        weights = weights - np.float32(0.005) * np.mean(slopes, axis=0)
    return losses


def judge(training: Training, *ended: str) -> None:
    """It has succeeded as if nothing had interrupted it, its attempts ended for these reasons, and each is billed once."""
    training.run.wait_until_all_ended()
    assert training.run.states() == {training.id: "succeeded"}, training.why()
    attempts = training.attempts()
    assert [attempt["end_reason"] for attempt in attempts] == [*ended, "completed"]
    assert [attempt["state"] for attempt in attempts] == ["preempted"] * len(ended) + ["succeeded"]

    kept = (training.folder / "checkpoint.json").read_bytes()
    assert np.allclose(json.loads(kept)["losses"], expected_losses(training.steps), rtol=1e-3, atol=1e-6)
    assert f"digest {hashlib.sha256(kept).hexdigest()}" in training.log()
    assert training.shown()["progress"]["step"] == training.steps
    begun = re.findall(r"^rank (\d) of (\d), (\d) of pod (\d), begins at step (\d+)$", training.log(), re.MULTILINE)
    [step] = {one[4] for one in begun}
    assert 0 < int(step) < training.steps
    numbered = [(pod * PER_NODE + local, RANKS, local, pod) for pod in range(NODES_OF_RUN) for local in range(PER_NODE)]
    assert sorted(tuple(map(int, one[:4])) for one in begun) == numbered

    training.run.wait_until_settled()
    logs = {name: plane.layout.audit_log for name, plane in training.planes.items()}
    verdict = training.run.verdict(read_witness(logs))
    assert verdict.is_clean, verdict


def test_a_training_run_goes_on_elsewhere_whatever_ends_its_pods(gateway, planes, folder):
    training = Training(gateway, planes, folder, "interrupted", INTERRUPTED_STEPS)
    first = training.goes_on()
    lose_a_node(training, first)
    second = training.goes_on()
    assert second != first, "the cluster that lost a node is avoided"
    suspend_for_a_while(training)
    third = training.goes_on()
    evict(training, third)
    training.goes_on()
    lost, reclaimed = (
        "spot" if cluster == "rented" else cause for cluster, cause in ((first, "node_lost"), (third, "preempted"))
    )
    judge(training, lost, "suspended", reclaimed)


def test_a_training_run_leaves_a_cluster_that_is_drained(gateway, planes, folder):
    training = Training(gateway, planes, folder, "drained", MOVED_STEPS, moves="when_needed")
    first = training.goes_on()
    wish(gateway, first, "drain")
    try:
        wait_for(lambda: len(training.attempts()) == 2, "it is moved")
        assert training.goes_on() != first
        assert not training.pods(first), "nothing of it is left there"
        judge(training, "migrated")
    finally:
        wish(gateway, first, "uncordon")
    assert training.moves() == [("drain", "made")]


def test_a_training_run_leaves_a_spot_node_before_it_is_taken_away(gateway, planes, folder):
    wish(gateway, "owned", "cordon")
    more = {"moves": "when_needed", "checkpoint_seconds": 300}
    training = Training(gateway, planes, folder, "reclaimed", MOVED_STEPS, **more)
    assert training.goes_on() == "rented"
    wish(gateway, "owned", "uncordon")
    node = announce_the_end(training, "rented")
    wait_for(lambda: len(training.attempts()) == 2, "it is moved")
    assert training.goes_on() == "owned"
    with client(training.planes["rented"]) as http:
        http.delete(f"/api/v1/nodes/{node}").raise_for_status()
    judge(training, "migrated")
    assert training.moves() == [("spot", "made")]
