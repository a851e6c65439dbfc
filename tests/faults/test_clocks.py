"""Clocks that are wrong by hours: of one process, of another, and while it runs."""

import json
from pathlib import Path

import pytest

from devtools.oracle import read_witness
from tests.faults.stand import SETTLED_SECONDS, FaultRun, Stand
from tests.faults.test_processes_die import submit_some
from tests.journeys.workload import job, wait_for

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(600)]
HOURS = 3600
MOST_MILLISECONDS = 5000
"""What the end of a pod may be off that began before its cluster's clock went wrong."""


@pytest.mark.parametrize(
    ("role", "hours"),
    [
        ("worker", 2),
        *(
            pytest.param(role, hours, marks=pytest.mark.long)
            for role in ("worker", "observer", "beat", "gunicorn")
            for hours in (2, -2)
            if (role, hours) != ("worker", 2)
        ),
    ],
)
def test_a_process_with_a_wrong_clock_ends_nothing_and_bills_what_ran(
    stand: Stand, run: FaultRun, skews: Path, role: str, hours: int
):
    submit_some(run, 4)
    run.submit(job("through-the-change", seconds=12))
    wait_for(lambda: "running" in run.states().values(), "something runs")
    skews.write_text(json.dumps({role: hours * HOURS}))
    try:
        submit_some(run, 4)
        run.wait_until_all_ended()
    finally:
        skews.unlink()


@pytest.mark.parametrize("hours", [2, pytest.param(-2, marks=pytest.mark.long)])
def test_a_cluster_with_a_wrong_clock_ends_nothing_falsely_and_bills_how_long_its_pods_ran(stand: Stand, hours: int):
    """Its instants are moved before they are believed, so that a bill may be wrong by what a round trip takes, and little more."""
    run = FaultRun(stand.gateway)
    proxy = stand.proxies["east"]
    run.submit(job("through-the-skew", gpu={"count": 1}, seconds=25, constraints={"clusters": ["east"]}))
    wait_for(lambda: "running" in run.states().values(), "something runs")
    proxy.skew_seconds = hours * HOURS
    try:
        for number in range(4):
            run.submit(job(f"skewed-{number}", gpu={"count": 1}, seconds=10, constraints={"clusters": ["east"]}))
        run.wait_until_all_ended()
        run.wait_until_settled(SETTLED_SECONDS)
    finally:
        proxy.skew_seconds = 0
    witness = read_witness({plane.name: plane.layout.audit_log for plane in stand.planes})
    verdict = run.verdict(witness)
    assert (run.false_ends(), verdict.lost, verdict.ran_twice, verdict.misplaced) == ([], [], [], [])
    report = stand.gateway.get("/usage", group_by="job", **{"from": "2026-01-01", "to": "2030-01-01"})
    billed = {row["job"]: row["gpu_milliseconds"] for row in report["items"]}
    ran = {job_id: sum(pod.milliseconds for pod in witness.pods_of()[job_id]) for job_id in run.acked}
    assert {j: (billed.get(j, 0), ran[j]) for j in ran if abs(billed.get(j, 0) - ran[j]) > MOST_MILLISECONDS} == {}
