"""Recomputes the audit trail's hash chain: hash(n) = SHA-256(hash(n-1) + text of the entry), starting with 32 zero
bytes.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

START = bytes(32)


@dataclass(frozen=True, slots=True)
class LinkSeen:
    """A link as stored, with its entry's columns as text (None when the entry is gone)."""

    position: int
    hash: bytes
    entry_id: int
    columns: Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Anchor:
    """A head that was recorded elsewhere: the link at `position` had `hash`. Position 0 is before the first link."""

    position: int
    hash: bytes


BEGINNING = Anchor(0, START)


def text_of(columns: Iterable[str]) -> bytes:
    """The hashed text: every column, preceded by its length in bytes."""
    encoded = [column.encode() for column in columns]
    return b",".join(b"%d:%b" % (len(column), column) for column in encoded)


def faults_in(links: Iterable[LinkSeen], anchors: Sequence[Anchor] = (), *, after: Anchor = BEGINNING) -> Iterator[str]:
    """Errors in the chain, as text; none if it is intact. Links and anchors come in order of position.

    With `after`, the links begin after that one. After an error the stored hash is trusted, so that each error is
    reported once. A chain whose end was cut off is intact in itself: only an anchor shows the loss.
    """
    previous, expected = after.hash, after.position + 1
    awaited = iter([anchor for anchor in anchors if anchor.position > after.position])
    anchor = next(awaited, None)
    for link in links:
        if link.position != expected:
            yield f"position {expected}: {_missing(expected, link.position)}"
        elif link.columns is None:
            yield f"position {link.position}: entry {link.entry_id} was deleted"
        elif hashlib.sha256(previous + text_of(link.columns)).digest() != link.hash:
            yield f"position {link.position}: entry {link.entry_id} was edited or is out of order; it does not match its hash"
        while anchor is not None and anchor.position <= link.position:
            if anchor.position == link.position and anchor.hash != link.hash:
                yield f"position {link.position}: the hash is not the anchored one; the chain was rewritten"
            anchor = next(awaited, None)
        previous, expected = link.hash, link.position + 1
    if anchor is not None:
        last = [anchor, *awaited][-1]
        yield f"position {last.position}: anchored but absent; the chain ends at {expected - 1}, its tail was cut"


def judge_anchor(anchor: Anchor, seen: bytes | None, end: int, source: str) -> Iterator[str]:
    """The error if `source` recorded this anchor and the chain differs; `seen` is the hash that the chain has there
    now.
    """
    if anchor.position > end:
        yield (
            f"position {anchor.position}: {source} has it, but the chain ends at {end}; "
            "its tail was cut, or the database is older than that"
        )
    elif seen is None:
        yield f"position {anchor.position}: {source} has it, but its link is gone"
    elif seen != anchor.hash:
        yield f"position {anchor.position}: its hash differs from the one that {source} has; the chain was rewritten"


def _missing(first: int, following: int) -> str:
    return "1 link was deleted" if following == first + 1 else f"{following - first} links were deleted"
