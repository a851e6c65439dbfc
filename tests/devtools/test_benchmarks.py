"""Each benchmark is a command of its own: it starts in an interpreter that nothing else has prepared."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "benchmarks").rglob("*.py"))
COMMANDS = [path for path in MODULES if '__name__ == "__main__"' in path.read_text() or path.name == "__main__.py"]


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_benchmark_reads_its_arguments(path: Path):
    assert "ArgumentParser(" in path.read_text(), "otherwise --help runs it"


def test_the_campaign_explains_itself_without_prepared_settings():
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO", "SWITCHYARD"))}
    command = [sys.executable, "-m", "benchmarks.campaign", "--help"]
    answer = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "--minutes" in answer.stdout
