"""What a cluster does to pods, their job survives: drained nodes, evictions, lost nodes and reclaimed spot instances."""

import time
from typing import Any

import httpx
import pytest

from devtools.localfleet import ControlPlane
from devtools.localfleet.admin import client
from devtools.oracle import JOB_LABEL
from tests.faults.stand import FaultRun, Stand
from tests.journeys.workload import job, wait_for

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(600)]
CPU = "cpu"


def running(
    stand: Stand, run: FaultRun, spec: dict[str, Any], *ends: str
) -> tuple[str, ControlPlane, list[dict[str, Any]]]:
    """A job that runs, where, and its pods there."""
    job_id = run.submit_that_may_end(spec, *(ends or ["succeeded"]))
    wait_for(lambda: stand.gateway.get(f"/jobs/{job_id}")["state"] == "running", f"{spec['name']} runs")
    plane = stand.plane(attempts(stand, job_id)[0]["cluster"])
    count = sum(pod_set["count"] for pod_set in spec["pod_sets"])
    wait_for(lambda: len(pods(plane, job_id)) == count, "all of its pods run")
    time.sleep(2)  # Kubernetes tells whole seconds: something is to be lost
    return job_id, plane, pods(plane, job_id)


def pods(plane: ControlPlane, job_id: str) -> list[dict[str, Any]]:
    with client(plane) as http:
        found = http.get("/api/v1/pods", params={"labelSelector": f"{JOB_LABEL}={job_id}"}).raise_for_status().json()
    return [pod for pod in found["items"] if pod["status"].get("phase") == "Running"]


def attempts(stand: Stand, job_id: str) -> list[dict[str, Any]]:
    return sorted(stand.gateway.items(f"/jobs/{job_id}/attempts"), key=lambda attempt: attempt["number"])


def ends(stand: Stand, job_id: str) -> list[tuple[str, str | None]]:
    return [(attempt["state"], attempt["end_reason"]) for attempt in attempts(stand, job_id)]


def evict(plane: ControlPlane, pod: dict[str, Any]) -> None:
    """What `kubectl drain`, an autoscaler and a spot instance's own handler do."""
    meta = pod["metadata"]
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
    }
    with client(plane) as http:
        http.post(f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction", json=body).raise_for_status()


def test_an_evicted_job_goes_on_elsewhere_and_tells_what_it_lost(stand: Stand, run: FaultRun):
    spec = job("evicted", count=3, seconds=12, checkpoint_seconds=3600)
    job_id, plane, found = running(stand, run, spec)
    evict(plane, found[0])
    run.wait_until_all_ended()
    first, second = attempts(stand, job_id)
    assert ends(stand, job_id) == [("preempted", "preempted"), ("succeeded", "completed")]
    assert first["cluster"] == plane.name != second["cluster"]
    run.wait_until_settled()
    first, second = attempts(stand, job_id)
    assert 0 <= first["lost_seconds"] <= 60
    assert second["lost_seconds"] is None
    kinds = [event["kind"] for event in stand.gateway.items(f"/jobs/{job_id}/events")]
    assert "interrupted" in kinds


@pytest.mark.long
def test_a_job_whose_node_is_gone_goes_on_elsewhere(stand: Stand, run: FaultRun):
    job_id, plane, found = running(
        stand, run, job("node-gone", seconds=90, constraints={"clusters": ["north", "east"]})
    )
    name = found[0]["spec"]["nodeName"]
    with client(plane) as http:
        node = http.get(f"/api/v1/nodes/{name}").raise_for_status().json()
        http.delete(f"/api/v1/nodes/{name}").raise_for_status()
        try:
            wait_for(lambda: len(attempts(stand, job_id)) == 2, "another attempt")
        finally:
            meta = {key: node["metadata"][key] for key in ("name", "labels", "annotations")}
            again = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}, "status": node["status"]}
            http.post("/api/v1/nodes", json=again).raise_for_status()
    run.wait_until_all_ended()
    assert ends(stand, job_id) == [("preempted", "node_lost"), ("succeeded", "completed")]


@pytest.mark.long
def test_a_reclaimed_spot_instance_costs_a_job_its_place_and_not_its_life(stand: Stand, run: FaultRun):
    """Spot capacity is on one cluster alone: the job waits there until it is no longer kept away."""
    spec = job("spot", gpu={"count": 1}, seconds=12, constraints={"capacity_types": ["spot"]})
    job_id, plane, found = running(stand, run, spec)
    evict(plane, found[0])
    wait_for(lambda: stand.gateway.get(f"/jobs/{job_id}")["state"] == "queued", "it is queued again")
    wait_for(
        lambda: (
            "lately_interrupted" in [r["code"] for r in stand.gateway.get(f"/jobs/{job_id}/explanation")["clusters"]]
        ),
        "it says why it keeps away",
        30,
    )
    run.wait_until_all_ended()
    assert ends(stand, job_id) == [("preempted", "spot"), ("succeeded", "completed")]


@pytest.mark.long
def test_a_job_that_wants_no_retries_ends_with_the_interruption(stand: Stand, run: FaultRun):
    spec = job("once", seconds=60, retries={"preempted": 0})
    job_id, plane, found = running(stand, run, spec, "failed")
    evict(plane, found[0])
    run.wait_until_all_ended()
    assert ends(stand, job_id) == [("failed", "preempted")]
    assert stand.gateway.get(f"/jobs/{job_id}")["reason"]["code"] == "preempted"


@pytest.mark.long
def test_the_programs_own_failure_is_tried_again_only_when_asked(stand: Stand, run: FaultRun):
    plain = run.submit_that_may_end(job("fails", exit_code=7, seconds=1), "failed")
    asked = run.submit_that_may_end(job("fails-twice", exit_code=7, seconds=1, retries={"program": 1}), "failed")
    run.wait_until_all_ended()
    assert ends(stand, plain) == [("failed", "program_failed")]
    assert ends(stand, asked) == [("failed", "program_failed")] * 2
    assert [stand.gateway.get(f"/jobs/{job_id}")["exit_code"] for job_id in (plain, asked)] == [7, 7]


@pytest.mark.long
def test_a_cancel_after_an_interruption_wins(stand: Stand, run: FaultRun):
    job_id, plane, found = running(stand, run, job("both", count=2, seconds=60), "cancelled")
    evict(plane, found[0])
    answer = stand.gateway.request("POST", f"/jobs/{job_id}/cancel", json={})
    assert answer.status_code in (httpx.codes.OK, httpx.codes.ACCEPTED), answer.text
