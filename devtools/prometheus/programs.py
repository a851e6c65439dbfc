"""The programs `prometheus` and `promtool`, built once from a pinned Go module into the user's cache.

The cache folder's name contains the hash of go.mod and go.sum, so a new pin is a new folder.
"""

import hashlib
import os
import subprocess
from pathlib import Path

from devtools import wheels

MODULE = Path(__file__).parent / "module"
PROGRAMS = ("prometheus", "promtool")
PACKAGE = "github.com/prometheus/prometheus/cmd/"
LEFT_OUT = ("remove_all_sd",)
"""Without service discovery, it needs a third of the packages: a server of stored blocks discovers nothing."""
ADVICE = "install Go 1.26.7 or newer (https://go.dev/dl/ or your package manager)"


class BuildFailed(Exception):
    """The programs are not available; the message says what to do."""


def locate() -> Path:
    """The folder of both programs; builds them if the cache has none, which takes minutes. Raises BuildFailed."""
    digest = hashlib.sha256(b"".join((MODULE / name).read_bytes() for name in ("go.mod", "go.sum")))
    folder = wheels.cache_root() / "prometheus" / digest.hexdigest()[:16]
    return wheels.once(folder, "prometheus: building it", _build)


def _build(folder: Path) -> None:
    try:
        go = wheels.go()
    except wheels.CannotBring as failure:
        raise BuildFailed(f"{failure}: {ADVICE}") from failure
    argv = [
        "nice", "-n", "19", go, "build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false",
        "-ldflags=-s -w", f"-tags={','.join(LEFT_OUT)}", "-o", f"{folder}{os.sep}", *(PACKAGE + name for name in PROGRAMS),
    ]  # fmt: skip
    environment = {"GOGC": "400"} | os.environ | {"GOWORK": "off"}
    built = subprocess.run(argv, cwd=MODULE, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # fmt: skip
    if built.returncode:
        raise BuildFailed(f"Prometheus could not be built: {built.stderr.strip()[-2000:]}: {ADVICE}")
