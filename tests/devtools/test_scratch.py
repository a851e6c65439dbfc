"""Files of servers of tests are in memory only where there is room for them, and do not stay there."""

import os
import time

import pytest

from devtools import scratch

ENOUGH = f"MemAvailable:   {scratch.ROOM_BYTES // 1024} kB\n"


@pytest.fixture
def host(tmp_path, monkeypatch):
    """Makes a host of these figures: bytes that its file system in memory takes, and what it says of its memory."""
    for name in ("memory", "disk"):
        (tmp_path / name).mkdir()
        monkeypatch.setattr(scratch, name.upper(), tmp_path / name)

    def made(free, available):
        figures = os.statvfs_result((4096, 4096, 0, 0, free // 4096, 0, 0, 0, 0, 255))
        monkeypatch.setattr(os, "statvfs", {tmp_path / "memory": figures}.__getitem__)
        monkeypatch.setattr(scratch, "FIGURES", tmp_path / "meminfo")
        (tmp_path / "meminfo").write_text(f"MemTotal:       99999999 kB\n{available}Cached:  1 kB\n")

    return made


def test_where_there_is_room_for_all_parts_they_are_in_memory_and_servers_of_other_users_enter(host):
    host(scratch.ROOM_BYTES, ENOUGH)
    one, other = scratch.scratch_folder("one"), scratch.scratch_folder("one")
    assert one != other
    assert (one.parent, one.stat().st_mode & 0o777) == (scratch.MEMORY, 0o755)


@pytest.mark.parametrize(
    ("free", "available"),
    [
        (64 * 2**20, ENOUGH),  # what Docker gives a container
        (2**40, f"MemAvailable:   {scratch.ROOM_BYTES // 1024 - 1} kB\n"),
        (2**40, ""),
    ],
)
def test_a_host_that_lacks_room_or_does_not_say_what_it_has_keeps_them_on_its_disk(host, free, available):
    host(free, available)
    assert scratch.scratch_folder("one").parent == scratch.DISK


def test_a_host_without_such_a_file_system_keeps_them_on_its_disk(host, monkeypatch, tmp_path):
    monkeypatch.setattr(scratch, "MEMORY", tmp_path / "nowhere")
    assert scratch.scratch_folder("one").parent == scratch.DISK


def test_what_a_killed_run_left_is_removed_and_nothing_else(host):
    host(scratch.ROOM_BYTES, ENOUGH)
    long_ago = time.time() - scratch.LONGEST_SECONDS - 60
    left, running = scratch.scratch_folder("left"), scratch.scratch_folder("running")
    foreign = scratch.MEMORY / "switchyard-figures-1"
    foreign.mkdir()
    for folder in (left, foreign):
        os.utime(folder, (long_ago, long_ago))
    scratch.scratch_folder("next")
    assert [path.exists() for path in (left, running, foreign)] == [False, True, True]
