"""A real cluster whose GPUs are published as ResourceSlices alone: what lands there, by which claims, and what it costs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from devtools.localfleet import ControlPlane
from devtools.localfleet.admin import client
from devtools.trial import Gateway
from tests.journeys.workload import Run, job, joined, wait_for

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(300)]
FLEET = """
clusters:
  - name: claimed
    region: eu-west-1
    nodes:
      - name: h100
        count: 1
        vendor: nvidia
        model: NVIDIA-H100-80GB-HBM3
        gpus: 4
        gpu_memory_mib: 81559
        claimed: true
        cpu: 32
        memory_gib: 128
      - {name: cpu, count: 1, cpu: 4, memory_gib: 16}
"""
THERE = {"clusters": ["claimed"]}
DEVICES = "/apis/resource.k8s.io/v1"


@pytest.fixture(scope="module")
def plane(root: Path, gateway: Gateway) -> Iterator[ControlPlane]:
    with joined(gateway, root / "claimed", FLEET) as found:
        yield found


def found(plane: ControlPlane, resource: str) -> list[dict]:
    with client(plane) as http:
        items: list[dict] = http.get(f"{DEVICES}/{resource}").raise_for_status().json()["items"]
        return items


def gpus(gateway: Gateway) -> dict:
    [cluster] = [one for one in gateway.items("/clusters") if one["name"] == "claimed"]
    return next((flavor for flavor in cluster["flavors"] if flavor["vendor"]), {})


def is_running(gateway: Gateway, job_id: str) -> bool:
    return gateway.get(f"/jobs/{job_id}")["state"] == "running"


def test_jobs_claim_gpus_run_to_their_end_and_are_metered(gateway: Gateway, plane: ControlPlane):
    wait_for(lambda: gpus(gateway).get("free") == 4, "the GPUs are seen")
    shown = gpus(gateway)
    assert (shown["name"], shown["gpu_memory_mib"], shown["unplaceable"]) == ("h100-80gb", 81559, "")

    run = Run(gateway)
    asked = {"count": 3, "models": ["H100-80GB"]}
    long = run.submit(job("long", gpu=asked, seconds=6, constraints=THERE))
    wait_for(lambda: is_running(gateway, long), "it runs on GPUs that it claims")
    [claim] = found(plane, "resourceclaims")
    assert {device["pool"] for device in claim["status"]["allocation"]["devices"]["results"]} == {"h100-000"}
    assert len(claim["status"]["allocation"]["devices"]["results"]) == 3
    wait_for(lambda: gpus(gateway)["free"] == 1, "what it holds is in use")

    again = run.submit(job("again", gpu=asked, seconds=1, constraints=THERE))
    beside = run.submit(job("beside", gpu={"count": 1}, seconds=1, constraints=THERE))
    run.wait_until_all_ended()
    run.wait_until_settled()
    told = run.told()
    assert {told[job_id]["state"] for job_id in (long, again, beside)} == {"succeeded"}
    assert {shown["attempts"][0]["placement"]["flavor"] for shown in told.values()} == {"h100-80gb"}
    report = gateway.get("/usage", group_by="job", **{"from": "2026-01-01", "to": "2030-01-01"})
    used = {row["job"]: row["gpu_milliseconds"] for row in report["items"]}
    assert used[long] >= 3 * 6000
    assert used[again] >= 3 * 1000
    assert 1000 <= used[beside] < used[again]
    wait_for(lambda: found(plane, "resourceclaims") == [], "the claims go with their pods")
    wait_for(lambda: gpus(gateway)["free"] == 4, "everything is free again")
    # one for three GPUs and one for one, however many jobs ask
    assert len(found(plane, "resourceclaimtemplates")) == 2
