"""The network between gateway and clusters is cut, one way and both: packets vanish, and nobody says so."""

import itertools
import random
import time

import pytest

from tests.faults.relay import Way
from tests.faults.stand import FaultRun, Stand
from tests.faults.test_clusters_fail import attempts_on
from tests.faults.test_processes_die import submit_some
from tests.journeys.workload import job, wait_for

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(600)]
WAYS: tuple[Way, ...] = ("requests", "answers", "both")
FLAPPING_SECONDS = 30


@pytest.mark.parametrize("way", ["both", *(pytest.param(way, marks=pytest.mark.long) for way in WAYS if way != "both")])
def test_a_cluster_that_is_cut_off_is_held_and_believed_when_it_is_back(stand: Stand, run: FaultRun, way: Way):
    held = run.submit(job(f"held-{way}", seconds=25, constraints={"clusters": ["west"]}))
    wait_for(lambda: stand.gateway.get(f"/jobs/{held}")["state"] == "running", "the job runs on west")
    stand.proxies["west"].cut(way)
    try:
        wait_for(lambda: attempts_on(stand.gateway, held) == [("west", "unknown")], "its attempt becomes unknown")
        assert stand.state_of("west") == "unreachable"
        submit_some(run)
        wait_for(lambda: sum(s == "succeeded" for s in run.states().values()) >= 10, "the others finish meanwhile")
        assert attempts_on(stand.gateway, held) == [("west", "unknown")]
    finally:
        stand.proxies["west"].heal()
    wait_for(lambda: stand.state_of("west") == "ready", "west is ready again")


@pytest.mark.long
def test_cuts_in_the_middle_of_a_dispatch_cost_nothing(stand: Stand, run: FaultRun):
    """What was being created or released is found again, whichever way its packets were lost."""
    for number, name in itertools.product(range(6), stand.proxies):
        run.submit(job(f"midway-{name}-{number}", seconds=2, constraints={"clusters": [name]}))
    wait_for(lambda: any(s != "queued" for s in run.states().values()), "the first was placed")
    for proxy, way in zip(stand.proxies.values(), WAYS, strict=True):
        proxy.cut(way)
    try:
        time.sleep(15)
    finally:
        for proxy in stand.proxies.values():
            proxy.heal()


@pytest.mark.long
def test_a_network_that_comes_and_goes_costs_nothing(stand: Stand, run: FaultRun):
    chance = random.Random(3)
    until = time.monotonic() + FLAPPING_SECONDS
    while time.monotonic() < until:
        submit_some(run, 4)
        proxy = stand.proxies[chance.choice(sorted(stand.proxies))]
        proxy.cut(chance.choice(WAYS))
        time.sleep(chance.uniform(0.2, 4))
        proxy.heal()
        time.sleep(chance.uniform(0, 1))
