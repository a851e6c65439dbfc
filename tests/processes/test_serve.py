import json
import subprocess
import sys

import httpx
import pytest

from config.home import is_ours, take_settings_of_home
from devtools.serve import PROJECT
from foundation.bell import PATIENCE_SECONDS
from tests.processes.conftest import clean_environment, wait_for

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]


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
