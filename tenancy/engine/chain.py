"""The audit trail's hash chain, recomputed: hash(n) = SHA-256(hash(n-1) + text of the entry), from 32 zero bytes on."""

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
    """A head that somebody wrote down elsewhere: the link at `position` had `hash`."""

    position: int
    hash: bytes


def text_of(columns: Iterable[str]) -> bytes:
    """The hashed text: every column with its length in bytes before it."""
    encoded = [column.encode() for column in columns]
    return b",".join(b"%d:%b" % (len(column), column) for column in encoded)


def faults_in(links: Iterable[LinkSeen], anchor: Anchor | None = None) -> Iterator[str]:
    """What is wrong with the chain, in words; nothing when it is whole. Links come by position.

    After a fault the stored hash is trusted, so that each fault is told once. A tail that was cut off leaves a chain
    that is whole in itself: only an anchor shows it.
    """
    previous, expected = START, 1
    met_anchor = anchor is None
    for link in links:
        if link.position != expected:
            yield f"position {expected}: {_missing(expected, link.position)}"
        elif link.columns is None:
            yield f"position {link.position}: entry {link.entry_id} was deleted"
        elif hashlib.sha256(previous + text_of(link.columns)).digest() != link.hash:
            yield f"position {link.position}: entry {link.entry_id} was edited or is out of order; it does not match its hash"
        if anchor is not None and link.position == anchor.position:
            met_anchor = True
            if link.hash != anchor.hash:
                yield f"position {link.position}: the hash is not the anchored one; the chain was rewritten"
        previous, expected = link.hash, link.position + 1
    if anchor is not None and not met_anchor:
        yield f"position {anchor.position}: anchored but absent; the chain ends at {expected - 1}, its tail was cut"


def _missing(first: int, following: int) -> str:
    return "1 link was deleted" if following == first + 1 else f"{following - first} links were deleted"
