"""Guarded states: a transition is one UPDATE that names the states it may leave (see docs/explanation/states.md)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The states, and the successors of each; a state without successors is terminal and never changes."""

    moves: Mapping[str, frozenset[str]]

    @property
    def terminal(self) -> frozenset[str]:
        """States without successors."""
        return frozenset(state for state, successors in self.moves.items() if not successors)

    @property
    def live(self) -> frozenset[str]:
        """States with successors."""
        return frozenset(self.moves) - self.terminal

    def sources(self, target: str) -> frozenset[str]:
        """States from which `target` may be reached in one move."""
        return frozenset(state for state, successors in self.moves.items() if target in successors)


def advance(rows: QuerySet[Any], lifecycle: Lifecycle, target: str, **changes: Any) -> int:
    """The number of rows that moved to `target`; rows in any other state do not change.

    Zero means stale: another process moved the row first, or it has ended. Callers drop the result without an error.
    """
    return rows.filter(state__in=lifecycle.sources(target)).update(state=target, **changes)
