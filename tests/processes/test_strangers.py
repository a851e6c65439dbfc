"""Who is not the gateway: another user of the machine, whoever can write to Redis, whoever took over a process."""

import json
import os
import pickle
import pwd
import stat
import subprocess
import sys

import psutil
import psycopg
import pytest
import redis

from devtools.serve import PROJECT
from foundation.bell import PATIENCE_SECONDS
from tests.processes.conftest import wait_for
from tests.rooms.foundation.test_rings import Runs, hostile, message

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]
QUEUES = ("cycle", "dispatch", "observe", "bill", "notify")


def environment(served):
    return json.loads((served.home / "environment.json").read_text())


def secrets_of(served):
    """Every secret of the home by its name, as the processes know them."""
    given = environment(served)
    found = {name: given[name] for name in ("SWITCHYARD_SECRET_KEY", "SWITCHYARD_KEY_RING")}
    found |= {file.name: file.read_text().strip() for file in served.home.glob("*.password")}
    assert {"postgres.password", "postgres.runtime.password", "valkey.password"} <= set(found)
    return found


def as_another(*words):
    """What a command prints that another user of this machine runs, and whether it succeeded. PostgreSQL itself may run as
    `nobody`.
    """
    another = pwd.getpwnam("daemon")
    drop = ["setpriv", "--reuid", str(another.pw_uid), "--regid", str(another.pw_gid), "--clear-groups"]
    done = subprocess.run(
        [*drop, *words], capture_output=True, text=True, errors="replace", check=False, cwd="/", timeout=60
    )
    return done.returncode == 0, done.stdout + done.stderr


def test_another_user_of_the_machine_reads_no_secret_from_files_or_processes(keeper):
    served = keeper.running()
    secrets = secrets_of(served)
    assert os.geteuid() == 0, "another user can be tried only as root: run the tests as root, as .ci/run does"
    can_look, _ = as_another("true")
    assert can_look
    files = [str(file) for file in served.home.rglob("*") if file.is_file() and not file.is_symlink()]
    assert files
    _, said = as_another("cat", *files)
    found = [name for name, secret in secrets.items() if secret in said]
    assert not found, [file for file in files if any(secrets[name] in as_another("cat", file)[1] for name in found)]
    for name in ("environment.json", "valkey.conf", "postgres.password", "web.log", "migrate.log", "secrets/key_ring"):
        assert not as_another("cat", str(served.home / name))[0], name
        assert not as_another("sh", "-c", f"echo x >> {served.home / name}")[0], name
    for folder in ("secrets", "valkey", "postgres"):
        assert not as_another("ls", str(served.home / folder))[0], folder
    for process in served.family():
        assert not as_another("cat", f"/proc/{process.pid}/environ")[0]
        assert not as_another("cat", f"/proc/{process.pid}/mem")[0]
    _, listing = as_another("ps", "axeww", "-o", "args")
    assert "gunicorn" in listing or "switchyard web" in listing
    assert not any(secret in listing for secret in secrets.values())


def test_no_command_line_holds_a_secret_and_no_log_or_socket_is_open(keeper):
    served = keeper.running()
    secrets = secrets_of(served)
    for process in [psutil.Process(served.process.pid), *served.family()]:
        words = " ".join(process.cmdline())
        assert not any(secret in words for secret in secrets.values()), process
        for listening in process.net_connections():
            if listening.status == psutil.CONN_LISTEN:
                assert listening.laddr.ip == "127.0.0.1", (process, listening)
    for file in served.home.glob("*.log"):
        if file.name != "output.log":  # the test's own
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        assert not any(secret in file.read_text(errors="replace") for secret in secrets.values()), file


def test_the_servers_answer_nobody_without_a_password(keeper):
    served = keeper.running()
    given = environment(served)
    broker = given["REDIS_URL"].rpartition("@")[2]
    for address in (f"redis://{broker}", f"redis://:x@{broker}", f"redis://switchyard:x@{broker}"):
        with redis.Redis.from_url(address) as client, pytest.raises(redis.AuthenticationError):
            client.ping()
    database = given["DATABASE_URL"].rpartition("@")[2]
    for who in ("switchyard", "switchyard:x", "switchyard_runtime:x", "postgres", "nobody"):
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(f"postgresql://{who}@{database}", connect_timeout=5)


def test_the_processes_connect_as_a_role_that_can_switch_nothing_off(keeper):
    served = keeper.running()
    given = environment(served)
    assert "SWITCHYARD_OWNER_DATABASE_URL" not in given
    owner = (served.home / "postgres.password").read_text()
    for process in served.family():
        if process.username() == psutil.Process().username():
            assert owner not in " ".join(process.environ().values())
    with psycopg.connect(given["DATABASE_URL"], autocommit=True) as session:
        for attack in (
            "ALTER TABLE tenancy_auditentry DISABLE TRIGGER ALL", "DROP TABLE tenancy_auditlink",
            "TRUNCATE tenancy_auditentry CASCADE", "UPDATE tenancy_auditentry SET action = 'x'",
            "DELETE FROM billing_usagesegment", "CREATE TABLE x (id int)", "CREATE TEMP TABLE x (id int)",
            "COPY (SELECT 1) TO PROGRAM 'id'", "SELECT pg_read_file('PG_VERSION')", "SELECT * FROM pg_authid",
            "SET session_replication_role = replica", "SET ROLE switchyard", "CREATE EXTENSION vector",
        ):  # fmt: skip
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                session.execute(attack)
    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--database", "default"],
        cwd=PROJECT, env=given, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "no issues" in done.stdout + done.stderr


def plant(stranger, folder):
    """Everything that the gateway reads from Redis, and what it read before, holds something hostile."""
    poison = [pickle.dumps(Runs(folder / "ran")), *hostile().values()]
    forged = message(body=[["x"], {"cluster": "all"}, {"callbacks": [{"task": "os.system", "args": ["true"]}]}])
    for queue in QUEUES:
        stranger.lpush(
            f"swy-broker-{queue}", *poison, json.dumps(forged | {"headers": forged["headers"] | {"eta": "x"}})
        )
        stranger.set(f"swy-broker-{queue}\x06\x163", "a queue of another kind")
        stranger.sadd(f"swy-broker-_kombu.binding.{queue}", pickle.dumps(Runs(folder / "ran")))
    for name in (
        "unacked",
        "unacked_index",
        "unacked_mutex",
        "_kombu.binding.celery.pidbox",
        "_kombu.binding.celeryev",
    ):
        stranger.set(f"swy-broker-{name}", pickle.dumps(Runs(folder / "ran")))
    for key in list(stranger.scan_iter(match="swy:*")):
        stranger.set(key, pickle.dumps(Runs(folder / "ran")))
    shutdown = {"method": "shutdown", "arguments": {}, "destination": None}
    for channel in ("/0.celery.pidbox", "swy-broker-/0.celery.pidbox", "swy-broker-celery.pidbox"):
        stranger.lpush(f"swy-broker-{channel}", json.dumps({"body": shutdown, "content-type": "application/json"}))


def test_whoever_writes_everything_to_redis_runs_nothing_and_stops_nothing(keeper, tmp_path):
    served = keeper.running()
    wait_for(served.is_ready, "ready")
    before = {role: served.of(role)[0].pid for role in ("web", "worker", "beat", "observer")}
    jobs = served.ask("SELECT count(*), max(created_at) FROM federation_job")
    with redis.Redis.from_url(environment(served)["REDIS_URL"]) as stranger:
        for _ in range(3):
            plant(stranger, tmp_path)
            wait_for(
                lambda: all(stranger.type(f"swy-broker-{queue}") == b"none" for queue in QUEUES),
                "the queues are emptied",
            )
    assert not (tmp_path / "ran").exists()
    assert served.is_ready()
    assert {role: served.of(role)[0].pid for role in before} == before
    assert served.ask("SELECT count(*), max(created_at) FROM federation_job") == jobs
    log = (served.home / "worker.log").read_text(errors="replace")
    assert "security: a message in the queue 'cycle' names no routine of the gateway" in log
    assert "Traceback" not in log.partition("security: ")[2]

    def answered_by_a_worker():
        """Rung by hand, the cycle runs well before the bell's patience ends, after which it would run it by itself."""
        ((since,),) = served.ask("INSERT INTO foundation_outboxmessage (topic) VALUES ('cycle') RETURNING created_at")
        one = f"SELECT started_at - '{since}' FROM foundation_routine WHERE name = 'cycle' AND started_at > '{since}'"
        return wait_for(lambda: served.ask(one), "the cycle runs")[0][0].total_seconds() < PATIENCE_SECONDS / 2

    wait_for(answered_by_a_worker, "workers take rings again")


def test_a_worker_shows_that_its_loop_turns_without_being_asked(keeper):
    served = keeper.running()
    file = served.home / "worker.alive"
    first = wait_for(lambda: file.exists() and file.stat().st_mtime, "the file is touched")
    wait_for(lambda: file.stat().st_mtime > first, "it is touched again")


def test_a_process_listing_shows_no_password_while_the_database_is_made(tmp_path):
    """`initdb` and its successors read the password from a file that is theirs alone."""
    words = [sys.executable, "-c", WATCH, str(tmp_path / "home")]
    watch = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False)
    assert watch.returncode == 0, watch.stderr
    assert watch.stdout.strip() == "seen nothing"


WATCH = """
import sys, threading
from pathlib import Path
import psutil
from devtools.embedded import postgres, stop, valkey
home = Path(sys.argv[1])
words, done = set(), threading.Event()
def look():
    while not done.is_set():
        for process in psutil.process_iter():
            try:
                words.update(process.cmdline())
            except psutil.Error:
                continue
thread = threading.Thread(target=look)
thread.start()
started = []
for service in (postgres(home), valkey(home)):
    started.append((service, service.start()))
for service, process in started:
    stop(process, first=service.stop_signal)
done.set()
thread.join()
secrets = [file.read_text().strip() for file in home.glob("*.password")]
assert len(secrets) == 2 and any("initdb" in word for word in words)
print("seen a secret" if any(secret in word for secret in secrets for word in words) else "seen nothing")
"""
