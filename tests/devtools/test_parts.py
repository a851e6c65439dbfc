import os
import subprocess
import sys

import pytest

from devtools import parts
from devtools.parts import AT_ONCE, Run


def begun(waiting, running=()):
    """The names of what runs once no more may begin."""
    waiting, running = list(waiting), list(running)
    while len(running) < AT_ONCE and (run := parts._next(waiting, running)):
        waiting.remove(run)
        running.append(run)
    return [run.name for run in running]


def runs(*names):
    return [Run(name, (), has_low_priority=name.startswith("c")) for name in names]


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        (("c1", "c2", "c3", "w1", "w2", "w3", "w4"), ["c1", "c2", "w1", "w2", "w3"]),
        (("w1", "w2", "w3", "w4", "c1", "c2", "c3"), ["w1", "w2", "w3", "c1", "c2"]),
        (("c1", "c2", "c3", "c4", "c5", "c6"), ["c1", "c2", "c3", "c4", "c5"]),
        (("w1", "w2", "w3", "w4", "w5", "w6"), ["w1", "w2", "w3", "w4", "w5"]),
        (("c1", "w1"), ["c1", "w1"]),
        ((), []),
    ],
)
def test_two_parts_that_compute_run_beside_others_and_no_place_stays_empty_while_one_waits(waiting, expected):
    assert begun(runs(*waiting)) == expected


def test_the_place_of_a_part_goes_to_one_of_its_kind():
    running = runs("c1", "c2", "w1", "w2")
    assert begun(runs("c3", "w3"), running)[-1] == "w3"
    assert begun(runs("w3", "c3"), running[1:] + runs("w4"))[-1] == "c3"


def test_parts_that_take_turns_stay_each_on_a_core_and_no_two_on_one(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3})
    first, second, third = (Run(name, (), takes_turns=True) for name in "abc")
    first.core = parts._core_for(first, runs("w1"))
    assert first.core == 2
    second.core = parts._core_for(second, [first, *runs("w1")])
    assert second.core == 3
    assert parts._core_for(third, [first, second]) is None
    assert parts._core_for(third, [second]) == 2
    [computing] = runs("c1")
    assert parts._core_for(computing, []) is None


@pytest.mark.parametrize("core", [None, max(os.sched_getaffinity(0))])
def test_all_that_a_part_starts_is_on_its_core(core, capsys):
    script = "import os, subprocess, sys; subprocess.run([sys.executable, '-c', 'import os; print(os.sched_getaffinity(0))'])"
    run = Run("one", (sys.executable, "-c", script))
    run.start(core)
    assert run._reader is not None
    run._reader.join(60)
    assert run.has_ended()
    assert run.code == 0
    assert f"one| { {core} if core is not None else os.sched_getaffinity(0) }" in capsys.readouterr().out


def test_parts_write_bytecode_even_where_the_caller_writes_none():
    script = "from devtools import parts; print(sorted(set(parts.os.environ) - set(parts.INHERITED)))"
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=parts.PROJECT, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "['PYTHONDONTWRITEBYTECODE']\n"
    assert "PYTHONDONTWRITEBYTECODE" not in os.environ, "nor do the processes that a test starts inherit it"
