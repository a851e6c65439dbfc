import os
import subprocess
import sys
import time

from devtools.parts import Run, costliest
from tests.costs import Process, difference, family

BURN = "import time\nwhile time.process_time() < 0.3: pass"
IN_A_CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BURN!r}], check=True)"


def test_a_childs_seconds_count_once_whether_it_runs_or_has_ended():
    parent, child = Process(1, "pytest", 5.0, 1.0), Process(10, "postgres", 2.0, 0.5)
    running = {10: parent, 11: child}
    further = {10: parent, 11: Process(10, "postgres", 3.0, 0.5)}
    ended = {10: Process(1, "pytest", 5.0, 5.0)}
    assert difference({10: parent}, running).total() == 2.5
    assert difference(running, further) == {
        "pytest": 0,
        "children of pytest": 0,
        "postgres": 1,
        "children of postgres": 0,
    }
    assert difference(further, ended).total() == 0.5, "what it took since it was read last"


def test_a_grandchilds_seconds_count_once_when_it_ends_with_its_parent():
    before = {10: Process(1, "pytest", 5.0, 0.0), 11: Process(10, "serve", 1.0, 0.0), 12: Process(11, "web", 2.0, 0.0)}
    assert difference(before, {10: Process(1, "pytest", 5.0, 3.0)}).total() == 0


def test_the_seconds_of_a_process_that_runs_are_read():
    with subprocess.Popen(
        [sys.executable, "-c", f"{BURN}\nprint(flush=True)\ninput()"], stdin=-1, stdout=-1
    ) as burning:
        burning.stdout.readline()
        found = family(os.getpid())
        assert found[burning.pid].own >= 0.25
        assert found[burning.pid].parent == os.getpid()
        burning.communicate(b"\n")
    assert burning.pid not in family(os.getpid())


def test_a_part_says_its_seconds_with_those_of_what_it_started():
    run = Run("1", (sys.executable, "-c", IN_A_CHILD))
    run.start()
    while not run.has_ended():
        time.sleep(0.05)
    assert run.code == 0
    assert run.cpu_seconds >= 0.3


def test_the_costliest_files_come_first():
    lines = ["   9.5  tests/a.py 1 tests: pytest 9.5\n", "  31.0  tests/b.py 2 tests: pytest 31.0\n"]
    assert costliest(lines) == lines[::-1]
