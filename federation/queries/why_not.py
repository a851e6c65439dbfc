"""Why clusters do not accept a job, grouped by reason: the number of clusters, the nearest one, and the others'
messages.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

ROOM = re.compile(r"(?:free block is|room for|largest has|largest node has) (\d+(?:\.\d+)?)")
"""Matches the amount of room in a message of placement."""
NO_ROOM = Decimal(-1)


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Why the job does not run on one cluster now."""

    cluster: str
    code: str
    message: str
    is_for_good: bool


@dataclass(frozen=True, slots=True)
class Others:
    """Further clusters with the same reason. `message` is empty if it equals that of the nearest one."""

    message: str
    clusters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WhyNotGroup:
    """One reason with all its clusters: `nearest` has the most room of them, and its message is `message`."""

    code: str
    is_for_good: bool
    count: int
    nearest: str
    message: str
    others: tuple[Others, ...]

    @property
    def others_count(self) -> int:
        """The number of clusters besides the nearest."""
        return self.count - 1


def grouped(reasons: Iterable[WhyNot]) -> tuple[WhyNotGroup, ...]:
    """The reasons by code: temporary ones first, then by the number of clusters, descending."""
    groups: dict[tuple[bool, str], list[WhyNot]] = {}
    for why in reasons:
        groups.setdefault((why.is_for_good, why.code), []).append(why)
    ordered = sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]), item[0][1]))
    return tuple(_group(found) for _, found in ordered)


def headline(message: str, groups: Iterable[WhyNotGroup], instead: str) -> str:
    """The message, or `instead` if it only repeats the message of a group."""
    told = {text for group in groups for text in (group.message, *(others.message for others in group.others))}
    return instead if any(text and text in message for text in told) else message


def _group(found: list[WhyNot]) -> WhyNotGroup:
    nearest, *rest = sorted(found, key=lambda why: (-_room(why.message), why.cluster))
    by_message: dict[str, list[str]] = {}
    for why in rest:
        by_message.setdefault("" if why.message == nearest.message else why.message, []).append(why.cluster)
    others = tuple(Others(message, tuple(clusters)) for message, clusters in by_message.items())
    return WhyNotGroup(nearest.code, nearest.is_for_good, len(found), nearest.cluster, nearest.message, others)


def _room(message: str) -> Decimal:
    named = ROOM.search(message)
    return Decimal(named[1]) if named else NO_ROOM
