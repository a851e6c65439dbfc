"""Guarded states: a transition is one UPDATE that names the states it may leave (see docs/explanation/states.md)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """Which states exist and which may follow which; a state with no successors is terminal and absorbs."""

    moves: Mapping[str, frozenset[str]]

    @property
    def terminal(self) -> frozenset[str]:
        """States that nothing leaves."""
        return frozenset(state for state, successors in self.moves.items() if not successors)

    @property
    def live(self) -> frozenset[str]:
        """States that something may leave."""
        return frozenset(self.moves) - self.terminal

    def sources(self, target: str) -> frozenset[str]:
        """States from which `target` may be reached in one move."""
        return frozenset(state for state, successors in self.moves.items() if target in successors)


def advance(rows: QuerySet[Any], lifecycle: Lifecycle, target: str, **changes: Any) -> int:
    """The number of rows that made the move to `target`; rows in any other state are left alone.

    Zero means stale: someone else was faster, or the row has ended. Callers drop the result quietly.
    """
    return rows.filter(state__in=lifecycle.sources(target)).update(state=target, **changes)
