"""What mypy learned, kept for the next copy of the project: to check all types takes most of a minute of a core without it.

mypy compares each file's content with what it knows, so that a copy of another state costs only what differs. A copy of the
project that was checked before has its cache already, and nothing is brought or kept.
"""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from devtools import wheels

PROJECT = Path(__file__).resolve().parent.parent
OWN = ".mypy_cache"


def kept() -> Path:
    """The folder of what this version of mypy learned with this Python."""
    return wheels.cache_root() / "mypy" / f"{version('mypy')}-{sys.version_info.major}.{sys.version_info.minor}"


@contextmanager
def brought(project: Path = PROJECT) -> Iterator[None]:
    """Gives a new copy of the project what was learned in another one, and then keeps what it knows."""
    own = project / OWN
    if own.exists():
        yield
        return
    folder = kept()
    with wheels.alone(folder.with_name(f"{folder.name}.lock")):
        if folder.exists():
            _copy(folder, own)
    yield
    if own.exists():
        with wheels.alone(folder.with_name(f"{folder.name}.lock")):
            _copy(own, folder)
            for other in folder.parent.iterdir():  # of other versions
                if other.is_dir() and other != folder:
                    shutil.rmtree(other)


def _copy(source: Path, target: Path) -> None:
    """Complete or not at all: what a killed process left has another name."""
    partial, old = (target.with_name(f"{target.name}.{word}") for word in ("partial", "old"))
    for left in (partial, old):
        shutil.rmtree(left, ignore_errors=True)
    shutil.copytree(source, partial)
    if target.exists():
        target.rename(old)
    partial.rename(target)
    shutil.rmtree(old, ignore_errors=True)
