"""Starts servers and other programs as children that end with their parent, and manages their files in a home."""

import fcntl
import functools
import importlib.util
import json
import os
import pwd
import random
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from devtools import wheels

START_SECONDS = 60
LOWEST_PORT = 10_240
_claimed: set[int] = set()
"""The ports that this process was given."""


class Unavailable(Exception):
    """An embedded server cannot run; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Service:
    """A server that can be started, and restarted, at the same address with the same data."""

    name: str
    url: str = field(repr=False)
    port: int
    argv: Sequence[str]
    log: Path
    is_ready: Callable[[], bool]
    user: str | None = None
    stop_signal: signal.Signals = signal.SIGTERM

    def start(self) -> subprocess.Popen[bytes]:
        """The running process, once it responds."""
        process = spawn(self.argv, log=self.log, user=self.user)
        try:
            self._wait(process)
        except BaseException:
            stop(process, first=signal.SIGKILL)
            raise
        return process

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if process.poll() is not None:
                raise Unavailable(f"{self.name} ended while starting:\n{tail(self.log)}")
            if time.monotonic() > deadline:
                raise Unavailable(f"{self.name} did not answer within {START_SECONDS} s:\n{tail(self.log)}")
            time.sleep(0.05)


def free_port() -> int:
    """A TCP port that is free on loopback, and that no other caller gets while this process lives."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """TCP ports that are free on loopback, below the kernel's range for outgoing connections. No other caller, also in
    another process of this user, gets one of them while this process lives: between this call and the server's start
    may be a minute.

    A server that is killed and restarted keeps its port: no client's connection can have taken it meanwhile.
    """
    below = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    candidates = iter(random.sample(range(LOWEST_PORT, max(below, LOWEST_PORT + 4096)), k=4096))
    found: list[int] = []
    while len(found) < count:
        port = next(candidates)
        if claim_port(port) and is_free(port):
            found.append(port)
    return found


def claim_port(port: int) -> bool:
    """Whether this process has claimed the port now, which nothing else had: it locks the port's byte of a file. The kernel drops
    such locks when the process ends, and also when it closes any descriptor of the file, so that one stays open.
    """
    if port in _claimed:
        return False
    try:
        fcntl.lockf(_claims_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _claimed.add(port)
    return True


@functools.cache
def _claims_file() -> int:
    file = wheels.cache_root() / "ports"
    file.parent.mkdir(parents=True, exist_ok=True)
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def is_free(port: int) -> bool:
    """Whether the port can be bound on loopback (lingering connections of a former server do not count)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def spawn(
    argv: Sequence[str],
    *,
    log: Path,
    env: dict[str, str] | None = None,
    user: str | None = None,
    cwd: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a program that the kernel kills when the calling thread ends (call from the main thread)."""
    if shutil.which("setpriv") is None:
        raise Unavailable("setpriv is missing: install util-linux")
    # Only the user who started the program may read a log: the demo's contains a password.
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as sink:
        return subprocess.Popen(
            [*as_user(user), "--pdeathsig", "KILL", *argv],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env=env,
            cwd=cwd,
            # Its own group, so that Ctrl-C reaches only us; the same session, so that the kernel weighs it by its niceness.
            process_group=0,
        )


def as_user(user: str | None) -> list[str]:
    """The prefix of a command that is to run as this user."""
    if user is None:
        return ["setpriv"]
    record = pwd.getpwnam(user)
    return ["setpriv", "--reuid", str(record.pw_uid), "--regid", str(record.pw_gid), "--clear-groups"]


def stop(
    process: subprocess.Popen[bytes], *, first: signal.Signals = signal.SIGTERM, grace_seconds: float = 10
) -> None:
    """Asks the process to end, and kills it if it does not."""
    if process.poll() is not None:
        return
    process.send_signal(first)
    try:
        process.wait(grace_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def tail(log: Path, lines: int = 30) -> str:
    """The last lines of a log, for error messages."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else "(no log)"


def wheel(package: str) -> Path:
    """The folder of an installed package, found without running its code."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise Unavailable(f"{package} is not installed: run `make setup`, or set DATABASE_URL and REDIS_URL")
    return Path(found.origin).parent


def port_of(home: Path, name: str) -> int:
    """The port that this home's server had last time, if it is still free, so that addresses do not change."""
    file = home / "ports.json"
    ports: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
    if name not in ports or not is_free(ports[name]):
        ports[name] = free_port()
        file.write_text(json.dumps(ports))
    return ports[name]


def make_home(home: Path) -> None:
    """The folder, closed to other users when it is new; root's lets the servers' own users pass through, but not list
    it.
    """
    if not home.exists():
        home.mkdir(parents=True)
        home.chmod(0o711 if os.geteuid() == 0 else 0o700)


def kept_secret(file: Path, make: Callable[[], str] = lambda: secrets.token_urlsafe(24)) -> str:
    """The file's content; created on first use."""
    if not file.exists():
        write_private(file, make())
    return file.read_text(encoding="ascii").strip()


def write_private(file: Path, content: str) -> None:
    """Never partly written, never readable by others: losing the key ring would lose the credential of
    every cluster.
    """
    partial = file.with_name(f"{file.name}.partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    partial.rename(file)
