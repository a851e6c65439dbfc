"""What operators do: a process that carries out wishes one after the other, each until its outcome is known."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import Error, OperationalError, close_old_connections

from foundation.problems import Conflict, Problem

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

LATER_SECONDS = 10.0


@dataclass(eq=False, frozen=True, slots=True)
class Wish:
    """What operators want: in words, as an operation, and the action that the audit trail then has, if it always has."""

    what: str
    act: Callable[[], object]
    action: str = ""


class NotYet(Exception):
    """The wish cannot be fulfilled now: the operator tries it again later."""


@contextmanager
def later_after_a_conflict() -> Iterator[None]:
    """Raises NotYet for a Conflict."""
    try:
        yield
    except Conflict as conflict:
        raise NotYet(str(conflict)) from conflict


def operate(world: "World") -> None:
    """Carries out wishes for as long as the process lives."""
    while True:
        while world.wishes:
            _carry_out(world)
        world.scheduler.sleep(2)


def _carry_out(world: "World") -> None:
    wish = world.wishes[0]
    world.tell("operator", wish.what)
    close_old_connections()
    try:
        wish.act()
        if wish.action:
            world.fulfilled.append((world.scheduler.now_us, wish.action))
    except Problem as problem:
        world.tell("operator", f"is refused: {problem}")
    except NotYet as reason:
        world.tell("operator", f"has to wait: {reason}")
        world.waiting.append(wish)
        world.scheduler.after(LATER_SECONDS, lambda: _want_again(world, wish))
    except Error as error:
        world.tell("operator", f"never learns: {type(error).__name__}")
        if not isinstance(error, OperationalError):
            world.machine.unexpected.append(f"the operator {wish.what}, and the database refuses that: {error}")
        world.scheduler.sleep(1)
        return
    world.wishes.remove(wish)


def _want_again(world: "World", wish: Wish) -> None:
    world.waiting.remove(wish)
    world.wishes.append(wish)
