"""Clocks that are wrong by hours: of one process, of another, and while it runs."""

import json
from pathlib import Path

import pytest

from tests.faults.stand import FaultRun, Stand
from tests.faults.test_processes_die import submit_some
from tests.journeys.workload import job, wait_for

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(600)]
HOURS = 3600
MOST_MILLISECONDS = 2000


@pytest.mark.parametrize("hours", [2, -2])
@pytest.mark.parametrize("role", ["worker", "observer", "beat", "gunicorn"])
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
