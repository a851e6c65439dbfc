"""Builds the checker once from its pinned Go module into the user's cache, and runs it."""

import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devtools import wheels

MODULE = Path(__file__).parent
SOURCES = ("go.mod", "go.sum", "main.go", "models.go")
ADVICE = "install Go 1.26 or newer (https://go.dev/dl/ or your package manager)"


class CheckerFailed(Exception):
    """The checker is not available, or a history cannot be read; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The number of histories and operations that were checked, and the histories that no order of them explains."""

    histories: int
    operations: int
    refused: tuple[dict[str, Any], ...]


def check(*histories: Path) -> Verdict:
    """Whether each history is linearizable."""
    ran = subprocess.run([_program(), *histories], capture_output=True, text=True, check=False)
    if ran.returncode not in (0, 1):
        raise CheckerFailed(ran.stderr.strip())
    told = json.loads(ran.stdout)
    return Verdict(told["histories"], told["operations"], tuple(told["refused"]))


def _program() -> Path:
    digest = hashlib.sha256(b"".join((MODULE / name).read_bytes() for name in SOURCES)).hexdigest()
    folder = wheels.cache_root() / "porcupine" / digest[:16]
    return wheels.once(folder, "porcupine: building the history checker", _build) / "history-checker"


def _build(folder: Path) -> None:
    try:
        go = shutil.which("go") or wheels.bring("go") / "go" / "bin" / "go"
    except wheels.CannotBring as failure:
        raise CheckerFailed(f"{failure}: {ADVICE}") from failure
    argv = [
        go,
        "build",
        "-mod=readonly",
        "-trimpath",
        "-buildvcs=false",
        "-ldflags=-s -w",
        "-o",
        folder / "history-checker",
        ".",
    ]
    built = subprocess.run(argv, cwd=MODULE, env=os.environ | {"GOWORK": "off"}, stdin=subprocess.DEVNULL,
                           capture_output=True, text=True, check=False)  # fmt: skip
    if built.returncode:
        raise CheckerFailed(f"the history checker could not be built: {built.stderr.strip()}: {ADVICE}")
