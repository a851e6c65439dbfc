"""One run of pytest in a fork of this process, on a copy of the tree.

The fork shares what takes long to import: Django, NumPy and the solver. It imports the product's own modules from the copy.
"""

import importlib
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import copy2

import pytest

PRELOADED = (
    "_pytest.assertion.rewrite",
    "aiohttp",
    "celery",
    "cryptography.x509",
    "django.contrib.auth.hashers",
    "django.db.models",
    "django.template.defaulttags",
    "django.test",
    "httpx",
    "kubernetes.utils.quantity",
    "msgspec",
    "numpy",
    "ortools.sat.python.cp_model",
    "psycopg",
    "yaml",
)
MOST_MEMORY_BYTES = 6 * 1024**3
MOST_FILE_BYTES = 1024**3
WALL_SECONDS_FOR_EACH_OF_CPU = 15
"""How long a run may take on a busy host before it is taken for one that waits forever."""
PYTEST_OPTIONS = ("-q", "-p", "no:cacheprovider", "--timeout=0", "--hypothesis-profile=mutants", "-W")
PRELOADED_MODULES_ARE_NOT_REWRITTEN = "ignore::pytest.PytestAssertRewriteWarning"


@dataclass(frozen=True, slots=True)
class Run:
    """How a run ended: pytest's exit status (None if a limit ended it), what its plugins reported, and its output."""

    status: int | None
    reported: str
    output: str


@contextmanager
def copied(project: Path) -> Iterator[Path]:
    """A copy of the tree's own files, so that the tree itself is never changed."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=project,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    with tempfile.TemporaryDirectory(prefix="switchyard-mutants-", dir="/var/tmp") as folder:
        for name in filter(None, listed.split("\0")):
            source, target = project / name, Path(folder) / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                copy2(source, target)
        yield Path(folder)


def preload() -> None:
    for name in PRELOADED:
        importlib.import_module(name)


class Plugin:
    """A plugin of pytest whose reports reach the parent process."""

    _pipe: int

    def begin(self) -> None:
        """Called in the fork before pytest imports anything of the tree."""

    def report(self, text: str) -> None:
        written, data = 0, text.encode()
        while written < len(data):
            written += os.write(self._pipe, data[written:])


def run(tree: Path, arguments: Sequence[str], plugin: Plugin, *, cpu_seconds: int, keeps_bytecode: bool = False) -> Run:
    """Raises nothing whatever the tests do: a run beyond its limits is killed with all its processes."""
    reader, writer = os.pipe()
    with tempfile.TemporaryFile() as output, tempfile.TemporaryDirectory(prefix="switchyard-mutant-") as scratch:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            status = 70
            try:
                plugin._pipe = writer  # noqa: SLF001 - the fork's own end
                become_pytest(output.fileno(), scratch, cpu_seconds, keeps_bytecode=keeps_bytecode)
                plugin.begin()
                status = pytest_in(tree, arguments, plugin)
            except BaseException:  # noqa: BLE001 - whatever it is, a fork must not return as a second parent
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        os.close(writer)
        try:
            reported = read_all(reader, time.monotonic() + cpu_seconds * WALL_SECONDS_FOR_EACH_OF_CPU)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)
            _, waited = os.waitpid(child, 0)
        output.seek(0)
        status = os.waitstatus_to_exitcode(waited)
        return Run(status if status >= 0 else None, reported, output.read().decode(errors="replace"))


def read_all(reader: int, deadline: float) -> str:
    """What is written until the other end is closed or the time has passed."""
    read = bytearray()
    with os.fdopen(reader, "rb", buffering=0) as stream:
        while (left := deadline - time.monotonic()) > 0 and select.select([stream], [], [], left)[0]:
            block = stream.read(65536)
            if not block:
                break
            read += block
    return read.decode()


def become_pytest(output: int, scratch: str, cpu_seconds: int, *, keeps_bytecode: bool) -> None:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY_BYTES, MOST_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_FILE_BYTES, MOST_FILE_BYTES))
    # What tests write beside the tree is cleared away with the run, whatever a mutant makes of it.
    os.environ["TMPDIR"] = tempfile.tempdir = scratch
    # Two mutants of one module may have the same size and second: what one leaves compiled must not be taken for the other.
    sys.dont_write_bytecode = not keeps_bytecode


def pytest_in(tree: Path, arguments: Sequence[str], plugin: Plugin) -> int:
    from hypothesis import HealthCheck, Phase, settings  # noqa: PLC0415 - its plugin of pytest must come first elsewhere

    os.chdir(tree)
    sys.path[0] = str(tree)
    for name in [name for name in sys.modules if name.split(".")[0] in {"devtools", "tests"}]:
        del sys.modules[name]
    # Always the same examples, and none is made smaller: only whether one fails is of interest.
    settings.register_profile(
        "mutants",
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    options = [*PYTEST_OPTIONS, PRELOADED_MODULES_ARE_NOT_REWRITTEN]
    return int(pytest.main([*options, *arguments], plugins=[plugin]))
