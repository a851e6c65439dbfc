"""The control planes' programs, built once from a pinned Go module into the user's cache.

One module pins them all, so what they share is compiled once. The cache folder's name contains the hash of go.mod and
go.sum, so a new pin is a new folder. A program is built under a temporary name and renamed, under a file lock. So two runs
may start at the same time, and an interrupted build leaves nothing that appears complete.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from devtools import wheels

MODULE = Path(__file__).parent / "module"
KUBERNETES_VERSION = "v1.36.2"
PROGRESS_SECONDS = 15
COMPILER = {"GOGC": "400"}
"""The compiler collects its garbage less often: a fifth less CPU time for a few hundred MiB more."""
_STAMP = (
    f"-X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION} "
    "-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
)
ADVICE = (
    "install Go 1.26.3 or newer (https://go.dev/dl/ or your package manager), "
    "or set KUBEBUILDER_ASSETS to a folder that holds: {names}"
)


class BuildFailed(Exception):
    """The control planes' programs are not available; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Program:
    """One program and its Go package."""

    name: str
    package: str


PROGRAMS: Mapping[str, Program] = {
    program.name: program
    for program in (
        Program("etcd", "go.etcd.io/etcd/server/v3"),
        Program("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
        Program("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
        Program("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
        Program("kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    )
}


def cache_folder() -> Path:
    """The folder of the programs that the module pins."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((MODULE / name).read_bytes())
    return wheels.cache_root() / "localfleet" / digest.hexdigest()[:16]


def locate(names: Iterable[str] = tuple(PROGRAMS)) -> dict[str, Path]:
    """The programs' paths; builds missing ones. KUBEBUILDER_ASSETS names a folder to use instead."""
    wanted = list(names)
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets:
        found = {name: Path(assets) / name for name in wanted}
        missing = [name for name, path in found.items() if not os.access(path, os.X_OK)]
        if missing:
            raise BuildFailed(f"KUBEBUILDER_ASSETS is {assets}, which lacks {', '.join(missing)}: add them or unset it")
        return found
    found = {name: cache_folder() / name for name in wanted}
    if any(not path.exists() for path in found.values()):
        _build([PROGRAMS[name] for name in wanted])
    return found


def _build(programs: list[Program]) -> None:
    go = _go(", ".join(program.name for program in programs))
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with wheels.alone(folder / ".lock"):
        for leftover in folder.glob("*.partial"):
            leftover.unlink()
        for program in programs:
            if not (folder / program.name).exists():
                _build_one(go, program, folder)


def _go(names: str) -> str:
    try:
        return wheels.go()
    except wheels.CannotBring as failure:
        raise BuildFailed(f"{failure}: {ADVICE.format(names=names)}") from failure


def _build_one(go: str, program: Program, folder: Path) -> None:
    partial, log = folder / f"{program.name}.{os.getpid()}.partial", folder / f"{program.name}.log"
    flags = f"-s -w {_STAMP}" if program.package.startswith("k8s.io/") else "-s -w"
    argv = [go, "build", "-v", "-p", str(os.cpu_count() or 2), "-trimpath", "-buildvcs=false",
            "-gcflags", "all=-dwarf=false", "-ldflags", flags, "-o", str(partial), program.package]  # fmt: skip
    # Without its parent, a build's result would not be renamed: it must end with us.
    argv = ["setpriv", "--pdeathsig", "TERM", *argv] if shutil.which("setpriv") else argv
    _say(f"building {program.name} (kept in {folder})")
    started = time.monotonic()
    with log.open("wb") as sink:
        process = subprocess.Popen(
            argv,
            cwd=MODULE,
            env={**COMPILER, **os.environ},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
        )
    try:
        code = _wait_with_progress(program, process, log, started)
        if code != 0:
            end = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
            raise BuildFailed(f"building {program.name} failed ({log}):\n{end}\n{ADVICE.format(names=program.name)}")
        partial.rename(folder / program.name)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
        partial.unlink(missing_ok=True)
    _say(f"built {program.name} in {time.monotonic() - started:.0f} s")


def _wait_with_progress(program: Program, process: subprocess.Popen[bytes], log: Path, started: float) -> int:
    while True:
        try:
            return process.wait(PROGRESS_SECONDS)
        except subprocess.TimeoutExpired:
            packages = log.read_bytes().count(b"\n")
            _say(f"building {program.name}: {packages} packages compiled, {time.monotonic() - started:.0f} s")


def _say(line: str) -> None:
    print(f"localfleet: {line}", file=sys.stderr, flush=True)
