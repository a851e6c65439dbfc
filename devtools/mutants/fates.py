"""What became of each mutant, kept in the user's cache: a run that was interrupted continues where it stopped."""

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path

from devtools.wheels import cache_root


@dataclass(frozen=True, slots=True)
class Fate:
    """The test that caught a mutant, or the limit; empty if it survived. And the CPU seconds that it took to find out."""

    catcher: str
    cpu_seconds: float


class Fates:
    """Of mutants of exactly this tree: after any change of it, each is tried again."""

    def __init__(self, tree: Path) -> None:
        digest = sha256(repr(sys.version_info[:3]).encode())
        for path in sorted(path for path in tree.rglob("*") if path.is_file()):
            digest.update(f"{path.relative_to(tree)}\0{sha256(path.read_bytes()).hexdigest()}\n".encode())
        self._path = cache_root() / "mutants" / f"fates-{digest.hexdigest()[:32]}.jsonl"
        self._found = dict(self._read()) if self._path.exists() else dict[str, Fate]()

    def _read(self) -> Iterator[tuple[str, Fate]]:
        for line in self._path.read_text().splitlines():
            with suppress(ValueError):  # half of an entry, whose writer was interrupted
                entry = json.loads(line)
                yield entry["of"], Fate(entry["catcher"], entry["cpu_seconds"])

    def of(self, suite: str, mutant: str) -> Fate | None:
        """What an earlier run found, if it came so far."""
        return self._found.get(f"{suite} {mutant}")

    def keep(self, suite: str, mutant: str, fate: Fate) -> None:
        self._found[f"{suite} {mutant}"] = fate
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write("\n" + json.dumps({"of": f"{suite} {mutant}", **asdict(fate)}) + "\n")
