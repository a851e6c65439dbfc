"""Defects to put into the gateway, one at a time: a simulation that is worth anything finds each of them.

Each mutant takes one guard of the protocol away, or puts a mended defect back. It has a swarm: the faults and jobs that concern
it. `make simulate ARGS="--mutant NAME"` runs seeds until it is found.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from devtools.simulation.core.swarm import ANY, Swarm


@dataclass(slots=True)
class Change:
    """Changes the gateway in this process and its database, and undoes it all."""

    _before: list[tuple[Any, str, Any]] = field(default_factory=list)
    _guards: list[tuple[str, str]] = field(default_factory=list)

    def put(self, module: Any, what: str, instead: Any) -> None:
        """Replaces an attribute of a module or class."""
        self._before.append((module, what, getattr(module, what)))
        setattr(module, what, instead)

    def cut(self, module: Any, what: str, part: str, instead: str = "") -> None:
        """Replaces a part of a statement."""
        text: str = getattr(module, what)
        assert part in text, f"the mutant's guard has changed: {part}"
        self.put(module, what, text.replace(part, instead))

    def disable(self, table: str, trigger: str) -> None:
        """Takes a guard of the database away too."""
        self._guards.append((table, trigger))
        _execute(f"ALTER TABLE {table} DISABLE TRIGGER {trigger}")

    def undo(self) -> None:
        """As it was."""
        for module, what, was in reversed(self._before):
            setattr(module, what, was)
        for table, trigger in self._guards:
            _execute(f"ALTER TABLE {table} ENABLE TRIGGER {trigger}")


def _execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
    connection.close()


Make = Callable[[Change], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A defect, and the swarm in which it is looked for."""

    make: Make
    swarm: Swarm
    guard: str = ""
    """The guard of the protocol model (`devtools/model/src/guards.rs`) whose mutant is the same defect; empty: it has none."""

    @property
    def does(self) -> str:
        """What is wrong, in one sentence."""
        return " ".join((self.make.__doc__ or "").split())


MUTANTS: dict[str, Mutant] = {}


def mutant(swarm: Swarm = ANY, *, guard: str = "") -> Callable[[Make], Make]:
    """Adds a mutant by the name of its function."""

    def add(make: Make) -> Make:
        MUTANTS[make.__name__.strip("_")] = Mutant(make, swarm, guard)
        return make

    return add


@contextmanager
def put_in(name: str, *, is_sound: bool = False) -> Iterator[Swarm]:
    """Puts the defect into this process for a while, unless it shall stay sound; its swarm."""
    from . import attacked, dispatch, evidence, mended, money, newer, protocol, usage  # noqa: F401, PLC0415 - they add theirs

    change = Change()
    try:
        if not is_sound:
            MUTANTS[name].make(change)
        yield MUTANTS[name].swarm
    finally:
        change.undo()


def names() -> list[str]:
    """All mutants."""
    from . import attacked, dispatch, evidence, mended, money, newer, protocol, usage  # noqa: F401, PLC0415 - they add theirs

    return list(MUTANTS)
