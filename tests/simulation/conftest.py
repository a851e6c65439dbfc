"""One run of seeds for all tests of it."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FIRST, SEEDS = 700, 30
"""The same ones on every host: a time in which as many run as it has room for would let a busy one pass what a free one finds."""
PATIENCE_SECONDS = 1500
"""A free host takes half a minute."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whichever comes first waits for all seeds."""
    for item in items:
        if "beside" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(PATIENCE_SECONDS + 300))


def simulate(*arguments: str, within_seconds: float = 280) -> tuple[dict[str, Any], str]:
    """The figures of a run of `make simulate`, and everything that it printed."""
    environment = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
    done = subprocess.run(
        [sys.executable, "-m", "devtools.simulation", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=within_seconds,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stdout


@dataclass(frozen=True)
class Beside:
    """What seeds came to that two processes ran side by side."""

    figures: dict[str, Any]
    printed: str
    file: Path
    """The seeds that ran."""
    histories: list[Path]
    """What clients were told in each."""


@pytest.fixture(scope="package")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Beside:
    """Kept seeds and a range."""
    folder = tmp_path_factory.mktemp("simulation")
    file, histories = folder / "seeds.jsonl", folder / "histories"
    wanted = ("--kept", "--from", str(FIRST), "--seeds", str(SEEDS), "--processes", "2")
    kept = ("--resume", str(file), "--history", str(histories))
    figures, printed = simulate(*wanted, *kept, within_seconds=PATIENCE_SECONDS)
    return Beside(figures, printed, file, sorted(histories.glob("told-*.jsonl")))
