"""`--cpu` prints at the end of a run which files of tests took the most CPU seconds, with all processes that they started;
`--cpu=tests` which tests.

The time of a run says little while other programs use the host, and `--durations` sees no server. A file's seconds are those
of the tests' own process and of its descendants from the test before the file to its last test. A fixture of the session counts
for the test that asked first, and what a server does later for the test that runs then.
"""

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

TICKS = os.sysconf("SC_CLK_TCK")
SHOWN = 40
PROGRAMS_SHOWN = 4
UTIME, STIME, CUTIME, CSTIME = 11, 12, 13, 14
"""Fields of /proc/PID/stat behind the name, in ticks."""


def pytest_addoption(parser):
    parser.addoption(
        "--cpu",
        nargs="?",
        const="files",
        choices=("files", "tests"),
        help="print what took the most CPU seconds, with its children",
    )


def pytest_configure(config):
    if config.getoption("--cpu"):
        config.pluginmanager.register(Costs(by_test=config.getoption("--cpu") == "tests"), "costs")


@dataclass(frozen=True)
class Process:
    """What it took itself, and what the children took that it waited for."""

    parent: int
    program: str
    own: float
    waited_for: float


class Costs:
    """CPU seconds by file or test, and by program."""

    def __init__(self, *, by_test: bool) -> None:
        self._by_test = by_test
        self._spent: dict[str, Counter[str]] = {}
        self._count: Counter[str] = Counter()
        self._before = family(os.getpid())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item, nextitem):
        result = yield
        name = self._name(item)
        self._count[name] += 1
        if nextitem is None or self._name(nextitem) != name:
            self._charge(name)
        return result

    def pytest_terminal_summary(self, terminalreporter):
        self._charge("(the end)")
        costs = {name: spent.total() for name, spent in self._spent.items()}
        terminalreporter.section(f"{sum(costs.values()):.1f} CPU seconds")
        for name in sorted(costs, key=costs.__getitem__, reverse=True)[:SHOWN]:
            count = "" if self._by_test else f" {self._count[name]} tests"
            terminalreporter.write_line(
                f"{costs[name]:7.1f}  {name}{count}: {_programs(self._spent[name], PROGRAMS_SHOWN)}"
            )
        terminalreporter.write_line(f"by program: {_programs(sum(self._spent.values(), Counter()), None)}")

    def _name(self, item):
        return item.nodeid if self._by_test else item.nodeid.partition("::")[0]

    def _charge(self, name):
        after = family(os.getpid())
        self._spent.setdefault(name, Counter()).update(difference(self._before, after))
        self._before = after


def _programs(spent, most):
    return ", ".join(f"{program} {seconds:.1f}" for program, seconds in spent.most_common(most) if seconds >= 0.05)


def difference(before, after):
    """The seconds between two readings, by program. What ended, and was read before, is in what its ancestor waited for."""
    spent = Counter()
    for pid, process in after.items():
        was = before.get(pid, Process(0, "", 0.0, 0.0))
        spent[process.program] += process.own - was.own
        spent[f"children of {process.program}"] += process.waited_for - was.waited_for
    for pid in before.keys() - after.keys():
        living = before[pid].parent
        while living not in after and living in before:
            living = before[living].parent
        if living in after:
            spent[f"children of {after[living].program}"] -= before[pid].own + before[pid].waited_for
    return spent


def family(root):
    """The living processes of a tree, by id."""
    found = {}
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and (fields := _stat(folder)):
            pid, parent = int(folder.name), int(fields[1])
            found[pid] = fields
            children.setdefault(parent, []).append(pid)
    ours, left = {}, [root]
    while left:
        pid = left.pop()
        if pid in found:
            ours[pid] = _process(pid, found[pid])
            left += children.get(pid, [])
    return ours


def _stat(folder):
    try:
        return (folder / "stat").read_text(errors="replace").rpartition(") ")[2].split()
    except OSError:  # it ended
        return None


def _process(pid, fields):
    ticks = [int(fields[at]) for at in (UTIME, STIME, CUTIME, CSTIME)]
    return Process(int(fields[1]), _program(pid), (ticks[0] + ticks[1]) / TICKS, (ticks[2] + ticks[3]) / TICKS)


def _program(pid):
    """Its name; of a Python program the module or script with its first argument."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return "ended"
    name = Path(words[0].split(" ")[0].rstrip(":")).name
    if not name.startswith("python"):
        return name or "ended"
    named = [Path(word).name for word in words[1:] if word and not word.startswith("-")]
    return " ".join(named[: 2 if named[:1] == ["manage.py"] else 1]) or name
