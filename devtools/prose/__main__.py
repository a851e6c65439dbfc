"""Finds words that CONTRIBUTING's list replaces, in documents, pages and Python files: `python -m devtools.prose [folder]`."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from devtools.prose import program, texts
from devtools.wheels import CannotBring

PROJECT = Path(__file__).resolve().parents[2]
SETTINGS = Path(__file__).with_name("vale.ini")
READERS: Mapping[str, Callable[[str], str]] = {".md": str, ".py": texts.of_python, ".html": texts.of_template}
"""How the prose of a kind of file is read; vale itself understands Markdown."""
NOT_READ = ("static/vendor/", "tests/")
"""Files of others; and tests, which contain such words as data."""


def main(root: Path = PROJECT) -> int:
    """Exit status: 1 if a word was found, or if vale is not available."""
    try:
        vale = program.locate()
    except CannotBring as failure:
        print(failure, file=sys.stderr)
        return 1
    found = list(findings(vale, root))
    for line in found:
        print(line)
    return 1 if found else 0


def findings(vale: Path, root: Path) -> Iterator[str]:
    """What vale finds in the files below `root` that git knows or would add: path, line, and what to write."""
    with tempfile.TemporaryDirectory() as folder:
        for path in _files(root):
            _write_prose(root / path, Path(folder) / path)
        argv: list[str | Path] = [vale, "--no-global", "--no-exit", "--config", SETTINGS, "--output", "JSON", "."]
        reported = json.loads(subprocess.run(argv, cwd=folder, stdout=subprocess.PIPE, check=True).stdout)
    for name in sorted(reported):
        for alert in reported[name]:
            yield f"{name.removesuffix('.txt')}:{alert['Line']}: {alert['Message']}"


def _files(root: Path) -> list[str]:
    argv = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(argv, cwd=root, stdout=subprocess.PIPE, text=True, check=True).stdout.split("\0")
    known = (name for name in names if Path(name).suffix in READERS and not name.startswith(NOT_READ))
    return [name for name in known if (root / name).exists()]


def _write_prose(path: Path, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy = copy if path.suffix == ".md" else copy.with_name(f"{copy.name}.txt")
    copy.write_text(READERS[path.suffix](path.read_text()))


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
