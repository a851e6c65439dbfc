"""How operators close dispatch, and open it when nothing is left to learn, or after they waited long enough."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from federation.operations.restoration import close_on_request, open_on_request
from federation.queries.standstill import standing
from tenancy.queries import SYSTEM

from .operators import NotYet, later_after_a_conflict

if TYPE_CHECKING:
    from devtools.simulation.worlds.world import World

MOST_REFUSALS = 60
"""After ten minutes of refusals, an operator answers for what is left."""
NOTE = {"note": "what is left was checked on its cluster"}


def close_dispatch(world: "World") -> None:
    """An operator begins a standstill while processes are in the middle of their work, and opens dispatch later."""
    body = {"reason": "maintenance"}
    world.wish("closes dispatch", lambda: close_on_request(SYSTEM, body))
    world.scheduler.after(world.faults.between(5, 60), lambda: world.wish("opens dispatch", opening()))


def looking_after() -> Callable[[], None]:
    """Leaves a standstill to the gateway while it says that it will end it, for ten minutes at most. Raises NotYet before its end."""
    asked, open_dispatch = 0, opening()

    def look() -> None:
        nonlocal asked
        asked += 1
        now = standing()
        if now.is_closed and not now.needs_operator and asked <= MOST_REFUSALS:
            raise NotYet("the gateway has not opened dispatch yet")
        if now.is_closed:
            open_dispatch()

    return look


def opening() -> Callable[[], None]:
    """Ends the standstill. It raises NotYet while something is left, until the operator answers for that."""
    asked = 0

    def open_dispatch() -> None:
        nonlocal asked
        asked += 1
        with later_after_a_conflict():
            open_on_request(SYSTEM, NOTE if asked > MOST_REFUSALS else {})

    return open_dispatch
