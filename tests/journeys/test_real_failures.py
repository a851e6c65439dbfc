"""What really ends programs on real nodes (too much memory, an abort with NCCL's words, a failed GPU, an eviction, a missing command, the
deadline), as the gateway diagnoses it, and what follows.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devtools.localfleet import ControlPlane
from devtools.localfleet.admin import client, taint
from devtools.trial import Gateway
from tests.journeys.workload import Run, job, joined, wait_for

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(400)]
FLEET = """
clusters:
  - name: failing
    region: local
    nodes:
      - {name: gpu, count: 3, runs: true, vendor: nvidia, model: NVIDIA-L4, gpus: 4, gpu_memory_mib: 23034, cpu: 32, memory_gib: 64}
"""
GREEDY = "import time; held = bytearray(300 * 2**20); time.sleep(2)"
TIMED_OUT = """
import os, sys
if os.environ["SWITCHYARD_ATTEMPT"] == "1":
    print("[rank1]:[E ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation timeout: "
          "WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for 600013 milliseconds before timing out.", file=sys.stderr, flush=True)
    os.abort()
"""
AFTER_A_SIGN = """
import os, sys, time
if os.environ["SWITCHYARD_ATTEMPT"] == "1":
    print("ready", flush=True)
    while not os.path.exists("/scratch/never"):
        time.sleep(0.2)
"""
FAILS_LATER = AFTER_A_SIGN.replace(
    'while not os.path.exists("/scratch/never"):\n        time.sleep(0.2)', "time.sleep(8); sys.exit(1)"
)
MORE = {
    "name": "oom",
    "when": {"seen": ["out_of_memory"]},
    "then": "more_memory",
    "retries": 1,
    "memory": {"factor": "4"},
}
ELSEWHERE = {
    "name": "nccl", "when": {"exit_codes": ["134"], "log": ["@nccl_timeout"]}, "class": "network", "then": "again_elsewhere",
    "retries": 2, "backoff": {"seconds": 1, "most_seconds": 1},
}  # fmt: skip


@pytest.fixture(scope="module")
def plane(root: Path, gateway: Gateway) -> Iterator[ControlPlane]:
    with joined(gateway, root / "failing", FLEET) as found:
        yield found


def program(name: str, *command: str, memory: str = "1Gi", **fields: Any) -> dict[str, Any]:
    spec = job(name, gpu={"count": 1}, constraints={"clusters": ["failing"]}, **fields)
    spec["labels"] = {}
    spec["pod_sets"][0] |= {"command": list(command), "memory": memory}
    return spec


def node_of(plane: ControlPlane, job_id: str) -> tuple[str, dict[str, Any]]:
    """Where its pod runs, and the pod's metadata."""
    with client(plane) as http:
        found = http.get("/api/v1/pods", params={"labelSelector": f"switchyard.dev/job={job_id}"}).raise_for_status()
    [pod] = found.json()["items"]
    return pod["spec"]["nodeName"], pod["metadata"]


def attempts(gateway: Gateway, job_id: str) -> list[dict[str, Any]]:
    return sorted(gateway.items(f"/jobs/{job_id}/attempts"), key=lambda attempt: attempt["number"])


def is_ready(gateway: Gateway, job_id: str) -> bool:
    return any(pod["text"] == "ready\n" for pod in gateway.get(f"/jobs/{job_id}/logs")["items"])


def evict(plane: ControlPlane, metadata: dict[str, Any]) -> None:
    named = {"name": metadata["name"], "namespace": metadata["namespace"]}
    with client(plane) as http:
        path = f"/api/v1/namespaces/{named['namespace']}/pods/{named['name']}/eviction"
        http.post(path, json={"apiVersion": "policy/v1", "kind": "Eviction", "metadata": named}).raise_for_status()


def test_each_real_failure_gets_its_class_its_text_and_what_follows(gateway, plane):
    run = Run(gateway)
    greedy = run.submit(program("greedy", "python", "-c", GREEDY, memory="128Mi", failure_rules=[MORE]))
    poor = run.submit(program("poor", "python", "-c", GREEDY, memory="128Mi"))
    nccl = run.submit(program("nccl", "sh", "-c", 'python -c "$0"; exit $?', TIMED_OUT, failure_rules=[ELSEWHERE]))
    absent = run.submit(program("absent", "/no/such/program", retries={"program": 0, "infrastructure": 0}))
    slow = run.submit(program("slow", "sleep", "600", deadline_seconds=3))
    evicted = run.submit(program("evicted", "python", "-c", AFTER_A_SIGN))
    ill = run.submit(program("ill", "python", "-c", FAILS_LATER))
    wait_for(lambda: is_ready(gateway, evicted) and is_ready(gateway, ill), "both run")
    node, _ = node_of(plane, ill)
    taint(plane, node, {"key": "nvidia.com/gpu-xid", "value": "79", "effect": "PreferNoSchedule"})
    evict(plane, node_of(plane, evicted)[1])
    run.wait_until_all_ended()
    taint(plane, node)

    found = {name: attempts(gateway, job_id) for name, job_id in (
        ("greedy", greedy), ("poor", poor), ("nccl", nccl), ("absent", absent), ("slow", slow), ("evicted", evicted), ("ill", ill),
    )}  # fmt: skip
    why = {name: [(one["failure"] or {}).get("class") for one in tried] for name, tried in found.items()}
    assert why == {
        "greedy": ["out_of_memory", None], "poor": ["out_of_memory"], "nccl": ["network", None], "absent": ["image"],
        "slow": ["deadline"], "evicted": ["preempted", None], "ill": ["device", None],
    }, found  # fmt: skip
    assert run.states() == {
        greedy: "succeeded", poor: "failed", nccl: "succeeded", absent: "failed", slow: "failed", evicted: "succeeded",
        ill: "succeeded",
    }  # fmt: skip
    first = {name: tried[0]["failure"] for name, tried in found.items()}
    assert {name: told["next_step"] for name, told in first.items()} == {
        "greedy": "more_memory", "poor": "stop", "nccl": "again_elsewhere", "absent": "stop", "slow": "stop",
        "evicted": "again_elsewhere", "ill": "again_elsewhere",
    }  # fmt: skip
    assert "limit 128Mi" in first["greedy"]["text"]
    assert gateway.get(f"/jobs/{greedy}")["spec"]["pod_sets"][0]["memory"] == "512Mi"
    assert "signal 6" in first["nccl"]["text"]
    assert "@nccl_timeout" in first["nccl"]["text"]
    assert first["ill"]["node"] == node
    assert [told["is_infrastructure"] for told in (first["ill"], first["poor"])] == [True, False]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_an_image_that_no_node_can_pull_is_diagnosed_after_the_wait_for_its_registry(gateway, plane):
    run = Run(gateway)
    spec = program("stops", "true", failure_rules=[{"name": "pull", "when": {"seen": ["image"]}, "class": "image"}])
    spec["pod_sets"][0]["image"] = "registry.example/missing:1"
    stops = run.submit(spec)
    again = run.submit(spec | {"name": "again", "failure_rules": []})
    wait_for(lambda: gateway.get(f"/jobs/{stops}")["state"] == "failed", "the rule stops it", 600)
    wait_for(lambda: len(attempts(gateway, again)) == 2, "the gateway's own rule tries another node", 200)
    [stopped], (first, second) = attempts(gateway, stops), attempts(gateway, again)
    gateway.create(f"/jobs/{again}/cancel", {})
    run.wait_until_all_ended()
    for failed, follows in ((stopped, "stop"), (first, "again_elsewhere")):
        told = failed["failure"]
        assert (failed["end_reason"], told["class"], told["next_step"]) == ("cannot_start", "image", follows)
        assert 'failed to pull image "registry.example/missing:1": not found' in told["text"], told
        assert "signal" not in told["text"], "its pod was killed only when the attempt was cleared away"
    assert stopped["failure"]["rule"] == "Job: pull"
    assert second["failure"] is None
