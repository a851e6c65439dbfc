"""A proxy lies about a create, a release or a delete, while nothing else happens, a cancel arrives, or the worker dies.

Every step, every reply and every interruption is tried; what the API servers' audit logs say is what counts.
"""

import itertools
import time
from typing import Any

import pytest

from tests.faults.proxy import STATUSES, Lie, Mischief
from tests.faults.stand import FaultRun, Stand
from tests.journeys.workload import job, wait_for

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(600)]
TOLD_SECONDS = 120
LONG_SECONDS = 600
"""Longer than any test waits: what runs so long ends because it is stopped."""
_rounds = itertools.count()


def lies_about(step: str) -> list[Lie]:
    """Every reply, to a request that the server got and to one that it never did."""
    statuses = [Lie(step, status, applied) for status in STATUSES for applied in (True, False)]
    ways = [Lie(step, reply, applied) for reply in ("lost", "late") for applied in (True, False)]
    return [*statuses, *ways, Lie(step, "repeated")]


def submit_each(run: FaultRun, mischief: Mischief, lies: list[Lie], *ends: str, seconds: int) -> dict[str, str]:
    """One job for each lie: its id by the lie's tag."""
    number = next(_rounds)
    found = {}
    for lie in lies:
        tag = f"{lie}-{number}"
        mischief.lies[tag] = lie
        spec: dict[str, Any] = job(tag, gpu={"count": 1}, seconds=seconds)
        spec["pod_sets"][0]["image"] = f"registry.example/job:{tag}"
        found[tag] = run.submit_that_may_end(spec, *ends)
    return found


def wait_until_told(mischief: Mischief, tags: dict[str, str]) -> None:
    wait_for(lambda: tags.keys() <= mischief.told.keys(), f"every lie is told; not yet {tags.keys()}", TOLD_SECONDS)


def cancel(stand: Stand, job_id: str) -> None:
    answer = stand.gateway.request("POST", f"/jobs/{job_id}/cancel", json={})
    assert answer.status_code < 500, answer.text


@pytest.mark.parametrize("step", [pytest.param("create", marks=pytest.mark.long), "release"])
def test_a_lie_costs_no_job_and_runs_none_twice(stand: Stand, run: FaultRun, mischief: Mischief, step: str):
    tags = submit_each(run, mischief, lies_about(step), "succeeded", seconds=2)
    wait_until_told(mischief, tags)


@pytest.mark.long
@pytest.mark.parametrize("step", ["create", "release"])
def test_a_cancel_during_a_lie_wins_and_leaves_nothing_running(
    stand: Stand, run: FaultRun, mischief: Mischief, step: str
):
    tags = submit_each(run, mischief, lies_about(step), "cancelled", seconds=LONG_SECONDS)
    left = dict(tags)
    deadline = time.monotonic() + TOLD_SECONDS
    while left:
        assert time.monotonic() < deadline, left
        for tag in left.keys() & mischief.told.keys():
            cancel(stand, left.pop(tag))
        time.sleep(0.01)


@pytest.mark.long
@pytest.mark.parametrize("step", ["create", "release"])
def test_a_worker_that_dies_during_a_lie_costs_no_job(stand: Stand, run: FaultRun, mischief: Mischief, step: str):
    tags = submit_each(run, mischief, lies_about(step), "succeeded", seconds=2)
    wait_for(lambda: tags.keys() & mischief.told.keys(), "the first lies are told", TOLD_SECONDS)
    stand.kill_all("worker")
    wait_until_told(mischief, tags)
    stand.kill_all("worker")


@pytest.mark.parametrize(
    "interruption", ["none", *(pytest.param(one, marks=pytest.mark.long) for one in ("another cancel", "kill -9"))]
)
def test_a_lie_about_a_delete_does_not_keep_a_cancelled_job_running(
    stand: Stand, run: FaultRun, mischief: Mischief, interruption: str
):
    tags = submit_each(run, mischief, lies_about("delete"), "cancelled", seconds=LONG_SECONDS)
    wait_for(lambda: set(run.states().values()) == {"running"}, "all run")
    for job_id in tags.values():
        cancel(stand, job_id)
    wait_for(lambda: tags.keys() & mischief.told.keys(), "the first lies are told", TOLD_SECONDS)
    if interruption == "kill -9":
        stand.kill_all("worker")
    wait_until_told(mischief, tags)
    if interruption == "another cancel":
        for job_id in tags.values():
            cancel(stand, job_id)
    if interruption == "kill -9":
        stand.kill_all("worker")
