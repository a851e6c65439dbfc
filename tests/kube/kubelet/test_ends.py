"""How a pod ends on a node of the test kubelet is what its status says."""

import asyncio

import httpx
import pytest

from devtools.localfleet.admin import create_nodes
from devtools.localfleet.kubelet import RUNS_LABEL
from tests.contract.worlds import node_object
from tests.kube.running_pods import (
    PODS,
    create,
    ended,
    kept,
    last_status,
    log,
    pod,
    reached,
    runs,
    seen,
    wait_for,
)

pytestmark = pytest.mark.kube


def test_a_command_ends_with_its_own_code_and_its_log_is_read_through_the_api_server(http):
    create(http, pod("fails", "echo one; echo two >&2; sleep 1; echo three; exit 7", container={"terminationMessagePolicy": "FallbackToLogsOnError"}))  # fmt: skip
    create(http, pod("absent", container={"command": ["/no/such/program"]}), pod("pretends", "exit 9", node="pretend"))
    reached(http, "fails", "Running")
    with http.stream("GET", f"{PODS}/fails/log", params={"follow": "true"}) as reply:
        assert reply.read().decode() == "one\ntwo\nthree\n"
    phase, end = ended(http, "fails")
    assert (phase, end["exitCode"], end["reason"], end["message"]) == ("Failed", 7, "Error", "one\ntwo\nthree")
    assert end["startedAt"] < end["finishedAt"]
    assert log(http, "fails", tailLines=2, limitBytes=6) == "two\nth"
    stamped = log(http, "fails", timestamps="true").splitlines()
    assert [line.split()[1] for line in stamped] == ["one", "two", "three"]
    assert log(http, "fails", timestamps="true", sinceTime=stamped[2].split()[0][:19] + "Z").endswith("three\n")
    phase, end = ended(http, "absent")
    assert (phase, end["exitCode"], end["reason"]) == ("Failed", 128, "StartError")
    assert "/no/such/program" in end["message"]
    assert ended(http, "pretends")[1]["exitCode"] == 0, "KWOK's nodes still pretend"


def test_only_the_api_server_may_read_logs(plane):
    address = f"https://127.0.0.1:{plane.layout.ports['kubelet']}"
    with httpx.Client(verify=False, trust_env=False) as stranger:
        assert stranger.get(f"{address}/healthz").status_code == 200
        assert stranger.get(f"{address}/containerLogs/runs/fails/main").status_code == 401


def test_a_deleted_pod_gets_its_hook_sigterm_and_its_grace_and_then_sigkill(http):
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo hook-$WORD > /proc/1/fd/1"]}}}
    polite = "trap 'echo term; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    create(
        http,
        kept(pod("polite", polite, container={"lifecycle": hook, "env": [{"name": "WORD", "value": "ran"}]})),
        kept(pod("deaf", "echo ready; exec sleep 3600")),
        kept(pod("evicted", polite)),
    )
    for name in ("polite", "deaf", "evicted"):
        reached(http, name, "Running")
        wait_for(lambda name=name: "ready" in log(http, name), "it is ready")
    http.request("DELETE", f"{PODS}/deaf", json={"gracePeriodSeconds": 1}).raise_for_status()
    http.delete(f"{PODS}/polite").raise_for_status()
    http.post(f"{PODS}/evicted/eviction", json={"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "evicted"}}).raise_for_status()  # fmt: skip
    wait_for(lambda: seen(http, "polite")["metadata"].get("deletionGracePeriodSeconds") == 0, "its end")
    assert log(http, "polite").split() == ["ready", "hook-ran", "term"]
    assert [(phase, end["exitCode"]) for phase, end in (last_status(http, name) for name in ("polite", "deaf", "evicted"))] == [("Failed", 3), ("Failed", 137), ("Failed", 3)]  # fmt: skip
    for name in ("polite", "deaf", "evicted"):
        wait_for(lambda name=name: http.get(f"{PODS}/{name}").status_code == 404, "the object is gone")


def test_a_pod_that_is_deleted_by_force_and_one_whose_node_is_deleted_leave_no_process(http, plane):
    spare = node_object("spare", {RUNS_LABEL: "true"})
    asyncio.run(create_nodes(plane, [spare]))
    create(http, pod("forced", "exec sleep 36001"), pod("homeless", "exec sleep 36002", node="spare"))
    for name, seconds in (("forced", "36001"), ("homeless", "36002")):
        reached(http, name, "Running")
        wait_for(lambda seconds=seconds: runs(plane, seconds), "its command runs")
    http.request("DELETE", f"{PODS}/forced", json={"gracePeriodSeconds": 0}).raise_for_status()
    http.delete("/api/v1/nodes/spare").raise_for_status()
    wait_for(lambda: not runs(plane, "36001") and not runs(plane, "36002"), "both commands are killed")
    wait_for(lambda: http.get(f"{PODS}/forced").status_code == 404, "the object is gone")
    create(http, pod("forced", "echo namesake"))
    assert ended(http, "forced")[0] == "Succeeded"
    assert log(http, "forced") == "namesake\n"


def test_a_container_that_uses_more_memory_than_its_limit_is_killed_and_says_so(http):
    greedy = "import time\nheld = bytearray(400 * 2**20)\ntime.sleep(3600)"
    shares = (
        "import os, time\nheld = bytearray(60 * 2**20)\n"
        "for _ in range(3):\n    if not os.fork():\n        break\ntime.sleep(1.5)"
    )
    limit = {"resources": {"limits": {"memory": "128Mi"}}}
    create(
        http,
        pod("greedy", container={"command": ["python", "-c", greedy], **limit}),
        pod("modest", container={"command": ["python", "-c", shares], **limit}),
    )
    phase, end = ended(http, "greedy")
    assert (phase, end["exitCode"], end["reason"]) == ("Failed", 137, "OOMKilled")
    assert ended(http, "modest")[0] == "Succeeded", "memory that processes share counts once"


def test_a_pod_that_is_active_for_too_long_fails_and_keeps_its_object(http):
    create(http, pod("slow", "trap 'exit 0' TERM; while :; do sleep 0.05; done", activeDeadlineSeconds=1))
    assert ended(http, "slow")[1]["exitCode"] == 0
    assert seen(http, "slow")["status"]["reason"] == "DeadlineExceeded"


def test_an_end_while_the_api_server_hangs_is_reported_when_it_answers_again(http, plane):
    create(http, pod("unseen", "sleep 1.03125; exit 5"), pod("again", 'test -n "$(find /w -name seen)" || { touch /w/seen; exit 1; }', restartPolicy="OnFailure", container={"volumeMounts": [{"name": "w", "mountPath": "/w"}]}, volumes=[{"name": "w", "emptyDir": {}}]))  # fmt: skip
    reached(http, "unseen", "Running")
    assert reached(http, "again", "Succeeded")["status"]["containerStatuses"][0]["restartCount"] == 1
    plane.pause("kube-apiserver")
    try:
        wait_for(lambda: not runs(plane, "1.03125"), "it ends unseen")
    finally:
        plane.resume("kube-apiserver")
    assert ended(http, "unseen")[1]["exitCode"] == 5
