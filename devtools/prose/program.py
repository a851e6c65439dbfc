"""vale, the prose linter, built once from a pinned Go module into the user's cache.

The wheel of vale on PyPI contains no program: it downloads one when it is first called. vale's parsers of source code are
C libraries of 250 MB, which need a C compiler and minutes to build. We hand vale text only, so it is built without them, in
about a minute of CPU time.
"""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path

from devtools import wheels
from devtools.wheels import CannotBring

MODULE = "github.com/vale-cli/vale/v3@v3.22.0"
SUM = "h1:iktvmrgY2LyGT22+tvRrryzZ/bGfrMpMwoiDxEMbM5E="
"""The module's sum as go.sum would have it. The module's own go.sum, which it covers, pins what it depends on."""
NO_PARSERS = Path(__file__).with_name("no_parsers.go")
ADVICE = "check your network, or set VALE to the path of a vale 3"


def locate() -> Path:
    """The path of vale; VALE names it. Builds it if it is missing. Raises CannotBring."""
    named = os.environ.get("VALE")
    if named and not os.access(named, os.X_OK):
        raise CannotBring(f"VALE is {named}, which is not a program")
    return Path(named) if named else _built()


def _built() -> Path:
    pins = f"{MODULE} {SUM}".encode() + NO_PARSERS.read_bytes()
    folder = wheels.cache_root() / "vale" / hashlib.sha256(pins).hexdigest()[:16]
    return wheels.once(folder, f"vale: building {MODULE}, about a minute", _build) / "vale"


def _build(folder: Path) -> None:
    go = wheels.go()
    source = folder / "source"
    shutil.copytree(_downloaded(go, folder), source, copy_function=shutil.copyfile)
    for path in (source, *source.rglob("*/")):
        path.chmod(0o755)
    parsers = source / "internal" / "lint" / "code"
    shutil.rmtree(parsers)
    parsers.mkdir()
    shutil.copy(NO_PARSERS, parsers)
    argv = ["build", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", str(folder / "vale")]
    _run([go, *argv, "./cmd/vale"], source)
    shutil.rmtree(source)


def _downloaded(go: str, folder: Path) -> Path:
    """The module in Go's own cache, compared with the pin."""
    found = json.loads(_run([go, "mod", "download", "-json", MODULE], folder))
    if found["Sum"] != SUM:
        raise CannotBring(f"{MODULE} has the sum {found['Sum']} instead of {SUM}: {ADVICE}")
    return Path(found["Dir"])


def _run(argv: list[str], folder: Path) -> str:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    done = subprocess.run(
        argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CannotBring(f"vale could not be built: {ADVICE}\n{done.stdout}{done.stderr}")
    return done.stdout
