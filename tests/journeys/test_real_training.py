"""Jobs that the gateway places on nodes which run them: a gang that trains, a program that fails, one that is cancelled."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.localfleet import ControlPlane
from devtools.localfleet.admin import client
from devtools.trial import Gateway
from tests.journeys.workload import Run, alone, job, wait_for

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(300)]
FLEET = """
clusters:
  - name: running
    region: local
    nodes:
      - {name: gpu, count: 2, runs: true, vendor: nvidia, model: NVIDIA-L4, gpus: 4, gpu_memory_mib: 23034, cpu: 32, memory_gib: 64}
"""
TRAIN = """
import os, socket, struct, time
import numpy

rank, port = int(os.environ["JOB_COMPLETION_INDEX"]), int(os.environ["MASTER_PORT"])
if rank == 0:
    peer, _ = socket.create_server((socket.gethostbyname(socket.gethostname()), port)).accept()
else:
    while True:
        try:
            peer = socket.create_connection((os.environ["MASTER_ADDR"], port))
            break
        except OSError:
            time.sleep(0.05)


def summed(values):
    peer.sendall(values.tobytes())
    received = b""
    while len(received) < values.nbytes:
        received += peer.recv(values.nbytes - len(received))
    return values + numpy.frombuffer(received)


truth = numpy.array([3.0, -2.0, 0.5])
inputs = numpy.random.default_rng(rank).normal(size=(256, 3))
targets, weights = inputs @ truth, numpy.zeros(3)
for step in range(300):
    weights = weights - 0.1 * summed(inputs.T @ (inputs @ weights - targets) / len(inputs)) / 2
print("rank", rank, "weights", weights.round(3).tolist(), flush=True)
assert numpy.allclose(weights, truth, atol=1e-6)
"""
FAIL = "import sys; print('about to fail', flush=True); sys.exit(41)"
WAIT = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('ready', flush=True); time.sleep(3600)"


@pytest.fixture(scope="module")
def installation(root: Path) -> Iterator[tuple[Gateway, ControlPlane]]:
    with alone(root / "running", FLEET) as both:
        yield both


def program(name: str, source: str, *, count: int = 1, **env: str):
    spec = job(name, count=count, gpu={"count": 4})
    spec["labels"] = {}
    spec["pod_sets"][0] |= {"command": ["python", "-c", source], "env": env}
    return spec


def log_of(gateway: Gateway, job_id: str) -> str:
    return "".join(pod["text"] or "" for pod in gateway.get(f"/jobs/{job_id}/logs")["items"])


def lead(plane: ControlPlane, namespace: str) -> None:
    """A name for the first pod of the gang, in its namespace."""
    selector = {"batch.kubernetes.io/job-completion-index": "0"}
    with client(plane) as http:
        made = {"metadata": {"name": "lead"}, "spec": {"clusterIP": "None", "selector": selector}}
        http.post(f"/api/v1/namespaces/{namespace}/services", json=made).raise_for_status()


def test_a_gang_trains_and_a_failure_and_a_cancel_end_as_they_really_ended(installation):
    gateway, plane = installation
    run = Run(gateway)
    gang = run.submit(program("gang", TRAIN, count=2, MASTER_ADDR="lead", MASTER_PORT="29500"))
    wait_for(lambda: (gateway.get(f"/jobs/{gang}").get("attempt") or {}).get("object"), "it has a place")
    wait_for(lambda: gateway.get(f"/jobs/{gang}")["state"] == "running", "it runs")
    lead(plane, gateway.get(f"/jobs/{gang}")["attempt"]["object"]["namespace"])
    wait_for(lambda: gateway.get(f"/jobs/{gang}")["state"] in {"succeeded", "failed"}, "the gang ends")
    text = log_of(gateway, gang)
    assert gateway.get(f"/jobs/{gang}")["state"] == "succeeded", text
    assert sorted(text.splitlines()) == [f"rank {rank} weights [3.0, -2.0, 0.5]" for rank in range(2)]

    doomed, long = run.submit(program("doomed", FAIL)), run.submit(program("long", WAIT))
    wait_for(lambda: gateway.get(f"/jobs/{long}")["state"] == "running", "it runs")
    wait_for(lambda: log_of(gateway, long) == "ready\n", "it is ready")
    gateway.create(f"/jobs/{long}/cancel", {})
    run.wait_until_all_ended()
    run.wait_until_settled()
    assert run.states() == {gang: "succeeded", doomed: "failed", long: "cancelled"}
    assert gateway.get(f"/jobs/{doomed}")["exit_code"] == 41
    report = gateway.get("/usage", group_by="job", **{"from": "2026-01-01", "to": "2030-01-01"})
    used = {row["job"]: row["gpu_milliseconds"] for row in report["items"]}
    assert used[long] > 0
