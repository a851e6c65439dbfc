"""A fork ends with its parent, also if that ended before the fork could say so to the kernel."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ORPHAN = """
import os, time
os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
from foundation.processes import die_with_parent
parent = os.getpid()
if os.fork() == 0:
    print(os.getpid(), flush=True)
    while os.getppid() == parent:
        time.sleep(0.01)
    die_with_parent({parent})
    time.sleep(60)
os._exit(0)
"""


def outlives(parent, seconds):
    command = [sys.executable, "-c", ORPHAN.format(parent=parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forks:
        assert forks.stdout is not None
        orphan = int(forks.stdout.readline())
        forks.wait()
    deadline = time.monotonic() + seconds
    while is_there := Path(f"/proc/{orphan}/cmdline").exists():
        if time.monotonic() > deadline:
            os.kill(orphan, signal.SIGKILL)
            break
        time.sleep(0.02)
    return is_there


def test_a_fork_whose_parent_ended_before_ends_too():
    assert not outlives("parent", 20)


def test_without_the_parents_pid_it_would_remain():
    assert outlives("", 0.5)
