"""PostgreSQL as a pair: a primary, and a streaming replica that has every commit before its client hears of it.

Clients reach both through relays, so that either can be cut off. Whichever takes writes is found by libpq itself.
"""

import dataclasses
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psycopg

from devtools import prepared
from devtools.embedded import Service, owner_url, postgres, runtime_url, stop
from devtools.embedded.postgresql import programs
from devtools.embedded.running import as_user, make_home
from tests.faults.relay import Relay

SETTINGS = ("synchronous_commit=on", "wal_keep_size=256MB", "wal_sender_timeout=5s", "wal_receiver_timeout=5s")
REPLICA_SECONDS = 60


@dataclass(slots=True)
class Node:
    """One of the two servers, at an address that it keeps."""

    home: Path
    service: Service
    process: subprocess.Popen[bytes]
    relay: Relay

    @property
    def data(self) -> Path:
        """Its data folder."""
        return (self.home / "postgres").resolve()

    @property
    def address(self) -> str:
        """For the database's owner, past the relay."""
        return self.service.url

    def kill(self) -> None:
        """Ends all of it at once."""
        self.process.kill()
        self.process.wait()

    def start(self) -> None:
        """Starts it again, with the same data at the same address. Call from the main thread."""
        stop(self.process, first=signal.SIGKILL)
        self.process = _service(self.home).start()


class Databases:
    """The pair, migrated. `primary` and `replica` swap when the replica is promoted."""

    def __init__(self, root: Path) -> None:
        self._root = root
        prepared.fill(root / "first")
        self.primary = _node(root / "first")
        self.replica: Node | None = None
        other = root / "second"
        make_home(other)
        shutil.copy(root / "first" / "postgres.password", other / "postgres.password")
        self._others_relay = Relay(0)
        self.add_replica()

    @property
    def owner_url(self) -> str:
        """Both hosts, as the owner."""
        return owner_url(self.primary.home, self._hosts())

    @property
    def runtime_url(self) -> str:
        """Both hosts, as the role of the gateway's processes."""
        return runtime_url(self.primary.home, self._hosts())

    @property
    def relays(self) -> tuple[Relay, Relay]:
        """In front of the primary and of the replica."""
        return self.primary.relay, self._others_relay

    def _hosts(self) -> str:
        hosts = ",".join(f"127.0.0.1:{relay.port}" for relay in self.relays)
        return f"postgresql://@{hosts}/switchyard"

    def add_replica(self) -> None:
        """A fresh copy of the primary follows it from now on; no commit is told before the copy has it."""
        home = self._root / ("second" if self.primary.home.name == "first" else "first")
        self._copy(self.primary, home, "-R")
        self.replica = _node(home, self._others_relay)
        deadline = time.monotonic() + REPLICA_SECONDS
        while not self.ask("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"):
            assert time.monotonic() < deadline, "the replica does not follow"
            time.sleep(0.1)
        self.set("synchronous_standby_names", "*")

    def promote(self) -> None:
        """The primary dies and its replica takes over, for good: the old one does not come back."""
        assert self.replica is not None, "there is no replica"
        self.primary.kill()
        self._others_relay = self.primary.relay
        self.primary, self.replica = self.replica, None
        self.ask("SELECT pg_promote(wait => true)")
        self.set("synchronous_standby_names", "")

    def stop_following(self) -> None:
        """The replica gets no commit from now on, and clients are told of theirs without it."""
        assert self.replica is not None, "there is no replica"
        self.set("synchronous_standby_names", "")
        with psycopg.connect(self.replica.address, autocommit=True, connect_timeout=5) as replica:
            replica.execute("ALTER SYSTEM SET primary_conninfo = ''")
            replica.execute("SELECT pg_reload_conf()")
        deadline = time.monotonic() + REPLICA_SECONDS
        while self.ask("SELECT 1 FROM pg_stat_replication"):
            assert time.monotonic() < deadline, "the replica still follows"
            time.sleep(0.1)

    def snapshot(self) -> Path:
        """A backup of the primary as it is now."""
        folder = self._root / "backup"
        self._copy(self.primary, folder)
        return folder

    def restore(self, backup: Path, *, recovers: bool = False) -> None:
        """The primary becomes what it was at the backup, and so does its replica. All connections end. `recovers`: as recovery to
        a point in time, which begins a timeline.
        """
        assert self.replica is not None, "there is no replica"
        stop(self.replica.process, first=signal.SIGKILL)
        self.primary.kill()
        shutil.rmtree(self.primary.data)
        _, user = programs()
        self._run(["cp", "-a", str((backup / "postgres").resolve()), str(self.primary.data)], None)
        if user is not None:
            shutil.chown(self.primary.data, user)
        auto = self.primary.data / "postgresql.auto.conf"
        kept = [line for line in auto.read_text().splitlines(keepends=True) if "synchronous_standby" not in line]
        if recovers:
            kept += [
                "restore_command = 'false'\n",
                "recovery_target = 'immediate'\n",
                "recovery_target_action = 'promote'\n",
            ]
            signal_file = self.primary.data / "recovery.signal"
            signal_file.touch()
            if user is not None:
                shutil.chown(signal_file, user)
        auto.write_text("".join(kept))
        self.primary.start()
        deadline = time.monotonic() + REPLICA_SECONDS
        while self.ask("SELECT pg_is_in_recovery()") != [(False,)]:
            assert time.monotonic() < deadline, "recovery does not end"
            time.sleep(0.1)
        for setting in ("restore_command", "recovery_target", "recovery_target_action"):
            self.ask(f"ALTER SYSTEM RESET {setting}")  # a replica would inherit them, and promote itself
        self.add_replica()

    def ask(self, statement: str) -> list[tuple]:
        """What the primary answers its owner."""
        writes = "-c default_transaction_read_only=off"
        with psycopg.connect(self.primary.address, autocommit=True, connect_timeout=5, options=writes) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def set(self, setting: str, value: str) -> None:
        """Changes a setting of the running primary."""
        self.ask(f"ALTER SYSTEM SET {setting} = '{value}'")
        self.ask("SELECT pg_reload_conf()")

    def close(self) -> None:
        """Ends both, and their relays."""
        for node in (self.replica, self.primary):
            if node is not None:
                node.process.send_signal(signal.SIGCONT)
                stop(node.process, first=signal.SIGKILL)
        for relay in self.relays:
            relay.close()

    def _copy(self, source: Node, home: Path, *options: str) -> None:
        """A base backup of a running server, as the data folder of `home`."""
        binaries, user = programs()
        make_home(home)
        shutil.copy(source.home / "postgres.password", home / "postgres.password")
        data = home / "postgres"
        shutil.rmtree(data.resolve(), ignore_errors=True)
        data.mkdir(mode=0o700)
        if user is not None:
            shutil.chown(data, user)
        argv = [str(binaries / "pg_basebackup"), "-d", source.address, "-D", str(data), "-c", "fast", "-X", "stream"]
        self._run([*argv, *options], user)

    def _run(self, argv: list[str], user: str | None) -> None:
        done = subprocess.run([*as_user(user), *argv], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, f"{argv[0]}: {done.stderr}"


def _node(home: Path, relay: Relay | None = None) -> Node:
    service = _service(home)
    process = service.start()
    if relay is None:
        relay = Relay(service.port)
    relay.upstream_port = service.port
    return Node(home, service, process, relay)


def _service(home: Path) -> Service:
    plain = postgres(home, durable=False)
    further = [word for setting in SETTINGS for word in ("-c", setting)]
    return dataclasses.replace(plain, argv=[*plain.argv, *further])
