"""One Kubernetes control plane as child processes: how each is started, checked, broken and stopped."""

import json
import secrets
import shutil
import signal
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from devtools.embedded import free_ports, spawn, tail

from . import commands
from .certificates import write_certificate, write_key
from .commands import Layout, Parts

READY_SECONDS = 60
POLL_SECONDS = 0.05
TERM_SECONDS = 3


class StartFailed(Exception):
    """A control plane did not start; the message contains the end of its log."""


@dataclass(slots=True)
class ControlPlane:
    """A running control plane. Break it with pause, kill and restart; `processes` is by component name."""

    name: str
    layout: Layout
    binaries: Mapping[str, Path]
    region: str = ""
    provider: str = ""
    ca_pem: str = ""
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def server(self) -> str:
        """The API server's address."""
        return f"https://127.0.0.1:{self.layout.ports['kube-apiserver']}"

    @property
    def admin_token(self) -> str:
        """Bearer token of a member of system:masters."""
        return self.layout.admin_token

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig of the same administrator."""
        return self.layout.kubeconfig

    def pid(self, component: str) -> int:
        """The component's process id."""
        return self.processes[component].pid

    def pause(self, component: str) -> None:
        """Freezes the component: connections stay open and get no response."""
        process = self.processes[component]
        process.send_signal(signal.SIGSTOP)
        while process.poll() is None and not _is_stopped(process.pid):
            time.sleep(0.001)  # the signal stops one thread after the other

    def resume(self, component: str) -> None:
        """Resumes a frozen component."""
        self.processes[component].send_signal(signal.SIGCONT)

    def kill(self, component: str) -> None:
        """Kills the component immediately, as a crash would."""
        self.processes[component].kill()
        self.processes[component].wait()

    def restart(self, component: str) -> None:
        """Starts the component again with the same command line, data and port, and waits until it is ready."""
        self.kill(component)
        for _ in self.starting(component):
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """Ends everything and removes the data; logs stay."""
        stop_together([self])

    def starting(self, component: str) -> Iterator[None]:
        """Starts one component; yields while it is not ready yet. Call from the main thread only.

        Children end with the thread that started them, so a helper thread would end them with it.
        """
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(
                "start control planes from the main thread: children die with the thread that spawned them"
            )
        log = self.layout.log(component)
        argv = [str(self.binaries[component]), *commands.arguments(component, self.layout)]
        self.processes[component] = spawn(argv, log=log, cwd=commands.PROJECT)
        deadline = time.monotonic() + READY_SECONDS
        while not self._is_ready(component):
            if self.processes[component].poll() is not None:
                raise StartFailed(f"{self.name}: {component} ended while starting ({log}):\n{tail(log)}")
            if time.monotonic() > deadline:
                raise StartFailed(f"{self.name}: {component} not ready after {READY_SECONDS} s ({log}):\n{tail(log)}")
            yield

    def _is_ready(self, component: str) -> bool:
        if component == "kube-apiserver" and not self.layout.ca_file.exists():
            return False
        if component == "kube-apiserver" and not self.ca_pem:
            self.ca_pem = self.layout.ca_file.read_text()
        return self.answers(commands.health_url(component, self.layout))

    def answers(self, url: str) -> bool:
        """Whether the address returns 200 to the administrator."""
        context = ssl.create_default_context(cadata=self.ca_pem) if url.startswith(self.server) else _unverified()
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.admin_token}"})  # noqa: S310 - our own address
        try:
            with urllib.request.urlopen(request, timeout=2, context=context) as answer:  # noqa: S310
                return bool(answer.status == 200)  # noqa: PLR2004
        except (urllib.error.URLError, OSError, ssl.SSLError):
            return False


def _unverified() -> ssl.SSLContext:
    """For the health ports of scheduler and controller manager: each creates its own certificate; no token is sent
    there.
    """
    return ssl._create_unverified_context()  # noqa: S323, SLF001


def bring_up(plane: ControlPlane) -> Iterator[None]:
    """Starts a whole control plane; yields while waiting. Retries once if another process took one of its ports."""
    try:
        yield from _bring_up(plane)
    except StartFailed as failure:
        if "address already in use" not in str(failure):
            raise
        stop_together([plane])
        plane.layout.ports.update(pick_ports(plane.layout.parts))
        plane.ca_pem = ""
        yield from _bring_up(plane)


def _bring_up(plane: ControlPlane) -> Iterator[None]:
    _write_credentials(plane.layout)
    yield from plane.starting("etcd")
    yield from plane.starting("kube-apiserver")
    _write_kubeconfig(plane)
    others = [plane.starting(name) for name in plane.layout.parts.after_apiserver]
    yield from interleave(others)
    if plane.layout.parts.controllers:
        url = f"{plane.server}/api/v1/namespaces/default/serviceaccounts/default"
        yield from _until(lambda: plane.answers(url), f"{plane.name}: no default ServiceAccount: {plane.layout.root}")


def _until(condition: Callable[[], bool], complaint: str) -> Iterator[None]:
    deadline = time.monotonic() + READY_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise StartFailed(complaint)
        yield


def interleave(waits: Sequence[Iterator[None]]) -> Iterator[None]:
    """Runs several waits side by side in this one thread; yields between rounds until all have ended."""
    left, ended = list(waits), object()
    while left:
        left = [wait for wait in left if next(wait, ended) is not ended]
        if left:
            yield


def prepare(name: str, root: Path, parts: Parts) -> Layout:
    """A fresh folder with ports chosen, for one control plane."""
    folder = root / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return Layout(name, folder, parts, pick_ports(parts), secrets.token_hex(16))


def pick_ports(parts: Parts) -> dict[str, int]:
    """A port for each component, and one for etcd's peers."""
    names = [*parts.components, "etcd-peer"]
    return dict(zip(names, free_ports(len(names)), strict=True))


def _write_credentials(layout: Layout) -> None:
    write_key(layout.service_account_key)
    for certificate in map(layout.certificate, commands.WITH_CERTIFICATES):
        certificate.parent.mkdir(exist_ok=True)
        write_certificate(certificate, certificate.with_suffix(".key"))
    layout.tokens.write_text(f'{layout.admin_token},admin,admin,"system:masters"\n')
    layout.tokens.chmod(0o600)
    if layout.parts.kubelet:
        layout.kubelet_folder.mkdir(exist_ok=True)
        write_certificate(layout.kubelet_certificate, layout.kubelet_key)


def _write_kubeconfig(plane: ControlPlane) -> None:
    cluster = {"server": plane.server, "certificate-authority": str(plane.layout.ca_file)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": plane.name, "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": plane.admin_token}}],
        "contexts": [{"name": plane.name, "context": {"cluster": plane.name, "user": "admin"}}],
        "current-context": plane.name,
    }
    plane.kubeconfig.write_text(json.dumps(document, indent=1))
    plane.kubeconfig.chmod(0o600)


def stop_together(planes: Sequence[ControlPlane]) -> None:
    """Ends all processes of all planes, etcd last, so that logs do not fill with lost connections."""
    for is_etcd in (False, True):
        processes = [
            process
            for plane in planes
            for name, process in reversed(plane.processes.items())
            if (name == "etcd") is is_etcd and process.poll() is None
        ]
        for process in processes:
            process.terminate()
            process.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + TERM_SECONDS
        for process in processes:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    for plane in planes:
        plane.processes.clear()
        for folder in (plane.layout.root / "etcd", plane.layout.claims, plane.layout.kubelet_folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_stopped(pid: int) -> bool:
    """Whether none of the process's threads runs."""
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    try:
        return all(thread.read_text().rpartition(")")[2].split()[0] in "Tt" for thread in threads)
    except (FileNotFoundError, ProcessLookupError):
        return False  # a thread has just ended
