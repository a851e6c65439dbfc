"""Commands in forks of one process: each as if `manage.py` had been started for it."""

import os
import signal
import subprocess
import sys
import threading

import psutil
import pytest

from devtools.commands import Commands
from devtools.serve import PROJECT
from tests.processes.conftest import wait_for


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    found = Commands(os.environ, tmp_path_factory.mktemp("commands") / "log")
    yield found
    found.close()


def python(commands, source):
    """A command that runs a few lines."""
    return commands.run("shell", "--no-imports", "--command", source)


@pytest.mark.parametrize(
    "arguments",
    [("check_routines", "no-such"), ("no-such-command",), ("verify_audit", "--anchor", "x")],
)
def test_a_command_says_and_returns_what_it_does_in_a_process_of_its_own(commands, arguments):
    alone = subprocess.run(
        [sys.executable, "manage.py", *arguments], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    done = commands.run(*arguments)
    assert (done.code, done.output, done.errors) == (alone.returncode, alone.stdout, alone.stderr)


def test_nothing_of_a_command_is_left_for_the_next_one(commands):
    assert (
        python(commands, "import os; from foundation import clock; clock.now = None; os.environ['X'] = '1'").code == 0
    )
    done = python(commands, "import os; from foundation import clock; print(clock.now, os.environ.get('X'))")
    assert "None None" not in done.output
    assert done.output.rstrip().endswith(" None")


def test_a_command_that_fails_or_is_killed_is_told_and_the_next_one_runs(commands):
    failed = python(commands, "raise ValueError('on purpose')")
    assert failed.code == 1
    assert "ValueError: on purpose" in failed.errors
    assert python(commands, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)").code == -signal.SIGKILL
    assert python(commands, "raise SystemExit(7)").code == 7
    assert python(commands, "import sys; print(len(sys.stdin.read()))").output == "0\n"


def test_another_environment_needs_other_commands(commands):
    same = {**os.environ, "PYTEST_CURRENT_TEST": "another"}
    assert commands.are_of(same)
    assert not commands.are_of(same | {"SWITCHYARD_INSTALL_ID": "another"})


def test_an_interrupted_request_leaves_no_answer_for_the_next_one(tmp_path):
    class Interrupted(Exception):
        """As a test's time limit raises."""

    def interrupt(*_):
        raise Interrupted

    commands = Commands(os.environ, tmp_path / "log")
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        commands.run("check")
        threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGUSR1]).start()
        with pytest.raises(Interrupted):
            python(commands, "import time; time.sleep(600)")
        wait_for(lambda: not commands.are_of(os.environ), "it can run nothing more")
    finally:
        signal.signal(signal.SIGUSR1, before)
        commands.close()


def test_a_killed_caller_leaves_no_process_and_no_command(tmp_path):
    script = (
        "import os, pathlib; from devtools.commands import Commands\n"
        f"commands = Commands(os.environ, pathlib.Path({str(tmp_path / 'log')!r}))\n"
        "commands.run('shell', '--no-imports', '--command', 'import time; time.sleep(600)')"
    )
    caller = subprocess.Popen([sys.executable, "-c", script], cwd=PROJECT)

    def family():
        return psutil.Process(caller.pid).children(recursive=True)

    try:
        wait_for(lambda: len(family()) == 2, "the command runs")
        left = family()
    finally:
        caller.kill()
        caller.wait()
    _, alive = psutil.wait_procs(left, timeout=15)
    assert not alive
