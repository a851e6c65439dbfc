"""The end of the gateway that `test_serve.py` and `test_strangers.py` used: its supervisor is killed, then every process, then all end."""

import json
import signal
import stat
from functools import partial

import psutil
import pytest

from tests.processes.conftest import ROLES, wait_for

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]


def test_a_killed_supervisor_leaves_no_process_and_its_data_is_there_again(keeper):
    served = keeper.running()
    served.ask("CREATE TABLE kept AS SELECT 42 AS answer")
    secrets = {file.name: file.read_text() for file in (served.home / "secrets").iterdir()}
    settings = served.home / "environment.json"
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in (served.home / "secrets").iterdir())
    address = json.loads(settings.read_text())["DATABASE_URL"]
    family = served.family()
    served.process.send_signal(signal.SIGKILL)
    served.process.wait()
    _, alive = psutil.wait_procs(family, timeout=40)
    assert not alive, alive

    again = keeper.running()
    assert again.ask("SELECT answer FROM kept") == [(42,)]
    assert {file.name: file.read_text() for file in (again.home / "secrets").iterdir()} == secrets
    assert json.loads(settings.read_text())["DATABASE_URL"] == address


def test_every_process_comes_back_when_killed_and_all_end_on_sigterm(keeper):
    served = keeper.running()
    assert f"switchyard is ready at {served.url}" in served.text()
    for role in ROLES:
        first = wait_for(partial(served.of, role), f"{role} runs")[0]
        everyone = served.of(role)
        first.kill()

        def successors(role=role, first=first):
            return [p for p in served.of(role) if p.pid != first.pid and p.ppid() == served.process.pid]

        wait_for(successors, f"{role} comes back")
        # What a killed process had forked is gone too: its successor is not disturbed.
        _, alive = psutil.wait_procs(everyone, timeout=10)
        assert not alive, alive
    wait_for(served.is_ready, "ready again")
    family = served.family()
    assert len(family) > len(ROLES) + 2
    served.process.terminate()
    assert served.process.wait(60) == 0, served.text()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive, alive
