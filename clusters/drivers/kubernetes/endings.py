"""Why a container ended, and texts that clusters and programs write, as the port shows them."""

from collections.abc import Sequence
from typing import Protocol, TypedDict

LONGEST_TEXT = 300
LONGEST_ENDING = 60
MOST_SIGNAL = 64


class Ended(Protocol):
    """The state of a container that has ended."""

    exit_code: int
    signal: int
    reason: str
    message: str


class End(TypedDict, total=False):
    """The fields of a pod about its end."""

    ending: str
    signal: int | None
    message: str


def end_of(states: Sequence[Ended | None], said: str) -> End:
    """Of several containers the end of the first that failed, and what was `said` of the pod; empty while all run."""
    ended = [state for state in states if state is not None]
    if not ended:
        return {"message": line(said, LONGEST_TEXT)} if said else {}
    first = next((state for state in ended if state.exit_code), ended[0])
    return {
        "ending": line(first.reason, LONGEST_ENDING),
        "signal": first.signal if 0 < first.signal <= MOST_SIGNAL else None,
        "message": line(first.message or said, LONGEST_TEXT),
    }


def line(text: str, longest: int) -> str:
    """Text from a cluster as one printable line; programs may write anything into it."""
    cut = text[:longest]
    return cut if cut.isprintable() else "".join(letter if letter.isprintable() else " " for letter in cut)
