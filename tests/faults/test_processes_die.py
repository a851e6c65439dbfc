"""`kill -9` of every process, at every step that matters, with jobs on their way: none lost, none run twice."""

import itertools
import signal
from pathlib import Path

import pytest

from devtools.trial import Gateway
from tests.faults.databases import Databases
from tests.journeys.workload import Run, job, wait_for

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(600)]
STEPS = ["claimed", "created", "starting", "released"]
OFTEN = {"created", "released"}
"""Tried by `make test` too."""
_batches = itertools.count()


def submit_some(run: Run, count: int = 12) -> None:
    """A few short jobs of different shapes, a gang among them."""
    batch = next(_batches)
    for number in range(count - 1):
        gpu = {"count": 1} if number % 2 else None
        run.submit(job(f"fault-{batch}-{number}", gpu=gpu, seconds=1 + number % 3), f"{batch}-{number}")
    run.submit(
        job(f"fault-{batch}-gang", count=4, gpu={"count": 8, "models": ["H100-80GB"]}, seconds=2), f"{batch}-gang"
    )


@pytest.mark.parametrize(
    "step", [step if step in OFTEN else pytest.param(step, marks=pytest.mark.long) for step in STEPS]
)
def test_the_worker_dies_between_two_dispatch_steps(run: Run, flags: Path, step: str):
    (flags / step).touch()
    submit_some(run)
    wait_for(lambda: not (flags / step).exists(), f"a process dies at {step}")


@pytest.mark.parametrize(
    "role", ["worker", *(pytest.param(role, marks=pytest.mark.long) for role in ("observer", "web", "beat"))]
)
def test_a_process_is_killed_with_jobs_on_their_way(run: Run, gateway: Gateway, role: str):
    submit_some(run, 6)
    before = gateway.processes(role)[0].pid
    gateway.kill(role)
    submit_some(run, 6)
    wait_for(lambda: any(p.pid != before for p in gateway.processes(role)[:1]), f"{role} comes back")


def test_every_process_is_killed_at_once(run: Run, gateway: Gateway):
    submit_some(run)
    for role in ("worker", "observer", "beat", "web"):
        gateway.kill(role)


def test_the_broker_is_flushed_and_then_killed(run: Run, gateway: Gateway):
    submit_some(run, 6)
    gateway.flush_broker()
    submit_some(run, 6)
    gateway.kill("valkey-server")


def test_everything_finishes_while_the_broker_is_gone(run: Run, gateway: Gateway):
    broker = gateway.processes("valkey-server")[0]
    broker.send_signal(signal.SIGSTOP)
    try:
        submit_some(run)
        run.wait_until_all_ended()
    finally:
        broker.send_signal(signal.SIGCONT)


def test_the_database_is_killed_and_comes_back(run: Run, databases: Databases):
    submit_some(run, 6)
    databases.primary.kill()
    databases.primary.start()
    submit_some(run, 6)
