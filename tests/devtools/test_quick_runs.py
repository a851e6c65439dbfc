"""Which tests a run with arguments leaves out, when it starts no servers, and what its processes find compiled."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from devtools.serve import PROJECT
from tests.servers import only_engines


@pytest.mark.parametrize(
    ("named", "is_alone"),
    [
        (["tests/engine"], True),
        (["tests/engine/test_work.py::test_only_ratios_count", "tests/engine/test_ranks.py"], True),
        (["tests/engine", "tests/rooms"], False),
        (["tests"], False),
        ([], False),
    ],
)
def test_only_a_run_of_the_engines_alone_starts_no_servers(named, is_alone):
    config: Any = SimpleNamespace(
        known_args_namespace=SimpleNamespace(file_or_dir=named), invocation_params=SimpleNamespace(dir=Path(PROJECT))
    )
    assert only_engines(config) is is_alone


@pytest.mark.parametrize(
    ("arguments", "leaves_out"),
    [
        ("tests/engine", True),
        ("tests/engine -k gang --maxfail=1", True),
        ("tests/engine/test_quotes.py", False),
        ("tests/engine -m law", False),
        ("", False),
    ],
)
def test_only_folders_are_run_without_laws_and_oracles(arguments, leaves_out):
    told = subprocess.run(
        ["make", "-n", "test", f"ARGS={arguments}"], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout
    assert ('-m "not law and not oracle"' in told) is leaves_out


def test_what_make_starts_keeps_bytecode():
    """Without it, each of the hundreds of processes of a run compiles everything that it imports."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    arguments = ["make", "--eval", "environment: ; @env", "environment"]
    told = subprocess.run(arguments, cwd=PROJECT, env=environment, capture_output=True, text=True, check=True).stdout
    assert "PATH=" in told
    assert "PYTHONDONTWRITEBYTECODE" not in told
