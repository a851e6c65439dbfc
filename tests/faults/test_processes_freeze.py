"""Processes stand still for longer than their claims last, and then go on as if nothing had been: their writes come to nothing."""

import signal
import time
from contextlib import suppress

import psutil
import pytest

from federation.locks import CLAIM_SECONDS
from tests.faults.stand import FaultRun, Stand
from tests.faults.test_processes_die import submit_some

pytestmark = [pytest.mark.kube, pytest.mark.processes, pytest.mark.timeout(600)]
FROZEN_SECONDS = CLAIM_SECONDS + 10
"""Others have what the frozen one had claimed, and go on with it."""


@pytest.mark.parametrize(
    "role", ["worker", *(pytest.param(role, marks=pytest.mark.long) for role in ("observer", "beat"))]
)
def test_a_frozen_process_does_no_harm_when_it_goes_on(stand: Stand, run: FaultRun, role: str):
    submit_some(run)
    time.sleep(0.3)
    frozen = stand.gateway.processes(role)
    for process in frozen:
        process.send_signal(signal.SIGSTOP)
    try:
        submit_some(run, 6)
        time.sleep(FROZEN_SECONDS)
    finally:
        for process in frozen:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGCONT)
    submit_some(run, 6)
