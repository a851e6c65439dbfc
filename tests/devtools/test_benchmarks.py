"""Each benchmark is a command of its own: it starts in an interpreter that nothing else has prepared."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.replay import goodput
from simulator.figures import JobLine
from simulator.values import TraceJob

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


def test_goodput_counts_all_that_delays_a_job_after_its_first_start_by_its_size():
    def line(gpus: int, seconds: float, first: float | None, finished: float | None) -> JobLine:
        job = TraceJob("a", 0.0, seconds, 1, gpus, cpu_millicores=1, memory_mib=1)
        return JobLine(job, "east", "h100", first, finished, 1, 1, tries=1, lost_seconds=0.0)

    # It waited before its first start, which does not count, and lost or waited as long as it worked after that.
    lines = [
        line(8, 100, 1000, 1200),
        line(4, 400, 0, 400),
        line(64, 50, 0, 50),
        line(64, 50, 5, None),
        line(1, 5, None, None),
    ]
    assert goodput(lines) == {"up to 8": round((8 * 100 + 4 * 400) / (8 * 200 + 4 * 400), 4), "9 to 64": 1.0}
