"""Clusters that hang, die and return, and replies that are lost: held, never rerun."""

import time

import pytest

from devtools.localfleet import ControlPlane
from devtools.trial import Gateway
from tests.faults.test_processes_die import submit_some
from tests.journeys.workload import Run, job, wait_for

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(600)]


def state_of(gateway: Gateway, name: str) -> str:
    return str(next(c for c in gateway.items("/clusters") if c["name"] == name)["state"])


def attempts_on(gateway: Gateway, job_id: str) -> list[tuple[str, str]]:
    return [(a["cluster"], a["state"]) for a in gateway.items(f"/jobs/{job_id}/attempts")]


@pytest.mark.long
def test_a_hanging_api_server_makes_its_jobs_unknown_and_its_return_tells_the_truth(
    run: Run, gateway: Gateway, planes: list[ControlPlane]
):
    west = next(plane for plane in planes if plane.name == "west")
    long_one = run.submit(job("held", seconds=15, constraints={"clusters": ["west"]}))
    wait_for(lambda: gateway.get(f"/jobs/{long_one}")["state"] == "running", "the job runs on west")
    west.pause("kube-apiserver")
    try:
        wait_for(lambda: attempts_on(gateway, long_one) == [("west", "unknown")], "its attempt becomes unknown")
        assert state_of(gateway, "west") == "unreachable"
        submit_some(run)
        wait_for(lambda: sum(s == "succeeded" for s in run.states().values()) >= 10, "the others finish meanwhile")
        assert attempts_on(gateway, long_one) == [("west", "unknown")]
    finally:
        west.resume("kube-apiserver")
    wait_for(lambda: state_of(gateway, "west") == "ready", "west is ready again")


def test_an_api_server_is_killed_with_jobs_on_their_way(run: Run, gateway: Gateway, planes: list[ControlPlane]):
    east = next(plane for plane in planes if plane.name == "east")
    submit_some(run)
    wait_for(lambda: any(s != "queued" for s in run.states().values()), "something was placed")
    east.kill("kube-apiserver")
    submit_some(run, 6)
    time.sleep(2)
    east.restart("kube-apiserver")
    wait_for(lambda: state_of(gateway, "east") == "ready", "east is ready again")
