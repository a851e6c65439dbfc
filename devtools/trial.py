"""A whole gateway for tests and benchmarks: real processes, a fresh home, a client, registered clusters."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import redis

from devtools import prepared
from devtools.commands import Commands
from devtools.embedded import free_port, spawn, stop, tail
from devtools.localfleet import ControlPlane
from devtools.localfleet.admin import apply_file, mint_token

PROJECT = Path(__file__).resolve().parent.parent
ACCESS_MANIFEST = PROJECT / "docs" / "reference" / "cluster-access.yaml"
READY_SECONDS = 300
STOP_SECONDS = 30
SERVERS = ("postgres", "valkey-server")
KNOWN_PROCESSES = ("web", "worker", "beat", "observer", *SERVERS)
ORGANISATION = "acme"
ADMIN = "admin@acme.example"


@dataclass(slots=True)
class Gateway:
    """A running `make serve` with a bootstrapped organisation and its administrator's token."""

    home: Path
    url: str
    process: subprocess.Popen[bytes]
    environment: Mapping[str, str]
    token: str = ""
    client: httpx.Client = field(default_factory=httpx.Client)
    _commands: Commands | None = None

    def request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """One API call; retries while web process or database restart (reads and keyed writes are safe)."""
        deadline = time.monotonic() + 60
        while True:
            try:
                answer = self.client.request(method, f"/api/v1{path}", **arguments)
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    raise
            else:
                if answer.status_code != httpx.codes.SERVICE_UNAVAILABLE or time.monotonic() > deadline:
                    return answer
            time.sleep(0.2)

    def get(self, path: str, **query: Any) -> Any:
        """The JSON at `path`."""
        answer = self.request("GET", path, params=query)
        answer.raise_for_status()
        return answer.json()

    def items(self, path: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Every item of a list, page by page."""
        cursor: str | None = ""
        while cursor is not None:
            page = self.get(path, limit=500, **({"cursor": cursor} if cursor else {}), **query)
            yield from page["items"]
            cursor = page["next"]

    def create(self, path: str, body: Mapping[str, Any], **headers: str) -> dict[str, Any]:
        """The created object; raises with the problem's text if it was refused."""
        answer = self.request("POST", path, json=body, headers=headers)
        if answer.is_error:
            raise AssertionError(f"POST {path}: {answer.status_code} {answer.text}")
        created: dict[str, Any] = answer.json()
        return created

    def register(self, plane: ControlPlane, *, server: str = "", ca_pem: str = "") -> dict[str, Any]:
        """Registers a control plane with a ServiceAccount token that has only the published role.

        `server` and `ca_pem` may name a proxy in front of it.
        """
        apply_file(plane, ACCESS_MANIFEST)
        token = mint_token(plane, "switchyard-system", "switchyard")
        body = {
            "name": plane.name,
            "server": server or plane.server,
            "ca_pem": ca_pem or plane.layout.ca_file.read_text(),
            "token": token,
            "region": plane.region,
            "provider": plane.provider,
        }
        return self.create("/clusters", body)

    def manage(self, *arguments: str) -> str:
        """The output of a management command. Call it from the main thread."""
        environment = {**os.environ, **self.environment}
        if self._commands is None or not self._commands.are_of(environment):
            self._end_commands()
            self._commands = Commands(environment, self.home / "commands.log")
        done = self._commands.run(*arguments)
        if done.code:
            raise AssertionError(f"manage.py {' '.join(arguments)} exited {done.code}:\n{done.output}\n{done.errors}")
        return done.output

    def _end_commands(self) -> None:
        if self._commands is not None:
            self._commands.close()
            self._commands = None

    def processes(self, role: str) -> list[psutil.Process]:
        """The processes whose command line carries this role, oldest first."""
        family = psutil.Process(self.process.pid).children(recursive=True)
        return sorted(
            (p for p in family if role in _words(p)),
            key=lambda p: (p.create_time(), p.pid),
        )

    def kill(self, role: str) -> None:
        """`kill -9` of the role's main process."""
        self.processes(role)[0].send_signal(signal.SIGKILL)

    def flush_broker(self) -> None:
        """Empties Valkey, including its queues."""
        with redis.Redis.from_url(self.environment["REDIS_URL"]) as client:
            for key in client.scan_iter(match="swy*", count=1000):
                client.delete(key)

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time used so far by each of the gateway's processes and its two servers, including children."""
        found: dict[str, float] = {}
        for process in psutil.Process(self.process.pid).children():
            name = next((word for word in _words(process) if word in KNOWN_PROCESSES), "other")
            found[name] = found.get(name, 0.0) + _cpu_of([process, *process.children(recursive=True)])
        return found

    def stop(self, *, quickly: bool = False) -> None:
        """Ends all processes: cleanly, or `quickly`, without the CPU second that this takes them, for a home that nothing uses again."""
        self.client.close()
        self._end_commands()
        if quickly and self.process.poll() is None:
            started = psutil.Process(self.process.pid).children()
            self.process.terminate()  # first: it would start again what ends before
            for process in started:
                with suppress(psutil.NoSuchProcess):
                    if process.name() not in SERVERS:
                        process.kill()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(STOP_SECONDS)
        stop(self.process, first=signal.SIGTERM, grace_seconds=STOP_SECONDS)


def _cpu_of(processes: Sequence[psutil.Process]) -> float:
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
            total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total


def _words(process: psutil.Process) -> Sequence[str]:
    """The names in its command line; servers that change their title put it all in one piece.

    None for PostgreSQL's own processes: some of those are called workers too.
    """
    try:
        pieces = process.cmdline()
    except psutil.Error:
        return []
    if pieces and pieces[0].startswith("postgres:"):
        return []
    return [Path(word).name for piece in pieces for word in piece.split()]


def start_gateway(home: Path, **settings: str) -> Gateway:
    """A running gateway on its own embedded servers, with loopback clusters and simulation allowed.

    What `make serve` does before its processes start was done once, and is copied (`devtools.prepared`). If the settings
    name a database, it is a copy too.
    """
    home.mkdir(parents=True, exist_ok=True)
    home.chmod(0o755)
    prepared.collect_static_files()
    if "DATABASE_URL" not in settings and not (home / "postgres").exists():
        prepared.fill(home)
    port = int(settings.get("SWITCHYARD_PORT") or free_port())
    environment = {
        "SWITCHYARD_HOME": str(home),
        "SWITCHYARD_PORT": str(port),
        "SWITCHYARD_HEALTH_PORT": str(free_port()),
        "SWITCHYARD_METRICS_PORT": "0",
        "SWITCHYARD_EGRESS_ALLOW": "127.0.0.0/8",
        "SWITCHYARD_ALLOW_SIMULATION": "1",
        **settings,
    }
    inherited = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith("SWITCHYARD_") and k not in {"DATABASE_URL", "REDIS_URL"}
    }
    log = home / "serve.log"
    process = spawn([sys.executable, "-m", "devtools.serve", "--prepared"], log=log, env={**inherited, **environment})
    url = f"http://127.0.0.1:{port}"
    gateway = Gateway(home, url, process, _own_settings(home, {**inherited, **environment}))
    try:
        _wait_for_line(gateway, log, "switchyard is ready at")
        gateway.environment = _own_settings(home, gateway.environment)
        answer = json.loads(
            gateway.manage("bootstrap", "--organisation", ORGANISATION, "--admin", ADMIN, "--new-token")
        )
        gateway.token = answer["token"]
        gateway.client = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {gateway.token}"}, timeout=30)
    except BaseException:
        gateway.stop()
        raise
    return gateway


def _own_settings(home: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of its processes; `serve` writes it to its home once its servers are running."""
    written = home / "environment.json"
    return {**environment, **(json.loads(written.read_text()) if written.exists() else {})}


def _wait_for_line(gateway: Gateway, log: Path, words: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if words in log.read_text(errors="replace"):
            return
        if gateway.process.poll() is not None:
            raise RuntimeError(f"the gateway ended while starting:\n{tail(log, 60)}")
        time.sleep(0.1)
    raise RuntimeError(f"the gateway was not ready within {READY_SECONDS} s:\n{tail(log, 60)}")
