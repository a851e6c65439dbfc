"""Jobs that the gateway places on nodes which run them: a gang that trains, a program that fails, one that is cancelled, jobs
that write and read data, and one that announces what it wrote, is killed and announces it again.
"""

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from devtools.localfleet import ControlPlane
from devtools.localfleet.admin import client
from devtools.programs import unpack
from devtools.trial import Gateway
from tests.journeys.workload import TEAM, Run, job, joined, wait_for

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

rank, port = int(os.environ["NODE_RANK"]), int(os.environ["MASTER_PORT"])
hosts = open(os.environ["SWITCHYARD_HOSTS_FILE"]).read().split()
assert (len(hosts), hosts[0]) == (int(os.environ["WORLD_SIZE"]), os.environ["MASTER_ADDR"])
assert hosts[rank].split(".")[0] == socket.gethostname()
shared = os.statvfs("/dev/shm")
assert shared.f_blocks * shared.f_frsize > 64 * 2**20
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
WRITE = """
import hashlib, os, pathlib
assert os.environ["KEY"] == pathlib.Path("/run/secrets/key").read_text() == "s3cret"
checkpoint = os.urandom(1 << 20)
pathlib.Path("/out/checkpoint").write_bytes(checkpoint)
print(hashlib.sha256(checkpoint).hexdigest(), flush=True)
"""
READ = """
import hashlib, pathlib
print(hashlib.sha256(pathlib.Path("/data/checkpoint").read_bytes()).hexdigest(), flush=True)
try:
    pathlib.Path("/data/checkpoint").write_bytes(b"")
except OSError:
    pass
else:
    raise SystemExit("a read-only mount could be written")
"""
ANNOUNCE = """
import hashlib, json, os, pathlib, time, urllib.request

def report(**told):
    told["sequence"] = time.time_ns() // 1_000_000
    headers = {"Authorization": "Bearer " + os.environ["SWITCHYARD_REPORT_TOKEN"], "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["SWITCHYARD_REPORT_URL"], json.dumps(told).encode(), headers)
    urllib.request.urlopen(request, timeout=30).close()

def announce():
    content = model.read_bytes()
    report(artifacts=[{"name": "model", "path": "weights", "sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}])

model = pathlib.Path(os.environ.get("SWITCHYARD_CHECKPOINT", "/out/model/weights"))
if "SWITCHYARD_RESTART" not in os.environ:
    model.parent.mkdir()
    model.write_bytes(os.urandom(1 << 16))
    announce()
    report(step=1, checkpoint={"reference": str(model)})
    time.sleep(3600)
with model.open("ab") as file:
    file.write(os.urandom(1 << 16))
announce()
"""
FAIL = "import sys; print('about to fail', flush=True); sys.exit(41)"
WAIT = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
time.sleep(1.5)  # Kubernetes tells starts and ends in whole seconds: less may count as nothing
print("ready", flush=True)
time.sleep(3600)
"""


@pytest.fixture(scope="module")
def plane(root: Path, gateway: Gateway) -> Iterator[ControlPlane]:
    with joined(gateway, root / "running", FLEET) as found:
        yield found


def program(name: str, source: str, *, count: int = 1, **env: str):
    spec = job(name, count=count, gpu={"count": 4}, constraints={"clusters": ["running"]})
    spec["labels"] = {}
    spec["pod_sets"][0] |= {"command": ["python", "-c", source], "env": env}
    return spec


def commands(page: str) -> list[str]:
    """The blocks of commands of a page."""
    text = (Path(__file__).parents[2] / "docs" / "howto" / page).read_text()
    return re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def log_of(gateway: Gateway, job_id: str) -> str:
    return "".join(pod["text"] or "" for pod in gateway.get(f"/jobs/{job_id}/logs")["items"])


@pytest.mark.usefixtures("plane")
def test_a_gang_trains_and_a_failure_and_a_cancel_end_as_they_really_ended(gateway):
    run = Run(gateway)
    gang = run.submit(program("gang", TRAIN, count=2))
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


def test_a_job_writes_to_a_storage_with_a_secret_and_the_next_one_reads_what_it_wrote(gateway, plane):
    [cluster] = [one for one in gateway.items("/clusters") if one["name"] == plane.name]
    [team] = gateway.request("GET", "/tenants", params={"path": TEAM}).json()["items"]
    names, declare = (block.replace("0193f3a2-…", team["id"]) for block in commands("read-and-write-data.md"))
    declare = declare.replace("https://gateway.example", gateway.url).replace("acme/vision", TEAM)
    said = subprocess.run(
        ["/bin/sh", "-ec", declare], env=os.environ | {"CLUSTER": cluster["id"], "TOKEN": gateway.token},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert json.loads(said)["claim"] == "shared-data"
    gateway.request("PUT", f"/tenants/{team['id']}/secrets/key", json={"value": "s3cret"}).raise_for_status()
    run = Run(gateway)
    writer = program("writer", WRITE)
    writer["pod_sets"][0] |= {
        "mounts": [{"storage": "shared", "path": "/out", "sub_path": "first", "read_only": False}],
        "secrets": [{"secret": "key", "env": "KEY"}, {"secret": "key", "file": "/run/secrets/key"}],
    }
    wrote = run.submit(writer)
    wait_for(lambda: (gateway.get(f"/jobs/{wrote}")["attempt"] or {}).get("object"), "it is on the cluster")
    kubectl = unpack("kubectl", plane.layout.root)
    found = subprocess.run(
        ["/bin/sh", "-ec", names.replace("kubectl", str(kubectl))], env={"KUBECONFIG": str(plane.kubeconfig)},
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    namespace = gateway.get(f"/jobs/{wrote}")["attempt"]["object"]["namespace"]
    assert namespace in found
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    with client(plane) as http:
        made = {"metadata": {"name": "shared-data"}, "spec": claim}
        http.post(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", json=made).raise_for_status()
    wait_for(lambda: gateway.get(f"/jobs/{wrote}")["state"] in {"succeeded", "failed"}, "it ends")
    assert gateway.get(f"/jobs/{wrote}")["state"] == "succeeded", log_of(gateway, wrote)
    reader = program("reader", READ)
    reader["pod_sets"][0]["mounts"] = [{"storage": "shared", "path": "/data", "sub_path": "first"}]
    read = run.submit(reader)
    run.wait_until_all_ended()
    assert run.states() == {wrote: "succeeded", read: "succeeded"}, log_of(gateway, read)
    assert log_of(gateway, read) == log_of(gateway, wrote) != ""
    folder = plane.layout.claims / namespace / "shared-data" / "tenants" / team["id"] / "first"
    assert [file.name for file in folder.iterdir()] == ["checkpoint"], "in the tenant's own part of the claim"


def kill_program(plane, word):
    """Kills what the kubelet runs with this word in its command line, without any notice."""
    for process in psutil.Process(plane.pid("kubelet")).children(recursive=True):
        with suppress(psutil.Error):
            if any(word in argument for argument in process.cmdline()):
                process.kill()


def test_a_run_that_is_killed_goes_on_and_the_job_has_the_artifact_of_its_last_run(gateway, plane):
    [cluster] = [one for one in gateway.items("/clusters") if one["name"] == plane.name]
    declared = {
        "name": "results",
        "claim": "results",
        "tenant": TEAM,
        "mode": "read_write",
        "prefix": "tenants/{tenant}",
    }
    gateway.create(f"/clusters/{cluster['id']}/storages", declared)
    spec = program("announces", ANNOUNCE)
    spec["pod_sets"][0]["mounts"] = [{"storage": "results", "path": "/out", "sub_path": "run", "read_only": False}]
    spec |= {"reports": True, "retries": {"program": 1}}
    spec["artifacts"] = [{"name": "model", "storage": "results", "path": "run/model", "required": True}]
    run = Run(gateway)
    job_id = run.submit(spec)
    wait_for(lambda: (gateway.get(f"/jobs/{job_id}")["attempt"] or {}).get("object"), "it is on the cluster")
    namespace = gateway.get(f"/jobs/{job_id}")["attempt"]["object"]["namespace"]
    wanted = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    with client(plane) as http:
        made = {"metadata": {"name": "results"}, "spec": wanted}
        wait_for(lambda: http.get(f"/api/v1/namespaces/{namespace}").is_success, "its namespace")
        http.post(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", json=made).raise_for_status()
    wait_for(lambda: gateway.get(f"/jobs/{job_id}/reports")["checkpoints"], "it has announced, and can continue")
    [first] = gateway.items(f"/jobs/{job_id}/artifacts")
    kill_program(plane, "SWITCHYARD_RESTART")
    run.wait_until_all_ended()
    shown = gateway.get(f"/jobs/{job_id}")
    assert (shown["state"], shown["reason"]["code"], shown["attempt"]["number"]) == ("succeeded", "", 2), log_of(
        gateway, job_id
    )
    [last] = gateway.items(f"/jobs/{job_id}/artifacts")
    [team] = gateway.request("GET", "/tenants", params={"path": TEAM}).json()["items"]
    written = (plane.layout.claims / namespace / "results" / "tenants" / team["id"] / last["path"]).read_bytes()
    assert (last["sha256"], last["size_bytes"]) == (hashlib.sha256(written).hexdigest(), 2 << 16)
    assert (last["attempt_number"], last["path"], last["cluster"]) == (2, "run/model/weights", plane.name)
    assert [one["announced"] for one in shown["artifacts"]] == [last]
    assert list(gateway.items(f"/jobs/{job_id}/artifacts", attempt="1")) == [first]
    assert first["sha256"] == hashlib.sha256(written[: 1 << 16]).hexdigest()
