import json
import signal
import stat
import subprocess
import sys
from functools import partial

import httpx
import psutil
import pytest

from config.home import is_ours, take_settings_of_home
from devtools.serve import PROJECT
from foundation.bell import PATIENCE_SECONDS
from tests.processes.conftest import ROLES, clean_environment, wait_for

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


def test_management_commands_find_the_settings_of_the_home_that_is_served(keeper):
    """In another shell, where nothing is set."""
    served = keeper.running()
    bare = {"PATH": "/usr/bin:/bin", "SWITCHYARD_HOME": str(served.home)}
    command = [sys.executable, "manage.py", "bootstrap", "--organisation", "acme", "--admin", "you@acme.example"]
    done = subprocess.run(command, cwd=PROJECT, env=bare, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    told = httpx.get(f"{served.url}/api/v1/me", headers={"Authorization": f"Bearer {answer['token']}"})
    assert told.json()["user"]["email"] == "you@acme.example"
    assert answer["link"].startswith(f"{served.url}/sign-in/link/#")


def test_the_settings_of_a_home_are_ours_alone_and_never_mix_with_anothers(keeper):
    served = keeper.running()
    kept = json.loads((served.home / "environment.json").read_text())
    assert all(is_ours(name) for name in kept)
    elsewhere = {"DATABASE_URL": "postgresql://a@elsewhere/b", "SWITCHYARD_HOME": str(served.home)}
    take_settings_of_home(elsewhere, PROJECT)
    assert set(elsewhere) == {"DATABASE_URL", "SWITCHYARD_HOME"}
    own_port = {"SWITCHYARD_HOME": str(served.home), "SWITCHYARD_PORT": "1"}
    take_settings_of_home(own_port, PROJECT)
    assert (own_port["SWITCHYARD_PORT"], own_port["DATABASE_URL"]) == ("1", kept["DATABASE_URL"])


def test_a_settings_file_that_others_may_write_is_left_alone(tmp_path):
    file = tmp_path / "environment.json"
    file.write_text('{"DATABASE_URL": "postgresql://thief@elsewhere/x"}')
    file.chmod(0o666)
    environment = {"SWITCHYARD_HOME": str(tmp_path)}
    take_settings_of_home(environment, PROJECT)
    assert "DATABASE_URL" not in environment


def test_a_second_gateway_on_the_same_home_or_port_is_refused_with_the_way_out(keeper, tmp_path):
    served = keeper.running()

    def refused(home, port):
        done = subprocess.run(
            [sys.executable, "-m", "devtools.serve"],
            cwd=PROJECT, env=clean_environment(home, port), capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 1, done
        return done.stderr

    assert f"in use by process {served.process.pid}" in refused(served.home, served.port)
    assert "set SWITCHYARD_PORT" in refused(tmp_path, served.port)
    assert served.is_ready()


def test_routines_go_on_without_redis_and_after_both_servers_were_killed(keeper):
    served = keeper.running()
    recent = "SELECT count(*) FROM foundation_routine WHERE name IN ('cycle', 'dispatch', 'settle', 'sweep')"

    def runs_go_on(what):
        since = wait_for(lambda: served.ask("SELECT clock_timestamp()"), "the database answers")[0][0].isoformat()
        wait_for(lambda: served.ask(f"{recent} AND started_at > '{since}'") == [(4,)], what)

    runs_go_on("routines run")

    valkey = served.named("valkey-server")
    valkey.suspend()
    runs_go_on("routines run while Redis hangs")
    valkey.resume()
    runs_go_on("routines run when Redis answers again")

    served.named("valkey-server").kill()
    runs_go_on("routines run after Redis was killed")
    wait_for(lambda: "Valkey ended" in served.text(), "the supervisor notices")

    served.named("postgres").kill()
    wait_for(lambda: "PostgreSQL ended" in served.text(), "the supervisor notices")
    runs_go_on("routines run after PostgreSQL was killed")
    wait_for(served.is_ready, "ready again")

    def answered_by_a_worker():
        """Rung by hand, the cycle runs well before the bell's patience ends, after which it would run it by itself."""
        rung_at = served.ask("INSERT INTO foundation_outboxmessage (topic) VALUES ('cycle') RETURNING created_at")
        if not rung_at:
            return False
        since = rung_at[0][0].isoformat()
        one = f"SELECT started_at - '{since}' FROM foundation_routine WHERE name = 'cycle' AND started_at > '{since}'"
        return wait_for(lambda: served.ask(one), "the cycle runs")[0][0].total_seconds() < PATIENCE_SECONDS / 2

    wait_for(answered_by_a_worker, "workers take messages again")


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
