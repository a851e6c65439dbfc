"""A team borrows GPUs, their owner comes back: the borrower is stopped once, goes on from its checkpoint, and pays for what ran."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.localfleet import ControlPlane
from devtools.localfleet.admin import client
from devtools.oracle import SeenPod, Witness, read_witness
from devtools.trial import Gateway
from tests.journeys.workload import Run, job, joined, wait_for

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(300)]
FLEET = """
clusters:
  - name: lent
    region: local
    nodes:
      - {name: gpu, count: 3, runs: true, vendor: nvidia, model: NVIDIA-L4, gpus: 4, gpu_memory_mib: 23034, cpu: 8, memory_gib: 16}
"""
OWNER, BORROWER = "acme/owner", "acme/borrower"
STEPS, SHIELD_SECONDS = 60, 6
GPU_HOUR_MS, PRICE = 3_600_000, 2.5
PROGRAM = f"""
import json, os, signal, sys, time, urllib.request
from pathlib import Path

rank, restart = int(os.environ["NODE_RANK"]), os.environ.get("SWITCHYARD_RESTART", "0")
came_from = os.environ.get("SWITCHYARD_CHECKPOINT")
step = int(Path(came_from).read_text()) if came_from else 0

def keep():
    reference = Path(f"/out/step-{{step}}")
    reference.write_text(str(step))
    told = {{"sequence": time.time_ns() // 1_000_000, "step": step, "checkpoint": {{"reference": str(reference)}}}}
    headers = {{"Authorization": "Bearer " + os.environ["SWITCHYARD_REPORT_TOKEN"], "Content-Type": "application/json"}}
    request = urllib.request.Request(os.environ["SWITCHYARD_REPORT_URL"], json.dumps(told).encode(), headers)
    for _ in range(20):
        try:
            return urllib.request.urlopen(request, timeout=5).close()
        except OSError as error:
            print("report:", error, flush=True)
            time.sleep(0.5)

def stop(*_):
    if rank == 0:
        keep()
        print("stopped after step", step, flush=True)
    time.sleep(5)
    sys.exit(1)

signal.signal(signal.SIGTERM, stop)
if rank == 0:
    print("begins after step", step, flush=True)
while step < {STEPS}:
    time.sleep(0.2)
    step += 1
    if rank == 0:
        with open("/out/steps", "a") as steps:
            print(restart, step, file=steps)
        if step % 20 == 0:
            keep()
"""
UNTIL_STOPPED = ["sh", "-c", "trap 'exit 0' TERM; sleep 900 & wait"]


@pytest.fixture(scope="module")
def plane(root: Path, gateway: Gateway) -> Iterator[ControlPlane]:
    with joined(gateway, root / "lent", FLEET, audit=True) as found:
        yield found


@pytest.fixture(scope="module")
def borrower(gateway: Gateway, plane: ControlPlane) -> str:
    """Its id. Eight of the twelve GPUs are the owner's, four the borrower's. Each takes back what it lent."""
    made = [
        gateway.create("/tenants", {"name": path.rpartition("/")[2], "kind": "department", "parent": "acme"})
        for path in (OWNER, BORROWER)
    ]
    put(gateway, "/priority-classes", {"name": "brief", "value": 0, "is_open": True, "shield_seconds": SHIELD_SECONDS})
    limits: list[dict[str, Any]] = [
        {"tenant": "acme", "nominal": "12"},
        {"tenant": OWNER, "nominal": "8", "borrowing_limit": None, "reclaims": True},
        {"tenant": BORROWER, "nominal": "4", "borrowing_limit": None, "reclaims": True},
    ]
    for limit in limits:
        put(gateway, "/quotas", {"resource": "gpu", "clusters": ["lent"], **limit})
    return str(made[-1]["id"])


@pytest.fixture(scope="module")
def folder(gateway: Gateway, plane: ControlPlane, borrower: str) -> Path:
    """What the borrower's jobs have at /out."""
    [cluster] = [one for one in gateway.items("/clusters") if one["name"] == "lent"]
    storage = {"name": "kept", "claim": "kept", "mode": "read_write", "tenant": BORROWER, "prefix": ""}
    gateway.create(f"/clusters/{cluster['id']}/storages", storage)
    first = Run(gateway)
    first.submit(spec("first", BORROWER, ["true"], gpu=None))
    first.wait_until_all_ended()  # now the borrower has its namespace
    namespace = f"swy-borrower-{borrower.replace('-', '')[-8:]}"
    claim = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    with client(plane) as http:
        made = {"metadata": {"name": "kept"}, "spec": claim}
        http.post(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", json=made).raise_for_status()
    return plane.layout.claims / namespace / "kept"


def put(gateway: Gateway, path: str, body: dict[str, Any]) -> None:
    answer = gateway.request("PUT", path, json=body)
    assert answer.is_success, answer.text


def spec(name: str, tenant: str, command: list[str], **fields: Any) -> dict[str, Any]:
    """A job on the lent cluster that really runs the command."""
    made = job(name, constraints={"clusters": ["lent"]}, priority_class="brief", **{"gpu": {"count": 4}} | fields)
    made["tenant"], made["labels"] = tenant, {}
    made["pod_sets"][0] |= {"command": command, "memory": "256Mi"}
    return made


def training() -> dict[str, Any]:
    made = spec("train", BORROWER, ["python", "-c", PROGRAM], count=2, reports=True)
    made["pod_sets"][0]["mounts"] = [{"storage": "kept", "path": "/out", "sub_path": "", "read_only": False}]
    return made


def pods_of(plane: ControlPlane, job_id: str) -> list[dict[str, Any]]:
    """As `kubectl get pods -A -l switchyard.dev/job=…` shows them."""
    with client(plane) as http:
        answer = http.get("/api/v1/pods", params={"labelSelector": f"switchyard.dev/job={job_id}"})
        items: list[dict[str, Any]] = answer.raise_for_status().json()["items"]
        return items


def reason(gateway: Gateway, job_id: str) -> str:
    return (gateway.get(f"/jobs/{job_id}")["reason"] or {}).get("code", "")


def pods_by_object(witness: Witness, job_id: str) -> list[list[SeenPod]]:
    """The pods of a job that ran, by Job object in the order of their starts."""
    found: dict[str, list[SeenPod]] = {}
    for pod in sorted((pod for pod in witness.pods_of()[job_id] if pod.ran), key=lambda pod: str(pod.started_at)):
        found.setdefault(pod.object_uid, []).append(pod)
    return list(found.values())


def test_a_borrower_is_stopped_once_for_the_owner_goes_on_from_its_checkpoint_and_pays_for_what_ran(
    gateway: Gateway, plane: ControlPlane, folder: Path
):
    run = Run(gateway)
    long = run.submit(spec("long", BORROWER, UNTIL_STOPPED))
    train = run.submit(training())
    steps = folder / "steps"
    wait_for(steps.exists, "the borrower trains on eight GPUs, of which it borrowed all but four")
    mine = run.submit(spec("mine", OWNER, ["sleep", "12"], count=2))
    wait_for(lambda: reason(gateway, mine) == "waiting_for_preemption", "jobs are being stopped for the owner")
    gateway.kill("worker")  # after the victim was marked, before its owner's job was placed
    greedy = run.submit(spec("greedy", BORROWER, ["true"]))
    terminating: list[dict[str, Any]] = []

    def seen_terminating() -> bool:
        terminating[:] = [one["metadata"] for one in pods_of(plane, train) if "deletionTimestamp" in one["metadata"]]
        return bool(terminating)

    wait_for(seen_terminating, "its pods are being stopped")
    assert {one["deletionGracePeriodSeconds"] for one in terminating} == {30}
    wait_for(lambda: gateway.get(f"/jobs/{mine}")["state"] == "running", "the owner's job runs")
    assert pods_of(plane, train) == []
    assert gateway.get(f"/jobs/{greedy}")["state"] == "queued", "neither nodes nor quota went to the borrower"
    wait_for(lambda: run.states()[train] == "succeeded", "the borrower's training goes on to its end")
    gateway.create(f"/jobs/{long}/cancel", {})
    run.wait_until_all_ended()
    run.wait_until_settled()

    _went_on_from_its_checkpoint(steps)
    _was_stopped_once_and_learns_why(gateway, train, mine, long)
    told = run.told()
    assert [len(told[job_id]["attempts"]) for job_id in (long, train, mine, greedy)] == [1, 2, 1, 1]
    witness = read_witness({"lent": plane.layout.audit_log})
    stopped, resumed = pods_by_object(witness, train)
    [owners] = pods_by_object(witness, mine)
    assert {pods[0].object_uid for pods in (stopped, resumed)} == {
        one["object"]["uid"] for one in told[train]["attempts"]
    }
    assert min(pod.milliseconds for pod in stopped) >= 1000 * (SHIELD_SECONDS - 1), (
        "its class protects its first seconds"
    )
    assert max(pod.finished_at for pod in stopped) <= min(pod.started_at for pod in owners), "nodes are given once"
    verdict = run.verdict(witness)
    assert verdict.is_clean, verdict
    assert verdict.estimated == [], "every second of every pod was seen"
    _is_charged_for_what_ran(gateway, told[train], stopped + resumed)


def _went_on_from_its_checkpoint(steps: Path) -> None:
    """No step is missing, and none was made twice."""
    made = [line.split() for line in steps.read_text().splitlines()]
    assert [int(step) for _, step in made] == [*range(1, STEPS + 1)]
    assert [restart for restart, _ in made] == sorted(restart for restart, _ in made)
    assert {restart for restart, _ in made} == {"0", "1"}


def _was_stopped_once_and_learns_why(gateway: Gateway, train: str, mine: str, long: str) -> None:
    attempts = sorted(gateway.items(f"/jobs/{train}/attempts"), key=lambda one: one["number"])
    assert [(one["state"], one["end_reason"]) for one in attempts] == [
        ("preempted", "preempted_for_job"), ("succeeded", "completed"),
    ]  # fmt: skip
    [shown] = gateway.items(f"/jobs/{train}/preemptions")
    assert (shown["role"], shown["beneficiary"]["job"], shown["outcome"]) == ("victim", mine, "placed")
    [victim], [spared] = shown["victims"], shown["considered"]
    assert (victim["job"], victim["gpus"], spared["job"]) == (train, 8.0, long)
    assert (victim["loan"]["tenant"], victim["loan"]["held"], victim["loan"]["nominal"]) == (BORROWER, "12", "4")
    [why] = [one["message"] for one in gateway.items(f"/jobs/{train}/events") if one["kind"] == "interrupted"]
    assert f"whose tenant takes back quota that it lent: {BORROWER} holds 12 gpu, of which 4 are its own" in why


def _is_charged_for_what_ran(gateway: Gateway, train: dict[str, Any], pods: list[SeenPod]) -> None:
    ran = sum(pod.gpus * pod.milliseconds for pod in pods)
    assert float(train["cost"]["amount"]) == pytest.approx(ran / GPU_HOUR_MS * PRICE, abs=4e-6)
    report = gateway.get("/usage", group_by="tenant", **{"from": "2026-01-01", "to": "2030-01-01"})
    [used] = [row for row in report["items"] if row["tenant"] == BORROWER]
    assert 0 < float(used["lost_gpu_hours"]) < 8 * 15 / 3600, "only the time after its last checkpoint"
