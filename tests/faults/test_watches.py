"""Watches that go wrong while jobs run: the observer lists again, and no change is missed."""

import pytest

from tests.faults.stand import FaultRun, Stand
from tests.faults.test_processes_die import submit_some

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    "way", ["lost", *(pytest.param(way, marks=pytest.mark.long) for way in ("gone", "junk", "stall"))]
)
def test_a_watch_that_goes_wrong_costs_no_job(stand: Stand, run: FaultRun, way: str):
    proxies = stand.proxies.values()
    for proxy in proxies:
        proxy.spoil_watches(way)
    try:
        submit_some(run)
        run.wait_until_all_ended()
    finally:
        spoiled = [proxy.heal_watches() for proxy in proxies]
    assert all(spoiled)
    submit_some(run, 4)
