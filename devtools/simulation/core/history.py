"""What happened in a run, for judges and people."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .scheduler import MICROSECONDS

LOCK = "waits for a lock"
"""Too frequent for people."""


@dataclass(slots=True)
class Asked:
    """What a client asked, and the result that it got: `ok`, `refused` or `unknown` (it never learned)."""

    client: str
    what: str
    subject: str
    from_us: int
    to_us: int = 0
    answer: str = "unknown"
    told: Any = None
    replayed: bool | None = False
    """Whether the answer was that of an earlier request; None if the client could not see that."""
    state: str = ""
    """In which state the job was, if it was too late to cancel it."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A request of the gateway that changes a Job, when it was sent. `uid` is empty for a Job that is created."""

    at_us: int
    cluster: str
    what: str
    uid: str


@dataclass(slots=True)
class History:
    """Everything that judges read beside the database."""

    began_us: int
    asked: list[Asked] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    timeline: list[tuple[int, str, str]] = field(default_factory=list)

    def tell(self, at_us: int, who: str, what: str) -> None:
        """Adds a line to the timeline."""
        self.timeline.append((at_us, who, what))

    def add_changes(self, changes: list[tuple[int, str, str, str | None, str]]) -> None:
        """Adds what the gateway committed to the timeline; what was committed in one step is one line."""
        by_time: dict[int, list[str]] = {}
        for at_us, name, _, before, after in changes:
            by_time.setdefault(at_us, []).append(f"{name}: {before} → {after}" if before else f"{name}: {after}")
        self.timeline += [(at_us, "gateway", "; ".join(words)) for at_us, words in by_time.items()]
        self.timeline.sort(key=lambda line: line[0])

    def lines(self) -> list[str]:
        """The timeline for people."""
        return [
            f"{(at - self.began_us) / MICROSECONDS:10.4f}  {who:<24} {what}"
            for at, who, what in self.timeline
            if what != LOCK
        ]

    def write(self, path: Path, runs: list[Any], changes: list[tuple[Any, ...]]) -> None:
        """JSON lines: what clients asked, what ran on clusters, what was committed, and all that was said."""
        with path.open("w", encoding="utf-8") as out:
            for kind, rows in (
                ("asked", [_plain(one) for one in self.asked]),
                ("ran", [_plain(one) for one in runs]),
                (
                    "committed",
                    [dict(zip(("at", "what", "id", "before", "after"), row, strict=True)) for row in changes],
                ),
                ("said", [{"at": at, "who": who, "what": what} for at, who, what in self.timeline]),
            ):
                for row in rows:
                    out.write(json.dumps({"kind": kind, **row}, default=str) + "\n")


def _plain(thing: Any) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in thing.__slots__}
