"""Every process of the gateway in the foreground: `python -m devtools.serve`, which `make serve` and `make demo` run.

Starts embedded PostgreSQL and Valkey unless DATABASE_URL and REDIS_URL are set, brings the schema up to date, starts
web, worker, beat and observer, and starts each again when it ends. Everything dies with this process, however it ends.
"""

import argparse
import base64
import fcntl
import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from config.home import FILE, is_ours
from devtools.demo_history import begin_earlier_at
from devtools.embedded import (
    Service,
    Unavailable,
    is_configured,
    is_free,
    kept_secret,
    make_home,
    runtime_url,
    services,
    spawn,
    stop,
    tail,
    write_private,
)

PROJECT = Path(__file__).resolve().parent.parent
WORKER_PROCESSES = 21
READY_SECONDS = 240
STEADY_SECONDS = 10
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0
GRACE_SECONDS = 20
OWNER_URL = "SWITCHYARD_OWNER_DATABASE_URL"
MANAGE = (sys.executable, "manage.py")
ROLES: dict[str, Sequence[str]] = {
    "web": (sys.executable, "-m", "gunicorn", "--config", "python:config.gunicorn", "--name", "web"),
    "worker": (
        sys.executable, "-m", "celery", "--app", "config.celery", "worker", "--concurrency", str(WORKER_PROCESSES),
        "--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "INFO",
    ),
    "beat": (*MANAGE, "beat"),
    "observer": (*MANAGE, "observer"),
}  # fmt: skip

# The secrets of each process; compose and the chart pass the same. All have DATABASE_URL.
SECRETS = (
    OWNER_URL,
    "REDIS_URL",
    "SWITCHYARD_SECRET_KEY",
    "SWITCHYARD_KEY_RING",
    "SWITCHYARD_POLICY_TOKEN",
    "SWITCHYARD_METRICS_TOKEN",
    "SWITCHYARD_MAIL_URL",
)
NEEDS: dict[str, Sequence[str]] = {
    "web": SECRETS[1:],
    "worker": ("REDIS_URL", "SWITCHYARD_KEY_RING", "SWITCHYARD_METRICS_TOKEN", "SWITCHYARD_MAIL_URL"),
    "beat": ("REDIS_URL", "SWITCHYARD_KEY_RING", "SWITCHYARD_METRICS_TOKEN", "SWITCHYARD_MAIL_URL"),
    "observer": ("SWITCHYARD_KEY_RING", "SWITCHYARD_METRICS_TOKEN"),
    "migrate": (OWNER_URL,),
    "collectstatic": (),
    "seed_demo": SECRETS[1:],
    "seed_demo_books": (),
}


class CannotServe(Exception):
    """The gateway cannot be started; the message says what to do."""


class Interrupted(Exception):
    """A stop of this process was requested."""


@dataclass(slots=True)
class Child:
    """A process that is kept running: restarted when it ends, immediately or, if it keeps ending, after a pause."""

    name: str
    log: Path
    launch: Callable[[], subprocess.Popen[bytes]]
    stop_signal: signal.Signals = signal.SIGTERM
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    pause_seconds: float = FIRST_PAUSE_SECONDS
    due_at: float = 0.0

    def start(self) -> None:
        """Starts the process."""
        self.process = self.launch()
        self.started_at, self.due_at = time.monotonic(), 0.0

    def keep_alive(self) -> None:
        """Checks the process and restarts it if needed; call it repeatedly."""
        if self.process is None or self.process.poll() is None:
            return
        now = time.monotonic()
        if not self.due_at:
            if now - self.started_at >= STEADY_SECONDS:
                self.pause_seconds = FIRST_PAUSE_SECONDS
            self.due_at = now + self.pause_seconds
            say(f"{self.name} ended with {self.process.returncode}; restarting in {self.pause_seconds:g} s")
            if self.process.returncode > 0:
                say(f"the end of {self.log}:\n{tail(self.log, 15)}")
            self.pause_seconds = min(self.pause_seconds * 2, LONGEST_PAUSE_SECONDS)
        elif now >= self.due_at:
            self.start()


@dataclass(slots=True)
class Supervisor:
    """All processes of one home."""

    home: Path
    environment: dict[str, str]
    with_demo: bool
    is_prepared: bool = False
    owner: dict[str, str] = field(default_factory=dict, repr=False)
    """The database owner's address, only for `migrate`."""
    servers: list[Child] = field(default_factory=list)
    roles: list[Child] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The web process's address."""
        return f"http://127.0.0.1:{self.environment['SWITCHYARD_PORT']}"

    def run(self) -> None:
        """Starts everything and keeps it running until interrupted."""
        self._start_servers()
        kept = {name: value for name, value in self.environment.items() if is_ours(name)}
        write_private(self.home / FILE, json.dumps(kept, indent=1))
        if not self.is_prepared:
            self._manage("migrate", "--noinput", **self.owner)
            self._manage("collectstatic", "--noinput", "--verbosity", "0")
        login = ""
        if self.with_demo:
            login = self._manage("seed_demo")
            begin_earlier_at(_kept(self.owner, OWNER_URL) or _kept(self.environment, "DATABASE_URL"))
        for role in ROLES:
            child = Child(role, self._log(role), lambda role=role: self._launch(role))  # type: ignore[misc]
            self.roles.append(child)
            child.start()
        self._wait_until_ready()
        say(f"switchyard is ready at {self.url}")
        if login:
            say(login)
            self._close_books()
        while True:
            self._look_after()

    def _start_servers(self) -> None:
        for variable, service in services(self.home).items():
            say(f"starting {service.name} ({service.log})")
            child = Child(service.name, service.log, _launcher(service), service.stop_signal)
            self.servers.append(child)
            child.process, child.started_at = service.start(), time.monotonic()
            if variable == "DATABASE_URL":
                self.environment[variable] = runtime_url(self.home, service.url)
                self.owner = {OWNER_URL: service.url}
            else:
                self.environment[variable] = service.url

    def _log(self, name: str) -> Path:
        return self.home / f"{name}.log"

    def _launch(self, role: str) -> subprocess.Popen[bytes]:
        return spawn(ROLES[role], log=self._log(role), env=self._given_to(role), cwd=PROJECT)

    def _given_to(self, name: str) -> dict[str, str]:
        withheld = set(SECRETS) - set(NEEDS[name])
        return {key: value for key, value in self.environment.items() if key.removesuffix("_FILE") not in withheld}

    def _manage(self, *arguments: str, **further: str) -> str:
        """The output of the management command; `further` settings apply only to it."""
        say(f"running {arguments[0]}")
        process = self._command(*arguments, **further)
        try:
            code = process.wait()
        finally:
            stop(process)
        log = self._log(arguments[0])
        if code != 0:
            raise CannotServe(f"manage.py {arguments[0]} exited {code}:\n{tail(log)}")
        return log.read_text(errors="replace").strip()

    def _command(self, *arguments: str, **further: str) -> subprocess.Popen[bytes]:
        log = self._log(arguments[0])
        log.unlink(missing_ok=True)
        return spawn([*MANAGE, *arguments], log=log, env={**self._given_to(arguments[0]), **further}, cwd=PROJECT)

    def _close_books(self) -> None:
        """Closes the demo's first months, which takes the better part of a minute, while the gateway runs."""
        process = self._command("seed_demo_books")
        try:
            while process.poll() is None:
                self._look_after()
        finally:
            stop(process)
        said = tail(self._log("seed_demo_books")).strip()
        say(said if process.returncode == 0 else f"the demo's months stay open:\n{said}")

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not _answers(f"{self.url}/readyz"):
            self._look_after()
            if time.monotonic() > deadline:
                raise CannotServe(f"not ready after {READY_SECONDS} s:\n{tail(self._log('web'))}")

    def _look_after(self) -> None:
        for child in (*self.servers, *self.roles):
            child.keep_alive()
        time.sleep(0.1)

    def stop(self) -> None:
        """Ends the gateway's processes together, then the servers."""
        for children in (self.roles, self.servers):
            running = [(child, child.process) for child in children if child.process and child.process.poll() is None]
            for child, process in running:
                process.send_signal(child.stop_signal)
            deadline = time.monotonic() + GRACE_SECONDS
            for _, process in running:
                try:
                    process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    stop(process, first=signal.SIGKILL)


def _launcher(service: Service) -> Callable[[], subprocess.Popen[bytes]]:
    return lambda: spawn(service.argv, log=service.log, user=service.user)


def _kept(environment: dict[str, str], name: str) -> str:
    """A setting, or what the file contains that is named in its place."""
    file = environment.get(f"{name}_FILE")
    return environment.get(name) or (Path(file).read_text(encoding="utf-8").strip() if file else "")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own address
            return bool(answer.status == 200)  # noqa: PLR2004
    except (urllib.error.URLError, OSError):
        return False


def say(line: str) -> None:
    """One message for the user in the foreground."""
    print(line, flush=True)


@contextmanager
def _only_one(home: Path) -> Iterator[None]:
    make_home(home)
    with (home / "serve.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            raise CannotServe(
                f"{home} is in use by process {owner}: stop that process, or set SWITCHYARD_HOME to another folder"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def _environment(home: Path, *, with_demo: bool) -> dict[str, str]:
    """The environment of the processes: our own, completed with what it lacks."""
    environment = dict(os.environ)
    environment["SWITCHYARD_HOME"] = str(home)
    port = environment.setdefault("SWITCHYARD_PORT", "8000")
    environment.setdefault("SWITCHYARD_HEALTH_PORT", str(int(port) + 1) if port.isdigit() else "8001")
    environment.setdefault("SWITCHYARD_METRICS_PORT", str(min(int(port) + 2, 65532)) if port.isdigit() else "8002")
    environment.setdefault("SWITCHYARD_AUDIT_ANCHORS", str(home / "audit-anchors.jsonl"))
    environment["PYTHONUNBUFFERED"] = "1"
    # A worker that is asked to end gives its tasks a moment and then returns them, instead of waiting for all of them.
    environment["REMAP_SIGTERM"] = "SIGQUIT"
    if with_demo:
        environment.setdefault("SWITCHYARD_ALLOW_SIMULATION", "1")
    made: dict[str, Callable[[], str]] = {
        "SWITCHYARD_SECRET_KEY": lambda: secrets.token_urlsafe(48),
        "SWITCHYARD_KEY_RING": lambda: f"k1:{base64.b64encode(secrets.token_bytes(32)).decode()}",
    }
    for name, make in made.items():
        if not is_configured(name):
            environment[name] = _kept_secret(home, name.removeprefix("SWITCHYARD_").lower(), make)
    return environment


def _kept_secret(home: Path, name: str, make: Callable[[], str]) -> str:
    folder = home / "secrets"
    folder.mkdir(mode=0o700, exist_ok=True)
    return kept_secret(folder / name, make)


def _check_port(environment: dict[str, str]) -> None:
    for name, least in (("SWITCHYARD_PORT", 1), ("SWITCHYARD_HEALTH_PORT", 0)):
        port = environment[name]
        if not port.isdigit() or not least <= int(port) < 2**16:
            raise CannotServe(f"{name} must be between {least} and 65535; it is {port!r}")
        if int(port) and not is_free(int(port)):
            raise CannotServe(f"port {port} is in use: set {name} to another one")


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise Interrupted


def main() -> int:
    """Exit status: 0 after a requested stop."""
    parser = argparse.ArgumentParser(prog="python -m devtools.serve", description=__doc__)
    parser.add_argument("--demo", action="store_true", help="with a simulated fleet and three months of made-up jobs")
    parser.add_argument(
        "--prepared", action="store_true", help="without migrating and collecting static files: devtools.trial did both"
    )
    options = parser.parse_args()
    stops = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in stops:
        signal.signal(number, _interrupt)
    own = PROJECT / (".switchyard-demo" if options.demo else ".switchyard")
    home = Path(os.environ.get("SWITCHYARD_HOME") or own).resolve()
    try:
        with _only_one(home):
            environment = _environment(home, with_demo=options.demo)
            _check_port(environment)
            owner = {name: environment.pop(name) for name in (OWNER_URL, f"{OWNER_URL}_FILE") if name in environment}
            supervisor = Supervisor(home, environment, options.demo, options.prepared, owner)
            try:
                supervisor.run()
            finally:
                for number in stops:
                    signal.signal(number, signal.SIG_IGN)
                say("stopping")
                supervisor.stop()
    except Interrupted:
        return 0
    except (CannotServe, Unavailable) as failure:
        print(f"switchyard: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
