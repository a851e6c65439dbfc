"""The model of the dispatch protocol (docs/explanation/the-protocol-model.md), built once into the user's cache."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devtools import wheels

CRATE = Path(__file__).parent
ADVICE = "install Rust 1.85 or newer: https://rustup.rs, or your distribution's package `cargo`"


class ModelFailed(Exception):
    """The model's program is not available; the message says what to do."""


def run_model(arguments: Sequence[str] = ()) -> int:
    """The exit code of the model: 0 if it keeps every promise and each mutant breaks one. It prints JSON."""
    return subprocess.run([_program(), *arguments], stdin=subprocess.DEVNULL, check=False).returncode


@dataclass(frozen=True, slots=True)
class Verdict:
    """The figures of a check, and what was printed of each job that the model refuses."""

    figures: dict[str, Any]
    refusals: str


def accept(*files: Path) -> Verdict:
    """Whether the steps in the files, which `make simulate ARGS="--history FOLDER"` writes, are steps of the model."""
    ran = subprocess.run([_program(), "accept", *files], capture_output=True, text=True, check=False)
    if ran.returncode not in (0, 1):
        raise ModelFailed(ran.stderr.strip())
    refusals, _, figures = ran.stdout.rstrip().rpartition("\n")
    return Verdict(json.loads(figures), refusals)


def _program() -> Path:
    sources = sorted([CRATE / "Cargo.toml", CRATE / "Cargo.lock", *(CRATE / "src").rglob("*.rs")])
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    folder = wheels.cache_root() / "model" / digest[:16]
    return wheels.once(folder, "model: building it", _build) / "protocol-model"


def _build(folder: Path) -> None:
    cargo = shutil.which("cargo") or shutil.which("cargo", path=str(Path.home() / ".cargo" / "bin"))
    if cargo is None:
        raise ModelFailed(f"cargo was not found: {ADVICE}")
    # Kept beside the programs: a change of the model compiles the model alone, not the crates again.
    target = wheels.cache_root() / "model" / "target"
    argv = [cargo, "build", "--release", "--locked", "--manifest-path", str(CRATE / "Cargo.toml")]
    argv += ["--target-dir", str(target)]
    if subprocess.run(argv, stdin=subprocess.DEVNULL, check=False).returncode:
        raise ModelFailed(f"the model could not be built (see above). It needs the crates of Cargo.lock; {ADVICE}")
    shutil.copy2(target / "release" / "protocol-model", folder / "protocol-model")
