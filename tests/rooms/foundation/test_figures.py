"""Processes that count together: real forks, in a process of their own that may change how metrics are kept."""

import subprocess
import sys
from pathlib import Path

from devtools.serve import PROJECT

FAMILY = """
import os, signal, sys
from pathlib import Path
from foundation import figures
figures.share()
from prometheus_client import Counter
made = Counter("made", "What was made.", ["kind"])

def child(kind, stays):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        made.labels(kind).inc()
        os.write(write, b"x")
        if stays:
            signal.pause()
        os._exit(0)
    os.read(read, 1)
    return pid

made.labels("parent").inc(5)
children = [child("child", True) for _ in range(3)]
for pid in children:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
for _ in range(20):
    os.waitpid(child("successor", False), 0)
print(figures.counted().decode())
folder = Path(os.environ[figures.FOLDER_VARIABLE])
print("files", len(list(folder.glob("*.db"))))
print("folder", folder, flush=True)
if sys.argv[1:]:
    signal.pause()
"""


def family(*words):
    return subprocess.Popen([sys.executable, "-c", FAMILY, *words], cwd=PROJECT, stdout=subprocess.PIPE, text=True)


def folder_of(process):
    while True:
        word, _, rest = process.stdout.readline().partition(" ")
        assert word, "it ended before it said so"
        if word == "folder":
            return Path(rest.strip())


def test_all_that_a_family_counted_is_told_and_successors_count_on_in_the_same_files():
    said, _ = family().communicate(timeout=60)
    assert 'made_total{kind="parent"} 5.0' in said
    assert 'made_total{kind="child"} 3.0' in said
    assert 'made_total{kind="successor"} 20.0' in said
    # The parent's seat and at most three of children that lived at the same time.
    assert int(said.partition("files ")[2].split()[0]) <= 4
    assert not Path(said.partition("folder ")[2].strip()).exists()


def test_what_a_killed_process_left_is_removed_by_the_next_one_and_what_a_living_one_uses_is_not():
    killed, living = family("stays"), family("stays")
    try:
        left, used = folder_of(killed), folder_of(living)
        killed.kill()
        killed.wait()
        assert left.exists()
        family().communicate(timeout=60)
        assert not left.exists()
        assert used.exists()
    finally:
        for process in (killed, living):
            process.kill()
            process.communicate()
    family().communicate(timeout=60)
